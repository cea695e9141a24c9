"""Objects that a user names as `module:name`."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from redbox.errors import UsageError


def look_up(module_name: str, path: str) -> Any:
    """Imports the module, which may be a file in the current directory, and returns the object at the dotted path."""
    found = _module(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UsageError(f"the module {module_name} has no {path}") from None
    return found


def _module(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does; the installed command does not
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module {error.name}, neither installed nor in {here}") from None
        raise UsageError(f"the module {name} cannot be imported: {error}") from error
    except Exception as error:
        raise UsageError(f"the module {name} cannot be imported: {type(error).__name__}: {error}") from error
