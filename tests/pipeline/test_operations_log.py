"""The line that a job leaves in the box's log; Spark is not needed for it."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Event
from redbox.errors import StoreUnavailable
from redbox.pipeline.jobs.operations_log import LoggedJob
from redbox.pipeline.source.options import Address
from redbox.store.store import Store

from .conftest import Played


@pytest.mark.req("RO-3")
def test_a_job_is_logged_once_although_the_reply_was_lost(redis_played: Played, monkeypatch: pytest.MonkeyPatch):
    redis_played.run(redis_played.box.put(Event("n")))
    write_log, lost = Store.write_log, [StoreUnavailable("the reply was lost")]

    async def write_and_lose_the_reply(*args: Any, **options: Any) -> None:
        await write_log(*args, **options)
        if lost:
            raise lost.pop()

    monkeypatch.setattr(Store, "write_log", write_and_lose_the_reply)
    job = LoggedJob(at=Address(redis_played.url, redis_played.name), action="replay", who="ada", why="", detail="d")
    job.log(2, ["a", "b"])
    assert lost == []
    assert [(entry.count, entry.ids) for entry in redis_played.run(redis_played.box.operate.log())] == [(2, ("a", "b"))]
    job.log(2, ["a", "b"])  # another job that did the same
    assert len(redis_played.run(redis_played.box.operate.log())) == 2
