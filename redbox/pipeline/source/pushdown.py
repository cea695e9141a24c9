"""Conditions that Spark hands down to the source, for those who ask for it.

Spark remembers them with the relation: after `df.where("state = 'DEAD'").count()`, `df.count()` on the same DataFrame
counts only the dead. So this is used only with the option `pushdown`, on a DataFrame that is read once. A test pins
that behaviour, and tells when Spark has mended it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from pyspark.sql.datasource import EqualTo, Filter, In

from redbox.pipeline.source.reader import BoxReader


class PushingReader(BoxReader):
    """A batch read that is narrowed by conditions on state and event type."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for condition in filters:
            self._narrow(condition)
            yield condition  # Spark looks at it again, which costs little

    def _narrow(self, condition: Filter) -> None:
        options = self._options
        if isinstance(condition, EqualTo | In) and condition.attribute == ("state",):
            wanted = (condition.value,) if isinstance(condition, EqualTo) else condition.value
            states = tuple(state for state in options.states if state in {str(word) for word in wanted})
            self._options = msgspec.structs.replace(options, states=states)
        elif isinstance(condition, EqualTo) and condition.attribute == ("event_type",):
            text = str(condition.value)
            if not options.event_type and not {"*", "?"} & set(text):  # a pattern would mean more than the text
                self._options = msgspec.structs.replace(options, event_type=text)
