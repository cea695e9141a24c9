"""`redbox relay`."""
