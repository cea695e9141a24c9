"""Writes the results: `results.json` with every measurement, and `README.md` with the tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.question import Answers, Question
from bench.questions import ALL
from bench.questions.names import REDBOX, ROWS

#: The content of `results.json`: `machine`, `servers`, and under `questions` the answers, their date and their commit.
Results = dict[str, Any]

METHOD = """\
Every contender and every round gets a fresh server on loopback, with its append-only file on (`appendfsync everysec`)
and no snapshots, unless a question says otherwise. Payloads are 512 bytes; libraries that encode JSON get a string of
the same length. Each library runs in one process with its fast settings (concurrency 100, prefetching), on uvloop and
hiredis where it supports them, and with a pooled client. arq and streaQ are configured to keep no results. BullMQ, SAQ
and redbox keep finished events, as they do by default. redbox's relay runs with its defaults: time limit, renewal,
heartbeat and breaker on. A drain is measured up to the last call of the handler; for redbox, up to the last
acknowledgement.

Rounds are interleaved: the first round of all contenders, then the second round of all. The best round counts, and all
rounds are in [results.json](results.json). A round takes a second or two, after connections are open and scripts are
loaded. Rates are events per second. In brackets: CPU time of the server in µs per event, from `INFO cpu`. For latency,
producer and consumer are two processes, an event is put every 5 ms, and the lowest p50 and p99 of all rounds are
shown. On a small machine, two clean runs of the same code can differ by a third: compare within one run, and treat a
difference below 25 % as a tie.
"""


def merge(old: Results, new: Results) -> Results:
    """The old results, with the questions that were asked again replaced."""
    return {**old, **new, "questions": {**old.get("questions", {}), **new["questions"]}}


def load(path: Path) -> Results:
    results: Results = json.loads(path.read_text()) if path.exists() else {}
    return results


def answers_of(results: Results, question: Question) -> Answers:
    asked = results["questions"].get(question.name, {"answers": {}})["answers"]
    return {name: answer["best"] for name, answer in asked.items() if "best" in answer}


def tables(results: Results) -> str:
    """The tables, in Markdown that also reads well in a terminal."""
    asked = [ALL[name] for name in ALL if name in results["questions"]]
    parts = [
        _overall(results, [question for question in asked if question.cell]),
        _goals(results, asked),
        *(_own(results, question) for question in asked if question.columns),
        _left_out(results, asked),
    ]
    return "\n".join(part for part in parts if part)


BEGIN, END = "<!-- made by make bench -->", "<!-- until here -->"
HTTP, BEGIN_HTTP = "http", "<!-- made by make bench: http -->"


def page(results: Results, plots: Iterable[Path]) -> str:
    """`README.md`."""
    machine = ", ".join(f"{name}: {value}" for name, value in results["machine"].items())
    pictures = "\n\n".join(f"![{plot.stem.replace('_', ' ')}]({plot.name})" for plot in sorted(plots))
    return "\n".join(
        [
            "# Results",
            "",
            f"Made by `python -m bench`. {machine}. Servers: {', '.join(results['servers'])}.",
            _when(results),
            pictures,
            "",
            tables(results),
            _versions(results),
            "## Method",
            "",
            METHOD,
        ]
    )


def _overall(results: Results, asked: Sequence[Question]) -> str:
    found = {question.name: answers_of(results, question) for question in asked}
    rows = []
    for name in ROWS:
        cells = [
            question.cell(found[question.name][name]) if question.cell and name in found[question.name] else ""
            for question in asked
        ]
        if any(cells):
            rows.append([_emphasised(name), *cells])
    notes = [f"{question.title}: {question.note}" for question in asked if question.note]
    return _section("All libraries", ["", *(question.title for question in asked)], rows, notes) if rows else ""


def into_readme(text: str, results: Results) -> str:
    """The project's README with the tables of all libraries and of HTTP delivery between their marks, if any."""
    text = _between(text, BEGIN, _all_libraries(results))
    if HTTP in results["questions"]:
        text = _between(text, BEGIN_HTTP, _table(*_rows(results, ALL[HTTP])))
    return text


def _between(text: str, mark: str, table: str) -> str:
    before, begin, rest = text.partition(mark)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n{table}{end}{after}" if end else text


def _all_libraries(results: Results) -> str:
    asked = [question for question in ALL.values() if question.name in results["questions"] and question.cell]
    found = {question.name: answers_of(results, question) for question in asked}
    rows = [
        [
            _emphasised(name),
            *(
                question.cell(found[question.name][name]).partition(" (")[0]
                if question.cell and name in found[question.name]
                else ""
                for question in asked
            ),
        ]
        for name in ROWS
        if sum(name in answers for answers in found.values()) > 1
    ]
    return _table(["events/s", *(question.title for question in asked)], rows)


def _goals(results: Results, asked: Sequence[Question]) -> str:
    rows = []
    for question in asked:
        answers = answers_of(results, question)
        for goal in question.goals:
            try:
                value = goal.measured(answers)
            except (KeyError, ValueError):
                rows.append([question.title, goal.words, "not measured", ""])
                continue
            limited = goal.at_least is not None or goal.at_most is not None
            verdict = ("yes" if goal.is_met(value) else "**no**") if limited else ""
            rows.append([question.title, goal.words, f"{_rounded(value)} {goal.unit}", verdict])
    return _section("Goals", ["question", "goal", "measured", "met"], rows)


def _own(results: Results, question: Question) -> str:
    return _section(question.title[0].upper() + question.title[1:], *_rows(results, question), [question.note])


def _rows(results: Results, question: Question) -> tuple[list[str], list[list[str]]]:
    """The heading and the rows of a question's own table."""
    rows = [
        [_emphasised(row), *(column(figures) for column in question.columns.values())]
        for name, best in answers_of(results, question).items()
        for row, figures in question.rows(name, best)
    ]
    return ["", *question.columns], rows


def _left_out(results: Results, asked: Sequence[Question]) -> str:
    lines = [
        f"- {question.title}, {name}: {answer['failed']}"
        for question in asked
        for name, answer in results["questions"][question.name]["answers"].items()
        if "failed" in answer
    ]
    return "\n".join(["## What could not be measured", "", *lines, ""]) if lines else ""


def _versions(results: Results) -> str:
    libraries: dict[str, dict[str, str]] = {}
    for question in results["questions"].values():
        for answer in question["answers"].values():
            versions = answer.get("versions", {})
            if versions:
                libraries[next(iter(versions))] = versions
    lines = [
        "- " + ", ".join(f"{name} {version}" for name, version in versions.items()) for versions in libraries.values()
    ]
    return "\n".join(["## Versions", "", *lines, ""])


def _when(results: Results) -> str:
    """One line for each run that contributed answers."""
    runs: dict[str, list[str]] = {}
    for name, question in results["questions"].items():
        about = f"{question['date']}, commit {question['commit'] or 'unknown'}"
        runs.setdefault(about, []).append(name)
    return "".join(f"Measured {about}: {', '.join(names)}.\n" for about, names in runs.items())


def _section(title: str, heading: list[str], rows: list[list[str]], notes: Sequence[str] = ()) -> str:
    shown = [note for note in notes if note]
    return "\n".join([f"## {title}", "", _table(heading, rows), *([*shown, ""] if shown else [])])


def _table(heading: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[at]) for row in [heading, *rows]) for at in range(len(heading))]

    def line(cells: Sequence[str], fill: str = " ") -> str:
        return "| " + " | ".join(cell.ljust(width, fill) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(heading), line(["---"] * len(heading), "-"), *(line(row) for row in rows), ""])


def _emphasised(name: str) -> str:
    return f"**{name}**" if name == REDBOX else name


def _rounded(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
