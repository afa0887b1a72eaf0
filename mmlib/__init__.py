"""Image-text learning, paper by paper: the code that the numbered notebooks show and use."""

import os

__version__ = "0.1.0"

# The same instructions on every x86-64 processor with AVX2, so that a seed gives one figure where
# sums are ordered alike, too. They are read when PyTorch, MKL and oneDNN first compute.
for _name, _value in (
    ("ATEN_CPU_CAPABILITY", "avx2"),
    ("MKL_CBWR", "AVX2"),
    ("ONEDNN_MAX_CPU_ISA", "AVX2"),
):
    os.environ.setdefault(_name, _value)
