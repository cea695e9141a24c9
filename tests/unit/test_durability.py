"""Durability: what is asked for, and what a server is believed to give. The server is a few lines that answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from redbox.errors import DurabilityUnsupported, InvalidSetting
from redbox.store.server import durability
from redbox.store.server.durability import NOTHING, SERVER, Confirmation, Durability, confirm_by

pytestmark = pytest.mark.usefixtures("redbox_runner")

FSYNC = Durability("fsync")
NO_WAITAOF = ResponseError("unknown command 'WAITAOF'")
FORBIDDEN = NoPermissionError("User default has no permissions to run the 'config|get' command")


class FakeServer:
    """Answers CONFIG GET, INFO and WAITAOF as configured; `seconds` is how long WAITAOF takes by its own clock."""

    def __init__(self, appendonly: Any, appendfsync: Any, waitaof: Any = NO_WAITAOF, seconds: float = 0.0) -> None:
        self._config = {"appendonly": appendonly, "appendfsync": appendfsync, "no-appendfsync-on-rewrite": "no"}
        self._waitaof = waitaof
        self._seconds = seconds
        self.clock = 0.0
        self.sent: list[str] = []

    async def exchange(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [self._answer(*command) for command in commands]

    def _answer(self, name: str, *arguments: Any) -> Any:
        self.sent.append(name)
        if name == "CONFIG":
            told = {name: value for name, value in self._config.items() if name in arguments}
            failure = next((value for value in told.values() if isinstance(value, Exception)), None)
            return failure or [text.encode() for pair in told.items() for text in pair]
        if name == "INFO":
            return b"run_id:1\r\naof_rewrite_in_progress:0\r\n"
        if name == "HINCRBY":
            return 1
        assert name == "WAITAOF"
        self.clock += self._seconds
        return self._waitaof


async def asked(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Confirmation:
    monkeypatch.setattr(durability.time, "monotonic", lambda: server.clock)
    return await confirm_by(FSYNC, server.exchange, "probe", 5.0)


# --- what is asked for -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "replicas"), [("server", 0), ("fsync", 0), ("replicas=1", 1), ("replicas=2", 2), ("replicas=999", 999)]
)
def test_parse(text: str, replicas: int):
    assert Durability.parse(text) == Durability(text, replicas)


@pytest.mark.parametrize(
    "text",
    ["", "disk", "Fsync", "replicas", "replicas=", "replicas=0", "replicas=-1", "replicas=x", "replicas=1000", None, 1],
)
def test_an_unknown_durability_names_the_known_ones(text: Any):
    with pytest.raises(InvalidSetting, match=r"use 'server', 'fsync' or 'replicas=N'"):
        Durability.parse(text)


def test_server_is_the_default():
    assert Durability.parse("server") == SERVER


# --- what the server gives -------------------------------------------------------------------------------------


async def test_as_configured_sends_nothing():
    server = FakeServer("no", "everysec")
    assert await confirm_by(SERVER, server.exchange, "probe", 5.0) is NOTHING
    assert server.sent == []


async def test_replicas_wait_for_so_many():
    confirmation = await confirm_by(Durability("replicas=2", 2), FakeServer("no", "no").exchange, "probe", 5.0)
    assert confirmation.command is not None
    assert confirmation.command[:2] == ("WAIT", 2)
    assert [confirmation.reached(reply) for reply in (0, 1, 2, 3)] == [False, False, True, True]


@pytest.mark.req("SC-1")
async def test_a_server_that_always_syncs_is_asked_after_every_write(monkeypatch: pytest.MonkeyPatch):
    server = FakeServer("yes", "always")
    confirmation = await asked(server, monkeypatch)
    assert server.sent == ["CONFIG", "INFO"]
    assert confirmation.command is not None
    for other, reached in ((server, True), (FakeServer("no", "always"), False), (FakeServer("yes", "everysec"), False)):
        (reply,) = await other.exchange([confirmation.command])
        assert confirmation.reached(reply) is reached


@pytest.mark.req("SC-1")
async def test_an_error_reply_confirms_nothing(monkeypatch: pytest.MonkeyPatch):
    server = FakeServer("yes", "always")
    replicas = await confirm_by(Durability("replicas=2", 2), server.exchange, "probe", 1.0)
    for confirmation in (replicas, await asked(server, monkeypatch)):
        assert not confirmation.reached(ResponseError("NOPERM"))


async def test_the_wait_is_shorter_than_the_connections_patience():
    confirmation = await confirm_by(Durability("replicas=2", 2), FakeServer("no", "no").exchange, "probe", 1.0)
    assert confirmation.command == ("WAIT", 2, 800)


@pytest.mark.req("SC-1")
async def test_a_server_without_an_append_only_file_is_refused(monkeypatch: pytest.MonkeyPatch):
    server = FakeServer("no", "always")
    with pytest.raises(DurabilityUnsupported, match="appendonly yes"):
        await asked(server, monkeypatch)
    assert "WAITAOF" not in server.sent


@pytest.mark.req("SC-1")
@pytest.mark.parametrize("appendfsync", ["everysec", "no"])
async def test_waitaof_that_answers_at_once_is_not_believed(monkeypatch: pytest.MonkeyPatch, appendfsync: str):
    with pytest.raises(DurabilityUnsupported, match=f"appendfsync {appendfsync}"):
        await asked(FakeServer("yes", appendfsync, [1, 0], seconds=0.001), monkeypatch)


@pytest.mark.req("SC-1")
async def test_waitaof_that_waits_is_used(monkeypatch: pytest.MonkeyPatch):
    confirmation = await asked(FakeServer("yes", "everysec", [1, 0], seconds=0.9), monkeypatch)
    assert confirmation.command is not None
    assert confirmation.command[:3] == ("WAITAOF", 1, 0)
    assert [confirmation.reached(reply) for reply in ([0, 0], [1, 0])] == [False, True]


async def test_a_server_without_waitaof_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DurabilityUnsupported, match="set appendfsync always, or use replicas=N"):
        await asked(FakeServer("yes", "everysec"), monkeypatch)


async def test_waitaof_that_gives_up_is_not_believed(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DurabilityUnsupported):
        await asked(FakeServer("yes", "everysec", [0, 0], seconds=3.0), monkeypatch)


async def test_where_config_is_forbidden_only_the_probe_decides(monkeypatch: pytest.MonkeyPatch):
    honest = FakeServer(FORBIDDEN, FORBIDDEN, [1, 0], seconds=0.9)
    confirmation = await asked(honest, monkeypatch)
    assert confirmation.command is not None
    with pytest.raises(DurabilityUnsupported, match="appendfsync unknown"):
        await asked(FakeServer(FORBIDDEN, FORBIDDEN, [1, 0], seconds=0.001), monkeypatch)
    with pytest.raises(DurabilityUnsupported, match="appendfsync unknown"):
        await asked(FakeServer(FORBIDDEN, FORBIDDEN), monkeypatch)


async def test_one_late_answer_does_not_make_waitaof_honest(monkeypatch: pytest.MonkeyPatch):
    """A busy machine answers late now and then."""
    server = FakeServer("yes", "everysec", [1, 0])
    answer = server._answer

    def late(name: str, *arguments: Any) -> Any:
        server.clock += 0.9 if name == "WAITAOF" and server.sent.count("WAITAOF") == 1 else 0.0
        return answer(name, *arguments)

    monkeypatch.setattr(server, "_answer", late)
    with pytest.raises(DurabilityUnsupported):
        await asked(server, monkeypatch)
