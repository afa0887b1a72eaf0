"""The Flickr8k reader on a small copy of both layouts, and on the real set where it is."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

from mmlib.core.errors import DataError
from mmlib.data import flickr8k

MARKED = "utf-8-sig"  # texts begin with a byte order mark, as some editors write them
NAMES = [f"10{i}_ab{i}.jpg" for i in range(8)]
SPLIT = {"train": NAMES[:4], "val": NAMES[4:5], "test": [NAMES[6], NAMES[5]]}


def caption(name, k):
    return f'A "{k}", caption of {NAMES.index(name)} .'


def make(folder, original=False, names=NAMES, splits=SPLIT, caption=caption):
    """Eight pictures with five captions each: commas, quotation marks and all."""
    images = folder / ("Flicker8k_Dataset" if original else "Images")
    text = folder / "Flickr8k_text"
    for sub in (images, text, folder / "features"):
        sub.mkdir(parents=True)
    pairs = []
    for i, name in enumerate(names):
        Image.new("RGB", (16, 12), (i * 30 % 256, 0, 0)).save(images / name)
        pairs += [(name, caption(name, k)) for k in range(5)]
    if original:
        lines = [f"{name}#{i % 5}\t{text}" for i, (name, text) in enumerate(pairs)]
        lines[7:7] = ["2258277193_586949ec62.jpg.1#0\tPeople on horses ."]
        (text / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n", encoding=MARKED)
    else:
        with (folder / "captions.txt").open("w", newline="", encoding=MARKED) as file:
            csv.writer(file).writerows([("image", "caption"), *pairs])
    for split, listed in splits.items():
        (text / flickr8k.LISTS[split]).write_text("\n".join(listed) + "\n", encoding=MARKED)
    array = np.arange(8 * 4 * 3, dtype=np.float16).reshape(8, 4, 3)
    np.save(folder / "features" / f"{flickr8k.SHARED_FEATURES}.npy", array)
    (folder / "features" / "ids.txt").write_text("\n".join(NAMES), encoding=MARKED)
    return folder


@pytest.fixture
def kaggle(tmp_path):
    return make(tmp_path / "flickr8k")


def edit_line(path, row, text):
    lines = path.read_text(MARKED).splitlines()
    lines[row - 1] = text
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("original", [False, True])
def test_both_layouts_give_the_same_records(tmp_path, monkeypatch, original):
    make(tmp_path / "flickr8k", original)
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    data = flickr8k.load("test")
    assert (data.name, data.split, data.ids) == ("flickr8k", "test", (NAMES[6], NAMES[5]))
    assert data.captions[0] == tuple(f'A "{j}", caption of 6 .' for j in range(5))
    assert data.features.shape == (2, 4, 3)
    assert data.features[1, 0, 0] == 5 * 12
    assert data.open_image(0).getpixel((3, 3))[0] == pytest.approx(180, abs=5)
    assert data.label_scores is None


def test_label_scores_where_a_classifier_wrote_them(kaggle):
    scores = np.random.default_rng(0).random((8, 6), dtype=np.float32)
    np.save(kaggle / "features/labels_densenet169.npy", scores)
    (kaggle / "features/labels_densenet169.ids.txt").write_text("\n".join(NAMES))
    (kaggle / "features/labels_densenet169.json").write_text(json.dumps({"label_names": "abcdef"}))
    data = flickr8k.load("test", kaggle)
    assert np.array_equal(data.label_scores, scores[[6, 5]])
    assert data.label_names == tuple("abcdef")
    for notes in ({}, {"label_names": "abc"}):
        (kaggle / "features/labels_densenet169.json").write_text(json.dumps(notes))
        with pytest.raises(DataError, match=r"labels_densenet169\.npy: . label_names .* 6 columns"):
            flickr8k.load("test", kaggle)


LISTING = f"Flickr8k_text/{flickr8k.LISTS['val']}"


def line(number, text):
    """A change of one line of the captions, in the layout that has such lines."""
    return lambda folder: edit_line(flickr8k.find("captions", folder), number, text)


def changed(name, content):
    return lambda folder: (folder / name).write_bytes(content((folder / name).read_bytes()))


def gone(name):
    return lambda folder: (folder / name).rename(folder / "elsewhere")


CAPTIONS = "captions.txt"
FEATURES = f"features/{flickr8k.SHARED_FEATURES}.npy"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (line(17, "103_ab3.jpg"), r"captions\.txt, line 17: .*1 fields instead of 2"),
        (line(17, '103_ab3.jpg,"A dog'), "line 17: not an image and its caption"),
        (line(17, "103_ab3.jpg,A dog, running"), "line 17: .*3 fields"),
        (line(17, "103_ab3.jpg,  "), r"line 17: .*empty caption of 103_ab3\.jpg"),
        (line(17, "103_ab3.jpg," + "a " * 70_000), "line 17: .*140,012 char.* than 100,000"),
        (line(17, "A dog,runs"), "line 17: .*no image name"),
        (line(17, "../103_ab3.jpg,A dog"), "line 17: .*no image name"),
        (line(17, ""), "line 17: .*0 fields"),
        (line(3, "no number\tA dog"), r"token\.txt, line 3: .*no `image#0<tab>caption`"),
        (line(3, f"{NAMES[0]}#5\tA dog"), "line 3: .*no `image#0<tab>caption`"),
        (line(3, f"{NAMES[0]}#1\tA dog"), rf"line 3: .*{NAMES[0]}#1 stands in line 2 too"),
        (gone(CAPTIONS), r"captions\.txt: is missing \(run `mmlib data get flickr8k`"),
        (changed(CAPTIONS, lambda t: t.replace(b"of 1", b"\xff", 1)), r"line 7: .*utf-8"),
        (changed(CAPTIONS, lambda t: t.replace(b"of 1", b"\0", 1)), "line 7: bytes that are 0"),
        (changed(CAPTIONS, lambda t: t[: t.rindex(b"10")]), f"4 captions of {NAMES[7]}"),
        (changed(CAPTIONS, lambda t: t + t.splitlines(True)[-1]), f"6 captions of {NAMES[7]}"),
        (gone("Images"), "Images: is missing"),
        (gone(LISTING), r"devImages\.txt: is missing .*Flickr8k_text"),
        (changed(LISTING, lambda t: b"caf\xe9.jpg\n"), r"devImages\.txt, line 1: not UTF-8"),
        (changed(LISTING, lambda t: b" \n\n"), r"devImages\.txt: names no image"),
        (changed(LISTING, lambda t: t + b"none.jpg"), r"line 2: none\.jpg has no captions"),
        (changed(LISTING, lambda t: t + t[3:]), "line 2: .* and in line 1"),
        (changed(LISTING, lambda t: NAMES[0].encode()), f"{NAMES[0]} is in the split train"),
        (gone(FEATURES), "no such feature file"),
    ],
)  # fmt: skip
def test_damage_is_named_with_the_mend(tmp_path, change, message):
    folder = make(tmp_path / "f", original="line 3:" in message)
    change(folder)
    with pytest.raises(DataError, match=message):
        flickr8k.load("val", folder)


def test_a_truncated_image_is_named_when_opened(kaggle):
    path = kaggle / "Images" / NAMES[4]
    path.write_bytes(path.read_bytes()[:-80])
    data = flickr8k.load("val", kaggle)
    with pytest.raises(DataError, match=rf"{NAMES[4]}: cannot be decoded"):
        data.open_image(0)


def test_judgments_skip_and_count_damaged_lines(kaggle):
    good = b"%s\t%s#2\t0.333333333333333\t1\t2\n" % (NAMES[0].encode(), NAMES[3].encode())
    damaged = [b"\x00\xff junk\n", good[:-5] + b"\n", good.replace(b"0.333", b"0.933"), b"\n"]
    path = kaggle / "Flickr8k_text/CrowdFlowerAnnotations.txt"
    path.write_bytes(good + b"".join(damaged) + good)
    frame, skipped = flickr8k.read_judgments(kaggle)
    assert skipped == 3
    assert frame.to_dict("list") == {
        "image": [NAMES[0]] * 2, "caption_image": [NAMES[3]] * 2, "caption": [2, 2],
        "fraction": [0.333333333333333] * 2, "yes": [1, 1], "no": [2, 2],
    }  # fmt: skip


def test_captions_come_by_their_number_not_by_their_place(tmp_path):
    folder = make(tmp_path / "f", original=True)
    path, sound = folder / "Flickr8k_text/Flickr8k.token.txt", flickr8k.load("test", folder)
    path.write_text("\n".join(path.read_text(MARKED).splitlines()[::-1]) + "\n")
    assert flickr8k.load("test", folder).captions == sound.captions
    assert flickr8k.read_captions(folder)[NAMES[0]][3] == 'A "3", caption of 0 .'
