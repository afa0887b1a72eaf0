"""Texts of users may begin with a byte order mark: the small data sets of these tests do."""

import ast
from pathlib import Path

import pytest

import mmlib
from mmlib.core.errors import DataError
from mmlib.data.tables import text_lines


def test_lines_lose_their_ends_and_the_mark_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n \xe2\x80\xa8 two\ncaf\xe9\n")
    lines = text_lines(path, "save it as UTF-8")
    # str.splitlines would break the third
    assert [next(lines) for _ in range(3)] == [(1, "one"), (2, ""), (3, " \u2028 two")]
    with pytest.raises(DataError, match=r"a\.txt, line 4: not UTF-8.* \(save it as UTF-8\)$"):
        next(lines)


def test_every_text_is_opened_with_an_encoding_and_that_of_users_past_a_mark():
    root = Path(mmlib.__file__).parent
    users = {root / name for name in ("data", "features", "papers")}
    opened = 0
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = ast.unparse(node) if isinstance(node, ast.Call) else ""
            name = ast.unparse(node.func).rpartition(".")[2] if call else ""
            mode = "".join(word for word in call.split("'")[1::2] if set(word) <= set("abrtwx+"))
            others = "Image." in call or "os.open" in call
            if name not in ("open", "read_text", "write_text") or others or "b" in mode:
                continue
            opened += 1
            assert "'utf-8" in call, f"{path}, line {node.lineno}: {call}"
            ours = name == "write_text" or "__file__" in call or "w" in mode
            if users & {path, *path.parents} and not ours:
                assert "'utf-8-sig'" in call, f"{path}, line {node.lineno}: {call}"
    assert opened > 15
