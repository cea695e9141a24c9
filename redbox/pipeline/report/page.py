"""The page of a report: one HTML file that loads nothing else. Its head says how the box is, and what needs attention;
the sections follow. The template holds its style and script."""

from __future__ import annotations

import base64
import hashlib
import shlex
from datetime import timedelta
from html import escape
from importlib.resources import files
from string import Template

from redbox.pipeline.report.facts import MAX_ROWS, Facts, Row
from redbox.pipeline.report.plots import bar, duration, moment, number, short
from redbox.pipeline.report.sections import legend, sections, types_of

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


def page(facts: Facts) -> str:
    """The whole page. Every text from the box is escaped: types, errors and keys are written by strangers."""
    title = f"{facts.box}: redbox report of {moment(facts.made_at)} UTC"
    parts = [_header(facts)]
    if facts.events:
        parts += [_cards(facts), _strip(facts), _attention(facts), *sections(facts)]
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
    names = [(f"{PHASES[phase][0]} {number(count)}", PHASES[phase][1]) for phase, count in counts.items() if count]
    return f'<div class="strip">{bar(drawn, facts.events)}{legend(names)}</div>'


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
        f"{_counted(worst['events'], 'event')}{ended}. In {types_of(worst)}; last seen "
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
