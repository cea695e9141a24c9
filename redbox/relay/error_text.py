"""Errors as an operator reads them."""

from __future__ import annotations

from redbox.errors import RedboxError


def error_words(error: BaseException) -> str:
    """Ours are sentences; of others the class says most. Whatever a publisher raises, this says something, in text
    that every log can write."""
    name = type(error).__name__
    try:
        text = str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:
        return f"{name}, which cannot be put into words"
    if isinstance(error, BaseExceptionGroup):
        text += ": " + "; ".join(error_words(each) for each in error.exceptions)
    if isinstance(error, RedboxError) and text:
        return text
    return f"{name}: {text}" if text else name
