"""Tokens: how they are read, compared and replaced while the service runs."""

from __future__ import annotations

import hmac
import logging
import os
from pathlib import Path

import pytest

from redbox.errors import UsageError
from redbox.service.http import tokens as module
from redbox.service.http.tokens import Scope, Tokens, open_tokens, parse

pytestmark = pytest.mark.req("SF-5")

OLD, NEW = "old-secret-of-the-shop", "new-secret-of-the-shop"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.touch(0o600)
    return path


def test_each_line_is_a_name_scopes_and_a_token():
    found = parse(f"# shop\n\n shop ingest,read {OLD}\nalice operate {NEW} \n", "x")
    assert [(token.name, set(token.scopes)) for token in found] == [
        ("shop", {Scope.INGEST, Scope.READ}),
        ("alice", {Scope.OPERATE, Scope.READ}),
    ]
    assert OLD not in repr(found)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("shop ingest", "three words"),
        (f"shop ingest {OLD} x", "three words"),
        (f"sh\x07op ingest {OLD}", "the name"),
        (f"shop write {OLD}", "the scopes are ingest, read, operate"),
        (f"shop , {OLD}", "the scopes are"),
        ("shop ingest short-secret", "16 to 512"),
        (f"shop ingest {OLD}\N{EURO SIGN}", "16 to 512"),
        (f"shop ingest {OLD}\nshop read {OLD}", "line 2: the same token"),
    ],
)
def test_a_wrong_line_is_named_and_not_quoted(line: str, problem: str):
    with pytest.raises(UsageError, match=problem) as caught:
        parse(line, "the file")
    assert "the file line" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_others_may_read_is_refused(file: Path):
    file.write_text(f"shop ingest {OLD}")
    for mode in (0o640, 0o604, 0o620, 0o644):
        file.chmod(mode)
        with pytest.raises(UsageError, match="chmod 600"):
            Tokens(file)
    file.chmod(0o600)
    assert Tokens(file).find(OLD)


def test_a_file_that_cannot_be_used_says_why(file: Path):
    with pytest.raises(UsageError, match="there is no token"):
        Tokens(file)
    with pytest.raises(UsageError, match="no such file"):
        Tokens(file.with_name("missing"))
    file.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="ASCII"):
        Tokens(file)


def test_a_file_that_is_too_large_is_refused_and_not_cut(file: Path):
    line = f"shop ingest {OLD}\n"
    file.write_text(line + "#" * (module.MAX_BYTES - len(line)))
    assert Tokens(file).find(OLD)
    file.write_text(line + "#" * (module.MAX_BYTES - len(line) + 1))
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        Tokens(file)


def test_a_token_of_both_the_file_and_the_environment_is_refused(file: Path, caplog: pytest.LogCaptureFixture):
    """One of them could have more scopes."""
    file.write_text(f"# shop\nshop operate {OLD}")
    with pytest.raises(UsageError, match=r"line 2: the same token is in \$REDBOX_TOKENS") as caught:
        open_tokens(file, f"ci read {OLD}")
    assert OLD not in str(caught.value)
    file.write_text("")
    both = open_tokens(file, f"ci read {OLD}")
    assert both is not None
    file.write_text(f"shop operate {OLD}")
    both.reload()
    found = both.find(OLD)
    assert found is not None
    assert found.scopes == {Scope.READ}
    assert "the same token" in caplog.text


def test_tokens_of_the_environment_are_valid_beside_those_of_the_file(file: Path):
    file.write_text(f"shop ingest {OLD}")
    both = open_tokens(file, f"ci read {NEW}")
    assert both is not None
    assert (both.find(OLD).name, both.find(NEW).name) == ("shop", "ci")
    assert open_tokens(None, None) is None
    assert open_tokens(None, " ") is None


def test_a_changed_file_is_read_again_without_a_restart(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    file.write_text(f"shop ingest {OLD}\n")
    tokens = Tokens(file)
    file.write_text(f"shop ingest {OLD}\nshop ingest {NEW}\n")  # both are valid while clients change
    assert tokens.find(OLD)
    assert tokens.find(NEW)
    replacement = file.with_name("next")
    replacement.write_text(f"shop ingest {NEW}\n")
    replacement.chmod(0o600)
    os.replace(replacement, file)
    assert tokens.find(OLD) is None
    assert tokens.find(NEW)
    file.write_text("shop ingest\n")  # cannot be used: those before stay valid
    assert tokens.find(NEW)
    assert "stay valid" in caplog.text
    file.unlink()
    assert tokens.find(NEW)
    assert OLD not in caplog.text
    assert NEW not in caplog.text


def test_without_a_change_only_a_reload_reads_the_file(file: Path, monkeypatch: pytest.MonkeyPatch):
    file.write_text(f"shop ingest {OLD}\n")
    tokens = Tokens(file)
    file.write_text(f"shop ingest {NEW}\n")
    assert tokens.find(OLD)  # it looks at most once per second
    tokens.reload()
    assert tokens.find(OLD) is None


def test_every_token_is_compared_whichever_is_sent(monkeypatch: pytest.MonkeyPatch):
    """The time of an answer must not tell how much of a guess is right, or which token it resembles."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(hmac, "compare_digest", compare)
    tokens = Tokens(None, parse(f"a read {OLD}\nb read {NEW}\nc read {'x' * 32}", "x"))
    for secret in (OLD, NEW, "wrong", "", "\N{EURO SIGN}"):
        compared.clear()
        tokens.find(secret)
        assert len(compared) == 3
        assert {len(part) for pair in compared for part in pair} == {32}
