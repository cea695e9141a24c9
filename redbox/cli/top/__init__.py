"""`redbox top`: a live screen of one box."""
