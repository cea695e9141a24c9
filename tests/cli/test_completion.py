"""Shell completion: click's own, for bash, zsh and fish."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from redbox.cli.app import cli


def complete(*words: str) -> list[str]:
    """The words that bash offers for the last of `words`."""
    typed = {"_REDBOX_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    result = CliRunner().invoke(cli, [], prog_name="redbox", env=typed)
    assert (result.exit_code, result.stderr) == (0, "")
    return [line.removeprefix("plain,") for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("redbox", "de"), ["dead", "demo"]),
        (("redbox", "--box", "orders", "dead", "re"), ["replay"]),
        (("redbox", "--j"), ["--json"]),
        (("redbox", "list", "--state", "p"), ["pending", "published"]),
        (("redbox", "dead", "replay", "--dr"), ["--dry-run"]),
        (("redbox", "nothing"), []),
    ],
    ids=" ".join,
)
def test_commands_options_and_choices_are_completed(words: tuple[str, ...], offered: list[str]):
    assert complete(*words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str):
    result = CliRunner().invoke(cli, [], prog_name="redbox", env={"_REDBOX_COMPLETE": f"{shell}_source"})
    assert result.exit_code == 0
    assert f"_REDBOX_COMPLETE={shell}_complete" in result.stdout


def test_bash_completes_with_the_script(tmp_path: Path):
    command = tmp_path / "redbox"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m redbox "$@"\n')
    command.chmod(0o755)
    root = Path(__file__).parents[2]
    script = """
        eval "$(_REDBOX_COMPLETE=bash_source redbox)"
        COMP_WORDS=(redbox de) COMP_CWORD=1
        _redbox_completion redbox
        echo "${COMPREPLY[@]}"
        complete -p redbox
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(root)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    offered, registered = done.stdout.splitlines()
    assert offered == "dead demo"
    assert "_redbox_completion redbox" in registered
