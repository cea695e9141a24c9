"""`${NAME}` and `file:PATH`: keep secrets out of configuration files and command lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}?")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: A URL with user information, and the parts before and after it.
_USERINFO: Final = re.compile(r"(?P<before>[^:/?#]*://)(?P<userinfo>[^/?#]*)(?P<after>@.*)", re.DOTALL)
_SECRET_QUERY: Final = re.compile(r"(?i)[?&][^=&]*(?:password|secret|token)[^=&]*=([^&#]*)")
FILE: Final = "file:"
INSTEAD: Final = "write ${NAME} to take it from the environment"


def expand(text: str, *, quoted: bool = False) -> str:
    """The text with each `${NAME}` replaced from the environment. ValueError names a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if not _NAME.fullmatch(name) or not match[0].endswith("}"):
            raise ValueError("a placeholder is written ${NAME}, where NAME is an environment variable")
        if name not in os.environ:
            raise ValueError(f"the environment variable {name} is not set")
        return quote(os.environ[name], safe="") if quoted else os.environ[name]

    return _PLACEHOLDER.sub(value, text)


def expand_url(url: str) -> str:
    """The URL with its placeholders replaced. In `user:${PASSWORD}@` the variable holds the plain password, which is
    quoted for the URL. Literal passwords are refused."""
    found = _USERINFO.fullmatch(url)
    if found is None:
        _refuse_literal_options(url)
        return expand(url)
    user, colon, password = found["userinfo"].partition(":")
    if colon and password and "${" not in password:
        raise ValueError(f"a password must not be written here; {INSTEAD}: user:${{NAME}}@")
    _refuse_literal_options(found["after"])
    who = f"{expand(user, quoted=True)}:{expand(password, quoted=True)}" if colon else expand(user)
    return expand(found["before"]) + who + expand(found["after"])


def _refuse_literal_options(text: str) -> None:
    if any(value and "${" not in value for value in _SECRET_QUERY.findall(text)):
        raise ValueError(f"a secret must not be written into a URL; {INSTEAD}")


def expand_options(options: dict[str, Any], secrets: Iterable[str], directory: Path) -> dict[str, Any]:
    """Options of a publisher with placeholders replaced and files read. Literal secrets are refused."""
    return {name: _option(name, value, name in secrets, directory) for name, value in options.items()}


def _option(name: str, value: Any, secret: bool, directory: Path) -> Any:
    try:
        if not secret:
            return expand(value) if isinstance(value, str) else value
        if isinstance(value, str) and value.startswith(FILE):
            from redbox.publishers.options import FileText

            return FileText.read(directory / expand(value.removeprefix(FILE)))
        if not isinstance(value, str) or "${" not in value:
            raise ValueError(f"a secret must not be written here; {INSTEAD}, or {FILE}PATH to read a file")
        return expand(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
