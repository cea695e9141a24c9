"""Situations that `why` explains, each made for real."""
