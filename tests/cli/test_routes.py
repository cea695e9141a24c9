"""Routes in redbox.toml, `redbox config check`, boxes as targets from the shell, and `redbox up --config`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import redis

from redbox import Event, Relay
from redbox.cli.relay.config import ConfigError, load, open_relays
from tests.cli.conftest import Redbox

FILE = """\
# orders go to two boxes
[[relay]]
box = "orders"
routes = [
  {match = "order.*", to = ["box:billing", "box:search"]},
  {match = "mail.*", to = "box:mail"},
]
default = "box:rest"

[[relay]]
box = "billing"
to = "null:"
dead_to = "box:graveyard"

[[relay]]
box = "search"
to = "box+redis://other:6379/0/search"

[[relay]]
box = "mail"
to = "null:"
"""
OTHERS = 'other_boxes = ["rest"]\n'


def write(text: str) -> Path:
    path = Path("redbox.toml")
    path.write_text(text)
    return path


def open_file(text: str) -> list[Relay]:
    path = write(text)
    return open_relays(path, load(path), lambda: "memory:elsewhere")


@pytest.mark.req("RT-2")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FILE, "8: relay 1 (box orders): default: no relay in this file drains box rest; add one, or name the box in"),
        (OTHERS + FILE.replace('"box:search"]', '"box:serch"]'), "6: relay 1 (box orders): routes: no relay in this"),
        (OTHERS + FILE.replace('"null:"', '"box:orders"', 1), "13: relay 2 (box billing): to: the boxes form a cycle:"),
        (OTHERS + FILE.replace('"box:mail"', '"box:orders"'), "5: relay 1 (box orders): routes: box orders cannot be"),
        (OTHERS + FILE.replace('"box:mail"', '"https://h/"'), "7: relay 1 (box orders): routes: a route leads to"),
        (OTHERS + FILE.replace('"box:mail"', "[]"), "7: relay 1 (box orders): routes: names no box"),
        (OTHERS + FILE.replace('"mail.*"', '""'), "7: relay 1 (box orders): routes: match: must not be empty"),
        (OTHERS + FILE.replace('"mail.*"', "5"), "7: relay 1 (box orders): routes[1].match: a list of routes"),
        (OTHERS + FILE.replace("{match = \"mail", "{matches = \"mail"), "7: relay 1 (box orders): routes[1]: matches:"),
        (OTHERS + FILE.replace('box = "search"', 'box = "billing"'), "17: relay 3 (box billing): box: 'billing' on"),
        (OTHERS + FILE.replace('default =', 'to = "null:"\ndefault ='), "5: relay 1 (box orders): routes: give either"),
        ('[[relay]]\nto = "null:"\ndefault = "box:a"', "3: relay 1 (box default): default: is for routes, which are"),
        ('[[relay]]\nbox = "a"\n', "1: relay 1 (box a): to: missing; give the target, or routes"),
        ('[[relay]]\nroutes = []\n', "2: relay 1 (box default): routes: has no route"),
        ("other_boxes = 'a'\n[[relay]]\nto = 'null:'", '1: other_boxes: a list of names of boxes'),
    ],
)  # fmt: skip
def test_a_file_is_checked_as_a_whole_and_errors_name_the_line(redbox: Redbox, text: str, said: str):
    with pytest.raises(ConfigError) as caught:
        open_file(text)
    assert str(caught.value).startswith(f"redbox.toml:{said}")
    problem = redbox.error("config", "check", "redbox.toml", code=2)
    assert problem.startswith(f"redbox.toml:{said.partition(' on')[0]}")
    redbox.error("relay", "--config", "redbox.toml", code=2)


@pytest.mark.req("RT-2")
def test_config_check_shows_the_graph_and_connects_to_nothing(redbox: Redbox):
    write('url = "redis://127.0.0.1:1/0"\n' + OTHERS + FILE)
    shown = redbox("config", "check", "redbox.toml", url=None)
    assert shown.stdout == (
        "orders  (redis://127.0.0.1:1/0)\n"
        "  order.* → box:billing\n"
        "  order.* → box:search\n"
        "  mail.* → box:mail\n"
        "  everything else → box:rest\n"
        "billing  (redis://127.0.0.1:1/0)\n"
        "  → null:\n"
        "  dead letters → box:graveyard\n"
        "search  (redis://127.0.0.1:1/0)\n"
        "  → box+redis://other:6379/0/search\n"
        "mail  (redis://127.0.0.1:1/0)\n"
        "  → null:\n"
    )
    assert "redbox.toml is valid: 4 relays" in shown.stderr
    found = redbox.json("config", "check", "redbox.toml", url=None)
    assert [each["box"] for each in found["relays"]] == ["orders", "billing", "search", "mail"]
    assert found["relays"][0]["targets"][2] == {
        "kind": "route", "target": "box:mail", "box": "mail", "match": "mail.*",
    }  # fmt: skip


@pytest.mark.req("RT-2")
def test_all_boxes_of_a_file_in_one_process(redbox: Redbox):
    redbox.put(
        Event("order.new", event_id="o"), Event("mail.new", event_id="m"), Event("x", event_id="x"), box="orders"
    )
    write(OTHERS + FILE.replace("box+redis://other:6379/0/search", "null:"))
    result = redbox.json("relay", "--config", "redbox.toml", "--once")
    assert {each["box"]: each["published"] for each in result["relays"]}["orders"] == 3
    for box in ("billing", "search", "mail", "rest"):
        listed = redbox.lines("--box", box, "list")
        assert [each["event_id"] for each in listed] == [{"mail": "m", "rest": "x"}.get(box, "o")]
        assert listed[0]["metadata"]["redbox-source-box"] == "orders"


@pytest.mark.req("RT-1")
def test_a_box_as_a_target_from_the_shell(redbox: Redbox):
    redbox.put(Event("order.new", event_id="o"), box="orders")
    redbox("--box", "orders", "relay", "--to", "box:billing", "--once")
    assert [each["event_id"] for each in redbox.lines("--box", "billing", "list")] == ["o"]
    problem = redbox.error("--box", "orders", "relay", "--to", "box:orders", "--once", code=2)
    assert "box orders cannot be the target of its own relay" in problem
    redbox.error("relay", "--to", "box:a b", code=2)


def test_a_route_may_be_a_table_of_its_own(redbox: Redbox):
    (relay, _) = open_file(
        '[[relay]]\nbox = "a"\n[[relay.routes]]\nmatch = "*"\nto = "box:b"\n[[relay]]\nbox = "b"\nto = "null:"'
    )
    assert relay.target == "box:b"


def test_the_boxes_of_one_store_share_its_connections(redbox: Redbox, redis_url: str):
    """One connection for all of them; a relay that waits for events has one more."""
    with redis.Redis.from_url(redis_url) as client:
        names = ("share-a", "share-b", "share-c")
        text = f'url = "{redis_url}"\n[[relay]]\nbox = "{names[0]}"\nroutes = [{{match = "*", to = '
        text += f'["box:{names[1]}", "box:{names[2]}"]}}]\n'
        text += "".join(f'[[relay]]\nbox = "{name}"\nto = "null:"\n' for name in names[1:])
        write(text)
        before = {each["id"] for each in client.client_list()}
        process = subprocess.Popen(
            [sys.executable, "-m", "redbox", "relay", "--config", "redbox.toml"], stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.count("policy") and "share-c" in line:
                    break
            mine = [each for each in client.client_list() if each["id"] not in before]
            assert len(mine) <= 1 + len(names)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


@pytest.mark.req("RT-2")
@pytest.mark.timeout(90)
def test_the_service_with_all_relays_of_a_file(redbox: Redbox, redis_url: str):
    write(
        f'url = "{redis_url}"\n[[relay]]\nbox = "up-orders"\nroutes = [{{match = "*", to = "box:up-billing"}}]\n'
        '[[relay]]\nbox = "up-billing"\nto = "stdout:"\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "redbox", "--box", "up-orders", "up", "--config", "redbox.toml", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        url = ""
        while not url:
            found = re.search(r"redbox is up: (http://\S+)", process.stderr.readline())
            url = found[1] if found else ""
        request = urllib.request.Request(f"{url}/v1/events", b'{"event_type": "order.new", "payload": {"id": 42}}')
        with urllib.request.urlopen(request, timeout=20) as answer:
            event_id = json.load(answer)["event_id"]
        assert json.loads(process.stdout.readline())["event_id"] == event_id
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=30)
    assert process.returncode == 0, rest


def test_up_takes_a_file_or_a_target(redbox: Redbox):
    write('[[relay]]\nto = "null:"\n')
    assert "--to cannot be combined with --config" in redbox.error(
        "up", "--config", "redbox.toml", "--to", "null:", code=2
    )
    assert "Missing option '--to'" in redbox("up", code=2).stderr
