"""Publishers: one module per kind of target, chosen by the scheme of its URL."""

from redbox.publishers.base import Publisher

__all__ = ["Publisher"]
