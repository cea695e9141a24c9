"""`redbox relay --middleware` and `middleware` in redbox.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from redbox.cli.relay.config import ConfigError, load, open_relays
from redbox.cli.relay.settings import RelaySettings, SettingError

CODE = """
async def trace(claim, publish):
    await publish(claim)

def plain(claim, publish):
    pass
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_middleware.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_functions_are_found_by_name(tmp_path: Path):
    relay = RelaySettings(to="null:", middleware=["python:shop_middleware:trace"] * 2).open("memory:", tmp_path)
    assert [each.__name__ for each in relay._middleware] == ["trace", "trace"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("python:shop_middleware:plain", "middleware: plain is not an async function"),
        ("python:shop_middleware:none", "middleware: .*has no none"),
        ("shop_middleware:trace", "middleware: write python:module:function"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, name: str, complaint: str):
    with pytest.raises(SettingError, match=complaint):
        RelaySettings(to="null:", middleware=[name]).open("memory:", tmp_path)


def test_in_a_file(tmp_path: Path):
    path = tmp_path / "redbox.toml"
    path.write_text('[[relay]]\nto = "null:"\nmiddleware = ["python:shop_middleware:trace"]\n')
    (relay,) = open_relays(path, load(path), lambda: "memory:")
    assert len(relay._middleware) == 1
    path.write_text('[[relay]]\nto = "null:"\nmiddleware = "python:shop_middleware:trace"\n')
    with pytest.raises(ConfigError, match="middleware: a list of functions"):
        load(path)
