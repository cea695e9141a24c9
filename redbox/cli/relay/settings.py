"""The settings of one relay, from the command line or redbox.toml, and the `Relay` made of them.

Each setting is one line of `RelaySettings`: the type of the field in redbox.toml, the option of `redbox relay`, and how
its value is read. Nothing is connected here; an invalid value is refused with the name of its setting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_type_hints

import click

from redbox.cli.options.parameters import name_value_pairs
from redbox.cli.options.placeholders import expand_options, expand_url
from redbox.cli.relay.retry_option import DEFAULT_RETRY, parse_attempts, parse_limit, parse_retry
from redbox.durations import format_duration, parse_duration
from redbox.errors import InvalidSetting, MissingExtra, UsageError

if TYPE_CHECKING:
    from redbox import Box
    from redbox.publishers.base import Publisher
    from redbox.relay import Relay
    from redbox.relay.middleware import Middleware

Pairs = dict[str, str | int | float | bool]

NUMBER: Final = "a whole number, without quotes"
TEXT: Final = "text in quotes"
DURATION: Final = 'a duration: "10m", or a number of seconds'
ROUTES: Final = 'a list of routes: routes = [ {match = "order.*", to = "box:billing"} ]'
PAIRS: Final = "a table of text and numbers: {} = {{ timeout = 5 }}"


class SettingError(UsageError):
    """A setting has an invalid value. `within`: where in the value of the setting it is invalid."""

    def __init__(self, setting: str, problem: str, within: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
        self.problem = problem
        self.within = within


@dataclasses.dataclass
class Route:
    """One entry of `routes`."""

    match: str
    to: str | list[str]


class Field:
    """A setting as people write it.

    `takes`: the values of the field in redbox.toml, for error messages. `flags`: the option of the command line, if
    there is one; `option`: its other arguments for click. `policy`: the setting of the relay's policy that the value is
    for, if it is for one; `read`: makes the value for it.
    """

    def __init__(
        self,
        takes: str,
        *flags: str,
        policy: str = "",
        read: Callable[[Any], Any] = lambda value: value,
        **option: Any,
    ) -> None:
        self.takes = takes
        self.flags = flags
        self.option = option
        self.policy = policy
        self.read = read


@dataclasses.dataclass(kw_only=True, repr=False)
class RelaySettings:
    """The fields of a [[relay]] table, and the options of `redbox relay`. None: the default."""

    # fmt: off
    to: Annotated[str | None, Field(
        TEXT, "--to", metavar="URL",
        help="Target: https://, amqp://, nats://, kafka://, redis+stream://, box:NAME, python:MODULE:FUNCTION, ...",
    )] = None
    box: Annotated[str, Field(TEXT)] = "default"
    url: Annotated[str | None, Field(TEXT)] = None
    options: Annotated[Pairs, Field(
        PAIRS.format("options"), "-o", "--option", "options",
        multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
        help="Option of the target; repeatable. -o '?=' lists all options. Secrets only as '${NAME}' or file:PATH.",
    )] = dataclasses.field(default_factory=dict)
    routes: Annotated[list[Route] | None, Field(ROUTES)] = None
    default: Annotated[str | list[str] | None, Field('a box such as "box:rest", or a list of boxes')] = None
    middleware: Annotated[list[str], Field(
        'a list of functions: middleware = ["python:shop.relay:trace"]', "--middleware",
        multiple=True, metavar="python:MODULE:FUNCTION",
        help="Async function around each publish; repeatable, the first is the outermost.",
    )] = dataclasses.field(default_factory=list)
    retry: Annotated[str | None, Field(
        TEXT, "--retry", policy="backoff", read=parse_retry, metavar="POLICY",
        help=f"Delay between attempts: fixed:10m, fixed:0 or exp:1s..5m.  [default: {DEFAULT_RETRY}]",
    )] = None
    attempts: Annotated[int | str | None, Field(
        'a whole number of at least 1, or "unlimited"', "--attempts", policy="attempts", read=parse_attempts,
        metavar="N",
        help="Maximum attempts per event, or `unlimited`.  [default: 10]",
    )] = None
    max_age: Annotated[float | str | None, Field(
        DURATION, "--max-age", policy="max_age", read=parse_duration, metavar="DURATION",
        help="Mark events DEAD that are unpublished this long after they were due.  [default: no limit]",
    )] = None
    dead_to: Annotated[str | None, Field(
        TEXT, "--dead-to", metavar="URL",
        help="Dead-letter target: receives each event before it is marked DEAD.",
    )] = None
    dead_options: Annotated[Pairs, Field(
        PAIRS.format("dead_options"), "--dead-option", "dead_options",
        multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
        help="Option of the dead-letter target; repeatable.",
    )] = dataclasses.field(default_factory=dict)
    alerts_to: Annotated[str | None, Field(
        TEXT, "--alerts-to", metavar="URL",
        help="Target of alerts about the breaker, new error groups, the store, and a full, late or paused box.",
    )] = None
    alerts_options: Annotated[Pairs, Field(
        PAIRS.format("alerts_options"), "--alerts-option", "alerts_options",
        multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
        help="Option of the target of alerts; repeatable.",
    )] = dataclasses.field(default_factory=dict)
    alert_age: Annotated[float | str | None, Field(
        DURATION, "--alert-age", metavar="DURATION",
        help="Age of the oldest available event above which an alert is sent.  [default: 5m]",
    )] = None
    on_success: Annotated[Literal["keep", "delete"] | None, Field(
        '"keep" or "delete"', "--on-success", policy="on_success", type=click.Choice(["keep", "delete"]),
        help="Keep published events for the box's retention, or delete them.  [default: keep]",
    )] = None
    on_dead: Annotated[Literal["keep", "drop"] | None, Field(
        '"keep" or "drop"', "--on-dead", policy="on_dead", type=click.Choice(["keep", "drop"]),
        help="Keep dead events for the box's retention, or drop them.  [default: keep]",
    )] = None
    concurrency: Annotated[int | None, Field(
        NUMBER, "--concurrency", policy="concurrency", type=click.IntRange(min=1), metavar="N",
        help="Maximum events being published at once.  [default: 100]",
    )] = None
    batch: Annotated[int | None, Field(
        NUMBER, "--batch", policy="batch", type=click.IntRange(1, 1000), metavar="N",
        help="Maximum events per claim.  [default: 100]",
    )] = None
    max_rate: Annotated[str | None, Field(
        'a rate in quotes: "50/s"', "--max-rate", metavar="RATE",
        help="Maximum claim rate of all relays of the box: 50/s, 1000/min. Written as a setting of the box.",
    )] = None
    max_burst: Annotated[int | None, Field(
        NUMBER, "--max-burst", type=click.IntRange(min=1), metavar="N",
        help="Events that --max-rate lets relays claim at once.  [default: the setting of the box]",
    )] = None
    max_in_flight: Annotated[int | None, Field(
        NUMBER, "--max-in-flight", type=click.IntRange(min=1), metavar="N",
        help="Maximum events claimed at once, by all relays of the box. Written as a setting of the box.",
    )] = None
    lease: Annotated[float | str | None, Field(
        DURATION, "--lease", policy="lease", read=parse_duration, metavar="DURATION",
        help="How long claims stay held if this process crashes.  [default: 30s]",
    )] = None
    time_limit: Annotated[float | str | None, Field(
        DURATION, "--time-limit", policy="time_limit", read=parse_limit, metavar="DURATION",
        help="Maximum duration of one publish, or `unlimited`.  [default: 30s]",
    )] = None
    grace: Annotated[float | str | None, Field(
        DURATION, "--grace", policy="grace", read=parse_duration, metavar="DURATION",
        help="Time for events being published to finish after a signal.  [default: 10s]",
    )] = None
    name: Annotated[str | None, Field(
        TEXT, "--name", metavar="NAME",
        help="Unique name of this relay.  [default: host, pid and a random suffix]",
    )] = None
    breaker: Annotated[bool, Field(
        "true or false", "--no-breaker", "breaker", flag_value=False, type=bool, default=True,
        help="Publish even while the target is down; each failed attempt counts.",
    )] = True
    deny_private: Annotated[bool, Field(
        "true or false", "--deny-private", is_flag=True,
        help="Connect to https:// and http:// targets on public addresses only.",
    )] = False
    # fmt: on

    def __repr__(self) -> str:  # the fields may hold secrets
        return f"RelaySettings({self.box!r})"

    def open(self, url: str, directory: Path, lenders: dict[str, Box] | None = None) -> Relay:
        """The relay; relative `file:` paths begin at `directory`. Its box is on `url`: beside the box in `lenders` that
        is there already, over the same connections, or else it is added to them."""
        from redbox import Relay

        chosen: dict[str, Any] = {}
        for name, field in FIELDS.items():
            value = getattr(self, name)
            if field.policy and value is not None:
                chosen[field.policy] = _read(name, field.read)(value)
        if self.deny_private and not any(map(_is_http, (self.to, self.dead_to))):
            raise SettingError("deny_private", "there is no https:// or http:// target to which it applies")
        publisher = self._publisher("to", "options", directory) if self.routes is None else self._open_routes()
        if self.middleware:
            chosen["middleware"] = _read("middleware", _find_middleware)(self.middleware)
        if self.dead_to is not None:
            chosen["dead_to"] = self._publisher("dead_to", "dead_options", directory)
        elif self.dead_options:
            raise SettingError("dead_options", "dead_to is not given")
        if self.alerts_to is not None:
            chosen["alerts_to"] = self._publisher("alerts_to", "alerts_options", directory)
            if self.alert_age is not None:
                chosen["alert_age"] = _read("alert_age", parse_duration)(self.alert_age)
        elif self.alerts_options or self.alert_age is not None:
            raise SettingError("alerts_options" if self.alerts_options else "alert_age", "alerts_to is not given")
        if not self.breaker:
            chosen["breaker"] = None
        chosen |= self._limits()
        box = open_beside(url, self.box, {} if lenders is None else lenders)
        for setting, target in (("to", publisher), ("dead_to", chosen.get("dead_to"))):
            if target is not None:
                _read("routes" if setting == "to" and self.routes else setting, target.attach)(box)
        return Relay(box, publisher, name=self.name, **chosen)

    def check_target(self) -> None:
        """Refuses a relay without a target, or with two."""
        if self.to is None and self.routes is None:
            raise SettingError("to", "missing; give the target, or routes")
        if self.to is not None and self.routes is not None:
            raise SettingError("routes", "give either to or routes, not both")
        if self.default is not None and self.routes is None:
            raise SettingError("default", "is for routes, which are not given")

    def _open_routes(self) -> Publisher:
        """Makes the routes. Each part is checked alone first, so that an error names it."""
        from redbox.routing.globs import compile_glob
        from redbox.routing.routes import Routes

        if not self.routes:
            raise SettingError("routes", "has no route")
        table: dict[str, list[str]] = {}
        for number, route in enumerate(self.routes):
            _read("routes", lambda glob: compile_glob("match", glob), (number, "match"))(route.match)
            table.setdefault(route.match, []).extend(self._boxes("routes", route.to, (number, "to")))
        default = None if self.default is None else self._boxes("default", self.default, ())
        try:
            return Routes(table, default=default, **self.options)  # type: ignore[arg-type]
        except TypeError:
            raise SettingError("options", "routes have only the option durability") from None
        except UsageError as error:
            raise SettingError("options" if self.options else "routes", str(error)) from None

    def _boxes(self, setting: str, targets: str | list[str], within: tuple[str | int, ...]) -> list[str]:
        from redbox.routing.routes import check_destination

        many = [targets] if isinstance(targets, str) else targets
        if not many:
            raise SettingError(setting, "names no box", within)
        found = []
        for number, target in enumerate(many):
            place = within if isinstance(targets, str) else (*within, number)
            url = _read(setting, expand_url, place)(target)
            _read(setting, check_destination, place)(url)
            found.append(url)
        return found

    def _publisher(self, target: str, options: str, directory: Path) -> Publisher:
        from redbox.publishers.registry import open_expanded, secret_options

        url = _read(target, expand_url)(getattr(self, target) or "")
        try:
            secrets = secret_options(url)
            given = _read(options, lambda value: expand_options(value, secrets, directory))(getattr(self, options))
        except (SettingError, MissingExtra):
            raise
        except UsageError as error:
            raise SettingError(target, str(error)) from error
        if self.deny_private and _is_http(url):
            given = {**given, "deny_private": True}
        try:
            return open_expanded(url, **given)
        except MissingExtra:
            raise
        except UsageError as error:
            raise SettingError(options if error.argument in given else target, str(error)) from error

    def _limits(self) -> dict[str, Any]:
        """The limits that are given, as the box stores them."""
        from redbox.relay.limits import check_limits
        from redbox.settings import LIMITS

        found: dict[str, Any] = {}
        for name in LIMITS:
            try:
                found |= check_limits(**{name: getattr(self, name)})
            except InvalidSetting as error:
                raise SettingError(name, str(error).removeprefix(f"{name}: ")) from None
        return found

    # --- as text -------------------------------------------------------------------------------------------------

    @property
    def writes_stdout(self) -> bool:
        targets = [expand_url(target) for target in (self.to, self.dead_to, self.alerts_to) if target is not None]
        return any(target.lower().startswith("stdout:") for target in targets)

    def policy_text(self, relay: Relay) -> str:
        """All settings with the values that are used, for the log: `retry exp:1s..5m, attempts 10, ...`."""
        values: dict[str, Any] = {"retry": self.retry or DEFAULT_RETRY}
        for name, field in FIELDS.items():
            if field.policy and name not in values:
                value = getattr(relay.policy, field.policy)
                is_duration = field.read in (parse_duration, parse_limit) and value is not None
                values[name] = format_duration(value) if is_duration else value
        values |= self._limits()
        values["dead_to"] = "none" if relay.dead_target is None else relay.dead_target
        if relay.alerts_target is not None:
            values["alerts_to"] = relay.alerts_target
        values["breaker"] = "on" if self.breaker else "off"
        return ", ".join(
            f"{name.replace('_', '-')} {'unlimited' if value is None else value}" for name, value in values.items()
        )


#: The settings in the order of `redbox relay --help`.
FIELDS: Final[dict[str, Field]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(RelaySettings, include_extras=True).items()
}


def _find_middleware(urls: Sequence[str]) -> Sequence[Middleware]:
    from redbox.publishers.python import find_python
    from redbox.relay.middleware import check_middleware

    return check_middleware([find_python(url) for url in urls])


def _is_http(target: str | None) -> bool:
    return target is not None and _read("to", expand_url)(target).lower().startswith(("https://", "http://"))


def open_beside(url: str, name: str, lenders: dict[str, Box]) -> Box:
    """A box on `url`, over the connections of the one in `lenders` that is there already."""
    from redbox import Box
    from redbox.box.beside import beside

    if url in lenders:
        return beside(lenders[url], name)
    return lenders.setdefault(url, Box.open(url, name=name))


def _read(setting: str, read: Callable[[Any], Any], within: tuple[str | int, ...] = ()) -> Callable[[Any], Any]:
    """The reader, with the name of the setting in its errors."""

    def checked(value: Any) -> Any:
        try:
            return read(value)
        except ValueError as error:
            raise SettingError(setting, str(error), within) from None

    return checked
