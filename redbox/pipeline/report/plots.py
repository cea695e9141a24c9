"""Plots as SVG: numbers in, markup out. Colours are CSS classes, so the page decides them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Any, Final

Row = dict[str, Any]
Value = float | None

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_TIME_TICKS: Final = (
    1, 5, 15, 30, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY,
    2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY, 91 * _DAY, 182 * _DAY, 365 * _DAY,
)  # fmt: skip
#: Round durations in milliseconds, about a decade apart.
_ROUND: Final = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000,
                 2_592_000_000, 31_536_000_000)  # fmt: skip
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 10, 38
_LETTER: Final = 6.6  # px, about, in the size of labels


def number(value: float) -> str:
    """1,234,567."""
    return f"{value:,.0f}"


def duration(milliseconds: float | None) -> str:
    """`250 ms`, `3.2 s`, `5 min 2 s`, `2 h 5 min`, `3 d 4 h`; a dash for none."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        seconds = milliseconds / 1000
        return f"{seconds:.1f} s" if seconds < 10 and seconds != int(seconds) else f"{seconds:.0f} s"
    left, parts = milliseconds, []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count:,.0f} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def moment(at: datetime, seconds: bool = False) -> str:
    """A time for people, in UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


class Axis:
    """Times along the bottom of a plot."""

    def __init__(self, start: datetime, step: int, bins: int, width: int) -> None:
        self.start, self.step, self.bins, self.width = start, step, bins, width
        self.slot = (width - _LEFT - _RIGHT) / max(bins, 1)

    def x(self, position: float) -> float:
        return _LEFT + position * self.slot

    def position(self, at: datetime) -> int | None:
        """The number of the bar that a moment falls into; None if it is outside."""
        found = int((at - self.start).total_seconds() // self.step)
        return found if 0 <= found < self.bins else None

    def time(self, position: int) -> datetime:
        return self.start + timedelta(seconds=position * self.step)

    def span(self, position: int) -> str:
        """The time of a bar, in words."""
        from_, to = self.time(position), self.time(position + 1)
        if self.step >= _DAY:
            return f"{from_:%Y-%m-%d}" + ("" if self.step == _DAY else f" to {to - timedelta(days=1):%Y-%m-%d}")
        form = "%H:%M" if self.step >= _MINUTE else "%H:%M:%S"
        return f"{from_:%a} {from_:%Y-%m-%d} {from_.strftime(form)}–{to.strftime(form)}"

    def markup(self, height: int) -> str:
        total, room = self.bins * self.step, max(2, (self.width - _LEFT - _RIGHT) // 76)
        apart = next(
            (tick for tick in _TIME_TICKS if tick >= self.step and total / tick <= room), max(total // room, 1)
        )
        first = self.start.timestamp()
        made, day, base = [], "", height - _BOTTOM
        at = -(-first // apart) * apart
        while at < first + total:
            then, x = self.start + timedelta(seconds=at - first), self.x((at - first) / self.step)
            today = f"{then.day} {then:%b}" if apart < 91 * _DAY else f"{then:%b} {then.year}"
            clock = f"{then:%H:%M:%S}" if apart < _MINUTE else f"{then:%H:%M}"
            lines = [today] if apart >= _DAY else [clock, today if today != day else ""]
            anchor = "middle" if x > _LEFT + 18 else "start"
            made.append(f'<path class="tick" d="M{x:.1f} {base}v5"/>')
            made += [
                f'<text x="{x:.1f}" y="{base + 17 + 14 * line}" text-anchor="{anchor}">{text}</text>'
                for line, text in enumerate(lines)
                if text
            ]
            day, at = today, at + apart
        return "".join(made)


def frame(label: str, width: int, height: int, body: str) -> str:
    return (
        f'<svg class="plot" role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">{body}</svg>'
    )


def nice_ticks(most: float, wanted: int = 4) -> list[float]:
    """Round numbers from 0 to at least `most`."""
    rough = max(most, 1) / wanted
    size = 10.0 ** math.floor(math.log10(rough))
    apart = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    apart = max(1.0, math.ceil(apart)) if apart < 10 else apart
    return [apart * count for count in range(math.ceil(max(most, 1) / apart) + 1)]


def stacked(label: str, axis: Axis, series: Sequence[tuple[str, str, Sequence[float]]], height: int = 260) -> str:
    """Bars over time, each series (name, class, values) on top of the one before."""
    totals = [sum(values[position] for _, _, values in series) for position in range(axis.bins)]
    ticks = nice_ticks(max(totals, default=0))
    base, scale = height - _BOTTOM, (height - _TOP - _BOTTOM) / ticks[-1]
    body = [_grid(axis, [(base - tick * scale, compact(tick)) for tick in ticks]), axis.markup(height)]
    below, gap = [0.0] * axis.bins, min(1.5, axis.slot * 0.18)
    for _, kind, values in series:
        path = []
        for position, value in enumerate(values):
            if value:
                y, tall = base - (below[position] + value) * scale, value * scale
                path.append(
                    f"M{axis.x(position) + gap / 2:.1f} {y:.1f}h{axis.slot - gap:.1f}v{tall:.1f}h{gap - axis.slot:.1f}z"
                )
                below[position] += value
        if path:
            body.append(f'<path class="{kind}" d="{"".join(path)}"/>')
    for position, total in enumerate(totals):
        lines = [f"{name}: {number(values[position])}" for name, _, values in reversed(series) if values[position]]
        if total:
            lines = (
                [f"{axis.span(position)}: {number(total)}", *lines]
                if len(series) > 1
                else [axis.span(position), *lines]
            )
            body.append(_hover(axis, position, height, lines))
    return frame(label, axis.width, height, "".join(body))


def lines(label: str, axis: Axis, series: Sequence[tuple[str, str, Sequence[Value]]], height: int = 260) -> str:
    """Durations over time on a logarithmic scale; a curve is interrupted where there is none."""
    known = [value for _, _, values in series for value in values if value is not None]
    scale = LogScale(known, height - _BOTTOM, _TOP)
    body = [_grid(axis, [(scale.at(tick), duration(tick)) for tick in scale.ticks]), axis.markup(height)]
    for _, kind, values in series:
        path, dots, drawing = [], [], False
        for position, value in enumerate(values):
            if value is None:
                drawing = False
                continue
            x, y = axis.x(position + 0.5), scale.at(value)
            path.append(f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}")
            alone = not drawing and (position + 1 == axis.bins or values[position + 1] is None)
            if alone or axis.slot > 22:
                dots.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.8"/>')
            drawing = True
        body.append(f'<path class="line {kind}" d="{"".join(path)}"/>{"".join(dots)}')
    for position in range(axis.bins):
        texts = [
            f"{name}: {duration(values[position])}"
            for name, _, values in reversed(series)
            if values[position] is not None
        ]
        if texts:
            body.append(_hover(axis, position, height, [axis.span(position), *texts]))
    return frame(label, axis.width, height, "".join(body))


class LogScale:
    """A logarithmic scale of durations between two pixels, from one round duration to another."""

    def __init__(self, values: Sequence[float], low: float, high: float) -> None:
        least, most = max(min(values, default=1), 1), max(max(values, default=1), 1)
        self.first = max((tick for tick in _ROUND if tick <= least), default=1)
        self.last = min((tick for tick in _ROUND if tick >= most and tick > self.first), default=most * 1.05)
        self.ticks = [tick for tick in _ROUND if self.first <= tick <= self.last]
        self._low, self._span = low, (high - low) / (math.log(self.last) - math.log(self.first))

    def at(self, value: float) -> float:
        return self._low + (math.log(max(value, self.first)) - math.log(self.first)) * self._span


def ranges(label: str, rows: Sequence[Row], width: int) -> str:
    """Percentiles of each type as dots on one logarithmic scale: from the median to the slowest thousandth."""
    names = {"p50_ms": "p50", "p90_ms": "p90", "p99_ms": "p99", "p999_ms": "p99.9"}
    narrow = width < 600
    left, tall = (8, 46) if narrow else (min(300, max(len(row["event_type"]) for row in rows) * 7 + 24), 30)
    scale = LogScale([row[name] for row in rows for name in names], left + 8, width - 24)
    height = tall * len(rows) + 34
    body = [
        f'<path class="grid" d="M{scale.at(tick):.1f} 4V{height - 26}"/>'
        f'<text x="{scale.at(tick):.1f}" y="{height - 8}" text-anchor="middle">{duration(tick)}</text>'
        for tick in _thinned(scale)
    ]
    for place, row in enumerate(rows):
        middle = tall * place + (32 if narrow else 18)
        x = {name: scale.at(row[name]) for name in names}
        most = int((width - 16 if narrow else left - 20) / _LETTER)
        at = f'x="8" y="{middle - 13}"' if narrow else f'x="{left - 8}" y="{middle + 4}" text-anchor="end"'
        texts = "\n".join([row["event_type"], *[f"{shown}: {duration(row[name])}" for name, shown in names.items()],
                          f"longest: {duration(row['max_ms'])}", f"{number(row['published'])} published"])  # fmt: skip
        body.append(
            f"<g><title>{escape(texts)}</title>"
            f'<rect class="hover" x="0" y="{tall * place}" width="{width}" height="{tall}"/>'
            f'<text class="name" {at}>{escape(short(row["event_type"], most))}</text>'
            f'<path class="range" d="M{x["p50_ms"]:.1f} {middle}H{x["p999_ms"]:.1f}"/>'
            + "".join(
                f'<circle class="{kind}" cx="{x[name]:.1f}" cy="{middle}" r="{size}"/>'
                for name, kind, size in (
                    ("p999_ms", "p999", 4),
                    ("p99_ms", "p99", 5),
                    ("p90_ms", "p90", 5),
                    ("p50_ms", "p50", 5.5),
                )
            )
            + "</g>"
        )
    return frame(label, width, height, "".join(body))


def bar(parts: Sequence[tuple[str, float]], most: float) -> str:
    """A horizontal bar of parts (class, value); its full width stands for `most`."""
    made, x = [], 0.0
    for kind, value in parts:
        if value:
            wide = max(100 * value / max(most, 1), 0.4)  # a small part stays visible
            made.append(f'<rect class="{kind}" x="{x:.2f}%" width="{wide:.2f}%" height="100%"/>')
            x += wide
    return f'<svg class="bar" aria-hidden="true" width="100%" height="12">{"".join(made)}</svg>'


def compact(value: float) -> str:
    """1,500 as 1.5k."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:g}"


def _thinned(scale: LogScale) -> list[float]:
    """Ticks with room for their labels."""
    kept: list[float] = []
    for tick in scale.ticks:
        if not kept or scale.at(tick) - scale.at(kept[-1]) >= 54:
            kept.append(tick)
    return kept


def _grid(axis: Axis, at: Sequence[tuple[float, str]]) -> str:
    return "".join(
        f'<path class="grid" d="M{_LEFT} {y:.1f}H{axis.width - _RIGHT}"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        for y, text in at
    )


def _hover(axis: Axis, position: int, height: int, texts: Sequence[str]) -> str:
    text = escape("\n".join(texts))
    return (
        f'<rect class="hover" x="{axis.x(position):.1f}" y="{_TOP}" width="{axis.slot:.1f}" '
        f'height="{height - _TOP - _BOTTOM}"><title>{text}</title></rect>'
    )
