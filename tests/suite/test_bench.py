"""The benchmarks still run, and time two ways to the same answer."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import tiny_cora
import tiny_links
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

FOLDER = Path(__file__).parents[2] / "benchmarks"


with pytest.MonkeyPatch.context() as patch:  # they find what they share beside them
    patch.syspath_prepend(str(FOLDER))
    scripts = {path.stem: import_module(path.stem) for path in FOLDER.glob("*.py")}
bench_cora, gpu_acceptance = scripts["bench_cora"], scripts["gpu_acceptance"]


def rows_of(printed):
    """The cells of all lines of Markdown tables, headers included."""
    lines = [line for line in printed.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


# Rows of numbers that a benchmark prints, after it compared the answers of its two ways.
PRINTED = {"bench_links": 10, "bench_cora": 8, "bench_retrieval": 8, "bench_scenegraph": 3,
           "coco_sized": 7}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_a_benchmark_runs_and_prints_its_numbers(name, monkeypatch, capsys):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    scripts[name].main(["--quick"])
    rows = [re.findall(r"\d+\.\d+", " ".join(row)) for row in rows_of(capsys.readouterr().out)]
    assert len(list(filter(None, rows))) == PRINTED[name]


def test_a_benchmark_whose_two_ways_differ_says_so(monkeypatch):
    bench, right = scripts["bench_retrieval"], scripts["bench_retrieval"].by_scanning
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(bench, "by_scanning", lambda *args: (right(*args) + 1) % 2000)
    with pytest.raises(AssertionError, match="the index and the scan differ"):
        bench.main(["--quick"])


MARKS = (tiny_cora.CLS, tiny_cora.SEP)


@given(described=tiny_cora.descriptions(), bits=st.booleans())
@settings(max_examples=30, deadline=None)
def test_one_caption_alone_has_the_vectors_of_the_model(described, bits):
    torch.manual_seed(0)
    model = tiny_cora.model_of().eval()
    batch = tiny_cora.whole([described])
    exact = model.encode_texts(batch)
    alone = bench_cora.prepared(model, MARKS, bits).encode_texts(batch)
    for one, other in zip(alone, exact, strict=True):
        if bits:
            assert torch.cosine_similarity(one, other).min() > 0.99
        else:
            torch.testing.assert_close(one, other)


# --- On a GPU -------------------------------------------------------------------------------------

# What a machine with PyTorch, NumPy, SciPy, pandas and transformers lacks.
NOT_THERE = """
import sys
names = '''spacy gensim papermill pooch joblib pyarrow sklearn statsmodels nltk faiss
matplotlib'''
sys.modules.update(dict.fromkeys(names.split()))
"""


def test_every_paper_is_accepted_on_a_bare_machine(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOT_THERE)
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(tmp_path)}
    env["OMP_WAIT_POLICY"] = "passive"  # on busy cores, threads that wait by spinning take minutes
    script, out = FOLDER / "gpu_acceptance.sh", tmp_path / "gpu.md"
    subprocess.run([script, out, "--device", "cpu", "--tiny"], check=True, env=env)
    _, *rows = rows_of(out.read_text())
    assert [row[0] for row in rows] == ["01", "02", "03", "04"]
    for _, *differences, rate, peak, _ in rows:
        assert all(0 <= float(value) < 1e-4 for value in differences)
        assert float(rate) > 0
        assert float(peak) > 0


def test_a_device_that_computes_wrong_is_found_out(monkeypatch, tmp_path):
    right = gpu_acceptance.values

    def wrong(make, tiny, device):  # half a percent, wherever there are two threads
        grown = 1.005 if torch.get_num_threads() == 2 else 1.0
        return {name: grown * value for name, value in right(make, tiny, device).items()}

    monkeypatch.setattr(gpu_acceptance, "values", wrong)
    monkeypatch.setattr(gpu_acceptance, "PAPERS", {"04": gpu_acceptance.links})
    out = tmp_path / "gpu.md"
    assert gpu_acceptance.main([str(out), "--device", "cpu", "--tiny"]) == 1
    assert [cell[-1] for cell in rows_of(out.read_text())[1][1:4]] == ["!", "!", "!"]


def test_what_trainings_read_comes_back_and_nothing_else_is_unpickled(tmp_path):
    arrays, job = tiny_links.tiny({"train": 20}), tiny_links.job(tiny_links.TRAINED["AP"])
    cora, cora_job = tiny_cora.tiny(6, 4), tiny_cora.job("CORA")
    path = tmp_path / "kept.pt"
    torch.save({"arrays": arrays, "job": job, "cora": cora, "cora job": cora_job}, path)
    found = gpu_acceptance.read(path)
    assert found["job"] == job
    assert found["cora job"] == cora_job
    assert found["cora"].fingerprint == cora.fingerprint
    pairs = [(found["arrays"].words, arrays.words)]
    links = (one.splits["train"].links for one in (found["arrays"], arrays))
    pairs += zip(*links, strict=True)
    assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)
    for harm in (lambda: torch.save({"offset": os.getcwd}, path), lambda: path.write_bytes(b"PK")):
        harm()
        with pytest.raises(ValueError, match=r"kept\.pt: damaged or not ours"):
            gpu_acceptance.read(path)
