"""docs/permissions.md grants exactly the commands that the scripts call and the store sends."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from redbox.store import store
from redbox.store.scripts.registry import REGISTRY, commands
from redbox.store.server.permissions import REPLACING, WRITING, needed
from tests.roles import FOR_DOCTOR, FOR_DURABILITY, ROLES, acl_rules, granted

STORE = Path(store.__file__).parent
LUA = Path(__file__).resolve().parents[2] / "lua"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "permissions.md"
#: The files in which commands are written down.
SENDING = (
    "store.py",
    "reads.py",
    "transaction.py",
    "scripts/runner.py",
    "server/append_only_file.py",
    "server/durability.py",
    "server/server_facts.py",
)


def sent_by(file: str) -> set[str]:
    """Returns the commands in a file: tuples that begin with a word in capitals. CONFIG and MEMORY are granted with
    their subcommands."""
    found = set()
    for node in ast.walk(ast.parse((STORE / file).read_text())):
        if isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
            word = node.elts[0].value
            if isinstance(word, str) and word.isalpha() and word.isupper():
                found.add({"CONFIG": "CONFIG|GET", "MEMORY": "MEMORY|USAGE"}.get(word, word))
    return found


def test_every_command_that_the_store_sends_is_granted_to_a_role():
    sent = {command for file in SENDING for command in sent_by(file)}
    assert {"EVALSHA", "BLPOP", "SCAN", "WATCH", "WAITAOF"} < sent
    extra = {command for each in FOR_DURABILITY.values() for command in each} | set(FOR_DOCTOR)
    assert sent == {command for role in ROLES.values() for command in role.commands} | extra


def test_nothing_else_in_the_store_sends_commands():
    # These contain words of replies, and lists of commands.
    known = {*SENDING, "errors.py", "scripts/registry.py", "server/permissions.py"}
    others = {path.relative_to(STORE).as_posix() for path in STORE.rglob("*.py")} - known
    assert {name: sent_by(name) for name in others if sent_by(name)} == {}


def test_an_operator_may_do_all_that_scripts_do():
    assert {command for name in REGISTRY for command in commands(name)} <= set(granted("operator"))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_passes_the_check_for_its_own_scripts(role: str):
    for script in ROLES[role].scripts:
        if script in WRITING:
            assert needed(script) <= set(granted(role)), script


@pytest.mark.parametrize("role", ROLES)
def test_the_document_gives_the_least_rules(role: str):
    text = " ".join(DOCUMENT.read_text().split())
    line = f"ACL SETUSER orders-{role} on >PASSWORD {acl_rules(role, 'orders')} ```"
    assert line in text, f"docs/permissions.md should say: {line}"


def test_the_document_gives_what_a_durability_needs():
    text = DOCUMENT.read_text().replace("\\", "")
    for name, extra in FOR_DURABILITY.items():
        rules = " ".join(f"+{command.lower()}" for command in extra)
        assert f"| the durability `{name}` | `{rules}`" in text
    rules = " ".join(f"+{command.lower()}" for command in FOR_DOCTOR)
    assert f"| all checks of `redbox doctor` | `{rules}`" in text


def test_only_a_put_that_replaces_needs_to_remove():
    """The commands of `put` that are in no other part of it than the removal of replaced events."""
    other = re.sub(r'--- @include "remove_replaced"\n', "", (LUA / "put.lua").read_text())
    assert other.count("@include") == (LUA / "put.lua").read_text().count("@include") - 1
    text = other + "".join((LUA / "include" / f"{name}.lua").read_text() for name in _included(other))
    assert needed("replace") - frozenset(re.findall(r'redis\.p?call\(\s*"([A-Z]+)"', text)) <= REPLACING
    assert needed("replace") - needed("put") == REPLACING


def _included(text: str) -> set[str]:
    found = set(re.findall(r'@include "(\w+)"', text))
    return found.union(*(_included((LUA / "include" / f"{name}.lua").read_text()) for name in found))
