"""URLs that may hold a password: read strictly, and put into words without secrets.

No error here repeats any part of a URL, nor what a parser says of it: in one that is mistyped, what looks like a host,
a port, a path or an option may be part of the password.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from redbox.errors import InvalidURL

QUOTING: Final = "in a password write %40 for @, %2F for /, %3F for ? and %23 for #"
#: Options of redis-py whose values are numbers and the like: their names may be repeated.
_PLAIN_OPTIONS: Final = frozenset(
    {
        "db", "socket_timeout", "socket_connect_timeout", "socket_read_size", "socket_keepalive", "retry_on_timeout",
        "max_connections", "health_check_interval", "ssl_check_hostname", "ssl_min_version", "timeout", "protocol",
    }
)  # fmt: skip
_WRONG_VALUE: Final = re.compile(r"Invalid value for '(\w+)' in connection URL")
_SECRET_OPTION: Final = re.compile(r"(?i)((?:pass|pwd|secret|token|user)\w*)=[^&]*")
_NOT_A_NAME: Final = re.compile(r"://|\?|:.*@", re.DOTALL)


def read_url(url: str, what: str) -> SplitResult:
    """The parts of a URL with a host; `what` it is, such as "a valid store URL", is for errors."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise problem(what, f"its host cannot be read; {QUOTING}") from None
    if "#" in url or "@" in parts.path or any("=" not in each for each in parts.query.split("&") if each):
        raise problem(what, f"what follows the host cannot be read; {QUOTING}")
    return parts


def read_host(text: str, default_port: int, what: str) -> tuple[str, int]:
    """Host and port, without a login."""
    try:
        parts = urlsplit(f"//{text}")
        host = parts.hostname or ""
        host.encode("idna")
    except ValueError:
        raise problem(what, f"its host cannot be read; {QUOTING}") from None
    try:
        return host, default_port if parts.port is None else parts.port
    except ValueError:
        raise problem(what, f"the port must be a whole number up to 65535; {QUOTING}") from None


def check_name(scheme: str, name: str) -> None:
    """Refuses a login or options where only a directory or a name belongs."""
    if _NOT_A_NAME.search(name):
        raise InvalidURL(f"{scheme}: takes a directory or a name, and neither a login nor options")


def problem(what: str, why: str) -> InvalidURL:
    return InvalidURL(f"this is not {what}: {why}")


def option_problem(error: Exception) -> str:
    """What is wrong with the options after the `?`, from what redis-py says of them."""
    wrong = _WRONG_VALUE.search(str(error))
    if wrong and wrong[1] in _PLAIN_OPTIONS:
        return f"the value of the option {wrong[1]} cannot be read"
    return f"redis-py does not take one of the options after the ?, or its value; {QUOTING}"


def describe_url(parts: SplitResult) -> str:
    """A URL that was read, without its secrets."""
    _, login, hosts = parts.netloc.rpartition("@")
    options = _SECRET_OPTION.sub(r"\1=***", parts.query)
    return f"{parts.scheme}://{'***@' if login else ''}{hosts}{parts.path}{f'?{options}' if options else ''}"
