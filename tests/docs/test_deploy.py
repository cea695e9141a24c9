"""docs/deploy: the store is in a directory that the process makes, and the box has a limit that fits the memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redbox.box.texts.setting_texts import parse_settings

DEPLOY = Path(__file__).resolve().parents[2] / "docs/deploy"


def test_the_store_is_below_the_root_of_the_volume():
    """The root of a volume belongs to root, or others may write to it: the embedded server refuses such a directory."""
    text = (DEPLOY / "Dockerfile").read_text()
    (volume,) = re.findall(r"^VOLUME (\S+)$", text, re.MULTILINE)
    (store,) = re.findall(r"^ENV REDBOX_URL=embedded:(\S+)$", text, re.MULTILINE)
    assert store.startswith(f"{volume}/")


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml", "redbox.service"])
def test_the_box_has_a_limit(name: str):
    changes = re.findall(r"\b(max_pending)=(\w+)", (DEPLOY / name).read_text())
    assert parse_settings(dict(changes))[0]["max_pending"] > 0
