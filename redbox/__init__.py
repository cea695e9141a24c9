"""redbox: a Redis-backed, lightweight outbox with Lua claiming.

box = Box.open("redis://localhost:6379/0", name="orders")
async with box:
    await box.put(Event("user.created", {"id": 42}))
"""

import importlib as _importlib
import typing as _typing

from redbox.errors import (
    BatchRefused,
    BoxFull,
    BoxPaused,
    Conflict,
    DeliveryInProgress,
    DeliveryRefused,
    DurabilityNotReached,
    DurabilityUnsupported,
    EmbeddedServerFailed,
    ForeignKey,
    IdReused,
    InvalidDelivery,
    InvalidEvent,
    InvalidSetting,
    InvalidURL,
    LeaseLost,
    MissingExtra,
    NewerEvent,
    NewerLayout,
    NotPermitted,
    NotPublished,
    NotVerified,
    PartlyCommitted,
    PayloadTooLarge,
    RedboxError,
    Refused,
    Reject,
    RetryLater,
    StaleDelivery,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StreamLost,
    StreamTaken,
    TransactionFailed,
    Unavailable,
    UnexpectedReply,
    UnknownBox,
    UntrustedStore,
    UsageError,
    WrongSignature,
    WrongTimestamp,
)

if _typing.TYPE_CHECKING:
    from redbox.backoff import Backoff
    from redbox.box import Box
    from redbox.box.desk.conditions import Condition
    from redbox.box.reports import Canary, Dropped, ErrorGroup, Page, Pause, PausedKey, Replayed, Stats, Swept
    from redbox.box.why import Explanation, Situation
    from redbox.events import Claim, Event, Outcome, Phase, Receipt, Record, State, UniqueScope
    from redbox.publishers.base import Publisher
    from redbox.publishers.registry import open_publisher
    from redbox.relay import Breaker, Relay, Summary
    from redbox.relay.middleware import Middleware, Publish
    from redbox.routing import Routes
    from redbox.settings import Settings

__version__ = "0.1.0"

__all__ = [
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

# Imported together when the first of them is used: importing redis-py and msgspec takes a third of a second, and
# `redbox --help` needs neither.
_HOMES = {
    "redbox.backoff": ("Backoff",),
    "redbox.box": ("Box",),
    "redbox.box.desk.conditions": ("Condition",),
    "redbox.box.reports": (
        "Canary",
        "Dropped",
        "ErrorGroup",
        "Page",
        "Pause",
        "PausedKey",
        "Replayed",
        "Stats",
        "Swept",
    ),
    "redbox.box.why": ("Explanation", "Situation"),
    "redbox.events": ("Claim", "Event", "Outcome", "Phase", "Receipt", "Record", "State", "UniqueScope"),
    "redbox.publishers.base": ("Publisher",),
    "redbox.publishers.registry": ("open_publisher",),
    "redbox.relay": ("Breaker", "Relay", "Summary"),
    "redbox.routing": ("Routes",),
    "redbox.relay.middleware": ("Middleware", "Publish"),
    "redbox.settings": ("Settings",),
}


def __getattr__(name: str) -> _typing.Any:
    if not any(name in names for names in _HOMES.values()):
        raise AttributeError(f"module 'redbox' has no attribute {name!r}")
    for home, names in _HOMES.items():
        module = _importlib.import_module(home)
        globals().update({each: getattr(module, each) for each in names})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
