"""The command line: `redbox`. One module per command family; slow imports happen when a command runs."""

from redbox.cli.app import main

__all__ = ["main"]
