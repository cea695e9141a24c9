"""Errors are copied, pickled and logged without change: to callers of a batch and to other processes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from redbox import errors
from redbox.errors import RedboxError

#: One of each class that takes more than a message.
SPECIAL: dict[str, RedboxError] = {
    "InvalidEvent": errors.InvalidEvent("delay", "must not be negative"),
    "PayloadTooLarge": errors.PayloadTooLarge("payload", "is too large"),
    "MissingExtra": errors.MissingExtra("memory:", "testing"),
    "Conflict": errors.Conflict("a", "b", "user:42"),
    "IdReused": errors.IdReused("a", "payload"),
    "BatchRefused": errors.BatchRefused("event 3 was refused", [], 3),
    "RetryLater": errors.RetryLater(30, "HTTP 503"),
}
CLASSES = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, RedboxError)]
EXAMPLES = [SPECIAL.get(cls.__name__) or cls("what happened") for cls in CLASSES]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
@pytest.mark.parametrize("way", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_an_error_survives_being_copied_and_pickled(example: RedboxError, way: Callable[[RedboxError], RedboxError]):
    other = way(example)
    assert type(other) is type(example)
    assert str(other) == str(example)
    assert vars(other) == vars(example)


def test_messages_say_what_was_refused():
    assert str(SPECIAL["Conflict"]) == "event a was not put: unique_key 'user:42' is held by event b"
    assert str(SPECIAL["InvalidEvent"]) == "delay: must not be negative"
    assert "a different payload" in str(SPECIAL["IdReused"])
    assert str(SPECIAL["MissingExtra"]).endswith("pip install 'redbox-outbox[testing]'")
