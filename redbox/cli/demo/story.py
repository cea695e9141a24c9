"""What the demo tells: lines for people as things happen, or one document at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from redbox.box.reports import Stats
    from redbox.cli.output import Output
    from redbox.events import Claim
    from redbox.publishers import Publisher


class Story:
    """The account of what happens."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._steps = 0
        self._told: list[dict[str, str]] = []
        self._summary: dict[str, Any] = {}

    def begin(self, data: str) -> None:
        self._summary["directory"] = data
        if not self._output.as_json:
            self._output.text(f"An embedded server in {data}, and a box named demo. Your own boxes are not touched.")

    def step(self, title: str) -> None:
        self._steps += 1
        self._told.append({"step": title})
        if not self._output.as_json:
            self._output.text(f"\n{self._steps}. {title}", "bold")

    def tell(self, what: str, which: str, text: str, state: str = "") -> None:
        """One thing that happened to an event, and the state it is in after it."""
        self._told.append({"what": what, "event": which, "text": text} | ({"state": state} if state else {}))
        if self._output.as_json:
            return
        if not self._output.terminal:
            click.echo(f"   {what:10}{which:10}{text}" + (f" [{state}]" if state else ""))
            return
        from rich.text import Text

        line = Text.assemble("   ", (f"{what:10}", _COLOURS.get(what, "cyan")), (f"{which:10}", "bold"), text, " ")
        line.append_text(self._output.styled(state))
        self._output.console.print(line, soft_wrap=True)

    def account(self, stats: Stats, sums: Sequence[tuple[str, int, int]]) -> None:
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
            self._output.text(f"\nDone; {directory} is removed. Next: redbox put --help, redbox relay --help")


_COLOURS = {"put": "cyan", "ok": "green", "failed": "yellow", "rejected": "red", "dead": "red", "replay": "magenta"}


def watch(publisher: Publisher, story: Story) -> Publisher:
    """The same publisher, whose every attempt is told."""
    from redbox.errors import Reject
    from redbox.publishers import Publisher

    class Watched(Publisher):
        @property
        def target(self) -> str:
            return publisher.target

        async def open(self, box: str) -> None:
            await publisher.open(box)

        async def aclose(self) -> None:
            await publisher.aclose()

        async def publish(self, claim: Claim) -> None:
            which = f"order {claim.event.decode()['order']}"
            try:
                await publisher.publish(claim)
            except Reject as error:
                story.tell("rejected", which, f"attempt {claim.attempts}: {error}")
                raise
            except Exception as error:
                story.tell("failed", which, f"attempt {claim.attempts}: {error}; again later")
                raise
            story.tell("ok", which, f"attempt {claim.attempts}: acknowledged")

    return Watched()
