"""The box that an application holds, and its parts."""

from redbox.box.box import Box

__all__ = ["Box"]
