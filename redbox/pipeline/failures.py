"""Errors of Spark: the one sentence in a hundred lines that a person needs."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from py4j.protocol import Py4JNetworkError

from redbox import errors
from redbox.errors import RedboxError, UsageError

_OURS: Final = re.compile(r"^(?:.*?: )?redbox\.errors\.(\w+): (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
#: An error of Spark's own: its class, a sentence of one or more lines, and a code.
_SPARKS: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] (.+?)(?: SQLSTATE: |\n\n|\Z)", re.DOTALL)
_JAVAS: Final = re.compile(r"^(?:: |Caused by: )[\w.$]+(?:Exception|Error): (.+)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):"
_OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"
#: Raised by calls into Spark when its Java process has ended. BrokenPipeError is left out: Py4J wraps its own, so a
#: bare one means that the reader of our output has gone.
SPARK_IS_GONE: Final = (
    Py4JNetworkError, ConnectionAbortedError, ConnectionRefusedError, ConnectionResetError, EOFError,
)  # fmt: skip
DIED: Final = (
    "Spark died, most likely for lack of memory; give it more by setting spark.driver.memory, as in --conf "
    "spark.driver.memory=4g, and on a cluster spark.executor.memory"
)


def our_line(text: str) -> str | None:
    """The class and the sentence of the redbox error that an error of Spark quotes; None if it quotes none."""
    found = _OURS.findall(text)
    return f"redbox.errors.{found[-1][0]}: {found[-1][1]}" if found else None


def translate(error: BaseException, *, introduction: str = "Spark says: ") -> RedboxError:
    """An error of Spark as the redbox error that it quotes; an error of Spark's own as one sentence without codes,
    after the `introduction`."""
    if isinstance(error, RedboxError):
        return error
    text = str(error)
    if isinstance(error, SPARK_IS_GONE) or _OUT_OF_MEMORY in text:
        return RedboxError(DIED)
    found = _OURS.findall(text)
    if found:
        name, sentence = found[-1]
        return _made(name, sentence)
    if _TRACEBACK in text:
        return RedboxError(f"a task failed: {_last_line(text.rpartition(_TRACEBACK)[2])}")
    own = _SPARKS.search(text)
    if own is not None:
        return _in_words(own[1], " ".join(own[2].split()), introduction)
    java = _JAVAS.search(text)
    return RedboxError(f"Spark failed: {java[1].strip() if java else _first_line(text) or type(error).__name__}")


def _made(name: str, sentence: str) -> RedboxError:
    """A redbox error from its finished sentence; the constructors of some take other arguments."""
    kind = getattr(errors, name, RedboxError)
    if not (isinstance(kind, type) and issubclass(kind, RedboxError)):
        kind = RedboxError
    made: RedboxError = kind.__new__(kind)
    made.args = (sentence,)
    return made


def _in_words(name: str, sentence: str, introduction: str) -> RedboxError:
    if name == "PATH_NOT_FOUND":
        return UsageError(f"there is nothing at {_path(sentence)}")
    if name == "UNABLE_TO_INFER_SCHEMA":
        return UsageError(f"there is no {sentence.partition('schema for ')[2].partition('. ')[0]} file to read there")
    if name.startswith("FAILED_READ_FILE"):
        where = re.search(r"\bfile ((?:\w+:)?/\S+?)\.?(?:\s|$)", sentence)
        return UsageError(f"{_path(where[1]) if where else 'a file'} cannot be read; is it of another format?")
    return RedboxError(f"{introduction}{sentence}")


def _path(text: str) -> str:
    return re.sub(r"^.*?(?:file:)?(?=\w*:?/)", "", text, count=1).rstrip(".")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _last_line(text: str) -> str:
    """The error at the end of a traceback: the last line that is not Spark's."""
    lines = [line.split(" SQLSTATE:")[0].strip() for line in text.split("\n\n", maxsplit=1)[0].splitlines()]
    return next((line for line in reversed(lines) if line), "no reason was given")


def quote_ours_last() -> None:
    """Makes redbox's sentence the last line of an error that Spark raises.

    Spark quotes the traceback of a Python source in its own error, followed by codes, the state of the query and errors
    of its own. There is no setting or hook to change that, so this wraps PySpark's conversion of Java errors, once per
    process: an error that quotes one of ours gets it as a note, which Python prints last. Nothing else changes. Without
    the function that it wraps it does nothing.
    """
    from pyspark.errors.exceptions import captured

    original: Any = getattr(captured, "convert_exception", None)
    if original is None or hasattr(original, "quotes_ours_last"):
        return

    @functools.wraps(original)
    def convert(*args: Any, **options: Any) -> Any:
        error = original(*args, **options)
        text = str(error).rstrip()
        line = our_line(text)
        if line is not None and not text.endswith(line):
            error.add_note(line)
        return error

    convert.quotes_ours_last = True  # type: ignore[attr-defined]
    captured.convert_exception = convert
