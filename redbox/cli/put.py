"""`redbox put`: one event from the command line, or many from NDJSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

import click

from redbox.cli.options.parameters import ABSOLUTE_MOMENT, DURATION, name_value_pairs
from redbox.cli.session import Session, pass_session
from redbox.errors import BatchRefused, RedboxError

if TYPE_CHECKING:
    from redbox import Receipt
    from redbox.box.put import OnConflict

BATCH: Final = 1000
#: Parameters that --many accepts; all others are fields of one event, which the lines contain.
_HOW: Final = ("many", "on_conflict", "durability", "event_type", "payload")


@click.command("put")
@click.argument("event_type", metavar="TYPE", required=False)
@click.argument("payload", metavar="[JSON|-|@FILE]", required=False)
@click.option(
    "--id", "event_id", metavar="ID",
    help="Event id; repeating a put with the same id is safe.  [default: a new UUIDv7]",
)  # fmt: skip
@click.option(
    "--header", "headers", multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
    help="Header of the event; repeatable.",
)  # fmt: skip
@click.option(
    "--metadata", multiple=True, callback=name_value_pairs, metavar="NAME=VALUE",
    help="Metadata of the event; repeatable.",
)  # fmt: skip
@click.option("--partition-key", metavar="KEY", help="Partition key, for targets that have partitions.")
@click.option(
    "--ordering-key", metavar="KEY", help="Ordering key; events with the same key are delivered in put order."
)
@click.option("--delay", type=DURATION, help="Delay before the event is due, such as 10m.")
@click.option("--at", "available_at", type=ABSOLUTE_MOMENT, help="Time when the event is due: ISO 8601 with a zone.")
@click.option("--unique-key", metavar="KEY", help="Unique key; the event is refused while another event holds it.")
@click.option(
    "--unique-scope", type=click.Choice(["ALL_LIVE", "UNTOUCHED"], case_sensitive=False),
    help="Phases that hold the key: all live ones, or only SCHEDULED and AVAILABLE.  [default: all_live]",
)  # fmt: skip
@click.option("--content-type", metavar="TYPE/SUBTYPE", help="Media type of the payload.  [default: application/json]")
@click.option(
    "--on-conflict", type=click.Choice(["raise", "skip", "replace"]), default="raise", show_default=True,
    help="If another event holds the unique key: fail, skip this one, or replace the other if no relay has claimed it.",
)  # fmt: skip
@click.option(
    "--durability", metavar="LEVEL", help="Durability to wait for: server, fsync or replicas=N.  [default: server]"
)
@click.option("--many", is_flag=True, help="Read NDJSON from stdin or @FILE: one event per line.")
@pass_session
def put_command(
    session: Session,
    /,
    event_type: str | None,
    payload: str | None,
    on_conflict: OnConflict,
    durability: str | None,
    many: bool,
    **fields: Any,
) -> None:
    """Put an event into the box and print its id.

    The payload is JSON text, `-` for stdin, or @FILE. If --content-type is not JSON, it is stored unchanged. The
    command returns once the event is stored.

    With --many, leave out TYPE. Each line is an object with event_type, payload and any of event_id, headers,
    metadata, partition_key, ordering_key, available_at, delay, unique_key, unique_scope and content_type. Use
    payload_base64 instead of payload for arbitrary bytes. The first line that is invalid or refused stops the command;
    the lines before it are in the box.

    Lines printed by `redbox --json list` and `redbox --json dead list` can be put unchanged: the id and the payload are
    kept; their state is not copied. To change the payload of such a line, remove its payload_base64.

    \b
    Examples:
      redbox put user.created '{"id": 42}'
      redbox put user.created @user.json --ordering-key user-42 --header source=import
      redbox put report.due --delay 10m --unique-key daily-report
      redbox put search.reindex --delay 30s --unique-key product-7 --on-conflict replace
      echo hello | redbox put greeting - --content-type text/plain
      redbox put --many @events.ndjson
      jq -c '{event_type: "row", payload: .}' rows.json | redbox put --many
      redbox --json dead list | redbox --box repaired put --many
      redbox --json dead list | jq -c '.payload.amount = 7 | del(.payload_base64)' \\
        | redbox --box repaired put --many
    """
    ctx = click.get_current_context()
    if many:
        given = [p for p in ctx.command.params if p.name not in _HOW and _was_typed(ctx, p)]
        if given:
            raise click.UsageError(f"{given[0].opts[0]} cannot be combined with --many; set it in the lines", ctx)
        _put_many(session, _source(ctx, event_type, payload), on_conflict, durability)
        return
    if event_type is None:
        raise click.UsageError("Missing argument 'TYPE'", ctx)
    _put_one(session, ctx, event_type, payload, on_conflict, durability, fields)


def _was_typed(ctx: click.Context, param: click.Parameter) -> bool:
    from click.core import ParameterSource

    return param.name is not None and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE


# --- one -------------------------------------------------------------------------------------------------------


def _put_one(
    session: Session,
    ctx: click.Context,
    event_type: str,
    payload: str | None,
    on_conflict: OnConflict,
    durability: str | None,
    fields: dict[str, Any],
) -> None:
    from redbox import Event

    if fields["delay"] is not None and fields["available_at"] is not None:
        raise click.UsageError("give either --delay or --at, not both", ctx)
    content, content_type = _payload(ctx, payload, fields.pop("content_type"))
    given = {name: value for name, value in fields.items() if value is not None}
    event = Event(event_type, content, content_type=content_type, **given)

    async def put() -> Receipt:
        async with session.open() as box:
            return await box.put(event, on_conflict=on_conflict, durability=durability)

    _print_receipt(session, session.run(put()))


def _payload(ctx: click.Context, text: str | None, content_type: str | None) -> tuple[Any, str | None]:
    """The payload as it will be stored, and its content type. Invalid JSON is refused."""
    import msgspec

    from redbox.payloads import JSON, is_json

    expects_json = content_type is None or is_json(content_type)
    if text is None:
        return (None if expects_json else b""), content_type
    _check_source(ctx, text)
    content = _read(text)
    if expects_json:
        try:
            msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            where = "stdin" if text == "-" else text[1:] if text.startswith("@") else "the payload"
            raise click.UsageError(
                f"{where} is not JSON ({error}); quote it for the shell, or set its type: --content-type text/plain",
                ctx,
            ) from None
    return content, content_type or JSON


def _check_source(ctx: click.Context, text: str) -> None:
    if text == "@":
        raise click.UsageError("write the name of the file after @", ctx)


def _read(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        with open(text[1:], "rb") as file:
            return file.read()
    return text.encode(errors="surrogateescape")  # the bytes that were typed


def _print_receipt(session: Session, receipt: Receipt) -> None:
    if receipt.refused is None and not receipt.created and not session.output.as_json:
        session.output.note(
            f"event {receipt.event_id} is already stored; nothing was changed, but a missing body was stored again"
        )
    if receipt.replaced is not None and not session.output.as_json:
        session.output.note(f"replaced event {receipt.replaced}, which no relay had claimed")
    _print_id(session, receipt)


def _print_id(session: Session, receipt: Receipt) -> None:
    """Prints the id on stdout; for a refused event, only the reason on stderr."""
    if session.output.as_json:
        session.output.json(receipt)
    elif receipt.refused is None:
        click.echo(receipt.event_id)
    else:
        session.output.note(f"skipped: {receipt.reason}")


# --- many ------------------------------------------------------------------------------------------------------


def _source(ctx: click.Context, first: str | None, second: str | None) -> str:
    source = first or "-"
    if second is not None or not (source == "-" or source.startswith("@")):
        raise click.UsageError("with --many give - for stdin or @FILE, and no TYPE", ctx)
    _check_source(ctx, source)
    return source


@contextmanager
def _opened(source: str) -> Iterator[IO[bytes]]:
    if source == "-":
        yield sys.stdin.buffer
    else:
        with open(source[1:], "rb") as file:
            yield file


class _Tally:
    """Counts of the lines put so far, by outcome."""

    def __init__(self) -> None:
        self.created = self.repeated = self.refused = 0

    @property
    def stored(self) -> int:
        return self.created + self.repeated

    @property
    def done(self) -> int:
        return self.stored + self.refused

    def __str__(self) -> str:
        parts = [f"{self.created:,} put"]
        parts += [f"{self.repeated:,} already stored"] if self.repeated else []
        parts += [f"{self.refused:,} refused"] if self.refused else []
        return ", ".join(parts)


def _put_many(session: Session, source: str, on_conflict: OnConflict, durability: str | None) -> None:
    tally = _Tally()

    def report(receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            if receipt.refused is not None:
                tally.refused += 1
            elif receipt.created:
                tally.created += 1
            else:
                tally.repeated += 1
            if receipt.refused is not None or not session.output.terminal:  # a thousand ids do not help a person
                _print_id(session, receipt)

    async def put() -> None:
        with _opened(source) as file, session.output.progress("putting") as progress:
            async with session.open() as box:
                for numbers, events, bad_line in _batches(file):
                    try:
                        report(await box.put_many(events, on_conflict=on_conflict, durability=durability))
                    except BatchRefused as refusal:
                        report(refusal.receipts)
                        raise RedboxError(f"line {numbers[refusal.index]}: {refusal.__cause__ or refusal}") from refusal
                    progress(tally.done)
                    if bad_line is not None:
                        raise bad_line

    try:
        session.run(put())
    except RedboxError as error:
        if tally.done:
            error.args = (f"{error}; the lines before it were processed: {tally}", *error.args[1:])
        raise
    session.output.note(str(tally), created=tally.created, repeated=tally.repeated, refused=tally.refused)


def _batches(file: IO[bytes]) -> Iterator[tuple[list[int], list[Any], RedboxError | None]]:
    """Yields batches of line numbers and events; the last batch carries the error that ended the reading, if any."""
    from redbox.box.texts.event_json import event_from_line
    from redbox.settings import BATCH_BYTES

    numbers: list[int] = []
    events: list[Any] = []
    size = 0
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            events.append(event_from_line(line))
        except ValueError as error:  # UsageError and the errors of msgspec are ValueErrors
            yield numbers, events, RedboxError(f"line {number}: {error}")
            return
        numbers.append(number)
        size += len(line)
        if len(events) == BATCH or size > BATCH_BYTES:
            yield numbers, events, None
            numbers, events, size = [], [], 0
    if events:
        yield numbers, events, None
