"""A call with many events is made in steps: an error in the middle says what was carried out before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redbox import Box, Event, StoreFull, StoreUnavailable, UsageError
from redbox.errors import Effect
from redbox.settings import Settings


@pytest.fixture
def fail_at(redbox_box: Box, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, Exception], None]:
    def fail(script: str, step: int, error: Exception) -> None:
        run, calls = redbox_box._store.scripts.run, 0

        async def failing(name: str, *args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += name == script
            if name == script and calls == step:
                raise error
            return await run(name, *args, **options)

        monkeypatch.setattr(redbox_box._store.scripts, "run", failing)

    return fail


@pytest.mark.parametrize("move", ["retry", "kill", "release"])
async def test_a_settlement_that_fails_in_the_middle(redbox_box: Box, fail_at: Any, move: str):
    await redbox_box.put_many([Event("n") for _ in range(250)])
    claims = await redbox_box.claim("relay", limit=250)
    fail_at(move, 3, StoreUnavailable("the server is away").with_effect(Effect.NOTHING_CHANGED))
    with pytest.raises(StoreUnavailable) as caught:
        await getattr(redbox_box, move)(claims)
    assert str(caught.value) == (
        "the server is away; nothing else was changed; "
        "the first 200 events of this call were processed before the error"
    )
    assert caught.value.carried_out == 200
    assert len([record async for record in redbox_box.list(state="CLAIMED")]) == 50


@pytest.mark.parametrize("on_conflict", ["raise", "skip"])
async def test_a_put_of_many_that_fails_in_the_middle(redbox_box: Box, fail_at: Any, on_conflict: Any):
    events = [Event("n") for _ in range(2500)]
    fail_at("put", 2, StoreFull("the server is out of memory").with_effect(Effect.NOTHING_WRITTEN))
    with pytest.raises(StoreFull, match="nothing else was written; the first 1,000 events") as caught:
        await redbox_box.put_many(events, on_conflict=on_conflict)
    assert [receipt.event_id for receipt in caught.value.receipts] == [event.event_id for event in events[:1000]]
    assert caught.value.carried_out == 1000


async def test_an_error_of_the_first_step_is_as_it_was(redbox_box: Box, fail_at: Any):
    fail_at("put", 1, StoreFull("out of memory").with_effect(Effect.NOTHING_WRITTEN))
    with pytest.raises(StoreFull) as caught:
        await redbox_box.put_many([Event("n") for _ in range(2500)])
    assert (str(caught.value), caught.value.carried_out) == ("out of memory; nothing was written", 0)


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "1e300"])
def test_a_setting_that_is_not_a_duration_cannot_be_read(value: str):
    _, wrong = Settings.readable({"keep_published": value})
    assert wrong == ["keep_published"]


async def test_a_heartbeat_has_few_fields(redbox_box: Box):
    """Everyone who asks for stats reads them."""
    with pytest.raises(UsageError, match="at most 32 fields"):
        await redbox_box.beat("relay", "one", {f"field{number}": "" for number in range(33)}, fresh=10)
