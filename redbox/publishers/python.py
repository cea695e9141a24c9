"""`python:module:function` publishes by calling a function, given by name."""

from __future__ import annotations

from typing import Any

from redbox.errors import InvalidURL, UsageError
from redbox.lookup import look_up
from redbox.publishers.base import Publisher
from redbox.publishers.function import FunctionPublisher


def find_python(url: str) -> Any:
    """Returns the object that a URL such as `python:shop.events:publish` names."""
    scheme, _, rest = url.partition(":")
    module_name, _, path = rest.partition(":")
    if scheme.lower() != "python" or not all(
        name.isidentifier() for name in (*module_name.split("."), *path.split("."))
    ):
        raise InvalidURL("write python:module:function, such as python:shop.events:publish")
    try:
        return look_up(module_name, path)
    except UsageError as error:
        raise InvalidURL(f"python: {error.message}") from error


def open_python(url: str, *, concurrency: int | str | None = None) -> Publisher:
    """Returns a publisher for the function that a URL names, or the publisher that it names. Calls nothing."""
    found, name = find_python(url), f"python:{url.partition(':')[2]}"
    if isinstance(found, Publisher):
        if concurrency is not None:
            raise UsageError(f"{name} is already a publisher, and takes no options")
        return found
    if not callable(found):
        raise InvalidURL(f"{name} is of type {type(found).__name__}, not a function or a publisher")
    return FunctionPublisher(found, concurrency=concurrency)
