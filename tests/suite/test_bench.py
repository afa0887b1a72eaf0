"""The benchmarks still run, and time two ways to the same answer."""

import os
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
from oracles import similarity

from mmlib.papers.links.run import SYSTEMS

STRUCTURED = tuple(name for name in SYSTEMS if name != "NoStruct")
FOLDER = Path(__file__).parents[2] / "benchmarks"


with pytest.MonkeyPatch.context() as patch:  # they find what they share beside them
    patch.syspath_prepend(str(FOLDER))
    scripts = {path.stem: import_module(path.stem) for path in FOLDER.glob("*.py")}
bench_cora, bench_links, coco_sized, gpu_acceptance, measure = (
    scripts[name]
    for name in ("bench_cora", "bench_links", "coco_sized", "gpu_acceptance", "measure")
)


def rows_of(printed):
    """The cells of all lines of Markdown tables, headers included."""
    lines = [line for line in printed.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def test_it_prints_a_row_for_each_similarity_and_shape(capsys):
    bench_links.main(["--quick"])
    rows = rows_of(capsys.readouterr().out)[1:]
    assert len(rows) == 2 * len(STRUCTURED)
    for row in rows:
        assert all(float(number) > 0 for number in row[3:])


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (1, 1)])
def test_the_plain_loop_is_right(name, shape):
    matrix = np.random.default_rng(0).uniform(-1, 1, shape)
    found = bench_links.of_pair(torch.from_numpy(matrix), name)
    assert found.item() == pytest.approx(similarity(matrix, name))


# --- CORA -----------------------------------------------------------------------------------------


def test_a_step_and_a_query_of_cora(capsys):
    bench_cora.main(["--quick"])
    rows = rows_of(capsys.readouterr().out)
    assert [len(row) for row in rows] == [7] * 5 + [8] * 5
    steps, stages = rows[1:5], rows[6:]
    assert all(float(number) > 0 for row in steps for number in row[1:])
    assert [row[0] for row in stages] == ["parse", "encode", "search", "all"]
    for column in range(2, 8):
        taken = [float(row[column]) for row in stages]
        assert taken[-1] > max(taken[:-1])
    layer = steps[0]
    assert float(layer[4]) > float(layer[2])  # node pairs take memory


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


def test_codes_find_what_a_loop_over_all_vectors_finds():
    rng = np.random.default_rng(0)
    vectors = bench_cora.unit(rng.standard_normal((600, 16), dtype=np.float32))
    codes = bench_cora.Codes(vectors, near=600)  # all are scored exactly
    for query in bench_cora.unit(rng.standard_normal((5, 16), dtype=np.float32)):
        cosines = [float(np.dot(vector, query)) for vector in vectors]
        assert codes.search(query).tolist() == np.argsort(cosines)[::-1][:10].tolist()


def test_files_of_the_size_of_coco(capsys):
    coco_sized.main(["--quick"])
    stages, steps = np.split(np.array(rows_of(capsys.readouterr().out), dtype=object), [6])
    assert [row[0] for row in stages[-2:]] == ["fingerprint", "10 batches of 16"]
    peaks = [float(row[3].replace(",", "")) for row in stages[1:]]
    assert 0 < peaks[0] <= peaks[-1]
    assert [row[0] for row in steps[1:]] == ["in between", "ahead"]
    assert all(float(row[1]) >= float(row[2]) >= 0 for row in steps[1:])


@pytest.mark.parametrize(("form", "layers"), [("printed", (1, 2)), ("authors", (2, 1))])
def test_the_dense_form_is_the_same_model(form, layers):
    settings, split = bench_cora.Settings(width=8, heads=2, word_width=6), tiny_cora.paired()
    changes = {"attribute_layers": layers[0], "object_layers": layers[1], "attention": form}
    model = tiny_cora.model_of(settings, **changes)
    dense, batch = bench_cora.dense_of(model), tiny_cora.drawn_batch(split, settings)
    bench_cora.check(model, dense, batch)
    for layer in model.texts.objects:
        bench_cora.check_layer(layer, batch.text, 13)
    assert torch.get_default_dtype() == torch.float32
    assert all(a is b for a, b in zip(model.parameters(), dense.parameters(), strict=True))


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
