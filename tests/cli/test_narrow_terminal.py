"""On a terminal of 80 columns, every table and sentence of the operator's commands fits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from uuid import UUID

import pytest
from rich.cells import cell_len

from redbox import Box, Event, keys
from tests.cli.conftest import Redbox
from tests.servers import valkey_binary
from tests.terminals import terminal

WIDTH = 80
UNKNOWN = str(UUID(int=7))
DEAD, REFUSED, HOLDER, WAITING = (str(UUID(int=(2**100) + number)) for number in range(4))
TYPE = "accounting.invoice.correction.requested"
KEY = "customer-0815-of-the-branch-in-a-town"
ERROR = "HTTP 422 Unprocessable Content: the field 'total' of the invoice must be a number, but the text 'n/a' was sent"
pytestmark = [pytest.mark.campaign, pytest.mark.timeout(120)]


def narrow(*arguments: str) -> tuple[int, list[str]]:
    """Runs a command on a terminal of 80 columns; returns the exit code and the lines without colours."""
    code, shown = terminal(*arguments, columns=WIDTH)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r\n", "\n")
    return code, [line.rpartition("\r")[2] for line in text.splitlines()]  # a progress bar is overwritten


@pytest.fixture
def url(redbox: Redbox) -> Iterator[str]:
    valkey_binary()

    async def fill() -> None:
        async with Box.open("embedded:./data", name="default") as box:
            common = {"ordering_key": KEY, "headers": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-01"}}
            await box.put(Event(TYPE, {"id": 1}, event_id=DEAD, **common))
            await box.kill(await box.claim("relay-with-a-long-name@a-host.example"), reason=ERROR)
            await box.put(Event(TYPE, {"id": 2}, event_id=REFUSED, unique_key="an invoice of the year 2026"))
            await box.kill(await box.claim("relay-1"), reason=ERROR)
            await box.put(Event(TYPE, {"id": 3}, event_id=HOLDER, unique_key="an invoice of the year 2026"))
            claims = await box.claim("relay-with-a-long-name@a-host.example")
            await box.retry(claims, delay=3600.0, error=ERROR)
            await box.put(Event(TYPE, {"id": 4}, event_id=WAITING, **common))
            await box.put_many([Event(TYPE, {"id": 5 + n}, **common) for n in range(3)])
            await box.operate.pause(who="operator@a-long-host-name.example", why=ERROR)
            await box.operate.pause(who="operator@a-long-host-name.example", why=ERROR, key=KEY)
        async with Box.open("embedded:./data", name="damaged") as box:
            await box.put_many([Event(TYPE, event_id=each, ordering_key=KEY) for each in (DEAD, WAITING)])
            await box.kill(await box.claim("relay-1"), reason=ERROR)
            lost = ("DEL", keys.body(box.name, DEAD)), ("ZADD", keys.dead(box.name), 5, UNKNOWN)
            await box._store.exchange([*lost, ("ZADD", keys.pending(box.name), 5, WAITING)])
        async with Box.open("embedded:./data", name="orders-of-the-web-shop-in-europe") as box:
            await box.put_many([Event(TYPE) for _ in range(1200)])

    with asyncio.Runner() as runner:
        keeps_it_running = Box.open("embedded:./data", name="default")
        runner.run(keeps_it_running.__aenter__())
        runner.run(fill())
        yield "embedded:./data"
        runner.run(keeps_it_running.__aexit__(None, None, None))


COMMANDS = (
    (0, "list"),
    (0, "list", "--state", "dead"),
    (0, "list", "--state", "pending", "--limit", "1"),
    (0, "show", DEAD),
    (0, "show", HOLDER),
    (0, "show", WAITING),
    (0, "dead", "list"),
    (0, "dead", "list", "--by-error"),
    (0, "dead", "show", DEAD),
    (1, "dead", "show", HOLDER),
    (1, "dead", "replay", "--group", "deadbeef", "--yes"),
    (1, "dead", "replay", REFUSED, UNKNOWN, "--yes"),
    (1, "dead", "replay", "--all", "--dry-run"),
    (1, "dead", "drop", WAITING, "--yes"),
    (1, "kill", DEAD, "--yes"),
    (1, "kill", DEAD, "--dry-run"),
    (0, "stats"),
    (0, "boxes"),
    (0, "log"),
    (0, "configure"),
    (None, "doctor"),
    (0, "audit"),
    (0, "resume", "--ramp", "1h30m", "--yes"),
    (1, "dead", "replay", DEAD, "--canary", "1", "--canary-wait", "10ms", "--yes"),
    (0, "--box", "damaged", "dead", "show", DEAD),
    (1, "--box", "damaged", "dead", "replay", DEAD, "--yes"),
    (1, "--box", "damaged", "audit"),
    (0, "--box", "damaged", "doctor", "--repair", "--dry-run"),
    (1, "--box", "damaged", "dead", "export", "--to", "file"),
    (0, "--box", "damaged", "stats"),
    (1, "--box", "none", "stats"),
)
#: What may be longer: a command to be copied, alone on its line.
COPIED = re.compile(r"\s*`?redbox [^`]*`?[.;,]?")


@pytest.mark.req("RO-1")
def test_every_table_and_sentence_fits_80_columns(url: str):
    for expected, *arguments in COMMANDS:
        code, lines = narrow("--url", url, *arguments)
        assert expected in (None, code), (arguments, lines)
        too_long = [line for line in lines if cell_len(line) > WIDTH and not COPIED.fullmatch(line)]
        assert too_long == [], arguments


def test_the_table_of_dead_events_shows_when_and_why(url: str):
    _, (head, *rows) = narrow("--url", url, "dead", "list")
    assert head.split("  ")[0] == "ID"
    assert "DEAD SINCE" in head
    assert "KEY" in head  # one of the events has an ordering key
    for row in rows:
        assert re.search(r"  \d+ (ms|s|min) ago  +\S.*…  HTTP 422 …", row)


def test_a_refused_replay_shows_the_holder_of_the_unique_key(url: str):
    _, lines = narrow("--url", url, "dead", "replay", REFUSED, "--yes")
    text = "\n".join(lines)
    assert HOLDER in text
    command = f"`redbox --url {url} why --unique 'an invoice of the year 2026'`"  # with the store that was given
    assert command in " ".join(text.split())
    assert "--force" in text


@pytest.mark.parametrize(
    ("url", "sentence"), [("redis://localhost:1/0", "cannot be reached"), ("nonsense://x", "is not a store URL")]
)
def test_errors_are_wrapped_at_words(redbox: Redbox, url: str, sentence: str):
    code, lines = narrow("--url", url, "--box", "a" * 40, "stats")
    assert code in (2, 3)
    assert sentence in " ".join(lines)
    assert len(lines) > 1
    assert all(len(line) <= WIDTH for line in lines), lines
