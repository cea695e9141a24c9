"""The Lua scripts as text: the loader, and headers that are true.

A header lists the arguments, the reply and the errors of a script. These tests compare all headers with `REGISTRY`,
with the error codes and reply words that Python knows, and with the code below the header.
"""

from __future__ import annotations

import errno
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from redbox.errors import CODES, StoreError, StoreUnavailable
from redbox.events import Outcome
from redbox.store.scripts import registry as scripts
from redbox.store.scripts.registry import REGISTRY, assemble, commands, load
from redbox.store.server.permissions import ARGUMENTS

LUA = Path(__file__).parents[2] / "lua"
SCRIPTS = {path.stem: path.read_text() for path in sorted(LUA.glob("*.lua"))}
INCLUDES = {path.stem: path.read_text() for path in sorted((LUA / "include").glob("*.lua"))}
assert SCRIPTS, "an empty list would skip the tests below"
assert INCLUDES

#: The replies of put for one event; every other script replies with an Outcome.
PUT_WORDS = {"CREATED", "REPLACED", "EXISTS", "DIFFERS", "CONFLICT", "FULL", "SKIPPED"}
STATES = {"PENDING", "CLAIMED", "PUBLISHED", "DEAD"}

INCLUDE = re.compile(r'^--- @include "(\w+)"$', re.MULTILINE)
ARGUMENT = re.compile(r"^-- ARGV\[(\d+)\]\s+(\w+)", re.MULTILINE)
#: "then for each event the following", "then further ids": here the group begins that is repeated.
REPEATED = re.compile(r"^-- ARGV\[(\d+)\]\s+\w+\s+then ", re.MULTILINE)
WORD = re.compile(r'"([A-Z]{2,})"')
ERROR = re.compile(r'redis\.error_reply\("([A-Z]+)')


@dataclass(frozen=True)
class Header:
    flag: str | None
    purpose: str
    guarantee: bool
    keys: list[str]
    argv: tuple[str, ...]
    each: tuple[str, ...]
    returns: str
    errors: tuple[str, ...]


def header_of(text: str) -> Header:
    """The header of a script, read from the comment block at its top."""
    first, *rest = text.split("\n")
    lines = []
    for line in rest:
        if not line.startswith("--") or line.startswith("---"):
            break
        lines.append(line)
    block = "\n".join(lines)
    shebang = re.fullmatch(r"#!lua(?: flags=([a-z-]+))?", first)
    assert shebang, f"line 1 is {first!r}"
    arguments = ARGUMENT.findall(block)
    assert [int(number) for number, _ in arguments] == list(range(1, len(arguments) + 1)), "ARGV is not counted through"
    names = tuple(name for _, name in arguments)
    repeated = REPEATED.search(block)
    fixed = int(repeated[1]) - 1 if repeated else len(names)
    returns = re.search(r"^-- Returns   (.*(?:\n--           .*)*)", block, re.MULTILINE)
    errors = re.search(r"^-- Errors    (.*)$", block, re.MULTILINE)
    return Header(
        flag=shebang[1],
        purpose=lines[0].removeprefix("-- "),
        guarantee="\n-- Guarantee: " in block,
        keys=re.findall(r"^-- KEYS\[\d+\]\s+(.*)$", block, re.MULTILINE),
        argv=names[:fixed],
        each=names[fixed:],
        returns=returns[1] if returns else "",
        errors=tuple(errors[1].split(", ")) if errors else (),
    )


def code_of(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("--"))


def closure(text: str) -> set[str]:
    """The includes that a script uses, directly or through others."""
    found: set[str] = set()
    left = INCLUDE.findall(text)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += INCLUDE.findall(INCLUDES[name])
    return found


def whole_code(name: str) -> str:
    return "\n".join(code_of(text) for text in (SCRIPTS[name], *(INCLUDES[i] for i in closure(SCRIPTS[name]))))


# --- headers ---------------------------------------------------------------------------------------------------


def test_every_script_is_registered_and_every_registered_script_exists():
    assert set(SCRIPTS) == set(REGISTRY)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_header_agrees_with_the_registry(name: str):
    header, signature = header_of(SCRIPTS[name]), REGISTRY[name]
    assert header.argv == signature.argv
    assert header.each == signature.each
    assert header.flag == signature.flag
    assert header.errors == signature.errors


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_header_is_complete(name: str):
    header = header_of(SCRIPTS[name])
    assert header.purpose.startswith(f"{name}: ")
    assert header.guarantee
    assert [" ".join(key.split()) for key in header.keys] == ["meta hash; names the box"]
    assert header.returns


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_code_uses_no_argument_that_is_not_declared(name: str):
    header, code = header_of(SCRIPTS[name]), code_of(SCRIPTS[name])
    fixed, group = len(header.argv), len(header.each)
    assert {int(number) for number in re.findall(r"ARGV\[(\d+)\]", code)} <= set(range(1, fixed + 1))
    offsets = {int(number) for number in re.findall(r"ARGV\[(?:at|first) \+ (\d+)\]", code)}
    assert offsets <= set(range(1, group))


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_code_uses_every_argument_that_is_declared(name: str):
    header, code = header_of(SCRIPTS[name]), code_of(SCRIPTS[name])
    assert [int(number) for number in re.findall(r"ARGV\[(\d+)\]", code)] == list(range(1, len(header.argv) + 1))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_argument_gets_a_name_before_anything_else(name: str):
    """Only lists of fields and constants come before the arguments. No argument is read by its number later."""
    lines = [line for line in code_of(SCRIPTS[name]).split("\n")[1:] if line]
    using = [at for at, line in enumerate(lines) if re.search(r"ARGV\[\d+\]", line)]
    assert all(re.match(r"local [a-z_, ]+ = |  ", line) for line in (lines[at] for at in using))
    assert all(re.match(r"local |  ", line) for line in lines[: max(using, default=0)])


def test_includes_read_no_argument_by_its_number():
    assert [name for name, text in INCLUDES.items() if re.search(r"ARGV\[\d+\]", code_of(text))] == []


@pytest.mark.parametrize("name", [name for name in SCRIPTS if REGISTRY[name].each])
def test_the_loop_over_items_steps_by_the_declared_group(name: str):
    header, code = header_of(SCRIPTS[name]), code_of(SCRIPTS[name])
    first, group = len(header.argv) + 1, len(header.each)
    named = dict(re.findall(r"^local ([A-Z]+) = (\d+)$", code, re.MULTILINE))
    loops = re.findall(r"for at = (\d+), #ARGV(?:, (\w+))? do", code)
    loops += re.findall(r"\b(?:collect|look)_\w+\((\d+), (\w+)", code)
    assert {(int(start), int(named.get(step, step) or 1)) for start, step in loops} == {(first, group)}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_uses_one_key_and_builds_the_others_from_it(name: str):
    assert set(re.findall(r"KEYS\[(\d+)\]", whole_code(name))) == {"1"}


@pytest.mark.parametrize("name", [name for name, signature in REGISTRY.items() if signature.flag == "no-writes"])
@pytest.mark.req("SC-8")
def test_a_script_with_the_flag_no_writes_calls_only_reading_commands(name: str):
    reading = {
        "TIME",
        "HMGET",
        "HGETALL",
        "HGET",
        "GET",
        "MGET",
        "ZSCORE",
        "ZMSCORE",
        "ZCARD",
        "ZCOUNT",
        "ZRANGE",
        "ZRANGEBYSCORE",
        "ZREVRANGE",
        "LRANGE",
        "LLEN",
        "STRLEN",
    }
    assert set(re.findall(r'redis\.call\("(\w+)"', whole_code(name))) <= reading


def test_the_commands_of_a_script_can_be_read_from_its_text():
    """`commands` finds all: a command is named where it is called, or passed to one of two includes."""
    by_argument = {"call_in_chunks", "call_with_events"}
    for name, text in {**SCRIPTS, **INCLUDES}.items():
        calls = re.findall(r"redis\.(?:call|pcall)\((.)", code_of(text))
        assert set(calls) <= {'"'} or name in by_argument, name
        for include in by_argument:
            assert set(re.findall(rf"(?<!function ){include}\((.)", code_of(text))) <= {'"'}, name
    assert {"ZADD", "MSET", "HSET", "XLEN"} < commands("put")
    assert {"UNLINK", "EXISTS", "ZREM"} < commands("ack")


def test_the_arguments_of_every_command_are_known():
    assert {command for name in SCRIPTS for command in commands(name)} == set(ARGUMENTS)


# --- words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_errors_line_lists_the_errors_that_the_script_raises(name: str):
    assert set(header_of(SCRIPTS[name]).errors) == set(ERROR.findall(whole_code(name)))


def test_every_error_code_has_an_exception_and_is_used():
    raised = {word for text in (*SCRIPTS.values(), *INCLUDES.values()) for word in ERROR.findall(text)}
    assert raised == set(CODES)


def test_an_exception_has_one_error_code():
    assert len(set(CODES.values())) == len(CODES)


def reply_words(name: str, *includes: str) -> set[str]:
    """Capital words in a script's code that are neither states, scopes, phases nor Redis commands. An include that
    collects events decides on the replies to them."""
    includes = (*includes, *(each for each in closure(SCRIPTS[name]) if each.startswith("collect_")))
    code = re.sub(
        r'(?:redis\.call|call_in_chunks|call_with_events|permitted)\("\w+"',
        "",
        "".join([code_of(SCRIPTS[name]), *(code_of(INCLUDES[each]) for each in includes)]),
    )
    code = re.sub(r"redis\.error_reply\([^\n]*", "", code)
    keywords = {"WITHSCORES", "LIMIT", "MAXLEN", "COUNT", "UNTOUCHED", "ALL_LIVE"}
    return set(WORD.findall(code)) - keywords - STATES


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in ("put", "stats")])
@pytest.mark.req("PL-1")
def test_every_reply_word_is_an_outcome_and_is_in_the_header(name: str):
    words = reply_words(name)
    assert words <= set(Outcome.__members__)
    assert words == set(re.findall(r"\b[A-Z]{2,}\b", header_of(SCRIPTS[name]).returns))


@pytest.mark.req("PL-1")
def test_every_outcome_is_the_reply_of_some_script_and_has_a_reason():
    assert {word for name in SCRIPTS if name not in ("put", "stats") for word in reply_words(name)} == set(Outcome)
    assert all(outcome.reason for outcome in Outcome)


def test_the_reply_words_of_put():
    assert reply_words("put", "compare_content") == PUT_WORDS
    assert set(re.findall(r'"([A-Z]+)"', header_of(SCRIPTS["put"]).returns)) == PUT_WORDS


# --- includes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in INCLUDES if name != "keys"])
def test_an_include_defines_one_function_with_its_own_name(name: str):
    assert re.findall(r"^local function (\w+)", INCLUDES[name], re.MULTILINE) == [name]


def test_no_include_has_the_name_of_a_script():
    assert set(INCLUDES) & set(SCRIPTS) == set()


def test_every_include_is_used_by_some_script():
    assert {name for text in SCRIPTS.values() for name in closure(text)} == set(INCLUDES)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_includes_what_it_calls_and_calls_what_it_includes(name: str):
    code = code_of(SCRIPTS[name])
    calls = {include for include in INCLUDES if re.search(rf"\b{include}\(", code)}
    assert set(INCLUDE.findall(SCRIPTS[name])) - {"keys"} == calls


@pytest.mark.parametrize("name", INCLUDES)
def test_an_include_says_what_it_does(name: str):
    assert re.search(r"^-- [A-Z]", INCLUDES[name], re.MULTILINE)


def test_scripts_are_short_and_includes_shorter():
    assert [name for name, text in SCRIPTS.items() if text.count("\n") > (170 if name == "put" else 150)] == []
    assert [name for name, text in INCLUDES.items() if text.count("\n") > 60] == []


def test_only_tests_may_move_time():
    assert [path.name for path in (LUA / "testing").iterdir()] == ["advance.lua"]
    assert "testing/advance" not in REGISTRY
    header = header_of((LUA / "testing" / "advance.lua").read_text())
    assert header.purpose.startswith("advance: for tests")
    package = LUA.parent / "redbox"
    users = [path for path in package.rglob("*.py") if "testing/advance" in path.read_text()]
    assert users == [package / "testing" / "clock.py"]


# --- the loader ------------------------------------------------------------------------------------------------


def write(root: Path, **files: str) -> Path:
    """A folder of scripts; `include__name` is `include/name.lua`."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.lua"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return root


def include(*names: str) -> str:
    return "".join(f'--- @include "{name}"\n' for name in names)


def test_an_include_is_inserted_in_its_place(tmp_path: Path):
    write(tmp_path, main=f"#!lua\n{include('one')}return one\n", include__one="local one = 1\n")
    assert assemble(tmp_path, "main") == "#!lua\nlocal one = 1\nreturn one\n"


def test_a_shared_include_is_inserted_once_before_all_that_use_it(tmp_path: Path):
    write(
        tmp_path,
        main=f"{include('left', 'right')}return left + right\n",
        include__left=f"{include('base')}local left = base\n",
        include__right=f"{include('base')}local right = base\n",
        include__base="local base = 1\n",
    )
    lines = [line for line in assemble(tmp_path, "main").split("\n") if line]
    assert lines == ["local base = 1", "local left = base", "local right = base", "return left + right"]


def test_a_cycle_is_reported_with_its_path(tmp_path: Path):
    write(tmp_path, main=include("a"), include__a=include("b"), include__b=include("a"))
    with pytest.raises(StoreError, match="include/a → include/b → include/a"):
        assemble(tmp_path, "main")


def test_an_include_of_itself_is_a_cycle(tmp_path: Path):
    write(tmp_path, main=include("a"), include__a=include("a"))
    with pytest.raises(StoreError, match="cycle"):
        assemble(tmp_path, "main")


def test_a_missing_include_is_reported_with_the_file_that_includes_it(tmp_path: Path):
    write(tmp_path, main=include("a"), include__a=include("gone"))
    with pytest.raises(StoreError, match=r"include/gone\.lua is missing \(included by include/a\)"):
        assemble(tmp_path, "main")


def test_a_missing_script_is_reported(tmp_path: Path):
    with pytest.raises(StoreError, match=r"main\.lua is missing"):
        assemble(tmp_path, "main")


def test_a_double_include_is_refused(tmp_path: Path):
    write(tmp_path, main=include("a", "b", "a"), include__a="", include__b="")
    with pytest.raises(StoreError, match=r"main\.lua includes a twice"):
        assemble(tmp_path, "main")


def test_text_that_only_looks_like_an_include_is_left_alone(tmp_path: Path):
    text = '-- @include "a"\nlocal x = "--- @include"\n  --- @include "a"\n'
    write(tmp_path, main=text)
    assert assemble(tmp_path, "main") == text


def test_a_loaded_script_has_no_comments_and_its_own_sha(tmp_path: Path):
    write(tmp_path, main='#!lua flags=no-writes\n-- says\n\nlocal x = "-- no comment"\n  -- inside\nreturn x\n')
    script = load("main", root=tmp_path)
    assert script.text == '#!lua flags=no-writes\nlocal x = "-- no comment"\nreturn x\n'
    assert script.sha == hashlib.sha1(script.text.encode()).hexdigest()


def test_the_shebang_is_removed_for_servers_that_do_not_know_it(tmp_path: Path):
    write(tmp_path, main="#!lua flags=no-writes\nreturn 1\n")
    bare = load("main", shebang=False, root=tmp_path)
    assert bare.text == "return 1\n"
    assert bare.sha != load("main", root=tmp_path).sha


@pytest.mark.parametrize("name", [*SCRIPTS, "testing/advance"])
def test_our_own_scripts_load(name: str):
    script = load(name)
    assert script.text.startswith("#!lua")
    assert script.text.count("#!lua") == 1
    assert "@include" not in script.text
    assert load(name, shebang=False).text == script.text.partition("\n")[2]


def test_a_build_without_scripts_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "redbox" / "store").mkdir(parents=True)
    monkeypatch.setattr(scripts, "__file__", str(tmp_path / "redbox" / "store" / "scripts.py"))
    monkeypatch.setattr(scripts, "files", lambda package: tmp_path / package)
    with pytest.raises(StoreError, match="built without its Lua scripts; install it again"):
        scripts.lua_root()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_pass(monkeypatch: pytest.MonkeyPatch, number: int):
    def fail(*_: object, **__: object) -> str:
        raise OSError(number, "Too many open files")

    monkeypatch.setattr(Path, "read_text", fail)
    with pytest.raises(StoreUnavailable, match="too many files are open"):  # a relay waits, a request gets 503
        assemble(LUA, "put")


def test_scripts_are_read_once(monkeypatch: pytest.MonkeyPatch):
    scripts.load_all()
    monkeypatch.setattr(Path, "read_text", None)
    for name in REGISTRY:
        assert load(name, shebang=True).text != load(name, shebang=False).text
        assert commands(name) is not None
