"""`python:module:function` publishes by calling a function, given by name."""

from __future__ import annotations

from redbox.errors import InvalidURL, UsageError
from redbox.lookup import look_up
from redbox.publishers.base import Publisher
from redbox.publishers.function import FunctionPublisher


def open_python(url: str, *, concurrency: int | str | None = None) -> Publisher:
    """Returns a publisher for the function that a URL names, or the publisher that it names. Calls nothing."""
    module_name, _, path = url.partition(":")[2].partition(":")
    if not all(name.isidentifier() for name in (*module_name.split("."), *path.split("."))):
        raise InvalidURL("write python:module:function, such as python:shop.events:publish")
    try:
        found = look_up(module_name, path)
    except UsageError as error:
        raise InvalidURL(f"python: {error.message}") from error
    if isinstance(found, Publisher):
        if concurrency is not None:
            raise UsageError(f"python:{module_name}:{path} is already a publisher, and takes no options")
        return found
    if not callable(found):
        raise InvalidURL(
            f"python:{module_name}:{path} is of type {type(found).__name__}, not a function or a publisher"
        )
    return FunctionPublisher(found, concurrency=concurrency)
