"""Small files wherever Spark can write: a local directory, HDFS, an object store.

Everything goes through Hadoop's file systems in Spark's own process, so a path means the same here as in Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from redbox.errors import RedboxError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_OVERWRITING: Final = "UnsupportedFileSystemException"
PRIVATE_DIRECTORY: Final = "700"
PRIVATE_FILE: Final = "600"
_BUFFER_BYTES: Final = 4096


def make_directory(spark: SparkSession, path: str) -> None:
    """Makes a directory that only this user may read; an existing one keeps its permissions.

    Object stores have no such permissions: there, those of the bucket apply.
    """
    with _explained(f"{path} cannot be made"):
        system, place = _find(spark, path)
        if not system.exists(place):
            system.mkdirs(place, _mode(spark, PRIVATE_DIRECTORY))


def write_text(spark: SparkSession, path: str, text: str, *, overwrite: bool = True) -> None:
    """Writes a text file, as `write_bytes` does."""
    write_bytes(spark, path, text.encode(), overwrite=overwrite)


def write_bytes(spark: SparkSession, path: str, data: bytes, *, overwrite: bool = True, private: bool = False) -> None:
    """Writes a file atomically: an existing file stays until the new one is complete.

    Parent directories are made. With `overwrite=False` an existing file is an error. Only this user can read a
    `private` file.
    """
    directory, slash, name = path.rpartition("/")
    part = f"{directory}{slash}.{name}.{uuid.uuid4().hex[:12]}.part"
    with _explained(f"{path} cannot be written"):
        system, place = _find(spark, part)
        try:
            stream = _create_private(spark, system, place) if private else system.create(place, False)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
            _move(spark, part, path, overwrite)
        except BaseException:
            with suppress(Exception):  # the first error is the one to raise
                system.delete(place, False)
            raise


def read_text(spark: SparkSession, path: str) -> str:
    """The text of a file."""
    with _explained(f"{path} cannot be read"):
        system, place = _find(spark, path)
        stream = system.open(place)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or a directory at this path."""
    with _explained(f"{path} cannot be looked at"):
        system, place = _find(spark, path)
        return bool(system.exists(place))


def list(spark: SparkSession, path: str) -> tuple[str, ...]:  # noqa: A001 - called as files.list
    """The names in a directory, sorted; none if there is no directory."""
    with _explained(f"{path} cannot be listed"):
        system, place = _find(spark, path)
        if not system.exists(place):
            return ()
        return tuple(sorted(str(entry.getPath().getName()) for entry in system.listStatus(place)))


def sizes(spark: SparkSession, path: str) -> dict[str, int | None]:
    """The names in a directory, if there is one, with their sizes in bytes; None for a directory."""
    with _explained(f"{path} cannot be listed"):
        system, place = _find(spark, path)
        entries = system.listStatus(place) if system.exists(place) else ()
        return {
            str(entry.getPath().getName()): None if entry.isDirectory() else int(entry.getLen()) for entry in entries
        }


def rename(spark: SparkSession, path: str, to: str, *, overwrite: bool = False) -> None:
    """Renames a file or a directory. An existing target is an error, unless it is a file to overwrite."""
    with _explained(f"{path} cannot be renamed to {to}"):
        _move(spark, path, to, overwrite)


def delete(spark: SparkSession, path: str) -> bool:
    """Removes a file, or a directory with its contents; returns False if there was none."""
    with _explained(f"{path} cannot be deleted"):
        system, place = _find(spark, path)
        return bool(system.delete(place, True))


def join(directory: str, *names: str) -> str:
    """A path below a directory."""
    return "/".join([directory.rstrip("/"), *names])


def _java(spark: SparkSession) -> tuple[Any, Any]:
    classic: Any = spark
    return classic._jvm, classic._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark has no other way to Hadoop


def _find(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The file system of a path, and the path qualified for it."""
    jvm, settings = _java(spark)
    place = jvm.org.apache.hadoop.fs.Path(path)
    system = place.getFileSystem(settings)
    return system, system.makeQualified(place)


def _mode(spark: SparkSession, octal: str) -> Any:
    jvm, _ = _java(spark)
    return jvm.org.apache.hadoop.fs.permission.FsPermission(octal)


def _create_private(spark: SparkSession, system: Any, place: Any) -> Any:
    replication, block = system.getDefaultReplication(place), system.getDefaultBlockSize(place)
    return system.create(place, _mode(spark, PRIVATE_FILE), False, _BUFFER_BYTES, replication, block, None)


def _move(spark: SparkSession, path: str, to: str, overwrite: bool) -> None:
    jvm, settings = _java(spark)
    system, old = _find(spark, path)
    _, new = _find(spark, to)
    option = jvm.org.apache.hadoop.fs.Options.Rename
    options = spark.sparkContext._gateway.new_array(option, 1)  # type: ignore[union-attr]  # noqa: SLF001 - as above
    options[0] = option.OVERWRITE if overwrite else option.NONE
    try:
        # FileSystem.rename cannot overwrite, and returns False for any error; FileContext gives the reason.
        context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(system.getUri(), settings)
        context.rename(old, new, options)
    except Py4JJavaError as error:
        if _NO_OVERWRITING not in str(error.java_exception.getClass().getName()):
            raise
        _move_simply(system, old, new, overwrite)


def _move_simply(system: Any, old: Any, new: Any, overwrite: bool) -> None:
    """For file systems that cannot replace a file atomically: for a moment there is none, but never half of one."""
    if system.exists(new):
        if not overwrite:
            raise FileExistsError(f"{new.toString()} exists")
        system.delete(new, False)
    if not system.rename(old, new):
        raise OSError("the file system refused")


@contextmanager
def _explained(problem: str) -> Iterator[None]:
    """Reports an error of Java in one sentence."""
    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        kind, said = str(cause.getClass().getSimpleName()), str(cause.getMessage() or "")
        first = said.strip().splitlines()[0] if said.strip() else "no reason was given"
        raise RedboxError(f"{problem}: {first} ({kind})") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RedboxError(f"{problem}: {error}") from error
