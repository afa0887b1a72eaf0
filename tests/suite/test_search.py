"""Searching in a folder: against brute force, refreshed, damaged, and the page that shows it."""

import errno
import os
import re
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from bs4 import BeautifulSoup
from PIL import Image
from safetensors.numpy import load_file
from safetensors.torch import save_file
from scripts import REFUSED, run_page, until
from test_backbones import build as hugging_face_model

from mmlib.core.errors import DataError
from mmlib.core.files import write_tensors
from mmlib.suite import cli, encoders, search

FUNCTIONS = """
import numpy as np
import torch


def encode_images(pictures):
    return np.stack([np.asarray(p.convert("RGB"), float).mean((0, 1)) + 1 for p in pictures])


def encode_texts(texts):
    return np.array([[255.0 * (c in text) + 1 for c in ("red", "green", "blue")] for text in texts])
"""
COLOURS = {"red": (250, 5, 5), "deep/green": (5, 200, 5), "blue": (5, 5, 220), "grey": (90, 90, 90)}


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder of pictures of one colour each, and encoders that see colours."""
    monkeypatch.chdir(tmp_path)
    for name in ("beside", "helper"):  # modules of another test's folder
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("colours.py").write_text(FUNCTIONS, encoding="utf-8")
    folder = tmp_path / "photos"
    for name, colour in COLOURS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), colour).save(folder / f"{name}.png")
    return folder


def test_ranks_are_those_of_cosines_by_hand(photos):
    Image.new("RGB", (9, 9), COLOURS["red"]).save(photos / "equal.png")  # in the order of names
    found = search.folder(photos, "colours.py").find("a red and blue thing", k=4)
    cosines = {}
    for name, colour in {"equal": COLOURS["red"], **COLOURS}.items():
        a, b = [c + 1 for c in colour], [256, 1, 256]
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        cosines[f"{name}.png"] = dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5
    wanted = sorted(cosines, key=lambda name: -cosines[name])[:4]
    assert found.table.picture.tolist() == wanted
    np.testing.assert_allclose(found.table.score, [cosines[name] for name in wanted], rtol=1e-5)
    assert str(found).splitlines()[0].split() == ["1", f"{cosines[wanted[0]]:.2f}", wanted[0]]


def test_only_new_and_changed_pictures_are_encoded_again_by_each_model(photos):
    index = search.folder(photos, "colours.py")
    assert index.encoded == 4
    again = search.folder(photos, "colours.py")
    assert again.encoded == 0
    assert again.files == index.files == ("blue.png", "deep/green.png", "grey.png", "red.png")
    np.testing.assert_array_equal(again.vectors, index.vectors)
    Path("other.py").write_text(FUNCTIONS + "\n# another\n", encoding="utf-8")
    assert search.folder(photos, "other.py").encoded == 4
    kept = search.folder(photos, "colours.py")
    assert kept.encoded == 0
    np.testing.assert_array_equal(kept.vectors, index.vectors)
    elsewhere = photos.parent / "kept"
    for count in (4, 0):
        assert search.folder(photos, "colours.py", elsewhere).encoded == count
    assert [p.name.startswith("photos-") for p in elsewhere.iterdir()] == [True]
    assert len(list(photos.glob(".mmlib-*.safetensors"))) == 2


def put(path, colour):
    """A picture whose file has the size and time of the one before, as a picture restored has."""
    before = path.stat() if path.exists() else None
    Image.new("RGB", (40, 30), colour).save(path)
    if before:
        assert path.stat().st_size == before.st_size
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swapped(folder):
    (folder / "a.bmp").rename(folder / "c.bmp")
    (folder / "b.bmp").rename(folder / "a.bmp")
    (folder / "c.bmp").rename(folder / "b.bmp")


CHANGES = [  # what becomes of a.bmp, how many are encoded then, whether a sheet can show it
    (lambda folder: put(folder / "a.bmp", "blue"), 1, False),
    (lambda folder: put(folder / "new.bmp", "blue"), 1, True),
    (lambda folder: (folder / "a.bmp").rename(folder / "z.bmp"), 0, False),
    (lambda folder: (folder / "a.bmp").rename(folder / "deep" / "a.bmp"), 0, False),
    (lambda folder: (folder / "a.bmp").unlink(), 0, False),
    (lambda folder: shutil.copy2(folder / "b.bmp", folder / "a.bmp"), 0, False),
    (lambda folder: (folder / "a.bmp").unlink() or os.mkfifo(folder / "a.bmp"), 0, False),
    (swapped, 0, False),
    (lambda folder: os.utime(folder / "a.bmp"), 0, True),
    (lambda folder: os.mkfifo(folder / "c.bmp"), 0, True),
]


@pytest.mark.parametrize(("change", "encoded", "shown"), CHANGES)
def test_vectors_are_those_of_the_pictures_as_they_are_now(photos, change, encoded, shown):
    put(photos / "a.bmp", "red")
    put(photos / "b.bmp", "lime")
    found = search.folder(photos, "colours.py").find("red", k=9)
    change(photos)
    again, fresh = (search.folder(photos, "colours.py", i) for i in (None, photos.parent / "new"))
    assert (again.files, again.encoded) == (fresh.files, encoded)
    np.testing.assert_array_equal(again.vectors, fresh.vectors)
    with nullcontext() if shown else pytest.raises(DataError, match=r"[ab]\.bmp: "):
        found.save("sheet.html")
    assert Path("sheet.html").exists() == shown


WEIGHTS = np.random.default_rng(0).normal(size=(3, 8))
READS_WEIGHTS = f"""{FUNCTIONS}
from pathlib import Path
from beside import seen

weights = np.load(Path(__file__).with_name("weights.npy"))
encode_images = lambda pictures: seen(pictures) @ weights
colours = encode_texts
encode_texts = lambda texts: colours(texts) @ weights
"""
SEEN = """
import numpy as np


def seen(pictures):
    return np.stack([np.asarray(p, float)SHOWN for p in pictures]).mean((1, 2))
"""


@pytest.mark.parametrize(
    ("before", "weights", "after"),
    [
        (".mean((0, 1), keepdims=True)", -WEIGHTS[::-1], ".mean((0, 1), keepdims=True)"),
        (".mean((0, 1), keepdims=True)", WEIGHTS[:, :5], ".mean((0, 1), keepdims=True)"),
        (".mean((0, 1), keepdims=True)", WEIGHTS, "[:20].mean((0, 1), keepdims=True) - 9"),
        ("", -WEIGHTS[::-1], ""),  # which takes pictures of one size alone
        ("", WEIGHTS[:, :5], ""),
        ("", WEIGHTS, "** 2"),
    ],
)
def test_an_index_of_other_weights_or_code_is_made_anew(
    photos, capsys, monkeypatch, before, weights, after
):
    Path("model.py").write_text(READS_WEIGHTS, encoding="utf-8")
    for count, how, values, anew in (
        (4, before, WEIGHTS, False), (0, before, WEIGHTS, False), (4, after, weights, True)
    ):  # fmt: skip
        np.save("weights.npy", values)
        Path("beside.py").write_text(SEEN.replace("SHOWN", how))
        monkeypatch.delitem(sys.modules, "beside", raising=False)
        index = search.folder(photos, "model.py")
        assert index.encoded == count
        said = capsys.readouterr().err
        assert ("made anew: the model gives other vectors now" in said) == anew
        fresh = search.folder(photos, "model.py", photos.parent / f"kept {count} {how}")
        found, wanted = (one.find("a red and blue thing").table for one in (index, fresh))
        pd.testing.assert_frame_equal(found, wanted)
    assert search.folder(photos, "model.py").encoded == 0


def test_a_model_that_is_not_deterministic_finds_by_vectors_of_now(photos, capsys):
    lines = "first = encode_images\nencode_images = lambda x: first(x) + 999 * np.random.rand(3)"
    Path("random.py").write_text(f"{FUNCTIONS}\n{lines}\n", encoding="utf-8")
    for _ in range(2):
        assert search.folder(photos, "random.py").encoded == 4
    assert "made anew: the model gives other vectors now" in capsys.readouterr().err


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-5]),
        lambda path: path.write_text("no index"),
        lambda path: save_file({"a": torch.zeros(2)}, path),
        lambda path: save_file({"vectors": torch.zeros(9, 3)}, path, {"mmlib": "[]"}),
    ],
)
def test_a_damaged_index_is_made_anew_and_said(photos, capsys, damage):
    sound = search.folder(photos, "colours.py")
    [path] = photos.glob(".mmlib-*")
    damage(path)
    mended = search.folder(photos, "colours.py")
    said = capsys.readouterr().err
    assert said.startswith(f"{path}: ")
    assert said.endswith(" (made anew)\n")
    assert mended.encoded == 4
    np.testing.assert_array_equal(mended.vectors, sound.vectors)
    assert search.folder(photos, "colours.py").encoded == 0


def test_what_is_no_picture_is_left_out_and_said(photos, capsys):
    (photos / "notes.jpg").write_text("a text")
    (photos / "gone.png").symlink_to(photos / "nowhere.png")
    cut = (photos / "red.png").read_bytes()[:-40]
    (photos / "cut.png").write_bytes(cut)
    (photos / "._red.png").write_bytes(cut)  # as macOS leaves them
    index = search.folder(photos, "colours.py")
    said = capsys.readouterr().err
    assert said.startswith("left out: 3 of 7 files, such as ")
    assert re.search(
        r"photos/(cut|gone)\.png: cannot be read: |photos/notes\.jpg: no picture$", said
    )
    assert len(index.files) == 4


def test_a_full_disk_leaves_the_answer(photos, capsys, monkeypatch):
    search.folder(photos, "colours.py")
    [index] = photos.glob(".mmlib-*")
    before = index.read_bytes()
    Image.new("RGB", (9, 9)).save(photos / "new.png")
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(search, "write_tensors", full)
    assert len(search.folder(photos, "colours.py").find("red").table) == 5
    said = f"{index}: No space left on device, so the index is not kept (--index names"
    assert capsys.readouterr().err.startswith(said)
    assert index.read_bytes() == before


def test_an_interrupted_index_goes_on(photos, monkeypatch):
    monkeypatch.setattr(encoders, "BATCH", 1)
    ones = until(2, lambda pictures: np.ones((len(pictures), 3)))
    model = replace(encoders.read("colours.py"), image_vectors=ones)
    with pytest.raises(KeyboardInterrupt):
        search.folder(photos, model)
    index = search.folder(photos, model)
    assert index.encoded == 2
    assert len(index.files) == 4


# --- Models ----------------------------------------------------------------------------------


def tiny_clip(folder):
    """A CLIP of a few numbers with a tokenizer of a few words, as transformers writes it."""
    import transformers as hf
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = hugging_face_model("clip", folder)
    words = {"<pad>": 0, "red": 1, "dog": 2, "cat": 3, "<unk>": 4}
    tokens = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token="<pad>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(folder)
    return model


def test_a_clip_from_a_folder(photos, tmp_path):
    original = tiny_clip(tmp_path / "clip")
    model = encoders.read(tmp_path / "clip")
    index = search.folder(photos, model)
    found = index.find("red dog red cat " * 25, k=4)  # more words than the 77 it takes
    from transformers import CLIPImageProcessor

    processor = CLIPImageProcessor.from_pretrained(tmp_path / "clip")
    ids = torch.tensor([[1, 2, 1, 3] * 19 + [1]])
    with torch.inference_mode():
        wanted = original.text_projection(original.text_model(input_ids=ids).pooler_output)[0]
        cosines = {}
        for file in index.files:
            values = processor(images=Image.open(photos / file), return_tensors="pt")
            image = original.visual_projection(original.vision_model(**values).pooler_output)[0]
            cosines[file] = float(torch.cosine_similarity(image, wanted, dim=0))
    assert list(found.table.picture) == sorted(cosines, key=lambda file: -cosines[file])
    np.testing.assert_allclose(found.table.score, sorted(cosines.values(), reverse=True), atol=1e-5)
    os.utime(tmp_path / "clip" / "model.safetensors")  # another model, for all that is known
    assert search.folder(photos, tmp_path / "clip").encoded == 4


def test_kept_weights_of_the_worlds_retriever_are_a_model(photos, capsys):
    arrays = {n.removeprefix("align."): v for n, v in load_file(encoders.RETRIEVERS).items()}
    write_tensors(Path("kept.safetensors"), arrays, {"card": "a training of a test"})
    query = ["search", "photos", "A dog."]
    assert cli.main([*query, "--model", "kept.safetensors"]) == 0
    kept = capsys.readouterr()
    assert "notebook 02), a training of a test: two encoders" in kept.err
    assert cli.main(query) == 0
    small = capsys.readouterr()
    assert small.out == kept.out
    assert "it knows the 486 words" in small.err
    write_tensors(Path("kept.safetensors"), {n: -v for n, v in arrays.items()}, {})
    assert cli.main([*query, "--model", "kept.safetensors"]) == 0
    assert capsys.readouterr().out != kept.out


def test_a_large_picture_is_read_small_and_upright(tmp_path):
    pixels = np.zeros((3000, 2000, 3), np.uint8)
    pixels[:1500] = 255  # white above
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    for name in ("big.jpg", "big.png"):
        lying = Image.fromarray(pixels).transpose(Image.Transpose.ROTATE_90)
        lying.save(tmp_path / name, exif=exif)
        picture = encoders.open_small(tmp_path / name)
        assert max(picture.size) <= encoders.SIDE
        assert picture.height > picture.width
        half = np.asarray(picture.convert("L"), float)
        assert half[: picture.height // 2 - 8].mean() > 250
        assert half[picture.height // 2 + 8 :].mean() < 5


# --- Regions and sheets ------------------------------------------------------------------------


def test_the_region_is_the_one_without_which_the_score_falls_most(photos):
    picture = Image.new("RGB", (200, 100), "black")
    picture.paste((255, 0, 0), (120, 60, 190, 95))
    picture.save(photos / "spot.png")
    Path("most.py").write_text(FUNCTIONS.replace("mean((0, 1))", "max((0, 1))"))
    index = search.folder(photos, "most.py")
    hashes = [index.hashes[index.files.index("spot.png")]]
    table = pd.DataFrame({"score": [1.0], "picture": ["spot.png"]}, index=[1])
    found = search.Found(photos, index.model, "red", table, hashes)
    assert found.regions == [(0.5, 0.5, 1.0, 1.0)]


def test_sheets_are_whole_files_that_name_the_text(photos, tmp_path):
    found = search.folder(photos, "colours.py").find("red & <blue> $5 or $6", k=4)
    found.save(tmp_path / "sheet.html")
    soup = BeautifulSoup((tmp_path / "sheet.html").read_text(encoding="utf-8"), "html.parser")
    assert soup.h1.get_text() == "red & <blue> $5 or $6"
    assert len(soup.find_all("figure")) == 4
    for image, file in zip(soup.find_all("img"), found.table.picture, strict=True):
        assert image["src"].startswith("data:image/jpeg;base64,")
        assert file in image["alt"]
        assert image.parent["href"] == (photos / file).as_uri()
    assert "colours.py: two functions of yours." in soup.p.get_text()


# --- Commands ----------------------------------------------------------------------------------


def test_the_command_says_what_it_did(photos, capsys):
    words = ["search", "photos", "red", "--model", "colours.py", "-k", "2", "--out", "sheet.html"]
    assert cli.main(words) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == ["1", "2", "written"]
    assert shown.err == "colours.py: two functions of yours.\n4 pictures, 4 of them encoded now\n"
    assert cli.main(["search", "photos", "A dog at the opera, please."]) == 0
    assert "words that it does not know: opera, please" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "files", "message"), REFUSED["search"])
def test_what_cannot_be_done_is_one_line(photos, capsys, words, files, message):
    if "clip" in words:
        tiny_clip(Path("clip"))
    for name, content in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).unlink() if content is None else Path(name).write_text(content)
    model = [] if "--model" in words else ["--model", "colours.py"]
    before = sorted(Path().rglob("*.*g"))
    assert cli.main(["search", *words, *model]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert sorted(Path().rglob("*.*g")) == before


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [("mine.py", *case) for case in REFUSED["code"]]
    + [("helper.py", *case) for case in REFUSED["code"][:4:2]],
)
def test_an_error_of_a_users_code_is_one_line_with_its_file(photos, capsys, name, line, message):
    Path("helper.py").write_text("colour = 1\n")
    Path(name).write_text(f"{FUNCTIONS}{line}\n", encoding="utf-8")
    Path("model.py").write_text("from helper import *\n")
    model = "mine.py" if name == "mine.py" else "model.py"
    assert cli.main(["search", "photos", "red", "--model", model]) == 2
    said = capsys.readouterr().err
    raised = re.match(r"\w+(Error|Exit|Implement)", message)
    place = f"{name}, line 12: " if raised and "lambda" not in line else ""
    assert f"{place}{message}" in said.splitlines()[-1]
    assert name in said.splitlines()[-1]
    assert "Traceback" not in said


@pytest.mark.parametrize("expression", REFUSED["vectors"])
def test_vectors_may_be_arrays_tensors_or_lists_of_any_kind(photos, capsys, expression):
    wanted = search.folder(photos, "colours.py").find("red")
    more = "print('loaded')\n"
    for name in encoders.FUNCTIONS:
        more += f"def {name}(items, first={name}):\n    import helper  # late\n"
        more += "    return helper.given(first(items))\n"
    Path("helper.py").write_text(f"import torch\ndef given(x):\n    return {expression}\n")
    Path("mine.py").write_text(f"{FUNCTIONS}{more}", encoding="utf-8")
    found = search.folder(photos, "mine.py").find("red")
    assert found.table.picture.tolist() == wanted.table.picture.tolist()
    np.testing.assert_allclose(found.table.score, wanted.table.score, atol=5e-3)
    assert capsys.readouterr().out == ""  # which has results alone


def test_names_of_any_bytes_lose_no_result(photos, capsys):
    folder = os.fsdecode(b"caf\xe9")
    shutil.copytree(photos, folder)
    (Path(folder) / "red.png").rename(Path(folder) / os.fsdecode(b"r\xff.png"))
    words = ["search", folder, "red", "--model", "colours.py", "-k", "2", "--out", "sheet.html"]
    assert cli.main(words) == 0
    assert "r\\udcff.png" in capsys.readouterr().out.splitlines()[0]
    assert "1. 1.00 r\\udcff.png" in Path("sheet.html").read_text(encoding="utf-8")


LONG = " ".join(f"dog {n}" for n in range(60))  # of 120 words and numbers


def test_ends_of_texts_that_are_not_read_are_told(photos, capsys):
    tiny_clip(Path("clip"))
    ends = re.compile(r"(.+) not read to the end: (.+); the first is cut at its word (\d+), '(.+)'")
    for model, query in (
        ("small", [("texts", "1 of 1", "41", "dog")]), ("clip", [("texts", "1 of 1", "78", "38")]),
        ("colours.py", []),
    ):  # fmt: skip
        assert cli.main(["search", "photos", LONG, "--model", model]) == 0
        assert ends.findall(capsys.readouterr().err) == query
        assert cli.main(["search", "photos", "A dog.", "--model", model]) == 0
        assert ends.findall(capsys.readouterr().err) == []


def test_the_page_is_executed(tmp_path, monkeypatch, capsys):
    """Every Python block and command of docs/search.md in order, and what it says they print."""
    monkeypatch.chdir(tmp_path)
    tiny_clip(tmp_path / "clip")
    commands, _ = run_page("search.md", capsys)
    assert set(commands) == {"search"}
    assert "found.html" in {p.name for p in tmp_path.iterdir()}
