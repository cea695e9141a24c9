"""Who may read the files that hold events: only the user who runs the job, unless the directory was there before."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redbox import Event
from redbox.pipeline import files
from redbox.pipeline.archive.job import archive
from redbox.pipeline.jobs.streams import run_stream
from redbox.pipeline.report.job import report
from redbox.pipeline.source.options import Address
from redbox.pipeline.source.rejects import Rejects
from redbox.testing.conformance.steps import publish

from .conftest import Played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.campaign


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def address(played: Played) -> Address:
    return Address(played.url, played.name)


@pytest.fixture
def filled(redis_played: Played) -> Played:
    redis_played.run(publish(redis_played.box, Event("order.paid", 1), Event("order.paid", 2)))
    return redis_played


def test_a_report_is_private(filled: Played, spark: SparkSession, tmp_path: Path):
    made = tmp_path / "made"
    report(spark, address(filled), str(made))
    assert mode(made) == mode(made / "tables") == 0o700
    written = [made / "report.html", *(path for path in (made / "tables").iterdir() if path.suffix != ".crc")]
    assert len(written) > 2
    assert {path.name: mode(path) for path in written} == {path.name: 0o600 for path in written}


def test_a_directory_that_was_there_keeps_its_permissions(spark: SparkSession, tmp_path: Path):
    tmp_path.chmod(0o755)
    files.make_directory(spark, str(tmp_path))
    files.write_bytes(spark, str(tmp_path / "page"), b"text", private=True)
    files.write_text(spark, str(tmp_path / "other"), "text")
    assert [mode(path) for path in (tmp_path, tmp_path / "page", tmp_path / "other")] == [0o755, 0o600, 0o644]
    assert (tmp_path / "page").read_text() == "text"
    files.make_directory(spark, str(tmp_path / "deep" / "new"))
    assert [mode(path) for path in (tmp_path / "deep", tmp_path / "deep" / "new")] == [0o755, 0o700]


def test_an_archive_is_private(filled: Played, spark: SparkSession, tmp_path: Path):
    archive(spark, address(filled), str(tmp_path / "lake"))
    assert mode(tmp_path / "lake") == 0o700


def test_what_a_stream_writes_is_private(filled: Played, spark: SparkSession, tmp_path: Path):
    run_stream(spark, address(filled), {"mode": "follow"}, str(tmp_path / "sink"), checkpoint=str(tmp_path / "place"))
    assert [mode(tmp_path / name) for name in ("sink", "place")] == [0o700, 0o700]


def test_rejects_are_private(tmp_path: Path):
    rejects = Rejects(str(tmp_path / "rejects"), "job", 0)
    rejects.add({"event_type": "", "payload": b"secret"}, "event_type", "is empty")
    rejects.close()
    (written,) = (tmp_path / "rejects").iterdir()
    assert [mode(tmp_path / "rejects"), mode(written)] == [0o700, 0o600]
