"""Every relative link in the documents leads to a file, and to a heading if it names one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md"), ROOT / "examples/README.md"]
)
LINK = re.compile(r"\]\(([^()\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path):
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    for link in LINK.findall(text):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_glossary_is_linked(name: str):
    assert "(docs/glossary.md)" in (ROOT / name).read_text()


def test_the_glossary_defines_each_term_once():
    terms = re.findall(r"(?m)^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text())
    assert len(terms) == len(set(terms))
    assert {"event", "box", "relay", "worker", "claim", "lease", "fence", "publisher", "target", "line"} <= set(terms)
