"""A user's function by its name, here and in the tasks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redbox.errors import UsageError
from redbox.lookup import look_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Function = Callable[..., Any]


def find(name: str) -> Function:
    """The function that `module:function` names."""
    module_name, _, path = name.partition(":")
    if not path or not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise UsageError(f"write module:function, such as fixes:add_currency, not {name!r}")
    return check(look_up(module_name, path), name)


def check(function: Any, name: str) -> Function:
    """A function that can be called with an event, and answers at once."""
    if not callable(function):
        raise UsageError(f"{name} is of type {type(function).__name__}, not a function")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(f"{name} must be a plain function of an event: without async, and without yield")
    made: Function = function
    return made


def ship(spark: SparkSession, name: str) -> None:
    """Sends a module that is a file of the current directory to the tasks; what is installed must be there."""
    module = sys.modules.get(name.partition(":")[0])
    file = getattr(module, "__file__", None)
    if module is not None and file and Path(file).parent == Path.cwd() and file.endswith(".py"):
        spark.sparkContext.addPyFile(file)
