"""The benchmarks still run, and time two ways to the same answer."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles import similarity

from mmlib.links import STRUCTURED

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def bench_links():
    spec = importlib.util.spec_from_file_location("bench_links", FOLDER / "bench_links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_prints_a_row_for_each_similarity_and_shape(bench_links, capsys):
    bench_links.main(["--quick"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 2 * len(STRUCTURED)
    for row in rows:
        assert all(float(number) > 0 for number in row.strip("| ").split(" | ")[3:])


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (1, 1)])
def test_the_plain_loop_is_right(bench_links, name, shape):
    matrix = np.random.default_rng(0).uniform(-1, 1, shape)
    found = bench_links.of_pair(torch.from_numpy(matrix), name)
    assert found.item() == pytest.approx(similarity(matrix, name))


def test_unequal_answers_are_not_timed(bench_links, monkeypatch):
    right = bench_links.of_pair
    monkeypatch.setattr(bench_links, "of_pair", lambda block, name: right(block, name) + 0.01)
    with pytest.raises(AssertionError, match="differ"):
        bench_links.main(["--quick"])
