"""RF-3: the fingerprints of errors."""

from __future__ import annotations

import random

import pytest

from redbox.fingerprints import FINGERPRINTED, fingerprint, group_id, in_group

LONG = "ValueError: " + "very " * 30 + "long text about ö and number 12345 that goes on " + "and on " * 100
ID = "01938a4e-5b1f-7c3d-9e2a-6f0d1c2b3a49"

PRINTS = {
    "HTTP 503 Service Unavailable": "http 503 service unavailable",
    "HTTP 401": "http 401",
    "HTTP/1.1 401 Unauthorized": "http/<n> 401 unauthorized",
    "HTTP 404 for order 404": "http 404 for order <n>",
    "550": "550",
    "550 5.1.1 no mailbox 'ada' (7 ms)": "550 <n> no mailbox <text> (<n> ms)",
    "SMTP 550 no mailbox": "smtp 550 no mailbox",
    "5500 is too much": "<n> is too much",
    "550.5 is too much": "<n> is too much",
    "status_code=429, retry after 30": "status_code=429, retry after <n>",
    "Client error '404 Not Found' for url 'https://u:p@a.example/x/17?q=1'":
        "client error '404 not found' for url 'https://a.example/x/<n>?<query>'",
    "got '503'": "got '503'",
    "amount must be a number, not '102,50'": "amount must be a number, not <text>",
    "amount must be a number, got '102,50'": "amount must be a number, got <text>",
    'no "200 g" of it': "no <text> of it",
    "[Errno 111] refused by 10.0.0.7:6379": "[errno 111] refused by <n>",
    "no row for 'ada' in \"users\", can't go on": "no row for <text> in <text>, can't go on",
    f"event {ID} is gone": "event <id> is gone",
    "at 2026-01-31T12:00:00.123Z and 2026-01-31 12:00:00+01:00 and 2026-01-31": "at <time> and <time> and <time>",
    "commit deadbeef01234567 at 0x7F00 of cafebabes": "commit <hex> at <hex> of cafebabes",
    "took 1.5 s,  2 tries\n": "took <n> s, <n> tries",
    '{"code": "E12", "message": "no room", "id": "x y"}': '{"code": "e<n>", "message": "no room", "id": <text>}',
    '{"code":"401"}': '{"code": "401"}',
    "lease expired while held by relay-host7-1a2b": "lease expired while held by <relay>",
    "HTTP \ue000503": "http 503",
    "  ": "(no text)",
    None: "(no text)",
}  # fmt: skip


def corpus() -> list[str]:
    """Texts that could be read in two ways: cut at every byte, without words, and composed at random."""
    chance = random.Random(7)
    parts = [
        *(text for text in PRINTS if text), "é", "ß", "İ", "ς", "Σ", "東", "😀", "\u0085", "\u2028", "\xa0", "\x0b",
        "\t", "'", '"', "`", "‹", "›", "$1", "\\1", "HTTP ", "éhttp 404", "404é", "code: ", "12:30:01", "0xFF", "://",
        "?", "@",
    ]  # fmt: skip
    composed = ["".join(chance.choices(parts, k=chance.randint(1, 6))) for _ in range(400)]
    shifted = [f"{'x' * shift}{word * 60}" for shift in range(4) for word in ("é", "東", "😀", "ö ", "ab 1 ")]
    return [*composed, *shifted, LONG]


@pytest.mark.req("RF-3")
@pytest.mark.parametrize("error", PRINTS, ids=repr)
def test_a_fingerprint_keeps_what_went_wrong(error: str | None):
    assert fingerprint(error) == PRINTS[error]


@pytest.mark.req("RF-3")
def test_a_fingerprint_is_the_same_for_what_a_history_keeps_of_a_text():
    kept = LONG.encode()[:FINGERPRINTED].decode(errors="replace")
    assert fingerprint(LONG) == fingerprint(kept) == fingerprint(LONG.replace("and on", "and off"))
    assert fingerprint(LONG).endswith("…")


@pytest.mark.req("RF-3")
def test_a_group_is_named_by_its_id_or_its_fingerprint():
    unavailable, denied = fingerprint("HTTP 503 after 7 s"), fingerprint("HTTP 401 after 7 s")
    assert group_id(unavailable) == "55242f13"
    assert group_id(unavailable) != group_id(denied)
    for group in (unavailable, group_id(unavailable)):
        assert in_group("HTTP 503 after 12 s", group)
        assert not in_group("HTTP 401 after 12 s", group)
