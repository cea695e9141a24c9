"""Names with fields, such as `orders.{event_type}`: the subject or topic of each event."""

from __future__ import annotations

import re
from typing import Final

from redbox.arguments import invalid
from redbox.errors import Reject
from redbox.events import Claim

FIELDS: Final = ("event_type", "box", "partition_key", "ordering_key", "event_id")
_split = re.compile(r"\{([^{}]*)\}").split


class Template:
    """A text in which `{field}` stands for a field of the event, or for the name of the box.

    `what` names the text in errors, such as "the subject".
    """

    def __init__(self, what: str, text: str) -> None:
        self._what = what
        pieces = _split(text)
        self._texts, self.fields = pieces[::2], pieces[1::2]
        for name in self.fields:
            if name not in FIELDS:
                raise invalid(what, f"has no field of this name; its fields are {', '.join(FIELDS)}")
        if any("{" in each or "}" in each for each in self._texts):
            raise invalid(what, "has a brace without its counterpart; fields are written as {event_type}")

    @property
    def constant(self) -> str | None:
        """The text, if it is the same for every event."""
        return None if self.fields else self._texts[0]

    def fill(self, claim: Claim, box: str) -> str:
        """Returns the text for one event. An event without a key that the text needs is rejected."""
        if not self.fields:
            return self._texts[0]
        found = [self._texts[0]]
        for name, text in zip(self.fields, self._texts[1:], strict=True):
            value = box if name == "box" else claim.event_id if name == "event_id" else getattr(claim.event, name)
            if value is None:
                raise Reject(f"{self._what} needs a {name}, and this event has none", kind=f"no {name}")
            found += [value, text]
        return "".join(found)
