"""Keeps phrases that readers stumbled over out of documents, messages, docstrings and comments.

docs/glossary.md has the terms, CONTRIBUTING.md the rules. This test only catches the worst habits: phrases with a plain
equivalent. Identifiers are not searched.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

#: Phrase → plain English.
PHRASES: Final = {
    "so many": "the number, or its name",
    "so long ago": "the duration, or its name",
    "so long after": "the duration, or its name",
    "is told": "is reported, is logged, is passed",
    "are told": "are reported, are logged, are passed",
    "be told": "be reported; for 'be told from': be distinguished from",
    "was told": "was reported, was passed",
    "were told": "were reported, were passed",
    "whoever": "the caller, the reader, a relay: a noun",
    "under way": "in flight, running",
    "of late": "recent, recently",
    "by chance": "at random, random",
    "goes back for": "is returned to PENDING for",
    "what becomes of": "the outcome of, what happens to",
    "what became of": "the outcome of, what happened to",
    "is no illness": "counts as healthy",
    "stands in": "is stored in, is in",
    "in the place of": "instead of, replaces",
    "in the hands of": "claimed by",
    "run dry": "become empty",
    "runs dry": "becomes empty",
    "buried": "marked DEAD",
    "doomed": "exhausted, rejected",
    "hungry": "idle, has free workers",
    "thirsty": "idle, has free workers",
}

#: File → phrases that it may contain, each with the reason.
EXCEPTIONS: Final[dict[str, tuple[tuple[str, str], ...]]] = {}

FOLDERS: Final = ("redbox", "lua", "tests", "bench", "examples", "docs", "scripts", ".ci", ".github")
SUFFIXES: Final = (".py", ".lua", ".md", ".yml", ".yaml", ".toml", ".txt", ".ini", "")  # not .json: data
PATTERN: Final = re.compile(
    r"\b(?:" + "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in PHRASES) + r")\b", re.IGNORECASE
)
_STRINGS: Final = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def files(folder: str) -> list[Path]:
    """The files of a folder that people read; of the top of the repository, without its folders."""
    found = (ROOT / folder).rglob("*") if folder else ROOT.iterdir()
    return sorted(path for path in found if path.suffix in SUFFIXES and path.is_file() and not _is_foreign(path))


def _is_foreign(path: Path) -> bool:
    """Whether a file is built, installed, not text, or this one, which lists the phrases."""
    parts = path.relative_to(ROOT).parts
    return path == Path(__file__).resolve() or not {"__pycache__", ".environments", ".git"}.isdisjoint(parts)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with the number of its first line: of Python, strings and blocks of comments."""
    source = path.read_text(errors="replace")
    if path.suffix != ".py":
        yield 1, re.sub(r"(?m)^[ \t]*(?:--+|#+) ?", "", source)
        return
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type in _STRINGS:
            yield line, token.string
        elif token.type == tokenize.COMMENT:
            if block and line != last + 1:
                yield start, "\n".join(block)
                block = []
            start = start if block else line
            block.append(token.string.lstrip("#: "))
            last = line
    yield start, "\n".join(block)


def phrases(path: Path) -> Iterator[tuple[int, str]]:
    """The phrases in a file, with their lines."""
    for start, text in texts(path):
        for match in PATTERN.finditer(text):
            yield start + text.count("\n", 0, match.start()), re.sub(r"\s+", " ", match[0]).lower()


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_texts_are_plain_english(folder: str):
    found = []
    for path in files(folder):
        name = path.relative_to(ROOT).as_posix()
        excused = {phrase for phrase, _ in EXCEPTIONS.get(name, ())}
        found += [f"{name}:{line}: {phrase!r}" for line, phrase in phrases(path) if phrase not in excused]
    assert not found, "\n".join([*found, "PHRASES in this file has what to say instead"])


def test_every_exception_is_used_and_has_a_reason():
    for name, excused in EXCEPTIONS.items():
        found = {phrase for _, phrase in phrases(ROOT / name)}
        assert {phrase for phrase, _ in excused} <= found, name
        assert all(reason for _, reason in excused), name


def test_a_phrase_is_found_in_strings_and_comments_of_python_and_in_other_texts(tmp_path: Path):
    python, lua, page = tmp_path / "a.py", tmp_path / "a.lua", tmp_path / "a.md"
    python.write_text('so_many = 1\n# what is under\n# way\n"""A text.\n\nSo  many."""\nf"{so_many} of late"\n')
    lua.write_text("-- whoever\n\nlocal so_many = 1\n-- what is\n-- told\n")
    page.write_text("Nothing here, though `so_many` is there.\n")
    assert list(phrases(python)) == [(6, "so many"), (7, "of late"), (2, "under way")]
    assert list(phrases(lua)) == [(1, "whoever"), (4, "is told")]
    assert list(phrases(page)) == []
