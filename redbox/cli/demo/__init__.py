"""`redbox demo`."""
