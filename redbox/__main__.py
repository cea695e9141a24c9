"""`python -m redbox`: the command line."""

from redbox.cli import main

main()
