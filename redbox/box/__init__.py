"""What an application holds."""

from redbox.box.box import Box

__all__ = ["Box"]
