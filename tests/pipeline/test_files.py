"""Small files through Hadoop's file systems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redbox.errors import RedboxError
from redbox.pipeline import files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("SP-8")


@pytest.fixture(params=["plain", "file:"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same place as a path and as a URL."""
    return f"file:{tmp_path}/sub" if request.param == "file:" else f"{tmp_path}/sub"


def test_a_text_comes_back_as_it_was_written(spark: SparkSession, directory: str):
    path = files.join(directory, "deep", "a.txt")
    text = "line\r\nnö\x00 ☃ 🎉\n" * 1000
    assert not files.exists(spark, path)
    files.write_text(spark, path, text)
    assert files.exists(spark, path)
    assert files.read_text(spark, path) == text
    files.write_text(spark, path, "")
    assert files.read_text(spark, path) == ""


def test_a_new_text_takes_the_place_of_the_old_one_and_leaves_nothing_beside(spark: SparkSession, tmp_path: Path):
    path = f"{tmp_path}/a.txt"
    files.write_text(spark, path, "old and longer")
    files.write_text(spark, path, "new")
    assert files.read_text(spark, path) == "new"
    assert files.list(spark, str(tmp_path)) == ("a.txt",)
    assert {each.name for each in tmp_path.iterdir()} == {"a.txt", ".a.txt.crc"}  # Hadoop's checksum


def test_what_is_there_stays_when_it_is_not_to_be_overwritten(spark: SparkSession, directory: str):
    path = files.join(directory, "a.txt")
    files.write_text(spark, path, "first", overwrite=False)
    with pytest.raises(RedboxError, match=r"a\.txt cannot be written: .*exist"):
        files.write_text(spark, path, "second", overwrite=False)
    assert files.read_text(spark, path) == "first"
    assert files.list(spark, directory) == ("a.txt",)


def test_names_are_listed_in_order_and_there_are_none_where_nothing_is(spark: SparkSession, directory: str):
    assert files.list(spark, directory) == ()
    for name in ("b.txt", "a.txt", "c/d.txt"):
        files.write_text(spark, files.join(directory, name), name)
    assert files.list(spark, directory) == ("a.txt", "b.txt", "c")


def test_renaming_moves_and_overwrites_only_with_overwrite(spark: SparkSession, directory: str):
    one, two = files.join(directory, "1"), files.join(directory, "2")
    files.write_text(spark, one, "one")
    files.write_text(spark, two, "two")
    with pytest.raises(RedboxError, match="cannot be renamed to"):
        files.rename(spark, one, two)
    assert files.read_text(spark, two) == "two"
    files.rename(spark, one, two, overwrite=True)
    assert files.read_text(spark, two) == "one"
    assert files.list(spark, directory) == ("2",)
    files.rename(spark, directory, f"{directory}-moved")
    assert files.list(spark, f"{directory}-moved") == ("2",)


def test_deleting_takes_a_whole_directory_and_says_whether_there_was_one(spark: SparkSession, directory: str):
    files.write_text(spark, files.join(directory, "a", "b.txt"), "x")
    assert files.delete(spark, directory)
    assert not files.exists(spark, directory)
    assert not files.delete(spark, directory)


@pytest.mark.parametrize("act", [files.read_text, files.exists, files.list, files.delete])
def test_an_impossible_path_is_reported_in_one_sentence(spark: SparkSession, act):
    with pytest.raises(RedboxError, match=r"^nowhere://x/y cannot be .+ \(\w+Exception\)$") as raised:
        act(spark, "nowhere://x/y")
    assert "\n" not in raised.value.message


def test_what_is_not_there_cannot_be_read(spark: SparkSession, tmp_path: Path):
    with pytest.raises(RedboxError, match=r"gone\.txt cannot be read: .*\(FileNotFoundException\)"):
        files.read_text(spark, f"{tmp_path}/gone.txt")


def test_a_file_system_that_cannot_replace_a_file_gets_the_simple_way(spark: SparkSession, tmp_path: Path):
    system, old = files._find(spark, f"{tmp_path}/old")
    _, new = files._find(spark, f"{tmp_path}/new")
    for name in ("old", "new"):
        files.write_text(spark, f"{tmp_path}/{name}", name)
    with pytest.raises(FileExistsError):
        files._move_simply(system, old, new, overwrite=False)
    files._move_simply(system, old, new, overwrite=True)
    assert files.read_text(spark, f"{tmp_path}/new") == "old"
    assert files.list(spark, str(tmp_path)) == ("new",)


def test_a_path_below_a_directory():
    assert files.join("/a", "b") == files.join("/a/", "b") == "/a/b"
    assert files.join("s3a://bucket", "tables", "x.csv") == "s3a://bucket/tables/x.csv"
    assert files.join("/", "b") == "/b"
