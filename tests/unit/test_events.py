"""Events: the validation of their fields, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, get_type_hints
from uuid import UUID

import msgspec
import pydantic
import pytest

from redbox import Event, InvalidEvent, UniqueScope
from redbox.events import (
    HTTP_HEADERS,
    RESERVED_HEADERS,
    EventFields,
    as_event,
    duration_ms,
    from_ms,
    is_reserved_header,
    to_ms,
)

MOMENT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def refusal(*args: Any, **fields: Any) -> InvalidEvent:
    with pytest.raises(InvalidEvent) as caught:
        Event(*args, **fields)
    return caught.value


# --- what is refused -------------------------------------------------------------------------------------------


def test_an_unknown_field_is_named_and_the_known_ones_listed():
    error = refusal("user.created", {"id": 42}, event_typo="x")
    assert error.field == "event_typo"
    assert "ordering_key" in str(error)


def test_a_missing_event_type_is_named():
    assert refusal().field == "event_type"
    assert refusal(payload={"id": 42}).field == "event_type"


def test_a_third_positional_argument_is_refused():
    assert refusal("user.created", {}, "some-id").field == "event"


@pytest.mark.req("EM-2")
@pytest.mark.parametrize(
    "event_type",
    [
        "", None, 7, b"user.created", "user created", "user\tcreated", "user.created\n", "user\x00created", "u" * 256,
        "__HIVE_DEFAULT_PARTITION__",
    ],
)  # fmt: skip
def test_event_type_is_a_bounded_printable_name_without_spaces(event_type: Any):
    error = refusal(event_type)
    assert error.field == "event_type"
    assert str(error).startswith("event_type: must be")


@pytest.mark.req("EM-2")
@pytest.mark.parametrize("event_type", ["u", "user.created", "user.created.v2", "користувач.створений", "u" * 255])
def test_a_valid_event_type_is_kept(event_type: str):
    assert Event(event_type).event_type == event_type


@pytest.mark.parametrize("field", ["partition_key", "ordering_key", "unique_key"])
@pytest.mark.parametrize("value", ["", 42, b"key", "line\nbreak", "tab\t", "k" * 256])
def test_a_key_is_a_bounded_printable_string(field: str, value: Any):
    assert refusal("user.created", **{field: value}).field == field


@pytest.mark.parametrize("field", ["partition_key", "ordering_key", "unique_key"])
@pytest.mark.parametrize("value", ["k", "user 42", "{user}:42", "k" * 255])
def test_a_key_can_contain_spaces_and_braces(field: str, value: str):
    assert getattr(Event("user.created", **{field: value}), field) == value


@pytest.mark.req("EM-1")
@pytest.mark.parametrize("event_id", ["", None, 42, "with space", "new\nline", "ünïcode", "i" * 129])
def test_event_id_is_printable_ascii_without_spaces(event_id: Any):
    assert refusal("user.created", event_id=event_id).field == "event_id"


@pytest.mark.req("EM-1")
@pytest.mark.parametrize("event_id", ["1", "order:42/paid", "i" * 128])
def test_the_caller_can_give_an_event_id(event_id: str):
    assert Event("user.created", event_id=event_id).event_id == event_id


@pytest.mark.parametrize("headers", [{"count": 1}, {"raw": b"bytes"}, {"none": None}, {1: "one"}])
def test_a_header_that_is_not_a_string_is_refused(headers: Any):
    assert refusal("user.created", headers=headers).field == "headers"


@pytest.mark.parametrize("headers", [["a", "b"], "a=b", {"a"}])
def test_headers_that_are_not_a_mapping_are_refused(headers: Any):
    error = refusal("user.created", headers=headers)
    assert str(error) == f"headers: must be a mapping of strings, not {type(headers).__name__}"


@pytest.mark.req("EM-9")
@pytest.mark.parametrize(
    "name", ["redbox-claim", "Redbox-Claim", "REDBOX-ANYTHING", "ce-id", "CE-Type", "webhook-id", "Webhook-Signature",
             "redbox_claim", "ce_type", "CE_Id", "webhook_id", "Webhook_Signature"]
)  # fmt: skip
def test_a_reserved_header_is_refused_in_any_case(name: str):
    error = refusal("user.created", headers={name: "x"})
    assert error.field == "headers"
    assert f"{name!r} is reserved" in str(error)


@pytest.mark.req("EM-9")
@pytest.mark.parametrize("name", sorted(HTTP_HEADERS))
def test_a_header_that_http_sets_itself_is_refused_in_any_case(name: str):
    """An HTTP target would never get it: it would be dropped silently."""
    for written in (name, name.upper(), name.title(), name.replace("-", "_"), name.replace("-", "_").title()):
        error = refusal("user.created", headers={"x-tenant": "1", written: "x"})
        assert error.field == "headers"
        assert f"{written!r} is set by HTTP itself" in str(error)
    assert "use the field content_type" in str(refusal("user.created", headers={"Content-Type": "text/plain"}))


def test_the_documents_name_every_header_that_is_refused():
    text = (Path(__file__).resolve().parents[2] / "docs" / "publishers.md").read_text().lower()
    assert [name for name in (*HTTP_HEADERS, *RESERVED_HEADERS) if f"`{name}`" not in text] == []


@pytest.mark.req("EM-9")
def test_a_reserved_header_of_a_stored_event_is_recognized():
    """A publisher leaves out headers that an earlier version accepted."""
    refused = ("Host", "content_length", "Content-Type", "CE_TYPE", "redbox_claim", "webhook-id")
    assert all(is_reserved_header(name) for name in refused)
    assert not any(is_reserved_header(name) for name in ("traceparent", "x-tenant", "X_Tenant", "host-name"))


@pytest.mark.req("EM-9")
@pytest.mark.parametrize(
    "name",
    [
        "redboxer",
        "ce",
        "cell",
        "ce.type",
        "x_redbox_claim",
        "Content_Language",
        "x-redbox-claim",
        "traceparent",
        "Content-Language",
    ],
)
def test_names_that_only_look_reserved_are_allowed(name: str):
    assert Event("user.created", headers={name: "x"}).headers == {name: "x"}


@pytest.mark.parametrize("name", ["", "with space", "colon:", "new\nline", "ünïcode", "n" * 256])
def test_an_invalid_header_name_is_refused(name: str):
    assert refusal("user.created", headers={name: "x"}).field == "headers"


@pytest.mark.parametrize("value", ["a\nb", "a\r\nInjected: yes", "a\rb", "nul\x00", "\x7f"])
def test_line_breaks_and_control_characters_in_a_header_are_refused(value: str):
    error = refusal("user.created", headers={"x-note": value})
    assert error.field == "headers"
    assert "'x-note'" in str(error)


def test_headers_are_bounded_in_total():
    assert refusal("user.created", headers={"x-long": "h" * (32 * 1024)}).field == "headers"
    assert Event("user.created", headers={"x": "h" * (32 * 1024 - 1)})


@pytest.mark.parametrize("metadata", [{"count": 1}, {1: "one"}, "text", {"m": "m" * 32 * 1024}])
def test_metadata_is_a_bounded_mapping_of_strings(metadata: Any):
    assert refusal("user.created", metadata=metadata).field == "metadata"


@pytest.mark.parametrize("delay", [-1, -0.001, timedelta(seconds=-1)])
def test_a_negative_delay_is_refused(delay: Any):
    assert str(refusal("user.created", delay=delay)) == "delay: must not be negative"


@pytest.mark.parametrize("delay", ["10", float("nan"), float("inf"), [1], timedelta(days=3661), 10.0**12])
def test_an_invalid_delay_is_refused(delay: Any):
    assert refusal("user.created", delay=delay).field == "delay"


def test_a_time_without_a_time_zone_is_refused():
    error = refusal("user.created", available_at=datetime(2030, 1, 2))  # noqa: DTZ001, RUF100  # that is the point
    assert error.field == "available_at"
    assert "time zone" in str(error)


@pytest.mark.parametrize("moment", ["2030-01-02", 1_893_456_000, timedelta(seconds=1)])
def test_a_time_that_is_not_a_datetime_is_refused(moment: Any):
    assert refusal("user.created", available_at=moment).field == "available_at"


def test_both_a_delay_and_a_time_are_refused():
    error = refusal("user.created", delay=5, available_at=MOMENT)
    assert str(error) == "delay: give either delay or available_at, not both"


@pytest.mark.parametrize("scope", ["all_live", "SOME", "", None, 1])
def test_an_unknown_scope_is_refused(scope: Any):
    error = refusal("user.created", unique_key="k", unique_scope=scope)
    assert error.field == "unique_scope"
    assert "ALL_LIVE, UNTOUCHED" in str(error)


@pytest.mark.parametrize("content_type", ["json", "", 5, "text/plain\nX: y", "a/" + "b" * 254])
def test_an_invalid_content_type_is_refused(content_type: Any):
    assert refusal("user.created", content_type=content_type).field == "content_type"


# --- what an event is ------------------------------------------------------------------------------------------


@pytest.mark.req("EM-1")
def test_defaults():
    event = Event("user.created")
    assert UUID(event.event_id).version == 7
    assert (event.payload, event.headers, event.metadata) == (None, {}, {})
    assert (event.partition_key, event.ordering_key, event.unique_key) == (None, None, None)
    assert (event.available_at, event.delay, event.content_type) == (None, None, None)
    assert event.unique_scope is UniqueScope.ALL_LIVE


def test_two_events_do_not_share_an_id():
    assert Event("user.created").event_id != Event("user.created").event_id


@pytest.mark.req("EM-15")
def test_an_event_cannot_be_changed():
    with pytest.raises(AttributeError):
        Event("user.created").event_type = "user.deleted"  # type: ignore[misc]


def test_all_fields_at_once():
    event = Event(
        "user.created",
        {"id": 42},
        event_id="my-id",
        headers={"x-tenant": "acme"},
        metadata={"source": "import"},
        partition_key="p",
        ordering_key="o",
        available_at=MOMENT,
        unique_key="u",
        unique_scope="UNTOUCHED",
        content_type="application/vnd.acme+json",
    )
    assert event.encode() == (b'{"id":42}', "application/vnd.acme+json")
    assert event.available_at == MOMENT


class UserCreated(msgspec.Struct, tag="user.created"):
    id: int


class Untagged(msgspec.Struct):
    id: int


def test_a_tagged_struct_is_an_event():
    event = as_event(UserCreated(42))
    assert event.event_type == "user.created"
    assert event.encode() == (b'{"type":"user.created","id":42}', "application/json")
    assert event.decode(UserCreated) == UserCreated(42)


def test_an_untagged_struct_says_how_to_tag_it():
    with pytest.raises(InvalidEvent, match=r'Untagged has no tag; declare it with tag="user\.created"'):
        as_event(Untagged(42))


@pytest.mark.parametrize("value", [{"id": 42}, "user.created", None])
def test_any_other_value_is_refused(value: Any):
    with pytest.raises(InvalidEvent, match=f"not {type(value).__name__}"):
        as_event(value)


# --- time ------------------------------------------------------------------------------------------------------


def test_milliseconds_and_back():
    assert from_ms(1_893_553_445_678) == datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert to_ms(datetime(2030, 1, 2, 3, 4, 5, 678_001, tzinfo=UTC)) == 1_893_553_445_679  # never before its time
    east = datetime(2030, 1, 2, 5, 4, 5, tzinfo=UTC).astimezone()
    assert from_ms(to_ms(east)) == east


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [(0, 0), (5, 5000), (0.25, 250), (timedelta(minutes=10), 600_000), (timedelta(days=3660), 316_224_000_000)],
)
def test_a_duration_is_seconds_or_a_timedelta(value: Any, milliseconds: int):
    assert duration_ms(value, "delay") == milliseconds


# --- Event.of --------------------------------------------------------------------------------------------------------


class Registered(msgspec.Struct, tag="user.registered"):
    id: int


class Renamed(msgspec.Struct, tag="Renamed"):
    event_type: ClassVar[str] = "user.renamed"
    id: int


@dataclass
class Deleted:
    event_type: ClassVar[str] = "user.deleted"
    id: int


class Moved(pydantic.BaseModel):
    event_type: ClassVar[str] = "user.moved"
    id: int


@pytest.mark.req("EM-3")
@pytest.mark.parametrize(
    ("value", "event_type"),
    [
        (Registered(id=42), "user.registered"),
        (Renamed(id=42), "user.renamed"),
        (Deleted(id=42), "user.deleted"),
        (Moved(id=42), "user.moved"),
    ],
    ids=["tag", "struct", "dataclass", "pydantic"],
)
def test_of_takes_the_type_from_the_class_of_the_payload(value: Any, event_type: str):
    event = Event.of(value, ordering_key="user-42", delay=5, unique_key="u", headers={"x-a": "1"}, event_id="one")
    assert (event.event_type, event.payload, event.event_id) == (event_type, value, "one")
    assert (event.ordering_key, event.delay, event.unique_key, event.headers) == ("user-42", 5, "u", {"x-a": "1"})
    assert event.decode(type(value)) == value
    payload = {"type": value.__struct_config__.tag, "id": 42} if isinstance(value, msgspec.Struct) else {"id": 42}
    assert event.decode() == payload


def test_a_put_struct_has_the_same_type_as_with_of():
    assert as_event(Renamed(id=42)).event_type == "user.renamed"
    assert as_event(Registered(id=42)).event_type == "user.registered"


class Numbered(msgspec.Struct, tag=7):
    pass


class WrongType(msgspec.Struct):
    event_type: ClassVar[Any] = 3


class InField(msgspec.Struct, tag="a"):
    event_type: str = "b"


@dataclass
class InDataclassField:
    event_type: str = "b"


class InModelField(pydantic.BaseModel):
    event_type: str = "b"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            Numbered(),
            r'has the tag 7, and an event type is a string; declare it with tag="user\.created", or use Event\(',
        ),
        (WrongType(), r"WrongType\.event_type must be a string; add event_type: ClassVar\[str\] ="),
        (
            InField(),
            r"is a field of InField.*declare it as a ClassVar\[str\], or use Event\(value\.event_type, value\)",
        ),
        (InDataclassField(), "is a field of InDataclassField"),
        (InModelField(), "is a field of InModelField"),
        (Deleted, "Deleted is a class; give an instance of it"),
        (Event("a"), "is an Event already"),
        ({"id": 42}, r"dict does not declare one; add event_type.* or use Event\("),
        (None, "NoneType does not declare one"),
        (b"x", "bytes does not declare one"),
    ],
)
def test_of_says_what_to_do_without_a_declared_type(value: Any, message: str):
    with pytest.raises(InvalidEvent, match=message):
        Event.of(value)


def test_of_validates_the_type_and_the_fields():
    class Spaced(msgspec.Struct, tag="two words"):
        pass

    with pytest.raises(InvalidEvent, match=r"event_type.*without spaces"):
        Event.of(Spaced())
    with pytest.raises(InvalidEvent, match="ordering_key"):
        Event.of(Registered(id=1), ordering_key="")
    with pytest.raises(InvalidEvent, match="an event has no such field"):
        Event.of(Registered(id=1), key="user-1")  # type: ignore[call-arg]
    for name in ("event_type", "payload"):
        with pytest.raises(InvalidEvent, match=rf"{name}: Event\.of takes it from Registered"):
            Event.of(Registered(id=1), **{name: "x"})  # type: ignore[arg-type]


def test_of_takes_the_fields_of_an_event():
    fields = [name for name in Event.__struct_fields__ if name not in ("event_type", "payload")]
    assert list(get_type_hints(EventFields)) == fields
    assert get_type_hints(EventFields) == {name: get_type_hints(Event)[name] for name in fields}
