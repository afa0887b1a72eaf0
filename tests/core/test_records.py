"""Texts that were typed, copied or encoded otherwise are read as the plain one."""

from pathlib import Path

import pytest
import yaml

from mmlib.core.records import canonical, normalised

SPELLINGS = yaml.safe_load(Path(__file__).with_name("spellings.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("plain", SPELLINGS)
def test_a_text_has_one_form(plain):
    for written in SPELLINGS[plain]:
        assert canonical(written) == canonical(plain) == plain, ascii(written)
        assert normalised(written) == normalised(plain)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("A Man, with (two) t-shirts!", "a man with two t shirts"),
        ("It isn’t $5 + tax", "it isn t 5 tax"),
        ("की", "की"), ("का", "का"), ("🐕", "🐕"), ("🐈!", "🐈"), ("a £5", "a £5"),
        ("STRASSE", "strasse"), ("Straße", "strasse"), ("\u200b …", ""),
    ],
)  # fmt: skip
def test_keys_have_letters_marks_and_symbols_alone(text, key):
    assert normalised(text) == key
