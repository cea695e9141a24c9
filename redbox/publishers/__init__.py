"""Where events go: one file per kind of target, found by the scheme of its URL."""

from redbox.publishers.base import Publisher

__all__ = ["Publisher"]
