"""redbox: a Redis-backed, lightweight outbox with Lua claiming.

box = Box.open("redis://localhost:6379/0", name="orders")
async with box:
    await box.put(Event("user.created", {"id": 42}))
"""

from redbox.box import Box
from redbox.errors import (
    BatchRefused,
    BoxFull,
    BoxPaused,
    Conflict,
    IdReused,
    InvalidEvent,
    RedboxError,
    StoreError,
    StoreUnavailable,
)
from redbox.events import Claim, Event, Outcome, Phase, Receipt, Record, State, UniqueScope
from redbox.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "BatchRefused",
    "Box",
    "BoxFull",
    "BoxPaused",
    "Claim",
    "Conflict",
    "Event",
    "IdReused",
    "InvalidEvent",
    "Outcome",
    "Phase",
    "Receipt",
    "Record",
    "RedboxError",
    "Settings",
    "State",
    "StoreError",
    "StoreUnavailable",
    "UniqueScope",
    "__version__",
]
