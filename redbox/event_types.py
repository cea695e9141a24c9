"""The event type of a typed payload: its class declares the type once, and `Event.of` reads it.

class UserCreated(msgspec.Struct, tag="user.created"): ...

@dataclass
class UserCreated:
    event_type: ClassVar[str] = "user.created"
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Final, Protocol

import msgspec

from redbox.errors import InvalidEvent

_DECLARE: Final = 'add event_type: ClassVar[str] = "user.created" to the class'


class Declared(Protocol):
    """An object whose class declares the event type."""

    event_type: ClassVar[str]


def event_type_of(value: Any) -> str:
    """The event type that the class of a value declares: by `event_type`, or a msgspec Struct by its tag."""
    kind = type(value)
    if isinstance(value, type):
        raise InvalidEvent("event", f"{value.__name__} is a class; give an instance of it")
    if "event_type" in _fields_of(value):
        raise InvalidEvent(
            "event_type",
            f"is a field of {kind.__name__}, so each value may have another one; declare it as a ClassVar[str], "
            "or use Event(value.event_type, value)",
        )
    declared = getattr(kind, "event_type", None)
    if isinstance(declared, str):
        return declared
    instead = 'or use Event("user.created", value)'
    if declared is not None:
        raise InvalidEvent("event_type", f"{kind.__name__}.event_type must be a string; {_DECLARE}, {instead}")
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        if isinstance(tag, str):
            return tag
        has = "has no tag" if tag is None else f"has the tag {tag}, and an event type is a string"
        raise InvalidEvent("event_type", f'{kind.__name__} {has}; declare it with tag="user.created", {instead}')
    raise InvalidEvent("event_type", f"{kind.__name__} does not declare one; {_DECLARE}, {instead}")


def _fields_of(value: Any) -> tuple[str, ...]:
    """The fields of a value of a typed class, which belong to its payload."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return tuple(getattr(type(value), "model_fields", ()))
