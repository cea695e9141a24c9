"""URLs that may contain a password: parsed strictly, and described without secrets.

No error repeats any part of a URL, nor the message of a parser: in a mistyped URL, what looks like a host, a port, a
path or an option may be part of the password.
"""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from redbox.errors import InvalidURL, UsageError

URL_VARIABLE: Final = "REDBOX_URL"
QUOTING: Final = "in a password write %40 for @, %2F for /, %3F for ? and %23 for #"
#: Options of redis-py that hold no secrets: an error may repeat their names.
_PLAIN_OPTIONS: Final = frozenset(
    {
        "db", "socket_timeout", "socket_connect_timeout", "socket_read_size", "socket_keepalive", "retry_on_timeout",
        "max_connections", "health_check_interval", "ssl_check_hostname", "ssl_min_version", "timeout", "protocol",
    }
)  # fmt: skip
_WRONG_VALUE: Final = re.compile(r"Invalid value for '(\w+)' in connection URL")
_SECRET_OPTION: Final = re.compile(r"(?i)((?:pass|pwd|secret|token|user)\w*)=[^&]*")
_NOT_A_NAME: Final = re.compile(r"://|\?|:.*@", re.DOTALL)


def default_url(url: str | None) -> str:
    """The given URL, or that of the environment."""
    found = os.environ.get(URL_VARIABLE) if url is None else url
    if found is None or found == "":
        raise UsageError(
            "no store: give a URL such as 'redis://localhost:6379/0' or client=your_redis, or set the environment "
            f"variable {URL_VARIABLE}"
        )
    return found


def read_url(url: str, what: str) -> SplitResult:
    """Splits a URL. `what` names the kind of URL in errors, such as "a valid store URL"."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise problem(what, f"its host cannot be parsed; {QUOTING}") from None
    if "#" in url or "@" in parts.path or any("=" not in each for each in parts.query.split("&") if each):
        raise problem(what, f"the part after the host cannot be parsed; {QUOTING}")
    return parts


def read_host(text: str, default_port: int, what: str) -> tuple[str, int]:
    """Parses a host and an optional port; there is no login in `text`."""
    try:
        parts = urlsplit(f"//{text}")
        host = parts.hostname or ""
        host.encode("idna")
    except ValueError:
        raise problem(what, f"its host cannot be parsed; {QUOTING}") from None
    try:
        return host, default_port if parts.port is None else parts.port
    except ValueError:
        raise problem(what, f"the port must be a whole number up to 65535; {QUOTING}") from None


def check_name(scheme: str, name: str) -> None:
    """Refuses a login or options in a URL that takes only a directory or a name."""
    if _NOT_A_NAME.search(name):
        raise InvalidURL(f"{scheme}: takes a directory or a name, but no login and no options")


def problem(what: str, why: str) -> InvalidURL:
    """Returns the error for a URL that is not `what` it should be."""
    return InvalidURL(f"this is not {what}: {why}")


def option_problem(error: Exception) -> str:
    """Explains an error of redis-py about the options after the `?`, without their values."""
    wrong = _WRONG_VALUE.search(str(error))
    if wrong and wrong[1] in _PLAIN_OPTIONS:
        return f"the value of the option {wrong[1]} is invalid"
    return f"redis-py refused an option after the ?, or its value; {QUOTING}"


def describe_url(parts: SplitResult) -> str:
    """Returns a parsed URL as text, without its secrets."""
    _, login, hosts = parts.netloc.rpartition("@")
    options = _SECRET_OPTION.sub(r"\1=***", parts.query)
    return f"{parts.scheme}://{'***@' if login else ''}{hosts}{parts.path}{f'?{options}' if options else ''}"
