"""Connections to the server that holds a box."""
