"""A finding of `diagnose`: what was found, what it means, and what to do."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How grave a finding is. `error`: events are lost or stuck, or can be; `warning`: look at it soon."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"


class Finding(msgspec.Struct, frozen=True):
    """One result of a check. `meaning` and `remedy` are empty where there is nothing to explain or to do.
    The commands of a remedy are between backticks."""

    severity: Severity
    check: str
    sentence: str
    meaning: str = ""
    remedy: str = ""


def error(check: str, sentence: str, meaning: str, remedy: str) -> Finding:
    return Finding(Severity.ERROR, check, sentence, meaning, remedy)


def warning(check: str, sentence: str, meaning: str, remedy: str) -> Finding:
    return Finding(Severity.WARNING, check, sentence, meaning, remedy)


def info(check: str, sentence: str, meaning: str = "", remedy: str = "") -> Finding:
    return Finding(Severity.INFO, check, sentence, meaning, remedy)


def ok(check: str, sentence: str) -> Finding:
    return Finding(Severity.OK, check, sentence)
