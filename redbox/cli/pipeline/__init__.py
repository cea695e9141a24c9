"""`redbox pipeline`."""
