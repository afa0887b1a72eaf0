"""How properties are tested: seeds, numbers of examples, and how near a float64 has to come."""

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st

few, many = (settings(max_examples=count, deadline=None) for count in (25, 100))
seeds = st.integers(0, 2**32 - 1)
near = partial(pytest.approx, rel=1e-9, abs=1e-10)
