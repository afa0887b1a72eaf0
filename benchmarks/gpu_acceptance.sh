#!/bin/sh
# Is every model right on this GPU, how fast, in how much memory? Ten minutes at most:
#   benchmarks/gpu_acceptance.sh gpu.md
# Needs PyTorch, NumPy, SciPy and pandas, and transformers for paper 02; PYTHON names the interpreter.
here=$(dirname "$0")
PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python3}" "$here/gpu_acceptance.py" "$@"
