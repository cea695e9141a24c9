"""Makes redbox's sentence the last line of an error that Spark raises.

Spark quotes the traceback of a Python source in its own error, and adds codes, the state of the query and errors of its
own behind it. It has no setting or hook to change that. So PySpark's conversion of Java errors is wrapped: an error
that quotes one of ours gets it as a note, which Python prints last. Nothing else about the error changes.
"""

from __future__ import annotations

import functools
from typing import Any

from pyspark.errors.exceptions import captured

from redbox.pipeline.failures import our_line


def put_ours_last() -> None:
    """Wraps PySpark's conversion, once in a process. Without the function that it wraps it does nothing."""
    original: Any = getattr(captured, "convert_exception", None)
    if original is None or hasattr(original, "puts_ours_last"):
        return

    @functools.wraps(original)
    def convert(*args: Any, **options: Any) -> Any:
        error = original(*args, **options)
        text = str(error).rstrip()
        line = our_line(text)
        if line is not None and not text.endswith(line):
            error.add_note(line)
        return error

    convert.puts_ours_last = True  # type: ignore[attr-defined]
    captured.convert_exception = convert
