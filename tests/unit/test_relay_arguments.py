"""Keyword arguments that `Relay(...)` does not know: the error says where they belong."""

from __future__ import annotations

from typing import Any

import pytest

from redbox import Box, Relay


@pytest.mark.parametrize("name", ["secret", "authorization", "timeout"])
def test_an_option_of_the_target(redbox_box: Box, name: str):
    settings: dict[str, Any] = {name: "x"}
    with pytest.raises(TypeError) as caught:
        Relay(redbox_box, "https://shop.example/hook", **settings)
    assert str(caught.value) == (
        f"Relay() got an unexpected keyword argument {name!r}; "
        f"it is an option of the target: Relay(..., options={{{name!r}: ...}})"
    )


def test_an_option_of_the_dead_letter_target(redbox_box: Box):
    settings: dict[str, Any] = {"secret": "x"}
    with pytest.raises(TypeError, match=r"dead-letter target: Relay\(\.\.\., dead_options=\{'secret': \.\.\.\}\)"):
        Relay(redbox_box, "null:", dead_to="https://shop.example/dead", **settings)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("atempts", "; did you mean 'attempts'?"), ("priority", ""), ("dead_too", "; did you mean 'dead_to'?")],
)
def test_a_name_that_nothing_has(redbox_box: Box, name: str, hint: str):
    settings: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError) as caught:
        Relay(redbox_box, print, **settings)
    assert str(caught.value) == f"Relay() got an unexpected keyword argument {name!r}{hint}"
