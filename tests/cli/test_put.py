"""`redbox put`."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redbox import Box, Event, Record, keys
from redbox.settings import MAX_PAYLOAD
from tests.cli.conftest import Redbox


def stored(redbox: Redbox, event_id: str) -> Record:
    record = redbox.within(lambda box: box.get(event_id))
    assert record is not None
    return record


# --- one -------------------------------------------------------------------------------------------------------


def test_put_prints_the_id(redbox: Redbox):
    event_id = redbox("put", "user.created", '{"id": 42}').stdout.strip()
    event = stored(redbox, event_id).event
    assert (event.event_type, event.payload, event.content_type) == (
        "user.created", b'{"id": 42}', "application/json",
    )  # fmt: skip


def test_put_as_json(redbox: Redbox):
    receipt = redbox.json("put", "a", "--id", "e1")
    nothing = {"refused": None, "reason": None, "holder": None, "replaced": None}
    assert receipt == {"event_id": "e1", "created": True, "durability": "server", **nothing}


def test_replace(redbox: Redbox):
    redbox("put", "a", "--id", "e1", "--unique-key", "u", "--delay", "1h")
    done = redbox("put", "a", "--id", "e2", "--unique-key", "u", "--on-conflict", "replace")
    assert (done.stdout, "replaced event e1" in done.stderr) == ("e2\n", True)
    assert redbox.json("put", "a", "--unique-key", "u", "--on-conflict", "replace")["replaced"] == "e2"


def test_every_option_is_stored(redbox: Redbox):
    redbox(
        "put", "a", "1", "--id", "e1", "--header", "source=cli", "--header", "x=a=b", "--metadata", "who=me",
        "--partition-key", "p", "--ordering-key", "o", "--unique-key", "u", "--unique-scope", "untouched",
        "--content-type", "application/vnd.a+json", "--at", "2099-01-01T00:00:00Z",
    )  # fmt: skip
    event = stored(redbox, "e1").event
    assert event.headers == {"source": "cli", "x": "a=b"}
    assert event.metadata == {"who": "me"}
    assert (event.partition_key, event.ordering_key, event.unique_key) == ("p", "o", "u")
    assert (event.unique_scope, event.content_type) == ("UNTOUCHED", "application/vnd.a+json")
    assert event.available_at == datetime(2099, 1, 1, tzinfo=UTC)


def test_delay(redbox: Redbox):
    redbox("put", "a", "--id", "e1", "--delay", "10m")
    record = stored(redbox, "e1")
    assert record.available_at - record.created_at == timedelta(minutes=10)


def test_payload_from_stdin_and_file(redbox: Redbox):
    redbox("put", "a", "-", "--id", "in", input='{"from": "stdin"}\n')
    Path("payload.json").write_text('{"from": "file"}')
    redbox("put", "a", "@payload.json", "--id", "file")
    assert stored(redbox, "in").event.decode() == {"from": "stdin"}
    assert stored(redbox, "file").event.payload == b'{"from": "file"}'


def test_no_payload_is_null_or_empty(redbox: Redbox):
    redbox("put", "a", "--id", "json")
    redbox("put", "a", "--id", "text", "--content-type", "text/plain")
    assert stored(redbox, "json").event.payload == b"null"
    assert stored(redbox, "text").event.payload == b""


def test_a_payload_of_another_content_type_is_stored_unchanged(redbox: Redbox):
    binary = bytes(range(256))
    redbox("put", "a", "-", "--id", "bin", "--content-type", "application/octet-stream", input=binary)
    redbox("put", "a", "{not json", "--id", "text", "--content-type", "text/plain")
    assert stored(redbox, "bin").event.payload == binary
    assert stored(redbox, "text").event.payload == b"{not json"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "{id: 42}"), "the payload is not JSON .*--content-type text/plain"),
        (("a", "-"), "stdin is not JSON"),
        (("a", "@f.txt"), "f.txt is not JSON"),
        (("a", "x", "--content-type", "application/json"), "is not JSON"),
        (("a", "--header", "x"), "'--header': write NAME=VALUE"),
        (("a", "--delay", "soon"), "'soon' is not a duration"),
        (("a", "--at", "2099-01-01"), "has no time zone"),
        (("a", "--delay", "1s", "--at", "2099-01-01T00:00Z"), "give either --delay or --at, not both"),
        (("a b",), "event_type: must be printable and without spaces"),
        (("a", "--id", "ä"), "event_id: must be 1 to 128 printable ASCII"),
        (("a", "--durability", "maybe"), "durability 'maybe': use 'server', 'fsync' or 'replicas=N'"),
        (("a", "--header", "redbox-x=1"), "is reserved"),
        ((), "Missing argument 'TYPE'"),
        (("a", "@"), "write the name of the file after @"),
        (("--many", "@"), "write the name of the file after @"),
    ],
)
def test_invalid_arguments_are_reported_and_nothing_is_put(redbox: Redbox, arguments: tuple[str, ...], message: str):
    Path("f.txt").write_text("no")
    assert re.search(message, redbox.error("put", *arguments, code=2))
    assert redbox("boxes").stdout == ""


def test_a_missing_file_is_reported(redbox: Redbox):
    assert redbox.error("put", "a", "@nofile", code=1) == "nofile: No such file or directory"


def test_a_repeated_put_is_noted(redbox: Redbox):
    redbox("put", "a", "1", "--id", "e1")
    again = redbox("put", "a", "1", "--id", "e1")
    assert again.stdout == "e1\n"
    assert "event e1 is already stored; nothing was changed, but a missing body was stored again" in again.stderr
    assert redbox.json("put", "a", "1", "--id", "e1")["created"] is False
    assert "with a different payload" in redbox.error("put", "a", "2", "--id", "e1", code=1)


def test_a_conflict_fails_or_is_skipped(redbox: Redbox):
    redbox("put", "a", "--id", "holder", "--unique-key", "u")
    assert "is held by event holder" in redbox.error("put", "a", "--unique-key", "u", code=1)
    skipped = redbox("put", "a", "--unique-key", "u", "--on-conflict", "skip")
    assert skipped.stdout == ""
    assert "skipped: " in skipped.stderr
    assert redbox.json("put", "a", "--unique-key", "u", "--on-conflict", "skip")["holder"] == "holder"


# --- many ------------------------------------------------------------------------------------------------------


def ndjson(*events: Any) -> str:
    return "".join(f"{event if isinstance(event, str) else json.dumps(event)}\n" for event in events)


def test_many_from_stdin(redbox: Redbox):
    text = ndjson(
        {
            "event_type": "a", "event_id": "e1", "payload": {"n": 1}, "headers": {"h": "1"}, "metadata": {"m": "1"},
            "partition_key": "p", "ordering_key": "o", "unique_key": "u", "unique_scope": "UNTOUCHED", "delay": "10m",
        },
        "",
        {"event_type": "a", "event_id": "e2", "payload": "text", "available_at": "2099-01-01T00:00:00Z"},
        {"event_type": "a", "event_id": "e3", "payload": "text", "content_type": "text/plain", "delay": 1.5},
        '{"event_type": "a", "event_id": "e4", "payload": {"big":  123456789012345678901234567890}}',
        {"event_type": "a", "event_id": "e5", "ordering_key": None},
    )  # fmt: skip
    result = redbox("put", "--many", input=text)
    assert result.stdout == "e1\ne2\ne3\ne4\ne5\n"
    assert "5 put\n" in result.stderr
    first = stored(redbox, "e1")
    assert first.event.decode() == {"n": 1}
    assert (first.event.headers, first.event.metadata) == ({"h": "1"}, {"m": "1"})
    assert (first.event.partition_key, first.event.ordering_key, first.event.unique_key) == ("p", "o", "u")
    assert first.available_at - first.created_at == timedelta(minutes=10)
    assert (stored(redbox, "e2").event.payload, stored(redbox, "e2").event.content_type) == (
        b'"text"', "application/json",
    )  # fmt: skip
    assert stored(redbox, "e3").event.payload == b"text"
    assert stored(redbox, "e4").event.payload == b'{"big":  123456789012345678901234567890}'
    assert stored(redbox, "e5").event.payload == b"null"


def test_many_from_a_file_in_batches_and_in_order(redbox: Redbox):
    Path("events.ndjson").write_text(ndjson(*({"event_type": "a", "event_id": f"e{n}"} for n in range(2500))))
    assert redbox("put", "--many", "@events.ndjson").stdout.split() == [f"e{n}" for n in range(2500)]
    again = redbox("--json", "put", "--many", "@events.ndjson")
    assert not any(json.loads(line)["created"] for line in again.stdout.splitlines())
    note = json.loads(again.stderr.splitlines()[-1])
    assert note == {"note": "0 put, 2,500 already stored", "created": 0, "repeated": 2500, "refused": 0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"event_type": "a", "payload_base64": "?"}, "payload_base64: is not base64"),
        ({"event_type": "a", "payload_base64": 1}, "payload_base64: is not base64"),
        ({"event_type": "a", "state": "DEAD", "evnt": 1}, "evnt: an event has no such field; it has event_type"),
        ({"event_type": "a", "evnt": 1}, "evnt: an event has no such field; it has event_type"),
        ("nope", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ({"payload": 1}, "event_type"),
        ({"event_type": 5}, "event_type: must be"),
        ({"event_type": "a", "delay": "soon"}, "delay: 'soon' is not a duration"),
        ({"event_type": "a", "delay": -1}, "delay: must not be negative"),
        ({"event_type": "a", "available_at": "2099-01-01"}, "available_at: must have a time zone"),
        ({"event_type": "a", "available_at": "x"}, "available_at: 'x' is not a time in ISO 8601"),
        (
            {"event_type": "a", "payload": {}, "content_type": "text/plain"},
            "payload: a value of type dict cannot be encoded",
        ),
        ({"event_type": "a", "payload": "x" * MAX_PAYLOAD}, "payload: is 1,048,578 bytes"),
    ],
)
def test_an_invalid_line_is_reported_and_the_lines_before_it_are_put(redbox: Redbox, line: Any, message: str):
    text = ndjson({"event_type": "a", "event_id": "before"}, line, {"event_type": "a", "event_id": "after"})
    result = redbox("put", "--many", input=text, code=1)
    assert result.stdout == "before\n"
    assert f"error: line 2: {message}" in result.stderr
    assert "the lines before it were processed: 1 put" in result.stderr
    assert [event["event_id"] for event in redbox.lines("list")] == ["before"]


def test_a_refused_line_stops_or_is_skipped(redbox: Redbox):
    redbox.put(Event("a", 1, event_id="e1"))
    text = ndjson("", {"event_type": "b", "event_id": "e2"}, {"event_type": "a", "event_id": "e1"}, {"event_type": "c"})
    stopped = redbox("put", "--many", input=text, code=1)
    assert stopped.stdout == "e2\n"
    assert "error: line 3: event_id e1 already belongs" in stopped.stderr
    skipped = redbox("put", "--many", "--on-conflict", "skip", input=text)
    assert len(skipped.stdout.split()) == 2
    assert "1 put, 1 already stored, 1 refused" in skipped.stderr


PAYLOADS = {
    "json": (b'{"a":1.10,"b":"\xc3\xbc"}', "application/json"),
    "spaced": (b' {"a": 1.10,\n "b": 2 }\n', "application/json"),
    "null": (b"null", "application/json"),
    "big": (b'{"n": 123456789012345678901234567890}', "application/vnd.shop+json"),
    "wrong": (b"not json \xff", "application/json"),
    "surrogate": (b'"\\ud800"', "application/json"),
    "text": ("ü\r\n\x00".encode(), "text/plain; charset=utf-8"),
    "latin": (b"\xfc", "text/plain; charset=latin-1"),
    "empty": (b"", "text/plain"),
    "bytes": (bytes(range(256)), "application/octet-stream"),
    "msgpack": (b"\x81\xa1a\x01", "application/msgpack"),
}


@pytest.mark.req("EM-1", "EM-3")
@pytest.mark.parametrize("where", ["another box", "the same box", "the same box after a drop"])
def test_lines_printed_by_dead_list_can_be_put(redbox: Redbox, where: str):
    events = [
        Event(
            "user.created", payload, event_id=name, content_type=content_type, headers={"x-h": "ü"},
            metadata={"m": "1"}, partition_key="p", ordering_key="o", unique_key=f"u-{name}", unique_scope="UNTOUCHED",
        )
        for name, (payload, content_type) in PAYLOADS.items()
    ]  # fmt: skip

    async def kill(box: Box) -> None:
        await box.put_many(events)
        for _ in events:
            await box.kill(await box.claim("relay-1"), reason="HTTP 500")

    redbox.within(kill)
    printed = redbox("--json", "dead", "list").stdout_bytes
    if where == "the same box after a drop":
        redbox.within(lambda box: box.operate.drop(list(PAYLOADS), who="ada", why="put again"))
    box = "other" if where == "another box" else "default"
    result = redbox("--box", box, "put", "--many", input=printed)
    assert result.stdout.split() == list(PAYLOADS)
    if where == "the same box":
        assert "0 put, 11 already stored" in result.stderr  # the same content, byte for byte
        return
    for event in events:
        record = redbox.within(lambda opened, event=event: opened.get(event.event_id), box)
        assert record is not None
        assert (record.state, record.attempts, record.last_error) == ("PENDING", 0, None)
        assert record.available_at == record.created_at
        for field in Event.__struct_fields__:
            if field != "available_at":
                assert getattr(record.event, field) == getattr(event, field), (event.event_id, field)


CLASH = "line 1: payload and payload_base64 differ: remove payload_base64 to put payload, or payload"


@pytest.mark.req("EM-1")
@pytest.mark.parametrize(
    ("stored_bytes", "content_type", "edit"),
    [
        (b'{"amount": 5}', "application/json", {"amount": 7}),
        (b'{"paid": true}', "application/json", {"paid": 1}),
        (b'{"amount": 5}', "application/json", {"amount": 5, "more": 1}),
        (b"[1, 2]", "application/json", [1]),
        (b"[1, 2]", "application/json", [1, 3]),
        (b'{"amount": 5}', "application/json", None),
        (b"not json", "application/json", 7),
        (b"\x81\xa1a\x01", "application/msgpack", {"a": 2}),
        (b"\xfc", "text/plain; charset=latin-1", "other"),
    ],
)
def test_stored_bytes_never_replace_an_edited_payload(
    redbox: Redbox, stored_bytes: bytes, content_type: str, edit: Any
):
    redbox.kill(Event("a", stored_bytes, event_id="e1", content_type=content_type))
    [line] = redbox.lines("dead", "list")
    line["payload"] = edit
    error = redbox("--box", "repaired", "put", "--many", input=ndjson(line), code=1).stderr
    assert CLASH in error
    assert "e1" not in redbox("--box", "repaired", "boxes").stdout
    del line["payload_base64"]
    if content_type == "application/json":
        redbox("--box", "repaired", "put", "--many", input=ndjson(line))
        record = redbox.within(lambda box: box.get("e1"), "repaired")
        assert record is not None
        assert record.event.decode() == edit


@pytest.mark.parametrize(
    ("payload", "encoded"), [({"b": [1, None], "a": 1.5}, b'{"a": 1.50, "b": [1, null]}'), ("x", b' "x"'), (1, b"1.0")]
)
def test_equal_payloads_are_put_with_the_exact_bytes(redbox: Redbox, payload: Any, encoded: bytes):
    fields = {"event_type": "a", "event_id": "e1", "content_type": "application/json", "payload": payload}
    redbox("put", "--many", input=ndjson(fields | {"payload_base64": base64.b64encode(encoded).decode()}))
    assert stored(redbox, "e1").event.payload == encoded


def test_a_printed_event_that_is_scheduled_keeps_its_time(redbox: Redbox):
    redbox.put(Event("a", event_id="later", available_at=datetime(2099, 1, 1, tzinfo=UTC)))
    redbox("--box", "other", "put", "--many", input=redbox("--json", "list").stdout_bytes)
    record = redbox.within(lambda box: box.get("later"), "other")
    assert record is not None
    assert record.available_at == datetime(2099, 1, 1, tzinfo=UTC)


def test_a_damaged_event_is_not_put_without_its_payload(redbox: Redbox):
    redbox.put(Event("a", {"n": 1}, event_id="e1"))
    redbox.within(lambda box: box._store.exchange([("DEL", keys.body("default", "e1"))]))
    error = redbox("--box", "other", "put", "--many", input=redbox("--json", "list").stdout_bytes, code=1).stderr
    assert "line 1: this event cannot be put: event e1 cannot be read" in error


def test_many_takes_only_a_source(redbox: Redbox):
    assert "give - for stdin or @FILE" in redbox.error("put", "--many", "user.created", code=2)
    assert "give - for stdin or @FILE" in redbox.error("put", "--many", "@f", "x", code=2)
    assert "--delay cannot be combined with --many" in redbox.error("put", "--many", "--delay", "1s", code=2)
    assert redbox.error("put", "--many", "@nofile", code=1) == "nofile: No such file or directory"


def test_many_accepts_empty_input(redbox: Redbox):
    assert "0 put" in redbox("put", "--many", "-", input="").stderr
