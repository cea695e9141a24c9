#!/usr/bin/env python3
"""Runs the command line from a checkout: `./cli.py demo`. Installed, it is `redbox`."""

from redbox.cli import main

if __name__ == "__main__":
    main()
