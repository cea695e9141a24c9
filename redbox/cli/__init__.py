"""The command line: `redbox`. One file per command family; what is slow to import is imported when a command runs."""

from redbox.cli.app import main

__all__ = ["main"]
