"""Spark needs Java: without it, or with an old version, an error says how to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from redbox.errors import RedboxError

pytest.importorskip("pyspark")
from redbox.pipeline.spark_session import check_java


def make_java(directory: Path, version: str) -> None:
    (directory / "bin").mkdir(parents=True)
    java = directory / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(0o755)


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        RedboxError, match="none was found; install one, on Debian and Ubuntu: apt-get install openjdk-17"
    ):
        check_java()


def test_a_java_home_without_a_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RedboxError, match=r"JAVA_HOME is .* and there is none in it"):
        check_java()


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_402", "8"), ("11.0.22", "11")])
def test_an_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, shown: str):
    make_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RedboxError, match=f"Spark needs Java 17 or newer, and .* is Java {shown};"):
        check_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_supported_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str):
    make_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()
