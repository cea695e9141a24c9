"""Tools to test applications that use redbox, and redbox itself.

`redbox_box` is a pytest fixture: a fresh box in memory. `advance(box, minutes=10)` moves the time of a box forward
without sleeping. `check_invariants(box)` returns every broken rule of a box. `python -m pytest --pyargs
redbox.testing.conformance --redbox-url URL`, or `redbox conform --url URL`, runs the conformance suite against any
server.
"""

from redbox.testing.clock import advance
from redbox.testing.inspect import check_invariants

__all__ = ["advance", "check_invariants"]
