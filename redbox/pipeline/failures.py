"""What a failed job is told as: Spark wraps our sentence in a hundred lines."""

from __future__ import annotations

import re
from typing import Final

from redbox import errors
from redbox.errors import RedboxError

_OURS: Final = re.compile(r"^(?:.*?: )?redbox\.errors\.(\w+): (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)


def translate(error: BaseException) -> RedboxError:
    """Spark's error as the error of ours that it carries; one of Spark's own with its first line."""
    if isinstance(error, RedboxError):
        return error
    text = str(error)
    found = _OURS.findall(text)
    if found:
        name, sentence = found[-1]
        kind = getattr(errors, name, RedboxError)
        try:
            made = kind(sentence)
        except TypeError:  # some take more than their sentence
            made = RedboxError(sentence)
        return made if isinstance(made, RedboxError) else RedboxError(sentence)
    lines = [line for line in text.splitlines() if line.strip()]
    return RedboxError(f"Spark failed: {lines[0].strip() if lines else type(error).__name__}")
