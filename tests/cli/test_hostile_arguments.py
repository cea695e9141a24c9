"""Command lines with invalid values: one sentence and exit code 1 or 2, never a traceback or "unexpected"."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from redbox import Event
from redbox.cli.app import cli
from tests.cli.conftest import Redbox

LONE = "caf\udce9"  # a byte that is not UTF-8, as Python hands over an argument
COMMANDS = (
    ("--box", "{}", "put", "a"),
    ("--url", "{}", "stats"),
    ("put", "{}"),
    ("put", "a", "{}"),
    ("put", "a", "@{}"),
    ("put", "a", "{}", "--content-type", "text/plain"),
    ("put", "a", "1", "--content-type", "{}"),
    ("put", "a", "1", "--content-type", "text/{}"),
    ("put", "a", "--id", "{}"),
    ("put", "a", "--header", "{}=x"),
    ("put", "a", "--header", "x={}"),
    ("put", "a", "--metadata", "{}=x"),
    ("put", "a", "--metadata", "x={}"),
    ("put", "a", "--partition-key", "{}"),
    ("put", "a", "--ordering-key", "{}"),
    ("put", "a", "--unique-key", "{}"),
    ("put", "a", "--unique-key", "u", "--unique-scope", "{}"),
    ("put", "a", "--delay", "{}"),
    ("put", "a", "--at", "{}"),
    ("put", "a", "--durability", "{}"),
    ("put", "--many", "@{}"),
    ("list", "--state", "{}"),
    ("list", "--type", "{}"),
    ("list", "--key", "{}"),
    ("list", "--error", "{}"),
    ("list", "--since", "{}"),
    ("list", "--until", "{}"),
    ("list", "--limit", "{}"),
    ("list", "--cursor", "{}"),
    ("list", "--cursor", "pending:1:{}"),
    ("show", "{}"),
    ("show", "{}", "--payload"),
    ("why", "{}"),
    ("why", "--key", "{}"),
    ("why", "--unique", "{}"),
    ("dead", "list", "--type", "{}"),
    ("dead", "list", "--limit", "{}"),
    ("dead", "replay", "{}", "--yes"),
    ("dead", "replay", "--key", "{}", "--yes"),
    ("dead", "replay", "--all", "--yes", "--rate", "{}"),
    ("dead", "replay", "--all", "--yes", "--delay", "{}"),
    ("dead", "replay", "--all", "--yes", "--why", "{}"),
    ("dead", "replay", "--all", "--yes", "--who", "{}"),
    ("dead", "replay", "--all", "--yes", "--canary", "{}"),
    ("dead", "replay", "--all", "--yes", "--canary", "1", "--canary-wait", "{}"),
    ("dead", "replay", "--all", "--yes", "--rate", "1", "--ramp", "{}"),
    ("dead", "replay", "--group", "{}", "--yes"),
    ("dead", "replay", "--created-since", "{}", "--yes"),
    ("dead", "list", "--by-error", "--group", "{}"),
    ("dead", "list", "--created-until", "{}"),
    ("dead", "show", "{}"),
    ("dead", "export", "{}"),
    ("dead", "export", "--group", "{}"),
    ("dead", "export", "--to", "{}/x"),
    ("dead", "drop", "{}", "--yes"),
    ("dead", "drop", "--all", "--export", "{}/x", "--yes"),
    ("dead", "drop", "--all", "--who", "{}", "--yes"),
    ("kill", "{}", "--yes"),
    ("kill", "e1", "--yes", "--who", "{}"),
    ("release", "{}", "--yes"),
    ("release", "e1", "--yes", "--delay", "{}"),
    ("reschedule", "{}", "--yes"),
    ("reschedule", "e1", "--yes", "--at", "{}"),
    ("drop", "{}", "--yes", "--why", "{}"),
    ("pause", "--yes", "--who", "{}"),
    ("resume", "--yes", "--why", "{}"),
    ("configure", "{}", "--yes"),
    ("configure", "{}=1", "--yes"),
    ("configure", "keep_dead={}", "--yes"),
    ("configure", "max_pending={}", "--yes"),
    ("configure", "dead_head={}", "--yes"),
    ("reap", "--yes", "--limit", "{}"),
    ("sweep", "--yes", "--keep-published", "{}"),
    ("sweep", "--yes", "--keep-dead-count", "{}"),
    ("stats", "--fail-if", "{}"),
    ("stats", "--fail-if", "oldest>{}"),
    ("exporter", "--port", "{}", "--host", "-"),
    ("exporter", "--port", "0", "--host", "{}."),
    ("log", "--action", "{}"),
    ("log", "--who", "{}"),
    ("log", "--since", "{}"),
    ("log", "--limit", "{}"),
    ("relay", "--to", "{}", "--once"),
    ("relay", "--to", "null:{}", "--once"),
    ("relay", "--to", "https://{}/", "--once"),
    ("relay", "--to", "https://h/", "-o", "{}=x", "--once"),
    ("relay", "--to", "https://h/", "-o", "source={}", "--once"),
    ("relay", "--to", "https://h/", "-o", "timeout={}", "--once"),
    ("relay", "--to", "null:", "--name", "{}", "--once"),
    ("relay", "--to", "null:", "--retry", "{}", "--once"),
    ("relay", "--to", "null:", "--attempts", "{}", "--once"),
    ("relay", "--to", "null:", "--max-age", "{}", "--once"),
    ("relay", "--to", "null:", "--lease", "{}", "--once"),
    ("relay", "--to", "null:", "--time-limit", "{}", "--once"),
    ("relay", "--to", "null:", "--grace", "{}", "--once"),
    ("relay", "--to", "null:", "--concurrency", "{}", "--once"),
    ("relay", "--to", "null:", "--max-rate", "{}", "--once"),
    ("relay", "--to", "null:", "--max-burst", "{}", "--once"),
    ("relay", "--to", "null:", "--max-in-flight", "{}", "--once"),
    ("relay", "--to", "null:", "--dead-to", "{}", "--once"),
    ("relay", "--config", "{}"),
    ("{}",),
)
VALUES = (LONE, "", "nan", "-1", "9" * 400, "\x1b[31m", "\u2028")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_invalid_value_is_reported_in_one_sentence(redbox: Redbox, command: tuple[str, ...]):
    redbox.put(Event("a", event_id="e1"))
    found = []
    for value in VALUES:
        arguments = [each.format(value) for each in command]
        where = [] if "--url" in command else ["--url", redbox.url]
        for form in ([], ["--json"]) if value in (LONE, "\x1b[31m", "\u2028") else ([],):
            result = CliRunner().invoke(cli, [*form, *where, *arguments])
            stderr = result.stderr
            if result.exit_code not in (0, 1, 2) or "unexpected" in stderr or "Traceback" in stderr or "\x1b" in stderr:
                found.append(f"{arguments}: {result.exit_code} {stderr[:300]} {result.exception!r:.200}")
            elif result.exit_code and form:
                json.loads(stderr.strip("\n").split("\n")[-1])
    assert found == []


def test_the_reason_of_a_replay_is_kept_readable(redbox: Redbox):
    redbox.kill(Event("a", event_id="e1"))
    redbox("dead", "replay", "e1", "--yes", "--why", LONE)
    (entry, *_) = redbox.within(lambda box: box.operate.log())
    assert entry.why == r"caf\udce9"
