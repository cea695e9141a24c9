"""Finds the publisher for a URL or a function. Does no I/O."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple

from redbox.errors import InvalidURL, MissingExtra, UsageError
from redbox.publishers.base import Publisher
from redbox.publishers.function import FunctionPublisher, Handler

GROUP: Final = "redbox.publishers"

_placeholder = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}").search

#: Called with the URL and the options as keyword arguments; usually a class.
Factory = Callable[..., Publisher]

#: What a relay publishes to: a URL, a function of (event) or (event, claim), or a publisher.
Target = str | Publisher | Handler


class Scheme(NamedTuple):
    """The module and factory of a publisher, the prefix of its URLs, and the extra that it needs."""

    module: str
    factory: str
    prefix: str
    extra: str | None = None


SCHEMES: Final = {
    "https": Scheme("redbox.publishers.http.publisher", "HTTPPublisher", "https://", "http"),
    "http": Scheme("redbox.publishers.http.publisher", "HTTPPublisher", "http://", "http"),
    "redis+stream": Scheme("redbox.publishers.redis_stream", "RedisStreamPublisher", "redis+stream://"),
    "rediss+stream": Scheme("redbox.publishers.redis_stream", "RedisStreamPublisher", "rediss+stream://"),
    "amqps": Scheme("redbox.publishers.amqp.publisher", "AMQPPublisher", "amqps://", "amqp"),
    "amqp": Scheme("redbox.publishers.amqp.publisher", "AMQPPublisher", "amqp://", "amqp"),
    "nats": Scheme("redbox.publishers.nats.publisher", "NATSPublisher", "nats://", "nats"),
    "tls": Scheme("redbox.publishers.nats.publisher", "NATSPublisher", "tls://", "nats"),
    "nats+tls": Scheme("redbox.publishers.nats.publisher", "NATSPublisher", "nats+tls://", "nats"),
    "kafka": Scheme("redbox.publishers.kafka.publisher", "KafkaPublisher", "kafka://", "kafka"),
    # These are above the publishers, since they need a box; like those of other packages they are found by name.
    "box": Scheme("redbox.routing.publisher", "BoxPublisher", "box:NAME"),
    "box+redis": Scheme("redbox.routing.publisher", "BoxPublisher", "box+redis://"),
    "box+rediss": Scheme("redbox.routing.publisher", "BoxPublisher", "box+rediss://"),
    "stdout": Scheme("redbox.publishers.stdout", "StdoutPublisher", "stdout:"),
    "null": Scheme("redbox.publishers.null", "NullPublisher", "null:"),
    "python": Scheme("redbox.publishers.python", "open_python", "python:module:function"),
}


def open_publisher(target: Target, **options: Any) -> Publisher:
    """Returns the publisher for a URL or a function, or the given publisher. Does no I/O.

    `options` are those of the target; docs/publishers.md lists them. An invalid target or option raises UsageError; so
    does a placeholder such as ${NAME}, which only the command line and redbox.toml replace.
    """
    if isinstance(target, Publisher):
        if options:
            raise UsageError("options are for URLs and functions; a Publisher already has its own")
        return target
    if isinstance(target, str):
        _refuse_placeholders(target, options)
        return open_expanded(target, **options)
    if callable(target):
        _check_options("a function", FunctionPublisher, options)
        return FunctionPublisher(target, **options)
    raise UsageError(f"a target is a URL, a function or a Publisher, not {type(target).__name__}")


def open_expanded(url: str, **options: Any) -> Publisher:
    """Returns the publisher for a URL. URL and options are taken literally: their placeholders were replaced before."""
    scheme, factory = _factory(url)
    _check_options(f"{scheme}:", factory, options)
    publisher = factory(url, **options)
    if not isinstance(publisher, Publisher):
        raise UsageError(f"the factory registered for {scheme}: did not return a redbox Publisher")
    return publisher


def _refuse_placeholders(url: str, options: dict[str, Any]) -> None:
    """Publishers of other packages may use placeholders of their own, except in secrets."""
    secrets, own = secret_options(url), url.partition(":")[0].lower() in SCHEMES
    where, instead = "is replaced only on the command line and in redbox.toml", "in Python pass"
    if own and (found := _placeholder(url)):
        raise InvalidURL(f"${{{found[1]}}} {where}; {instead} a URL with the value itself, quoted for a URL")
    for name, value in options.items():
        problem = ""
        if not isinstance(value, str) or not (own or name in secrets):
            continue
        if found := _placeholder(value):
            problem = f"${{{found[1]}}} {where}; {instead} the value itself, such as os.environ[{found[1]!r}]"
        elif name in secrets and value.startswith("file:"):
            problem = f"file:PATH {where}; {instead} the content of the file"
        if problem:
            error = UsageError(f"{name}: {problem}")
            error.argument = name
            raise error


def open_target(argument: str, target: Target, options: Mapping[str, Any] | None) -> Publisher:
    """Calls `open_publisher` with options from a mapping. `argument` is the name of that argument, for errors."""
    if options is None:
        return open_publisher(target)
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise UsageError(f"{argument} must be a mapping of option names to values, such as {{'timeout': 5}}")
    return open_publisher(target, **options)


def secret_options(url: str) -> frozenset[str]:
    """Returns the options of this URL's publisher that must not be logged, stored or shown."""
    secrets: frozenset[str] = getattr(_factory(url)[1], "secrets", frozenset())
    return secrets


def known_prefixes() -> list[str]:
    """Returns the prefixes of all supported URLs, redbox's own first."""
    others = sorted({entry.name for entry in entry_points(group=GROUP)} - SCHEMES.keys())
    return [each.prefix for each in SCHEMES.values()] + [f"{name}:" for name in others]


def _factory(url: str) -> tuple[str, Factory]:
    scheme, colon, _ = url.partition(":")
    scheme = scheme.lower()
    known = SCHEMES.get(scheme) if colon else None
    if known is not None:
        try:
            module = import_module(known.module)
        except ModuleNotFoundError as error:
            if known.extra is None or (error.name or "").startswith("redbox"):
                raise
            raise MissingExtra(f"the target {known.prefix}", known.extra) from error
        return scheme, getattr(module, known.factory)
    for entry in entry_points(group=GROUP, name=scheme) if colon else ():
        try:
            return scheme, entry.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(f"the publisher for {scheme}: ({entry.value}) cannot be loaded: {error}") from error
    # The text is not repeated: in a mistyped URL, any part may belong to a password.
    raise InvalidURL(f"a target is a URL that begins with one of {', '.join(known_prefixes())}")


def option_names(target: Target) -> list[str]:
    """Returns the names of the options that a target has. A publisher has its own already."""
    if isinstance(target, Publisher):
        return []
    return _known_options(_factory(target)[1] if isinstance(target, str) else FunctionPublisher)


def _known_options(factory: Factory) -> list[str]:
    parameters = inspect.signature(factory).parameters.values()
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


def _check_options(what: str, factory: Factory, options: dict[str, Any]) -> None:
    if any(each.kind is each.VAR_KEYWORD for each in inspect.signature(factory).parameters.values()):
        return
    known = _known_options(factory)
    unknown = [name for name in options if name not in known]
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        error = UsageError(f"{what} has no option {unknown[0]!r}; {has}")
        error.argument = unknown[0]
        raise error
