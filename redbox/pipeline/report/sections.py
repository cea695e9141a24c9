"""The sections of a report's page: each a plot with its words, or a sentence if there is nothing to draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from redbox.pipeline.report.facts import MAX_ATTEMPTS, MAX_ROWS, MIN_EVENTS_OF_A_KEY, Facts, Row
from redbox.pipeline.report.plots import Axis, bar, duration, lines, moment, number, ranges, short, stacked

WIDE, HALF, NARROW = 1136, 546, 340  # px inside a card: the whole page, half of it, a phone
OTHER: Final = "s8"
_PERCENTILES: Final = (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"))


def sections(facts: Facts) -> Iterator[str]:
    """All sections, in the order of the page."""
    yield _volume(facts)
    yield f'<div class="pair">{_throughput(facts)}{_latency_over_time(facts)}</div>'
    yield _latency(facts)
    yield _causes(facts)
    yield f'<div class="pair">{_attempts(facts)}{_dead(facts)}</div>'
    yield _slowest(facts)


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Names with their colours."""
    return '<div class="legend">' + "".join(
        f'<span><i class="{kind}"></i>{escape(name)}</span>' for name, kind in entries
    ) + "</div>"  # fmt: skip


def _section(title: str, caption: str, body: str) -> str:
    return f"<section><h2>{title}</h2><p>{caption}</p>{body}</section>"


def _plot(draw: Callable[[int], str], width: int) -> str:
    """A plot in two sizes, for a desktop and for a phone: one that is only scaled down cannot be read."""
    return f'<div class="wide">{draw(width)}</div><div class="narrow">{draw(NARROW)}</div>'


def _axis(facts: Facts, width: int) -> Axis:
    return Axis(facts.axis.start, facts.axis.step, facts.axis.count, width)


def _per(facts: Facts) -> str:
    """The time that a bar spans, in words."""
    words = duration(facts.axis.step * 1000)
    return {"1 s": "second", "1 min": "minute", "1 h": "hour", "1 d": "day", "7 d": "week"}.get(words, words)


def _volume(facts: Facts) -> str:
    axis = _axis(facts, WIDE)
    series: dict[str | None, list[float]] = {name: [0.0] * facts.axis.count for name in [*facts.types, None]}
    for row in facts.volume:
        position = axis.position(row["hour"])
        if position is not None:
            series[row["event_type"] if row["event_type"] in series else None][position] += row["events"]
    rest = facts.all_types - len(facts.types)
    names = {name: name for name in facts.types} | {None: f"{rest} other type{'' if rest == 1 else 's'}"}
    kinds = {name: f"s{place}" for place, name in enumerate(facts.types, 1)} | {None: OTHER}
    shown = [name for name in series if name is not None or rest > 0]
    drawn = [(short(names[name], 60), kinds[name], series[name]) for name in shown]
    body = legend([(f"{short(names[name], 60)} {number(sum(series[name]))}", kinds[name]) for name in shown])
    return _section(
        "What was put",
        f"Events per {_per(facts)} by the time they were put, stacked by type.",
        body + _plot(lambda width: stacked("Events put over time, by type", _axis(facts, width), drawn), WIDE),
    )


def _throughput(facts: Facts) -> str:
    caption = f"Events per {_per(facts)} by the time they were published or died."
    if not facts.throughput:
        return _section(
            "What was delivered", caption, '<p class="note">Nothing was published yet, and nothing died.</p>'
        )
    axis = _axis(facts, HALF)
    values = {name: [0.0] * facts.axis.count for name in ("published", "died")}
    for row in facts.throughput:
        position = axis.position(row["hour"])
        if position is not None:
            for name, series in values.items():
                series[position] += row[name]
    drawn = [("published", "good", values["published"]), ("died", "bad", values["died"])]
    return _section(
        "What was delivered",
        caption,
        legend([("published", "good"), ("died", "bad")])
        + _plot(lambda width: stacked("Events published and dead over time", _axis(facts, width), drawn), HALF),
    )


def _latency_over_time(facts: Facts) -> str:
    caption = f"From due to published, per {_per(facts)} of publishing; logarithmic."
    if not facts.total:
        return _section("How late it was", caption, '<p class="note">Nothing was published yet.</p>')
    axis = _axis(facts, HALF)
    values: dict[str, list[float | None]] = {"p50": [None] * facts.axis.count, "p99": [None] * facts.axis.count}
    for row in facts.throughput:
        position = axis.position(row["hour"])
        if position is not None:
            for name, series in values.items():
                series[position] = row[f"{name}_ms"]
    drawn = [(name, name, series) for name, series in values.items()]
    return _section(
        "How late it was",
        caption,
        legend([("p50, half were faster", "p50"), ("p99, one in a hundred was slower", "p99")])
        + _plot(lambda width: lines("Latency percentiles over time", _axis(facts, width), drawn), HALF),
    )


def _latency(facts: Facts) -> str:
    title = "Latency by type"
    rows = [row for row in facts.latency if row["event_type"] is not None]
    if not rows or facts.total is None:
        return _section(title, "Nothing was published yet, so there is no latency.", "")
    left = facts.all_types - len(rows)
    caption = "From due to published, the types with the most events first; logarithmic."
    if left > 0 and len(rows) >= MAX_ROWS:
        caption += " The other types are in <code>tables/latency.csv</code>."
    head = _head("Type", "Published", "Retried", *[shown for _, shown in _PERCENTILES], "Longest")
    body = "".join(
        f"<tr{'' if row['event_type'] is not None else ' class=all'}><td>"
        f"{'All types' if row['event_type'] is None else escape(row['event_type'])}</td>"
        + _numbers(number(row["published"]), number(row["retried"]))
        + _numbers(*[duration(row[f"{name}_ms"]) for name, _ in _PERCENTILES], duration(row["max_ms"]))
        + "</tr>"
        for row in [facts.total, *rows]
    )
    return _section(
        title,
        caption,
        legend([(shown, name) for name, shown in _PERCENTILES])
        + _plot(lambda width: ranges("Latency percentiles by type", rows, width), WIDE)
        + f'<div class="scroll"><table>{head}{body}</table></div>',
    )


def _causes(facts: Facts) -> str:
    title = "Why attempts failed"
    if not facts.causes:
        return _section(title, "No failed attempt is remembered: every event succeeded at its first attempt.", "")
    most = facts.causes[0]["failures"]
    items = "".join(_cause(row, most) for row in facts.causes)
    more = facts.all_causes - len(facts.causes)
    rest = f'<p class="note">{more:,} further groups are in <code>tables/causes.csv</code>.</p>' if more else ""
    caption = (
        f"{number(facts.failures)} failed attempt{'' if facts.failures == 1 else 's'} in {number(facts.all_causes)} "
        f"group{'' if facts.all_causes == 1 else 's'} of errors that differ only in ids, numbers, times and quotations."
    )
    return _section(title, caption, f'<ol class="causes">{items}</ol>{rest}')


def _cause(row: Row, most: int) -> str:
    ways = [f"{number(row[name])} {name}" for name in ("retried", "expired", "died") if row[name]]
    seen = moment(row["first_seen"]), moment(row["last_seen"])
    when = f"seen {seen[0]} UTC" if seen[0] == seen[1] else f"seen {seen[0]} to {seen[1]} UTC"
    events = f"{number(row['events'])} event{'' if row['events'] == 1 else 's'}"
    dead = f'<span><b class="bad">{number(row["dead_now"])} dead with it now</b></span>' if row["dead_now"] else ""
    survived = row["failures"] - row["died"]
    return (
        f'<li><div class="cause"><code>{escape(row["fingerprint"])}</code><b>{number(row["failures"])}</b></div>'
        f"{bar([('s2', survived), ('bad', row['died'])], most)}"
        f'<div class="meta"><span>{events}</span><span>{", ".join(ways)}</span>{dead}'
        f"<span>{types_of(row)}</span><span>{when}</span></div>"
        f"<details><summary>An example</summary><pre>{escape(row['example'] or '')}</pre></details></li>"
    )


def types_of(row: Row) -> str:
    """The event types of an error, as far as there is room."""
    names = escape(short(row["event_types"], 70))
    return names if row["types"] == 1 else f"{row['types']:,} types: {names}"


def _attempts(facts: Facts) -> str:
    title = "How many attempts it took"
    if not facts.attempts:
        return _section(title, "Nothing is settled yet.", "")
    most = max(row["published"] + row["dead"] for row in facts.attempts)
    whole = sum(row["published"] + row["dead"] for row in facts.attempts)
    rows = "".join(
        '<div class="row">'
        f"<div>{row['attempts']}{' or more' if row['attempts'] == MAX_ATTEMPTS else ''}</div>"
        f'<div class="b">{bar([("good", row["published"]), ("bad", row["dead"])], most)}</div>'
        f'<div class="n"><strong>{number(row["published"])}</strong>'
        + (f' + <b class="bad">{number(row["dead"])}</b>' if row["dead"] else "")
        + "</div></div>"
        for row in facts.attempts
    )
    return _section(
        title,
        f"{number(whole)} settled events by their number of attempts.",
        legend([("published", "good"), ("dead", "bad")]) + f'<div class="bars">{rows}</div>',
    )


def _dead(facts: Facts) -> str:
    title = "Dead events"
    if not facts.dead:
        return _section(title, "No event is dead.", "")
    most = facts.dead[0]["dead"]
    rows = "".join(
        f'<div class="row"><div>{escape(short(row["event_type"], 80))}</div>'
        f'<div class="b">{bar([("bad", row["dead"])], most)}'
        f'<span class="reason">{_reason(row["fingerprint"])}</span></div>'
        f'<div class="n"><strong>{number(row["dead"])}</strong></div></div>'
        for row in facts.dead
    )
    return _section(
        title, "Dead events by type, each with its most frequent reason.", f'<div class="bars">{rows}</div>'
    )


def _reason(text: str | None) -> str:
    return escape(short(text, 120)) if text else "no reason was given"


def _slowest(facts: Facts) -> str:
    title = "Slowest keys"
    if not facts.slowest:
        return _section(
            title, f"No ordering key or partition key has {MIN_EVENTS_OF_A_KEY} published events or more.", ""
        )
    head = _head("Key", "Published", "Retried", "p50", "p99", "Longest")
    body = "".join(
        f'<tr><td><code>{escape(short(row["key"], 80))}</code> <span class="meta">{row["kind"]} key</span></td>'
        + _numbers(number(row["published"]), number(row["retried"]))
        + _numbers(*[duration(row[name]) for name in ("p50_ms", "p99_ms", "max_ms")])
        + "</tr>"
        for row in facts.slowest
    )
    caption = f"Ordering and partition keys with at least {MIN_EVENTS_OF_A_KEY} published events, by their p99 latency."
    return _section(title, caption, f'<div class="scroll"><table>{head}{body}</table></div>')


def _head(first: str, *numbers: str) -> str:
    return f"<tr><th>{first}</th>{''.join(f'<th class=n>{name}</th>' for name in numbers)}</tr>"


def _numbers(*cells: str) -> str:
    return "".join(f"<td class=n>{cell}</td>" for cell in cells)
