"""The policy of a relay: its settings, their defaults and their checks.

A new setting is added here, to `PolicySettings` and `Policy`. To make it an option of `redbox relay` and a field of
redbox.toml, it is added to `redbox.cli.relay.settings.RelaySettings` as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypedDict, get_type_hints

import msgspec

from redbox.arguments import one_of, whole_number
from redbox.backoff import Backoff
from redbox.durations import Duration, duration, positive_duration
from redbox.errors import UsageError
from redbox.settings import BATCH_BYTES, BATCH_COUNT, LEASE

ATTEMPTS: Final = 10
CONCURRENCY: Final = 100
BATCH: Final = 100  # a server writes a larger reply in several turns, with the replies to others in between
BUFFER: Final = 1000
BUFFER_BYTES: Final = 4 * BATCH_BYTES
TIME_LIMIT: Final = 30.0
POLL: Final = 2.0
GRACE: Final = 10.0
MAX_ATTEMPTS: Final = 10**12

Check = Callable[[str, Any], Any]


class PolicySettings(TypedDict, total=False):
    """The settings of a policy as `Relay(...)` accepts them."""

    backoff: Backoff | None
    attempts: int | None
    max_age: Duration | None
    lease: Duration
    concurrency: int
    batch: int
    buffer: int
    buffer_bytes: int
    time_limit: Duration | None
    poll: Duration
    grace: Duration
    on_success: Literal["keep", "delete"]
    on_dead: Literal["keep", "drop"]


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _whole(most: int | None = None) -> Check:
    return lambda name, value: whole_number(name, value, 1, most)


def _choice(*choices: str) -> Check:
    def check(name: str, value: Any) -> Any:
        one_of(name, value, choices)
        return value

    return check


def _backoff(name: str, value: Any) -> Backoff:
    if value is not None and not isinstance(value, Backoff):
        raise UsageError(f"{name} must be a Backoff: Backoff.exponential(1.0), Backoff.fixed(600), Backoff(function)")
    return value or Backoff.exponential()


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, checked. Each field has its type, its check and its default; durations are in seconds."""

    backoff: Annotated[Backoff, _backoff] = None  # type: ignore[assignment]  # the check makes a backoff of None
    attempts: Annotated[int | None, _optional(_whole(MAX_ATTEMPTS))] = ATTEMPTS
    max_age: Annotated[float | None, _optional(positive_duration)] = None
    lease: Annotated[float, positive_duration] = LEASE
    concurrency: Annotated[int, _whole()] = CONCURRENCY
    batch: Annotated[int, _whole(BATCH_COUNT)] = BATCH
    buffer: Annotated[int, _whole()] = BUFFER
    buffer_bytes: Annotated[int, _whole()] = BUFFER_BYTES
    time_limit: Annotated[float | None, _optional(positive_duration)] = TIME_LIMIT
    poll: Annotated[float, positive_duration] = POLL
    grace: Annotated[float, duration] = GRACE
    on_success: Annotated[str, _choice("keep", "delete")] = "keep"
    on_dead: Annotated[str, _choice("keep", "drop")] = "keep"

    @property
    def delete(self) -> bool:
        """Whether published events are removed at once."""
        return self.on_success == "delete"

    @property
    def drop(self) -> bool:
        """Whether dead events are removed at once."""
        return self.on_dead == "drop"


_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(Policy)}
_CHECKS: Final[dict[str, Check]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Policy, include_extras=True).items()
}


def check_policy(settings: PolicySettings, hint: Callable[[str], str]) -> Policy:
    """A policy; raises UsageError for a setting with a wrong value, and TypeError for one that does not exist, with
    what `hint` says about its name."""
    for name in settings:
        if name not in _DEFAULTS:
            raise TypeError(f"Relay() got an unexpected keyword argument {name!r}{hint(name)}")
    given = {**_DEFAULTS, **settings}
    policy = Policy(**{name: check(name, given[name]) for name, check in _CHECKS.items()})
    if policy.attempts is None and policy.backoff.immediate:
        raise UsageError("retries without a delay need a limit of attempts: give one, or a delay such as 1 s")
    return policy


def show_settings(function: Callable[..., Any]) -> None:
    """Lets `help()` and editors show the settings one by one where `function` takes them as `**settings`."""
    accepted = get_type_hints(PolicySettings)
    signature = inspect.signature(function)
    shown = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    shown += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=accepted[name])
        for name, default in _DEFAULTS.items()
    ]
    vars(function)["__signature__"] = signature.replace(parameters=shown)


def check_interval(name: str, value: Duration | None) -> float | None:
    """The seconds between two runs of a service; None for never."""
    return None if value is None else positive_duration(name, value)
