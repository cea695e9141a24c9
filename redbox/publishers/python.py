"""`python:module:function` publishes by calling a function that is found by its name."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from redbox.errors import InvalidURL, UsageError
from redbox.publishers.base import Publisher
from redbox.publishers.function import THREADS, FunctionPublisher


def open_python(url: str, *, concurrency: int | str = THREADS) -> Publisher:
    """The function, or the publisher, that a URL names; nothing is called to get it."""
    module_name, _, path = url.partition(":")[2].partition(":")
    if not all(name.isidentifier() for name in (*module_name.split("."), *path.split("."))):
        raise InvalidURL("write python:module:function, such as python:shop.events:publish")
    found: Any = _module(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise InvalidURL(f"python: the module {module_name} has no {path}") from None
    if isinstance(found, Publisher):
        if concurrency != THREADS:
            raise UsageError(f"python:{module_name}:{path} is a publisher already, and takes no options")
        return found
    if not callable(found):
        raise InvalidURL(f"python:{module_name}:{path} is a {type(found).__name__}, not a function or a publisher")
    return FunctionPublisher(found, concurrency=concurrency)


def _module(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does; a command line that was installed begins elsewhere
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidURL(f"python: there is no module {error.name}, neither installed nor in {here}") from None
        raise UsageError(f"python: the module {name} cannot be imported: {error}") from error
    except Exception as error:
        raise UsageError(f"python: the module {name} cannot be imported: {type(error).__name__}: {error}") from error
