"""Errors as an operator reads them."""

from __future__ import annotations

from redbox.errors import RedboxError


def error_text(error: BaseException) -> str:
    """The message of an error of redbox; for others, the class and the message.

    Never fails, whatever a publisher raises, and returns text that every log can write.
    """
    name = type(error).__name__
    try:
        text = str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:
        return f"{name}, which has no readable message"
    if isinstance(error, BaseExceptionGroup):
        text += ": " + "; ".join(error_text(each) for each in error.exceptions)
    if isinstance(error, RedboxError) and text:
        return text
    return f"{name}: {text}" if text else name
