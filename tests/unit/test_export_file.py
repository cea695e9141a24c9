"""RF-3: files of exported events."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redbox.box.export_file import read_lines, write_export
from redbox.errors import RedboxError

pytestmark = [pytest.mark.req("RF-3"), pytest.mark.anyio]


async def lines(*texts: bytes) -> AsyncIterator[bytes]:
    for text in texts:
        yield text


async def test_a_file_has_all_lines(tmp_path: Path):
    path, done = str(tmp_path / "x"), list[int]()
    assert await write_export(lines(b"a\n", b"b\n"), path, progress=done.append) == 2
    assert (list(read_lines(path)), done) == ([b"a\n", b"b\n"], [1, 2])
    assert await write_export(lines(b"c\n"), path, replace=True) == 1
    assert list(read_lines(path)) == [b"c\n"]
    assert os.listdir(tmp_path) == ["x"]


async def test_a_file_that_exists_is_reported_before_an_event_is_read(tmp_path: Path):
    path = tmp_path / "x"
    path.write_text("precious")
    unread = lines(b"a\n")
    with pytest.raises(RedboxError, match="x exists"):
        await write_export(unread, str(path))
    assert (path.read_text(), await anext(unread)) == ("precious", b"a\n")


async def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path):
    path = tmp_path / "x"

    async def slow() -> AsyncIterator[bytes]:
        path.write_text("precious")
        yield b"a\n"

    with pytest.raises(RedboxError, match="x exists"):
        await write_export(slow(), str(path))
    assert (path.read_text(), os.listdir(tmp_path)) == ("precious", ["x"])
