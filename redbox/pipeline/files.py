"""Small files wherever Spark can write: a local directory, HDFS, an object store.

Everything goes through Hadoop's file systems in Spark's own process, so that a path means here what it means to Spark.
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

_NO_OVERWRITING_THERE: Final = "UnsupportedFileSystemException"
_NO_PERMISSIONS_THERE: Final = "UnsupportedOperationException"
PRIVATE_DIRECTORY: Final = "700"
PRIVATE_FILE: Final = "600"
_BUFFER_BYTES: Final = 4096


def make_directory(spark: SparkSession, path: str) -> None:
    """Makes a directory that only this user may read; one that is there keeps its permissions.

    Object stores have no permissions of this kind: there, those of the bucket count.
    """
    with _told(f"{path} cannot be made"):
        system, place = _find(spark, path)
        if not system.exists(place):
            system.mkdirs(place, _mode(spark, PRIVATE_DIRECTORY))


def make_private(spark: SparkSession, path: str) -> None:
    """Takes away everyone else's permission to read a file."""
    with _told(f"{path} cannot be made private"):
        system, place = _find(spark, path)
        try:
            system.setPermission(place, _mode(spark, PRIVATE_FILE))
        except Py4JJavaError as error:
            if _NO_PERMISSIONS_THERE not in str(error.java_exception.getClass().getName()):
                raise


def write_text(spark: SparkSession, path: str, text: str, *, overwrite: bool = True, private: bool = False) -> None:
    """Writes a whole text file; nobody ever sees half of it. What was there stays until the new one is complete.

    Directories above it are made. With `overwrite=False` a file that is there is an error, and stays. A `private` file
    can be read by this user only.
    """
    directory, slash, name = path.rpartition("/")
    part = f"{directory}{slash}.{name}.{uuid.uuid4().hex[:12]}.part"
    with _told(f"{path} cannot be written"):
        system, place = _find(spark, part)
        try:
            stream = _create_private(spark, system, place) if private else system.create(place, False)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
            _move(spark, part, path, overwrite)
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                system.delete(place, False)
            raise


def read_text(spark: SparkSession, path: str) -> str:
    """The text of a file."""
    with _told(f"{path} cannot be read"):
        system, place = _find(spark, path)
        stream = system.open(place)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or a directory."""
    with _told(f"{path} cannot be looked at"):
        system, place = _find(spark, path)
        return bool(system.exists(place))


def list(spark: SparkSession, path: str) -> tuple[str, ...]:  # noqa: A001 - called as files.list
    """The names in a directory, sorted; none where there is no directory."""
    with _told(f"{path} cannot be listed"):
        system, place = _find(spark, path)
        if not system.exists(place):
            return ()
        return tuple(sorted(str(entry.getPath().getName()) for entry in system.listStatus(place)))


def sizes(spark: SparkSession, path: str) -> dict[str, int | None]:
    """The names in a directory with their sizes in bytes; None for a directory. None where there is no directory."""
    with _told(f"{path} cannot be listed"):
        system, place = _find(spark, path)
        entries = system.listStatus(place) if system.exists(place) else ()
        return {
            str(entry.getPath().getName()): None if entry.isDirectory() else int(entry.getLen()) for entry in entries
        }


def rename(spark: SparkSession, path: str, to: str, *, overwrite: bool = False) -> None:
    """Gives a file or a directory another name; one that is there is an error, unless a file is to be overwritten."""
    with _told(f"{path} cannot be renamed to {to}"):
        _move(spark, path, to, overwrite)


def delete(spark: SparkSession, path: str) -> bool:
    """Removes a file, or a directory with all that is in it; False when there was none."""
    with _told(f"{path} cannot be deleted"):
        system, place = _find(spark, path)
        return bool(system.delete(place, True))


def join(directory: str, *names: str) -> str:
    """A path below a directory."""
    return "/".join([directory.rstrip("/"), *names])


def _java(spark: SparkSession) -> tuple[Any, Any]:
    classic: Any = spark
    return classic._jvm, classic._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark has no other way to Hadoop


def _find(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The file system of a path, and the path as it calls it."""
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
        # FileSystem.rename refuses to overwrite, and says False for every other reason too; FileContext tells them.
        context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(system.getUri(), settings)
        context.rename(old, new, options)
    except Py4JJavaError as error:
        if _NO_OVERWRITING_THERE not in str(error.java_exception.getClass().getName()):
            raise
        _move_simply(system, old, new, overwrite)


def _move_simply(system: Any, old: Any, new: Any, overwrite: bool) -> None:
    """For file systems that cannot replace a file in one step: for a moment there is none, but never half of one."""
    if system.exists(new):
        if not overwrite:
            raise FileExistsError(f"{new.toString()} exists")
        system.delete(new, False)
    if not system.rename(old, new):
        raise OSError("the file system refused")


@contextmanager
def _told(problem: str) -> Iterator[None]:
    """What Java raises, as one sentence."""
    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        kind, said = str(cause.getClass().getSimpleName()), str(cause.getMessage() or "")
        first = said.strip().splitlines()[0] if said.strip() else "no reason was given"
        raise RedboxError(f"{problem}: {first} ({kind})") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RedboxError(f"{problem}: {error}") from error
