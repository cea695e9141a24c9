"""The public surface. A change of it changes this file and the changelog."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import redbox.consumer
from redbox import Box, Event, errors
from redbox.box.desk.desk import Desk
from redbox.box.operate import Operate
from redbox.consumer.guard import Attempt
from redbox.consumer.sync_guard import SyncAttempt
from redbox.errors import RedboxError
from redbox.sync import Box as SyncBox


def test_the_exports_of_redbox():
    assert redbox.__all__ == [
        "Backoff",
        "BatchRefused",
        "Box",
        "BoxFull",
        "BoxPaused",
        "Breaker",
        "Canary",
        "Claim",
        "Condition",
        "Conflict",
        "DeliveryInProgress",
        "DeliveryRefused",
        "Dropped",
        "DurabilityNotReached",
        "DurabilityUnsupported",
        "EmbeddedServerFailed",
        "ErrorGroup",
        "Event",
        "Explanation",
        "ForeignKey",
        "IdReused",
        "InvalidDelivery",
        "InvalidEvent",
        "InvalidSetting",
        "InvalidURL",
        "LeaseLost",
        "Middleware",
        "MissingExtra",
        "NewerEvent",
        "NewerLayout",
        "NotPermitted",
        "NotPublished",
        "NotVerified",
        "Outcome",
        "Page",
        "PartlyCommitted",
        "Pause",
        "PausedKey",
        "PayloadTooLarge",
        "Phase",
        "Publish",
        "Publisher",
        "Receipt",
        "Record",
        "RedboxError",
        "Refused",
        "Reject",
        "Relay",
        "Replayed",
        "RetryLater",
        "Routes",
        "Settings",
        "Situation",
        "StaleDelivery",
        "State",
        "Stats",
        "StoreError",
        "StoreFull",
        "StoreUnavailable",
        "StreamLost",
        "StreamTaken",
        "Summary",
        "Swept",
        "TransactionFailed",
        "Unavailable",
        "UnexpectedReply",
        "UniqueScope",
        "UnknownBox",
        "UntrustedStore",
        "UsageError",
        "WrongSignature",
        "WrongTimestamp",
        "__version__",
        "open_publisher",
    ]
    assert all(hasattr(redbox, name) for name in redbox.__all__)


def test_nothing_else_is_public():
    def is_part(name: str) -> bool:
        value = getattr(redbox, name)
        return not name.startswith("_") and not isinstance(value, ModuleType)

    found = sorted(name for name in vars(redbox) if is_part(name))
    assert found == [name for name in redbox.__all__ if name != "__version__"]


def test_the_version_is_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", redbox.__version__)


def test_event():
    assert Event.__struct_fields__ == (
        "event_type",
        "payload",
        "event_id",
        "headers",
        "metadata",
        "partition_key",
        "ordering_key",
        "available_at",
        "delay",
        "unique_key",
        "unique_scope",
        "content_type",
    )
    parameters = inspect.signature(Event).parameters
    positional = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    required = [name for name, each in parameters.items() if each.default is each.empty]
    assert (positional, required) == (["event_type", "payload"], ["event_type"])


def public(cls: type) -> list[str]:
    return sorted(name for name in dir(cls) if not name.startswith("_"))


def test_box():
    assert public(Box) == [
        "ack",
        "aclose",
        "beat",
        "can_end_wait",
        "claim",
        "claim_packed",
        "count",
        "drop",
        "end_wait",
        "error_groups",
        "exists",
        "export",
        "get",
        "kill",
        "list",
        "name",
        "names",
        "newest",
        "open",
        "page",
        "put",
        "put_many",
        "reap",
        "release",
        "renew",
        "replay",
        "retry",
        "settings",
        "stats",
        "sweep",
        "transaction",
        "unpack",
        "wait_for_hint",
        "where",
        "why",
    ]


def test_desk():
    assert public(Desk) == [
        "blocked_keys", "census", "check_puts", "failing", "incident", "rates_history", "recent_errors", "record_rates",
        "suggest",
    ]  # fmt: skip


def test_operate():
    assert public(Operate) == [
        "apply", "configure", "drop", "kill", "log", "note", "pause", "paused_keys", "reap", "release", "reschedule",
        "resume", "sweep",
    ]  # fmt: skip


def test_the_box_for_code_that_is_not_async():
    assert public(SyncBox) == [
        "close", "count", "get", "list", "name", "open", "put", "put_many", "replay", "stats", "transaction", "where",
    ]  # fmt: skip


def test_the_consumer_kit():
    assert redbox.consumer.__all__ == [
        "Delivery", "DeliveryInProgress", "DeliveryRefused", "Guard", "InvalidDelivery", "LeaseLost", "NotVerified",
        "StaleDelivery", "SyncGuard", "WrongSignature", "WrongTimestamp", "read", "read_batch", "verify",
        "verify_batch",
    ]  # fmt: skip
    assert all(hasattr(redbox.consumer, name) for name in redbox.consumer.__all__)
    assert public(redbox.consumer.Guard) == public(redbox.consumer.SyncGuard) == ["once"]
    assert public(Attempt) == public(SyncAttempt) == ["renew", "transaction"]
    assert list(inspect.signature(redbox.consumer.verify).parameters) == ["headers", "body", "secret", "tolerance"]


@pytest.mark.parametrize("cls", [Box, Desk, Operate, SyncBox, redbox.consumer.Guard, redbox.consumer.SyncGuard])
def test_only_a_few_arguments_are_positional(cls: type):
    """Options can then be added, reordered and deprecated without breaking a caller."""
    allowed = {"self", "cls", "url", "event", "events", "event_id", "relay", "claims", "ids", "limit"}
    allowed |= {"action", "field", "prefix"}  # of what is chosen from a few words
    allowed |= {"instance", "about", "longest", "packed", "wait"}  # of methods that relays use
    for name in public(cls):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, property):
            continue
        for parameter in inspect.signature(getattr(cls, name)).parameters.values():
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                assert parameter.name in allowed, f"{cls.__name__}.{name}({parameter.name})"


# --- errors ----------------------------------------------------------------------------------------------------


def exceptions() -> dict[str, type[RedboxError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, RedboxError) and value.__module__ == "redbox.errors"
    }


def drawn() -> dict[str, str | None]:
    """Class → parent, from the tree in the docstring."""
    found: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").split("\n"):
        match = re.match(r"    ((?:[│├└─ ]{4})*)([A-Z]\w+)(?:  |$)", line)
        if match:
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            found[match[2]] = path[depth - 1] if depth else None
    return found


def test_every_exception_can_be_imported_from_redbox():
    assert [name for name in exceptions() if name not in redbox.__all__] == []


def test_the_tree_in_the_docstring_is_the_tree():
    tree = {}
    for name, cls in exceptions().items():
        tree[name] = next((base.__name__ for base in cls.__bases__ if issubclass(base, RedboxError)), None)
    assert drawn() == tree


def test_every_exception_has_a_default_message():
    assert [name for name, cls in exceptions().items() if not (cls.__doc__ or "").split("\n")[0].endswith(".")] == []
    assert str(errors.BoxPaused()) == "The box is paused; resume it to claim again."
    assert str(errors.StoreUnavailable("gone")) == "gone"


def test_wrong_calls_are_value_errors():
    assert [name for name, cls in exceptions().items() if issubclass(cls, ValueError)] == [
        "UsageError",
        "InvalidEvent",
        "PayloadTooLarge",
        "InvalidSetting",
        "InvalidURL",
        "MissingExtra",
    ]


def test_redbox_is_typed():
    assert (Path(redbox.__file__).parent / "py.typed").is_file()
