"""Sweep: removes PUBLISHED and DEAD events past their retention."""

from __future__ import annotations

from typing import Any

from redbox.arguments import flag, whole_number
from redbox.box.reports import Swept
from redbox.events import State
from redbox.settings import RETENTION, SWEEP_COUNT, Settings, to_meta
from redbox.store.scripts.replies import START
from redbox.store.store import Store


async def sweep(store: Store, retention: dict[str, Any], *, limit: int | None, dry_run: bool) -> Swept:
    """Removes events that are too old, and the oldest ones beyond the count to keep.

    `retention` holds settings by name; the others are those of the box. It is made in short steps: between two of them
    the server answers others.
    """
    flag("dry_run", dry_run)
    if limit is not None:
        whole_number("limit", limit, 0)
    changes = to_meta(retention)
    settings = Settings.from_meta({**await store.meta(), **changes}, RETENTION)
    keep = {
        State.PUBLISHED: (settings.keep_published, settings.keep_published_count),
        State.DEAD: (settings.keep_dead, settings.keep_dead_count),
    }
    report = Swept(dry_run=dry_run)
    left = limit
    for state, (age, count) in keep.items():
        after, more, removed = START, age is not None or count is not None, 0
        while more and left != 0:
            step = await store.sweep(
                state.value.lower(),
                age=None if age is None else int(age * 1000),
                keep=count,
                limit=SWEEP_COUNT if left is None else min(left, SWEEP_COUNT),
                dry=dry_run,
                after=after,
            )
            after, more = step.after, step.more
            removed += step.removed
            left = None if left is None else left - step.removed
        setattr(report, state.value.lower(), removed)
    return report
