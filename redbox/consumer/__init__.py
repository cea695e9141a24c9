"""For consumers of events: check who sent a delivery, and handle each event once.

    delivery = verify(request.headers, body, secret)
    async with guard.once(delivery) as first:
        if first:
            ...

`verify` raises NotVerified, and `once` raises StaleDelivery or DeliveryInProgress. Each has a `status`: the HTTP status
to answer, so that the relay does the right thing.
"""

import importlib as _importlib
import typing as _typing

from redbox.errors import (
    DeliveryInProgress,
    DeliveryRefused,
    InvalidDelivery,
    LeaseLost,
    NotVerified,
    StaleDelivery,
    WrongSignature,
    WrongTimestamp,
)

if _typing.TYPE_CHECKING:
    from redbox.consumer.deliveries import Delivery, read, read_batch
    from redbox.consumer.guard import Guard
    from redbox.consumer.signatures import verify, verify_batch
    from redbox.consumer.sync_guard import SyncGuard

__all__ = [
    "Delivery",
    "DeliveryInProgress",
    "DeliveryRefused",
    "Guard",
    "InvalidDelivery",
    "LeaseLost",
    "NotVerified",
    "StaleDelivery",
    "SyncGuard",
    "WrongSignature",
    "WrongTimestamp",
    "read",
    "read_batch",
    "verify",
    "verify_batch",
]

# Imported when first used: a consumer that only verifies does not need redis-py.
_HOMES = {
    "Delivery": "redbox.consumer.deliveries",
    "Guard": "redbox.consumer.guard",
    "SyncGuard": "redbox.consumer.sync_guard",
    "read": "redbox.consumer.deliveries",
    "read_batch": "redbox.consumer.deliveries",
    "verify": "redbox.consumer.signatures",
    "verify_batch": "redbox.consumer.signatures",
}


def __getattr__(name: str) -> _typing.Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'redbox.consumer' has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return __all__
