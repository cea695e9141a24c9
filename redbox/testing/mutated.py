"""Runs redbox on other scripts than its own: how a suite shows that it notices a defect."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from redbox.store import scripts


def use_scripts(directory: str) -> None:
    """Makes every store of this process load its scripts from a directory."""
    scripts.lua_root = partial(Path, directory)
    scripts.load.cache_clear()
