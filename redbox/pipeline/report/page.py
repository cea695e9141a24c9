"""The page of a report: one HTML file that loads nothing else. The template holds its style and script."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from html import escape
from importlib.resources import files
from string import Template
from typing import Final

from redbox.pipeline.report.facts import MAX_ATTEMPTS, MAX_ROWS, MIN_EVENTS_OF_A_KEY, Facts, Row
from redbox.pipeline.report.plots import Axis, bar, duration, lines, moment, number, ranges, short, stacked

#: The phases in plain words and with their colours, in the order of an event's life.
PHASES = {
    "SCHEDULED": ("scheduled", "s7"),
    "AVAILABLE": ("due", "s1"),
    "IN_FLIGHT": ("in flight", "s5"),
    "RETRY_SCHEDULED": ("to be retried", "s2"),
    "DEAD": ("dead", "bad"),
    "COMPLETED": ("published", "good"),
}
LATE = timedelta(minutes=5)  # an event that is due for longer is worth a remark
WIDE, HALF, NARROW = 1136, 546, 340  # px inside a card: the whole page, half of it, a phone
OTHER: Final = "s8"
_PERCENTILES: Final = (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"))


def page(facts: Facts) -> str:
    """The whole page. Every text from the box is escaped: types, errors and keys are written by strangers."""
    title = f"{facts.box}: redbox report of {moment(facts.made_at)} UTC"
    parts = [_header(facts)]
    if facts.events:
        parts += [_cards(facts), _strip(facts), _attention(facts), *_sections(facts)]
    else:
        parts.append(f"<section><h2>Nothing to report</h2><p>{_why_empty(facts)}</p></section>")
    template = (files("redbox.pipeline.report") / "template.html").read_text(encoding="utf-8")
    tables = ", ".join(f"<code>tables/{name}</code>" for name in facts.tables)
    return Template(template).substitute(
        policy=_policy(template), title=escape(title), body="\n".join(parts), tables=tables
    )


def _policy(template: str) -> str:
    """The content security policy: a browser loads nothing, sends nothing, and runs only the page's own script."""
    script = template.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _why_empty(facts: Facts) -> str:
    where = "neither the box nor the archive holds" if facts.archived else "the box does not hold"
    asked = " that was put in the time asked for" if facts.since or facts.until else ""
    return f"{where[0].upper()}{where[1:]} any event{asked}."


def _header(facts: Facts) -> str:
    parts = [f"live box{' and archive' if facts.archived else ''} at {facts.store}"]
    if facts.events:
        first = min(row["first_created"] for row in facts.overview)
        last = max(row["last_created"] for row in facts.overview)
        parts.insert(0, f"events put from {moment(first)} to {moment(last)} UTC")
    if facts.since or facts.until:
        asked = [f"{word} {moment(at)}" for word, at in (("since", facts.since), ("until", facts.until)) if at]
        parts.append("asked for: put " + " ".join(asked))
    parts.append(f"made {moment(facts.made_at)} UTC")
    text = " · ".join(parts)
    name = f"<h1><small>redbox report</small>{escape(facts.box)}</h1>"
    return f"<header>{name}<p>{escape(text[0].upper() + text[1:])}</p></header>"


def _cards(facts: Facts) -> str:
    published, dead, total = facts.count(state="PUBLISHED"), facts.count(state="DEAD"), facts.total
    settled = published + dead
    retried = total["retried"] if total else 0
    waiting = [f"{number(count)} {word}" for phase, (word, _) in PHASES.items()
               if phase not in ("DEAD", "COMPLETED") and (count := facts.count(phase=phase))]  # fmt: skip
    archived = facts.count(place="archive")
    return '<div class="cards">' + "".join(
        [
            _card("Events", number(facts.events), f"{number(archived)} of them in the archive" if facts.archived
                  else f"of {_counted(facts.all_types, 'type')}"),
            _card("Published", number(published), f"{_share(published, facts.events)} of all"),
            _card("Pending", number(facts.pending), ", ".join(waiting) or "nothing waits"),
            _card("Dead", number(dead), "none is dead" if not dead else f"of {_counted(len(facts.dead), 'type')}"
                  if len(facts.dead) < MAX_ROWS else "of many types", "bad" if dead else "good"),
            _card("Latency p50", duration(total["p50_ms"]) if total else "–",
                  f"p99 <em>{duration(total['p99_ms'])}</em>" if total else "nothing was published"),
            _card("Failure rate", _share(dead, settled) if settled else "–",
                  f"{number(dead)} of {number(settled)} settled; {_share(retried, published)} published after a retry"
                  if settled else "nothing is settled", "bad" if dead else ""),
        ]
    ) + "</div>"  # fmt: skip


def _card(name: str, value: str, further: str, kind: str = "") -> str:
    return f'<div class="card {kind}"><span>{name}</span><b>{value}</b><i>{further}</i></div>'


def _strip(facts: Facts) -> str:
    counts = {phase: facts.count(phase=phase) for phase in reversed(PHASES)}
    drawn = [(PHASES[phase][1], float(count)) for phase, count in counts.items()]
    legend = [(f"{PHASES[phase][0]} {number(count)}", PHASES[phase][1]) for phase, count in counts.items() if count]
    return f'<div class="strip">{bar(drawn, facts.events)}{_legend(legend)}</div>'


# --- what needs attention --------------------------------------------------------------------------------------------


def _attention(facts: Facts) -> str:
    points = [_worst_cause(facts), _most_dead(facts), _backlog(facts)]
    points = [point for point in points if point]
    if not points:
        return (
            '<section class="alert ok"><h2>Nothing needs attention</h2><p>No attempt failed, no event is dead, and '
            "nothing that is due waits for long.</p></section>"
        )
    items = "".join(f"<li>{point}</li>" for point in points)
    return f'<section class="alert"><h2>Needs attention</h2><ul>{items}</ul></section>'


def _worst_cause(facts: Facts) -> str:
    if not facts.causes:
        return ""
    worst: Row = max(facts.causes, key=lambda row: (row["dead_now"], row["failures"]))
    share = f" ({_share(worst['failures'], facts.failures)} of all failed attempts)" if facts.all_causes > 1 else ""
    ended = f"; <strong>{_counted(worst['dead_now'], 'event')} died of it</strong>" if worst["dead_now"] else ""
    why = "deadliest" if worst["dead_now"] else "most frequent"
    return (
        f'<div class="bad"><b>The {why} error:</b> <code>{escape(short(worst["fingerprint"], 160))}</code></div>'
        f'<p class="bad">{_counted(worst["failures"], "failed attempt")}{share} of '
        f"{_counted(worst['events'], 'event')}{ended}. In {_types_of(worst)}; last seen "
        f"{moment(worst['last_seen'])} UTC.</p>"
    )


def _most_dead(facts: Facts) -> str:
    if not facts.dead:
        return ""
    first, count = facts.dead[0], facts.count(state="DEAD")
    most = f", {number(first['dead'])} of them {escape(first['event_type'])}" if len(facts.dead) > 1 else (
        f", all {escape(first['event_type'])}")  # fmt: skip
    command = f"redbox --box {facts.box} dead list --type {shlex.quote(first['event_type'])}"
    are = "is" if count == 1 else "are"
    return f"<b>{_counted(count, 'event')} {are} dead</b>{most}.<p>Look at them: <code>{escape(command)}</code></p>"


def _backlog(facts: Facts) -> str:
    oldest = facts.oldest_due
    if oldest is None or facts.made_at - oldest < LATE:
        return ""
    count, age = facts.count(phase="AVAILABLE"), (facts.made_at - oldest) / timedelta(milliseconds=1)
    are = "is" if count == 1 else "are"
    return (
        f"<b>{_counted(count, 'event')} {are} due and not delivered</b>, the oldest for {duration(age)}."
        f"<p>Check that relays run: <code>redbox --box {escape(facts.box)} stats</code></p>"
    )


def _counted(count: int, thing: str) -> str:
    return f"{number(count)} {thing}{'' if count == 1 else 's'}"


def _share(part: int, whole: int) -> str:
    """A percentage; 0 % and 100 % only if they are exact."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.3g} %"


# --- sections: each a plot with its words, or a sentence if there is nothing to draw --------------------------------


def _sections(facts: Facts) -> Iterator[str]:
    yield _volume(facts)
    yield f'<div class="pair">{_throughput(facts)}{_latency_over_time(facts)}</div>'
    yield _latency(facts)
    yield _causes(facts)
    yield f'<div class="pair">{_attempts(facts)}{_dead(facts)}</div>'
    yield _slowest(facts)


def _legend(entries: Sequence[tuple[str, str]]) -> str:
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
    body = _legend([(f"{short(names[name], 60)} {number(sum(series[name]))}", kinds[name]) for name in shown])
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
        _legend([("published", "good"), ("died", "bad")])
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
        _legend([("p50, half were faster", "p50"), ("p99, one in a hundred was slower", "p99")])
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
        _legend([(shown, name) for name, shown in _PERCENTILES])
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
        f"<span>{_types_of(row)}</span><span>{when}</span></div>"
        f"<details><summary>An example</summary><pre>{escape(row['example'] or '')}</pre></details></li>"
    )


def _types_of(row: Row) -> str:
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
        _legend([("published", "good"), ("dead", "bad")]) + f'<div class="bars">{rows}</div>',
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
