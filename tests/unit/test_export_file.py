"""RF-3: files of exported events."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from redbox.box.bulk.export_file import read_lines, write_export
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


@pytest.fixture(params=[True, False], ids=["hard links", "no hard links"])
def hard_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(errno.EPERM, "Operation not permitted")))


@pytest.mark.usefixtures("hard_links")
async def test_a_new_file_needs_no_hard_links(tmp_path: Path):
    path = tmp_path / "x"
    assert await write_export(lines(b"a\n"), str(path)) == 1
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"a\n", 0o600)
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.usefixtures("hard_links")
async def test_a_file_that_cannot_get_its_name_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("link", "replace"):
        monkeypatch.setattr(os, name, Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        await write_export(lines(b"a\n"), str(tmp_path / "x"))
    assert os.listdir(tmp_path) == []


async def test_a_file_that_exists_is_reported_before_an_event_is_read(tmp_path: Path):
    path = tmp_path / "x"
    path.write_text("precious")
    unread = lines(b"a\n")
    with pytest.raises(RedboxError, match="x exists"):
        await write_export(unread, str(path))
    assert (path.read_text(), await anext(unread)) == ("precious", b"a\n")


@pytest.mark.usefixtures("hard_links")
async def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path):
    path = tmp_path / "x"

    async def slow() -> AsyncIterator[bytes]:
        path.write_text("precious")
        yield b"a\n"

    with pytest.raises(RedboxError, match="x exists"):
        await write_export(slow(), str(path))
    assert (path.read_text(), os.listdir(tmp_path)) == ("precious", ["x"])
