"""The narration of the demo: lines for people as things happen, or one JSON document at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from redbox.box.reports import Stats
    from redbox.cli.printing.output import Output
    from redbox.events import Claim
    from redbox.publishers import Publisher


class Story:
    """Prints the steps of the demo, or collects them for --json."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._steps = 0
        self._entries: list[dict[str, str]] = []
        self._summary: dict[str, Any] = {}

    def begin(self, data: str) -> None:
        self._summary["directory"] = data
        if not self._output.as_json:
            self._output.text(f"An embedded server in {data}, and a box named demo. Your own boxes are not touched.")

    def step(self, title: str) -> None:
        self._steps += 1
        self._entries.append({"step": title})
        if not self._output.as_json:
            self._output.text(f"\n{self._steps}. {title}", "bold")

    def report(self, action: str, order: str, text: str, state: str = "") -> None:
        """Reports an action on an order and, if given, the state of its event afterwards."""
        self._entries.append({"what": action, "event": order, "text": text} | ({"state": state} if state else {}))
        if self._output.as_json:
            return
        if not self._output.terminal:
            click.echo(f"   {action:10}{order:10}{text}" + (f" [{state}]" if state else ""))
            return
        from rich.text import Text

        line = Text.assemble("   ", (f"{action:10}", _COLOURS.get(action, "cyan")), (f"{order:10}", "bold"), text, " ")
        line.append_text(self._output.styled(state))
        self._output.console.print(line, soft_wrap=True)

    def account(self, stats: Stats, sums: Sequence[tuple[str, int, int]]) -> None:
        """Reports the counts; each of `sums` has a text and two sides that must be equal."""
        self._summary |= {
            "steps": self._entries,
            "phases": stats.phases,
            "totals": stats.totals,
            "adds_up": all(left == right for _, left, right in sums),
        }
        if self._output.as_json:
            return
        rows = [(words, str(left), str(right), "yes" if left == right else "NO") for words, left, right in sums]
        self._output.table(("CHECK", "LEFT", "RIGHT", "EQUAL"), rows, right=("LEFT", "RIGHT"))

    def end(self, directory: str) -> None:
        if self._output.as_json:
            self._output.json(self._summary)
        else:
            self._output.text(f"\nDone; {directory} is removed. Next: redbox put --help, redbox relay --help")


_COLOURS = {"put": "cyan", "ok": "green", "failed": "yellow", "rejected": "red", "dead": "red", "replay": "magenta"}


def watch(publisher: Publisher, story: Story) -> Publisher:
    """The publisher, with every attempt reported in the story."""
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
            order = f"order {claim.event.decode()['order']}"
            try:
                await publisher.publish(claim)
            except Reject as error:
                story.report("rejected", order, f"attempt {claim.attempts}: {error}")
                raise
            except Exception as error:
                story.report("failed", order, f"attempt {claim.attempts}: {error}; retried later")
                raise
            story.report("ok", order, f"attempt {claim.attempts}: acknowledged")

    return Watched()
