"""Draws the results: `python plots.py RESULTS.json`, by a Python that has matplotlib, into the same directory."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams.update({"svg.hashsalt": "redbox", "font.family": "DejaVu Sans", "font.size": 9})

from matplotlib import pyplot  # noqa: E402  # after its backend is chosen
from matplotlib.axes import Axes  # noqa: E402

RED, GREY, LIGHT, INK = "#c8372d", "#8a939c", "#c9ced3", "#24292f"
COLOURS = {"redbox": RED, "floor": LIGHT, "peer": GREY}
PANELS = {  # question: title, figure that is drawn, format of its label, logarithmic
    "put_tasks": ("put by 100 tasks, events/s", "rate", "{rate:,.0f}", False),
    "drain": ("drain by one process, events/s", "rate", "{rate:,.0f}", False),
    "latency": ("put → handler, p50 / p99 ms (log)", "p50_ms", "{p50_ms:.3g} / {p99_ms:.3g}", True),
}
SHORT = {
    "the same, the puts of one turn in one pipeline": "plain, puts coalesced",
    "the same, XDEL after XACK": "plain, with XDEL",
    "BullMQ (Python), pooled client": "BullMQ (Python)",
    "dramatiq, 32 threads": "dramatiq",
    "taskiq-redis, streams": "taskiq-redis",
}


def main() -> None:
    file = Path(sys.argv[1])
    questions = json.loads(file.read_text())["questions"]
    if all(name in questions for name in PANELS):
        alternatives(questions, file.parent / "alternatives")
    if "growth" in questions and "crowded" in questions:
        growth(questions, file.parent / "growth")


def alternatives(questions: dict[str, Any], path: Path) -> None:
    """Three panels that share their rows, redbox on top."""
    rows: dict[str, str] = {}
    for name in ("drain", "put_tasks", "latency"):
        for contender, answer in questions[name]["answers"].items():
            if "best" in answer:
                rows.setdefault(contender, answer["kind"])
    order = sorted(rows, key=lambda row: ("redbox", "floor", "peer").index(rows[row]))
    figure, panels = pyplot.subplots(1, 3, sharey=True, figsize=(10, 0.31 * len(order) + 0.9), layout="constrained")
    for axes, (name, (title, what, form, logarithmic)) in zip(panels, PANELS.items(), strict=True):
        found = {who: answer["best"] for who, answer in questions[name]["answers"].items() if "best" in answer}
        values = [found[row][what] if row in found else None for row in order]
        texts = [form.format(**found[row]) if row in found else "–" for row in order]
        _bars(axes, values, texts, [COLOURS[rows[row]] for row in order], logarithmic=logarithmic)
        axes.set_title(title, fontsize=10, loc="left", color=INK)
    panels[0].set_yticks(range(len(order)), [SHORT.get(row, row) for row in order])
    panels[0].get_yticklabels()[0].set(color=RED, fontweight="bold")
    panels[0].invert_yaxis()
    _save(figure, path)


def growth(questions: dict[str, Any], path: Path) -> None:
    """What an event costs while the box grows, and how fast a relay is beside a crowd; both as ratios."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.1), layout="constrained", width_ratios=(1.25, 1))
    (answer,) = questions["growth"]["answers"].values()
    steps = answer["best"]["steps"] if "best" in answer else []
    lines = {
        "claim_ack_us": ("claim + ack", RED, "-"),
        "claim_ack_server_us": ("claim + ack, server CPU", RED, ":"),
        "put_us": ("put", INK, "-"),
        "put_server_us": ("put, server CPU", INK, ":"),
    }
    sizes = [step["pending"] for step in steps]
    left.axhspan(0.85, 1.15, color="#eef0f2", linewidth=0)
    for what, (label, colour, style) in lines.items():
        ratios = [step["ratio"][what] for step in steps]
        left.plot(sizes, ratios, linestyle=style, color=colour, marker="o", markersize=4, label=label)
    left.set_xscale("log")
    left.set_ylim(0, max([1.9, *(1.4 * step["ratio"][what] for step in steps for what in lines)]))
    left.set_xticks(sizes, [_short(size) for size in sizes])
    left.minorticks_off()
    left.margins(x=0.08)
    left.set_xlabel("events pending")
    left.set_title("cost of an event, times that in a box of 10 thousand", fontsize=10, loc="left", color=INK)
    left.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")
    left.spines[["top", "right"]].set_visible(False)
    crowds = {name: each["best"]["ratio"] for name, each in questions["crowded"]["answers"].items() if "best" in each}
    texts = [f"{ratio:.2f} ×" for ratio in crowds.values()]
    _bars(right, list(crowds.values()), texts, [RED] * len(crowds), logarithmic=False)
    right.axvline(1, color=INK, linewidth=0.8, linestyle="--", zorder=0)
    right.set_yticks(range(len(crowds)), [name.replace(" one blocked", "\none blocked") for name in crowds])
    right.invert_yaxis()
    right.set_title("drain beside them, times the rate without", fontsize=10, loc="left", color=INK)
    _save(figure, path)


def _bars(
    axes: Axes, values: Sequence[float | None], texts: list[str], colours: list[str], *, logarithmic: bool
) -> None:
    """Horizontal bars, each with a text at its end."""
    known = [value for value in values if value is not None]
    low = min(known) / 2 if logarithmic else 0
    axes.barh(range(len(values)), [value or 0 for value in values], color=colours, height=0.72)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(low, max(known) * 20)
    else:
        axes.set_xlim(0, max(known) * 1.25)
    for at, (value, text) in enumerate(zip(values, texts, strict=True)):
        axes.annotate(
            text,
            (low if value is None else value, at),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            color=RED if colours[at] == RED else INK,
            fontweight="bold" if colours[at] == RED else "normal",
        )
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", which="both", bottom=False, labelbottom=False)
    axes.tick_params(axis="y", length=0)


def _short(number: int) -> str:
    return f"{number // 1_000_000} million" if number >= 1_000_000 else f"{number // 1000} thousand"


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=160, facecolor="white")
    pyplot.close(figure)


if __name__ == "__main__":
    main()
