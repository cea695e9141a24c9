"""Why an event, a line, a unique key or a box waits: each situation is made for real."""

from __future__ import annotations

from contextlib import AsyncExitStack

import msgspec
import pytest

from redbox import Box, Situation, UsageError, keys
from redbox.testing.conformance.operations.scenes import boxes, settled
from redbox.testing.conformance.operations.scenes.steps import SCENES, event
from redbox.testing.conformance.steps import claim_one, contents, make_dead, publish

pytestmark = pytest.mark.req("RO-4")


@pytest.mark.parametrize("name", SCENES)
async def test_why(box: Box, name: str):
    async with AsyncExitStack() as stack:
        expected = await SCENES[name](box, stack)
        found = await box.why(expected.event_id, key=expected.key, unique_key=expected.unique_key)
    text = "\n".join(found.sentences)
    assert found.situation is expected.situation, text
    for words in expected.words:
        assert words in text
    commands = [step.command() for step in found.next_steps]
    for start in expected.commands:
        assert any(command.startswith(start) for command in commands), commands
    known = expected.event_id is None or found.situation is Situation.LOST
    assert found.found is (known or await box.get(expected.event_id or "") is not None)
    assert found.evidence
    msgspec.json.encode(found)  # for --json and for other services


async def test_why_changes_nothing(box: Box):
    await settled.dead_and_blocking(box, AsyncExitStack())
    before = await contents(box)
    for about in ({"event_id": "e"}, {"event_id": "gone"}, {"key": "k"}, {"unique_key": "u"}, {}):
        await box.why(**about)
    assert await contents(box) == before


async def test_why_takes_one_subject(box: Box):
    for about in ({"event_id": "e", "key": "k"}, {"key": "k", "unique_key": "u"}):
        with pytest.raises(UsageError, match="one at a time"):
            await box.why(**about)
    for name in ("event_id", "key", "unique_key"):
        with pytest.raises(UsageError, match=f"{name} must not be empty"):
            await box.why(**{name: ""})
        with pytest.raises(UsageError, match=name):
            await box.why(**{name: 7})  # type: ignore[arg-type]  # the wrong type


async def test_why_of_an_empty_box(box: Box):
    assert (await box.why()).situation is Situation.FLOWING
    assert (await box.why("e")).situation is Situation.UNKNOWN


async def test_stored_text_is_escaped_and_bounded(box: Box):
    """It reaches a terminal: ESC, a bidirectional override, and a long error."""
    await make_dead(box, event(ordering_key="k"), reason="\x1b[31m\u202e" + "x" * 2000)
    text = "\n".join((await box.why("e")).sentences)
    assert "\\x1b[31m\\u202exxx" in text
    assert "\x1b" not in text
    assert len(text) < 600


async def test_an_id_that_looks_like_an_option(box: Box):
    await make_dead(box, event("--all"))
    (step,) = (await box.why("--all")).next_steps
    assert step.command(("--box", "my orders")) == "redbox --box 'my orders' dead replay -- --all"


async def test_a_published_event_has_no_next_step(box: Box):
    """`redbox dead replay` refuses it."""
    await publish(box, event())
    assert (await box.why("e")).next_steps == ()


async def test_a_dead_head_is_not_counted_twice(box: Box):
    await boxes.box_with_a_blocked_line_after_failures(box, AsyncExitStack())
    found = await box.why()
    assert "Besides" not in "\n".join(found.sentences)
    assert [step.command() for step in found.next_steps] == ["redbox dead replay k0", "redbox dead drop k0"]


async def test_the_pause_of_one_of_many_paused_keys(box: Box):
    """Its end comes after that of 1,000 others."""
    await box.put(event(ordering_key="k"))
    await box.operate.pause(key="k", who="ada", why="wrong amounts")
    far = await box._store.time() + 3_600_000
    others = [part for number in range(1000) for part in (far, f"other-{number}")]
    await box._store.exchange([("ZADD", keys.paused(box.name), *others)])
    assert "by ada (wrong amounts)" in "\n".join((await box.why("e")).sentences)


async def test_a_dead_event_that_left_its_line_blocks_nothing(box: Box):
    await box.put_many([event(each, ordering_key="k") for each in ("e", "f")])
    await box.kill(await claim_one(box), reason="no")
    assert "It blocks" not in "".join((await box.why("e")).sentences)
