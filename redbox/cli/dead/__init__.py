"""`redbox dead`."""
