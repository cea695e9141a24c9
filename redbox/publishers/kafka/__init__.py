"""`kafka://`: events as records of a topic."""
