"""Boxes as targets: the publisher `box:NAME`, and routes to several boxes."""

from redbox.routing.routes import Routes

__all__ = ["Routes"]
