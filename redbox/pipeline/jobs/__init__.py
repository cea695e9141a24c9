"""The jobs of `redbox pipeline`, except archive and report."""
