"""Every error reply of a server: which of redbox's errors it becomes, and whether a relay waits for it to pass."""

from __future__ import annotations

import copy

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError, TimeoutError

from redbox.errors import (
    PASSING,
    BoxPaused,
    Effect,
    ForeignKey,
    NewerLayout,
    NotPermitted,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StreamTaken,
    UnexpectedReply,
)
from redbox.store.errors import REPLIES, code, translate

PASSES = [
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", StoreUnavailable),
    ("UNKILLABLE Sorry the script already executed write commands against the dataset.", StoreUnavailable),
    ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable),
    ("LOADING Redis is loading the dataset in memory", StoreUnavailable),
    ("TRYAGAIN Multiple keys request during rehashing of slot", StoreUnavailable),
    ("CLUSTERDOWN The cluster is down", StoreUnavailable),
    ("MOVED 3999 127.0.0.1:6381", StoreUnavailable),
    ("ASK 3999 127.0.0.1:6381", StoreUnavailable),
    (
        "ERR Script attempted to access a non local key in a cluster node script: 1f, on @user_script:3.",
        StoreUnavailable,
    ),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", StoreUnavailable),
    ("READONLY You can't write against a read only replica.", StoreUnavailable),
    ("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", StoreUnavailable),
    ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", StoreFull),
    ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
    ("EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
    ("EXECABORT Transaction discarded because of: NOREPLICAS Not enough good replicas to write.", StoreUnavailable),
    ("NOAUTH Authentication required.", StoreUnavailable),
    ("WRONGPASS invalid username-password pair or user is disabled.", StoreUnavailable),
    ("NOPERM this user has no permissions to run the 'evalsha' command", NotPermitted),
    (
        "ERR ACL failure in script: User app has no permissions to run the 'zadd' command script: on @user_script:1.",
        NotPermitted,
    ),
    (
        "ERR The user executing the script can't run this command or subcommand script: 1f, on @user_script:1.",
        NotPermitted,
    ),
    ("DENIED Redis is running in protected mode because protected mode is enabled.", StoreUnavailable),
    ("NOSCRIPT No matching script. Please use EVAL.", UnexpectedReply),
    ("CROSSSLOT Keys in request don't hash to the same slot", UnexpectedReply),
    ("INPROG Failover already in progress.", UnexpectedReply),
    ("IOERR error or timeout reading to target instance", UnexpectedReply),
    ("ERR unknown command 'EVALSHA'", UnexpectedReply),
    ("ERR user_script:12: attempt to index nil script: 1f, on @user_script:12.", UnexpectedReply),
    ("SOMETHINGNEW that no server says today", UnexpectedReply),
]
LASTS = [
    ("WRONGTYPE Operation against a key holding the wrong kind of value", ForeignKey),
    ("ERR Error running script: WRONGTYPE Operation against a key holding the wrong kind of value", ForeignKey),
    ("NEWERLAYOUT this box has layout 2", NewerLayout),
    ("PAUSED the box is paused", BoxPaused),
    ('PAUSED {"who":"ada","why":"down","until":"1700000000000","now":"1699999999000"}', BoxPaused),
    ('PAUSED {"who":"ada","unexpected":1}', BoxPaused),
    ("STREAMTAKEN by another", StreamTaken),
]


def translated(reply: str) -> Exception:
    return translate(BaseParser.parse_error(reply), where="redis://here", box="orders", maybe=False)


@pytest.mark.parametrize(("reply", "kind"), PASSES)
def test_a_relay_waits_until_it_passes(reply: str, kind: type[StoreError]):
    error = translated(reply)
    assert type(error) is kind
    assert isinstance(error, PASSING)
    assert "redis://here" in str(error)


@pytest.mark.parametrize(("reply", "kind"), LASTS)
def test_it_does_not_pass_by_itself(reply: str, kind: type[Exception]):
    error = translated(reply)
    assert type(error) is kind
    assert not isinstance(error, PASSING)


def test_every_entry_of_the_table_is_tested():
    assert {code(BaseParser.parse_error(reply)) for reply, _ in PASSES + LASTS} >= set(REPLIES)


@pytest.mark.parametrize("error", [ConnectionError("refused"), TimeoutError("late"), OSError("gone"), EOFError()])
def test_a_broken_connection_passes(error: Exception):
    translated = translate(error, where="redis://here", box="orders", maybe=True)
    assert type(translated) is StoreUnavailable
    assert "may or may not have been carried out" in str(translated)


# --- the effect of the call --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "effect", "later"),
    [
        ("BUSY Redis is busy", Effect.NOTHING_CHANGED, Effect.NOTHING_ELSE_CHANGED),
        ("NOREPLICAS Not enough", Effect.NOTHING_WRITTEN, Effect.NOTHING_ELSE_WRITTEN),
        ("OOM command not allowed", Effect.NOTHING_WRITTEN, Effect.NOTHING_ELSE_WRITTEN),
        ("MISCONF unable to persist", Effect.NOTHING_WRITTEN, Effect.NOTHING_ELSE_WRITTEN),
        ("LOADING Redis is loading", Effect.UNSAID, Effect.UNSAID),
    ],
)
def test_an_effect_does_not_depend_on_its_words(
    reply: str, effect: Effect, later: Effect, monkeypatch: pytest.MonkeyPatch
):
    for each in Effect:
        monkeypatch.setattr(each, "_value_", f" <{each.name}>")
    error = translated(reply)
    assert isinstance(error, StoreError)
    assert error.effect is effect
    before, found, behind = error.message.partition(f" <{effect.name}>")
    assert before
    assert found
    error.after(2)
    assert error.effect is later
    processed = "; the first 2 events of this call were processed before the error"
    assert error.message == f"{before} <{later.name}>{behind}{processed}"


@pytest.mark.parametrize(("maybe", "effect"), [(True, Effect.UNKNOWN), (False, Effect.NOTHING_CHANGED)])
def test_another_effect_takes_the_place_of_the_first(maybe: bool, effect: Effect):
    error = translate(ConnectionError("refused"), where="redis://here", box="orders", maybe=maybe)
    assert isinstance(error, StoreError)
    assert (error.effect, error.message) == (effect, f"redis://here cannot be reached (refused){effect.value}")
    copied = copy.copy(error).with_effect(Effect.UNSAID)
    assert copied.message == "redis://here cannot be reached (refused)"
    assert error.effect is effect
