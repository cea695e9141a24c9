"""Tokens: who may call the service, and with which scopes. They are read from a file or the environment."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from redbox.errors import UsageError

logger = logging.getLogger("redbox.service")

VARIABLE: Final = "REDBOX_TOKENS"
SHORTEST: Final = 16
LONGEST: Final = 512
LOOK_SECONDS: Final = 1.0  # how often a request looks whether the file has changed
MAX_BYTES: Final = 1024 * 1024

_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}").fullmatch
_is_token = re.compile(r"[A-Za-z0-9._~+/=-]+").fullmatch  # what a header `Authorization: Bearer` may hold


class Scope(StrEnum):
    """What a token permits. `operate` includes `read`."""

    INGEST = "ingest"
    READ = "read"
    OPERATE = "operate"


class Token(msgspec.Struct, frozen=True):
    """A token: only its digest is kept."""

    name: str
    scopes: frozenset[Scope]
    digest: bytes


def parse(text: str, where: str, others: Sequence[Token] = ()) -> list[Token]:
    """The tokens of a text with one `name scopes token` per line; empty lines and comments (#) are skipped.

    `others`: tokens of $REDBOX_TOKENS, none of which may be repeated. Raises UsageError; it names the line, and quotes
    nothing of it.
    """
    found: list[Token] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        token = _token(words, f"{where} line {number}")
        if any(token.digest == other.digest for other in found):
            raise UsageError(f"{where} line {number}: the same token is on an earlier line")
        if any(token.digest == other.digest for other in others):
            raise UsageError(f"{where} line {number}: the same token is in ${VARIABLE}; remove one of them")
        found.append(token)
    return found


def _token(words: list[str], where: str) -> Token:
    if len(words) != 3:
        raise UsageError(f"{where}: must have three words: a name, its scopes separated by commas, and the token")
    name, scopes, secret = words
    if not _is_name(name):
        raise UsageError(f"{where}: the name may have letters, digits and . _ @ -, at most 64 of them")
    known = {scope.value for scope in Scope}
    if not known.issuperset(scopes.split(",")):
        raise UsageError(f"{where}: the scopes are {', '.join(Scope)}, separated by commas without spaces")
    if not SHORTEST <= len(secret) <= LONGEST or not _is_token(secret):
        raise UsageError(
            f"{where}: the token must have {SHORTEST} to {LONGEST} letters, digits and . _ ~ + / = -; "
            "make one with: openssl rand -hex 32"
        )
    granted = {Scope(each) for each in scopes.split(",")}
    if Scope.OPERATE in granted:
        granted.add(Scope.READ)
    return Token(name, frozenset(granted), _digest(secret))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("latin-1", "replace")).digest()


class Tokens:
    """The tokens of a file and of the environment. The file is read again when it has changed.

    If the changed file cannot be used, the tokens read before stay valid, and the log says why.
    """

    def __init__(self, file: Path | None, fixed: Iterable[Token] = ()) -> None:
        """Raises UsageError if the file cannot be used, or if there is no token at all."""
        self._file = file
        self._fixed = list(fixed)
        self._version = _version(file)
        self._looked_at = time.monotonic()
        self._tokens = self._read()

    def find(self, secret: str) -> Token | None:
        """The token with this secret. It takes the same time for every secret."""
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            if _version(self._file) != self._version:
                self.reload()
        digest, found = _digest(secret), None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def reload(self) -> None:
        """Reads the file again."""
        self._version = _version(self._file)
        try:
            self._tokens = self._read()
        except UsageError as error:
            logger.error("the tokens were not read again, those read before stay valid: %s", error)
        else:
            names = ", ".join(sorted({token.name for token in self._tokens}))
            logger.info("tokens read again: %s", names)

    def _read(self) -> list[Token]:
        read = [] if self._file is None else parse(_text(self._file), str(self._file), self._fixed)
        found = [*self._fixed, *read]
        if not found:
            raise UsageError(f"{self._file or VARIABLE}: there is no token; write one line: name scopes token")
        return found


def open_tokens(file: Path | None, environment: str | None) -> Tokens | None:
    """The tokens of a file and of the text of REDBOX_TOKENS; None if neither is given."""
    if file is None and not (environment or "").strip():
        return None
    return Tokens(file, parse(environment or "", VARIABLE))


def _version(file: Path | None) -> tuple[int, ...]:
    """Differs when a file was changed or replaced."""
    if file is None:
        return ()
    try:
        found = file.stat()
    except OSError as error:
        return (error.errno or 0,)
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size)


def _text(file: Path) -> str:
    """The text of a file that nobody else may read."""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(f"{file}: other users may read or change it; run: chmod 600 {file}")
            content = opened.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise UsageError(f"{file}: is larger than {MAX_BYTES // 1024**2} MiB")
            return content.decode("ascii")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: has characters other than ASCII") from error
