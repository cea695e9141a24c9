"""`redbox demo`: the life of three events, told step by step, on a server of its own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from redbox.cli.session import Session, pass_session
from redbox.errors import RedboxError

if TYPE_CHECKING:
    from redbox import Box, Claim, Record
    from redbox.box.reports import Stats
    from redbox.cli.output import Output

ATTEMPTS: Final = 2
RETRY_DELAY: Final = 0.3
SHORT_LEASE: Final = 0.2
PATIENCE: Final = 15.0
POLL: Final = 0.02


@click.command("demo")
@pass_session
def demo_command(session: Session, /) -> None:
    """Show what redbox does: put, claim, ack, retry, death, replay, and a relay that comes too late.

    It runs on an embedded server in a temporary directory, which it removes afterwards; no other store is touched,
    whatever --url says. It ends with 1 if the numbers at the end do not add up.

    \b
    Examples:
      redbox demo
      redbox --json demo | jq .totals
    """
    import tempfile

    from redbox.store import embedded

    embedded.find_binary()  # says what to install before anything is promised
    story = _Story(session.output)
    with tempfile.TemporaryDirectory(prefix="redbox-demo-") as directory:
        data = str(Path(directory) / "data")
        story.begin(data)
        try:
            session.run(_play(data, story))
        finally:
            embedded.wait_stopped(data)
    story.end(directory)


async def _play(data: str, story: _Story) -> None:
    from redbox import Box

    async with Box.open(f"embedded:{data}", name="demo") as box:
        await _Demo(box, story).run()
        await _account(box, story)


class _Story:
    """The account of what happens: lines for people, or one document at the end."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told: list[dict[str, str]] = []
        self._summary: dict[str, Any] = {}

    def begin(self, data: str) -> None:
        self._summary["directory"] = data
        if not self._output.as_json:
            self._output.text(f"An embedded server in {data}, and a box named demo. Your own boxes are not touched.")

    def step(self, title: str) -> None:
        self._told.append({"step": title})
        if not self._output.as_json:
            self._output.text(f"\n{len([told for told in self._told if 'step' in told])}. {title}", "bold")

    def tell(self, what: str, text: str, record: Record | None = None) -> None:
        """One thing that happened, and where the event stands after it."""
        state = "" if record is None else record.state.value
        self._told.append({"what": what, "text": text} | ({"state": state} if state else {}))
        if self._output.as_json:
            return
        if not self._output.terminal:
            click.echo(f"   {what:8}{text}" + (f" [{state}]" if state else ""))
            return
        from rich.text import Text

        line = Text.assemble("   ", (f"{what:8}", "bold cyan"), text, " ")
        line.append_text(self._output.styled(state))
        self._output.console.print(line, soft_wrap=True)

    def account(self, stats: Stats, sums: list[tuple[str, int, int]]) -> None:
        """The numbers, each sum with its two sides."""
        self._summary |= {
            "steps": self._told,
            "phases": stats.phases,
            "totals": stats.totals,
            "adds_up": all(left == right for _, left, right in sums),
        }
        if self._output.as_json:
            return
        rows = [(words, str(left), str(right), "yes" if left == right else "NO") for words, left, right in sums]
        self._output.table(("THE NUMBERS ADD UP", "LEFT", "RIGHT", "EQUAL"), rows, right=("LEFT", "RIGHT"))

    def end(self, directory: str) -> None:
        if self._output.as_json:
            self._output.json(self._summary)
        else:
            self._output.text(f"\nDone; {directory} is removed. Next: redbox put --help")


class _Demo:
    """Three events and their fates."""

    def __init__(self, box: Box, story: _Story) -> None:
        self._box = box
        self._story = story
        self._names: dict[str, str] = {}

    async def run(self) -> None:
        user, mail, invoice = await self._put()
        await self._first_round(user, mail, invoice)
        await self._death(invoice)
        await self._retry_succeeds(mail)
        await self._replay(invoice)
        await self._zombie(invoice)

    async def _put(self) -> tuple[str, str, str]:
        from redbox import Event

        self._story.step("An application puts three events")
        ids = []
        for event_type, payload in (
            ("user.created", {"id": 42}),
            ("mail.requested", {"to": "ada@example.org"}),
            ("invoice.issued", {"number": "2026-001"}),
        ):
            receipt = await self._box.put(Event(event_type, payload))
            self._names[receipt.event_id] = event_type
            ids.append(receipt.event_id)
            await self._tell("put", receipt.event_id, "is stored, on disk")
        return ids[0], ids[1], ids[2]

    async def _first_round(self, user: str, mail: str, invoice: str) -> None:
        self._story.step("A relay claims them under a lease, and settles each by what became of it")
        claims: dict[str, Claim] = {claim.event_id: claim for claim in await self._claim("relay-1", 3)}
        _expect(await self._box.ack(claims[user]) == [True], "the ack of a claim that is held is accepted")
        await self._tell("ack", user, "was published")
        await self._box.retry(claims[mail], error="451 mailbox busy", delay=RETRY_DELAY)
        await self._tell("retry", mail, f"failed (451 mailbox busy); again in {RETRY_DELAY:g} s")
        await self._box.retry(claims[invoice], error="HTTP 500")
        await self._tell("retry", invoice, "failed (HTTP 500); again at once")

    async def _death(self, invoice: str) -> None:
        self._story.step(f"One keeps failing: after {ATTEMPTS} attempts it comes back exhausted, and is killed")
        claim = await self._claim_one("relay-1", invoice)
        await self._box.retry(claim, error="HTTP 500")
        await self._tell("retry", invoice, "failed again (HTTP 500)")
        claim = await self._claim_one("relay-1", invoice)
        _expect(claim.exhausted, "an event that has used up its attempts comes marked exhausted")
        await self._box.kill(claim, reason=f"gave up after {ATTEMPTS} attempts: HTTP 500")
        await self._tell("kill", invoice, "is dead, and kept until somebody decides")

    async def _retry_succeeds(self, mail: str) -> None:
        self._story.step("The other failure was a passing one: its time comes, and it succeeds")
        claim = await self._claim_one("relay-1", mail)
        await self._box.ack(claim)
        await self._tell("ack", mail, f"was published at attempt {claim.attempts}")

    async def _replay(self, invoice: str) -> None:
        self._story.step("The cause is repaired: an operator replays the dead event")
        report = await self._box.replay([invoice], who="demo", why="the receiver is back")
        _expect(report.replayed == 1, "a dead event can be replayed")
        await self._tell("replay", invoice, "is to be delivered again, its attempts start anew")

    async def _zombie(self, invoice: str) -> None:
        self._story.step("A relay that stalls loses its claim, and cannot settle what is no longer its own")
        late = await self._claim_one("relay-1", invoice, lease=SHORT_LEASE)
        self._story.tell("stall", f"relay-1 stalls for longer than its lease of {SHORT_LEASE:g} s")

        async def reaped() -> bool:
            return invoice in await self._box.reap()

        await _until(reaped, "the lease ends and is reaped")
        await self._tell("reap", invoice, "is given back")
        claim = await self._claim_one("relay-2", invoice)
        (accepted,) = await self._box.ack(late)
        _expect(not accepted, "the ack of a lost claim is refused")
        await self._tell("fenced", invoice, f"relay-1 wakes up and acks claim {late.number}: refused, it is gone")
        _expect(await self._box.ack(claim) == [True], "the ack of the present holder is accepted")
        await self._tell("ack", invoice, "was published by relay-2")

    # --- the tools -----------------------------------------------------------------------------------------------

    async def _claim(self, relay: str, limit: int, lease: float = 30.0) -> list[Claim]:
        claims = await self._box.claim(relay, limit=limit, lease=lease, attempts=ATTEMPTS)
        for claim in claims:
            words = "attempts used up" if claim.exhausted else f"attempt {claim.attempts}"
            await self._tell("claim", claim.event_id, f"by {relay}, claim {claim.number}, {words}")
        return claims

    async def _claim_one(self, relay: str, event_id: str, lease: float = 30.0) -> Claim:
        """Waits until this event can be claimed; another one that came due meanwhile is given back."""
        claimed: list[Claim] = []

        async def found() -> bool:
            for claim in await self._box.claim(relay, limit=1, lease=lease, attempts=ATTEMPTS):
                if claim.event_id == event_id:
                    claimed.append(claim)
                else:
                    await self._box.release(claim, delay=RETRY_DELAY)
            return bool(claimed)

        await _until(found, f"{self._names[event_id]} can be claimed")
        (claim,) = claimed
        words = "exhausted" if claim.exhausted else f"attempt {claim.attempts}"
        await self._tell("claim", event_id, f"by {relay}, claim {claim.number}, {words}")
        return claim

    async def _tell(self, what: str, event_id: str, text: str) -> None:
        self._story.tell(what, f"{self._names[event_id]:15} {text}", await self._box.get(event_id))


async def _account(box: Box, story: _Story) -> None:
    from redbox import Phase

    story.step("The account")
    stats = await box.stats()
    total: Callable[[str], int] = lambda name: stats.totals.get(name, 0)  # noqa: E731 - read once per line below
    completed = stats.phases[Phase.COMPLETED]
    elsewhere = sum(stats.phases.values()) - completed + stats.waiting
    ended = sum(map(total, ("published", "retried", "dead", "expired", "released")))
    sums = [
        ("events put = completed", total("put"), completed),
        ("events elsewhere = none", elsewhere, 0),
        ("deaths = replays", total("dead"), total("replayed")),
        ("claims = published + retried + dead + expired + released", total("claimed"), ended),
        ("late settlements refused = one", total("fenced"), 1),
    ]
    story.account(stats, sums)
    wrong = [words for words, left, right in sums if left != right]
    _expect(not wrong, "; ".join(wrong))


async def _until(happens: Callable[[], Awaitable[bool]], what: str) -> None:
    import asyncio

    deadline = time.monotonic() + PATIENCE
    while not await happens():
        if time.monotonic() > deadline:
            raise RedboxError(f"the demo waited {PATIENCE:g} s in vain: {what}; please report it")
        await asyncio.sleep(POLL)


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise RedboxError(f"the demo found something that must not be: not so: {what}; please report it")
