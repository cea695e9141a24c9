"""redbox.toml, placeholders and retry policies: their values, and their errors."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from redbox import Event
from redbox.cli.options.placeholders import expand, expand_options, expand_url
from redbox.cli.relay.config import ConfigError, load, open_relays
from redbox.cli.relay.retry_option import parse_attempts, parse_limit, parse_retry
from redbox.cli.relay.settings import FIELDS
from redbox.errors import UsageError
from redbox.publishers import registry
from redbox.relay import Relay
from redbox.relay.policy import Policy, PolicySettings
from tests.cli.conftest import Redbox

HOOK = "whsec_" + "c2VjcmV0" * 4


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, redbox: Redbox) -> None:
    monkeypatch.setenv("PW", "p@ss/w:rd")
    monkeypatch.setenv("HOOK", HOOK)
    monkeypatch.setenv("BOX", "orders")
    monkeypatch.delenv("NOT_SET", raising=False)


def write(text: str) -> Path:
    path = Path("redbox.toml")
    path.write_text(text)
    return path


def relays(text: str) -> list[Relay]:
    path = write(text)
    return open_relays(path, load(path), lambda: "memory:elsewhere")


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        relays(text)
    found = re.fullmatch(r"redbox\.toml(:\d+)?: (.*)", str(caught.value), re.DOTALL)
    assert found
    return found[2]


# --- the store -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('url = "redis://127.0.0.1:1/0"\n[[relay]]\nto = "null:"', "url in redbox.toml"),
        (
            'url = "memory:"\n[[relay]]\nbox="a"\nto="null:"\n[[relay]]\nbox="b"\nurl="redis://127.0.0.1:1/0"\nto="null:"',
            "url of relay 2 (box b) in redbox.toml",
        ),
        ('[[relay]]\nto = "null:"', "--url or $REDBOX_URL"),
    ],
)
@pytest.mark.parametrize("once", [(), ("--once",)])
def test_a_store_that_cannot_be_reached_is_named_as_it_was_given(
    redbox: Redbox, text: str, where: str, once: tuple[str, ...]
):
    write(text)
    result = redbox("relay", "--config", "redbox.toml", *once, url="redis://127.0.0.1:1/0", code=3)
    assert result.stderr.rstrip().endswith(f"; check {where}, and that the server is running")


def test_an_invalid_url_of_the_store_is_named_as_it_was_given(redbox: Redbox):
    write('url = "redis://host:port/0"\n[[relay]]\nto = "null:"')
    problem = redbox.error("relay", "--config", "redbox.toml", url=None, code=2)
    assert problem.startswith(
        "redbox.toml:2: relay 1 (box default): url: this is not a valid store URL: the port must be"
    )
    write('[[relay]]\nto = "null:"')
    problem = redbox.error("relay", "--config", "redbox.toml", url="redis://host:port/0", code=2)
    assert problem.startswith(
        "redbox.toml:1: relay 1 (box default): --url or $REDBOX_URL: this is not a valid store URL"
    )


def test_a_file_without_a_store(redbox: Redbox):
    write('[[relay]]\nto = "null:"')
    problem = redbox.error("relay", "--config", "redbox.toml", url=None, code=2)
    assert problem.startswith("no store: write url = ")
    assert "into redbox.toml, or give --url before the command" in problem


# --- the file --------------------------------------------------------------------------------------------------


def test_a_file_with_everything():
    path = write(
        """
        url = "memory:here"
        log = "json"
        metrics_port = 9100
        metrics_host = "0.0.0.0"

        [[relay]]
        box = "${BOX}"
        to = "https://hooks.example.com/orders"
        name = "relay-of-${BOX}"
        retry = "fixed:10m"
        attempts = 3
        max_age = "7d"
        lease = 20
        time_limit = "unlimited"
        grace = 2.5
        max_rate = "1000/m"
        max_in_flight = 5
        concurrency = 10
        batch = 50
        on_success = "delete"
        on_dead = "drop"
        dead_to = "null:"
        breaker = false
        [relay.options]
        secret = "${HOOK}"
        timeout = 5

        [[relay]]
        box = "users"
        url = "memory:there"
        to = "null:"
        attempts = "unlimited"
        """
    )
    config = load(path)
    assert (config.log, config.metrics_port, config.metrics_host) == ("json", 9100, "0.0.0.0")
    orders, users = open_relays(path, config, lambda: pytest.fail("the file says it"))
    assert (orders.box.name, orders.box.where, orders.name) == ("orders", "memory:here", "relay-of-orders")
    assert (orders.target, orders.breaker) == ("https://hooks.example.com/orders", None)
    policy = orders._policy
    assert (policy.attempts, policy.max_age, policy.lease, policy.time_limit) == (3, 7 * 86400, 20, None)
    assert (policy.grace, policy.concurrency, policy.batch, policy.delete, policy.drop) == (2.5, 10, 50, True, True)
    assert policy.backoff(Event("a"), 1, ValueError()) == 600
    assert (users.box.name, users.box.where, users._policy.attempts) == ("users", "memory:there", None)
    assert users.breaker is not None
    assert config.relay[0].policy_text(orders) == (
        "retry fixed:10m, attempts 3, max-age 7 d, on-success delete, on-dead drop, concurrency 10, batch 50, "
        "lease 20 s, time-limit unlimited, grace 2.5 s, max-rate 1000/min, max-in-flight 5, dead-to null:, breaker off"
    )
    assert config.relay[1].policy_text(users) == (
        "retry exp:1s..5m, attempts unlimited, max-age unlimited, on-success keep, on-dead keep, concurrency 100, "
        "batch 100, lease 30 s, time-limit 30 s, grace 10 s, dead-to none, breaker on"
    )
    assert HOOK not in repr(config)


def test_without_a_url_in_the_file_the_default_counts():
    (relay,) = relays('[[relay]]\nto = "null:"')
    assert (relay.box.name, relay.box.where) == ("default", "memory:elsewhere")


ONE = '[[relay]]\nbox = "orders"\nto = "null:"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("relay = 1 =", "not valid TOML: Expected newline"),
        ("", "relay: missing; begin each relay with [[relay]]"),
        ("relay = []", "it has no relay; begin one with [[relay]]"),
        ("[relay]\nto = 'null:'", "relay: begin each relay with [[relay]]"),
        ("colour = 1\n" + ONE, "colour: no such field; the fields are relay, url, log, metrics_port, metrics_host"),
        ("log = 'xml'\n" + ONE, 'log: "text" or "json"'),
        ("metrics_port = 70000\n" + ONE, "metrics_port: must be between 0 and 65535"),
        ("metrics_port = 'x'\n" + ONE, "metrics_port: a whole number, without quotes"),
        ("url = 'nothing'\n" + ONE, "relay 1 (box orders): url: this is not a store URL"),
        ("url = 'redis://:pw@h'\n" + ONE, "relay 1 (box orders): url: a password must not be written here"),
        ("url = '${NOT_SET}'\n" + ONE, "relay 1 (box orders): url: the environment variable NOT_SET is not set"),
        ("[[relay]]\nbox = 'orders'", "relay 1 (box orders): to: missing; give the target"),
        (ONE + "colour = 1", "relay 1 (box orders): colour: no such field; the fields are to, box, url, options"),
        (ONE + "retry = 'often'", "relay 1 (box orders): retry: 'often' is not a retry policy; write fixed:10m"),
        (ONE + "retry = '${NOT_SET}'", "relay 1 (box orders): retry: the environment variable NOT_SET is not set"),
        (ONE + "attempts = 0", "relay 1 (box orders): attempts: give a whole number of at least 1, or unlimited"),
        (ONE + "attempts = []", 'relay 1 (box orders): attempts: a whole number of at least 1, or "unlimited"'),
        (
            ONE + "retry = 'fixed:0'\nattempts = 'unlimited'",
            "relay 1 (box orders): retries without a delay need a limit",
        ),
        (ONE + "lease = 'long'", "relay 1 (box orders): lease: 'long' is not a duration; give a number of seconds"),
        (ONE + "lease = -1", "relay 1 (box orders): lease: '-1.0' is not a duration"),
        (ONE + "lease = 0", "relay 1 (box orders): lease must be at least a millisecond"),
        (ONE + "on_success = 'drop'", 'relay 1 (box orders): on_success: "keep" or "delete"'),
        (ONE + "concurrency = 'x'", "relay 1 (box orders): concurrency: a whole number, without quotes"),
        (ONE + "retry = 5", "relay 1 (box orders): retry: text in quotes"),
        (ONE + "breaker = 'no'", "relay 1 (box orders): breaker: true or false"),
        (ONE + "max_rate = 50", 'relay 1 (box orders): max_rate: a rate in quotes: "50/s"'),
        (ONE + "max_rate = '50'", "relay 1 (box orders): max_rate: must be a number of events and a unit of time"),
        (ONE + "max_in_flight = 0", "relay 1 (box orders): max_in_flight: must be between 1 and 1,000,000,000, not 0"),
        (ONE + "max_in_flight = '5'", "relay 1 (box orders): max_in_flight: a whole number, without quotes"),
        (ONE + "concurrency = 0", "relay 1 (box orders): concurrency must be a whole number of at least 1"),
        (ONE + "options = { a = [] }", "relay 1 (box orders): options: a table of text and numbers"),
        (ONE + "options = { a = 1 }", "relay 1 (box orders): options: null: has no option 'a'; it has none"),
        (ONE + "dead_options = { a = 1 }", "relay 1 (box orders): dead_options: dead_to is not given"),
        (ONE + "alerts_options = { a = 1 }", "relay 1 (box orders): alerts_options: alerts_to is not given"),
        (ONE + "alert_age = '5m'", "relay 1 (box orders): alert_age: alerts_to is not given"),
        (ONE + "alerts_to = 'null:'\nalert_age = 'soon'", "relay 1 (box orders): alert_age: 'soon' is not a duration"),
        (ONE + "alerts_to = 'nope:'", "relay 1 (box orders): alerts_to: a target is a URL that begins with one of"),
        (ONE + "dead_to = 'nope:'", "relay 1 (box orders): dead_to: a target is a URL that begins with one of"),
        (ONE + ONE, "relay 2 (box orders): box: 'orders' on memory:elsewhere has a relay already"),
        (
            f"{ONE}name='a'\n{ONE}name='a'\nurl='memory:b'",
            "relay 2 (box orders): name: two relays of this box have the name 'a'; give each its own",
        ),
        ("[[relay]]\nto='https://u:pw@h/'", "relay 1 (box default): to: a password must not be written here"),
        ("[[relay]]\nto='https://h/?token=x'", "relay 1 (box default): to: a secret must not be written into a URL"),
        (
            "[[relay]]\nto='https://h/'\noptions={secret='abc'}",
            "relay 1 (box default): options: secret: a secret must not be written here; write ${NAME}",
        ),
        (
            "[[relay]]\nto='https://h/'\noptions={authorization='Bearer ${NOT_SET}'}",
            "relay 1 (box default): options: authorization: the environment variable NOT_SET is not set",
        ),
        (
            "[[relay]]\nto='https://h/'\noptions={secret='file:nowhere'}",
            "relay 1 (box default): options: secret: nowhere: No such file or directory",
        ),
    ],
)
def test_an_error_names_the_file_the_table_and_the_field(text: str, said: str):
    assert problem(text).startswith(said)


# --- placeholders ----------------------------------------------------------------------------------------------


def test_placeholders_come_from_the_environment():
    assert expand("a ${BOX} b ${PW}") == "a orders b p@ss/w:rd"
    assert expand("$BOX {BOX} $") == "$BOX {BOX} $"
    for wrong in ("${", "${}", "${BOX", "${BOX:-x}", "${1}"):
        with pytest.raises(ValueError, match="a placeholder is written"):
            expand(wrong)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("redis://:${PW}@host/0", "redis://:p%40ss%2Fw%3Ard@host/0"),
        ("redis://user:${PW}@host/0", "redis://user:p%40ss%2Fw%3Ard@host/0"),
        ("redis://user@${BOX}:6379/0", "redis://user@orders:6379/0"),
        ("https://host:8080/${BOX}?a=b@c", "https://host:8080/orders?a=b@c"),
        ("https://host/?token=${BOX}", "https://host/?token=orders"),
        ("${BOX}", "orders"),
        ("python:a:b", "python:a:b"),
    ],
)
def test_in_a_url_a_password_is_quoted(written: str, meant: str):
    assert expand_url(written) == meant


@pytest.mark.parametrize("url", ["redis://:pw@host", "https://a:b@host/${BOX}", "redis+sentinel://h/?password=x"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str):
    with pytest.raises(ValueError, match="must not be written") as caught:
        expand_url(url)
    assert "pw" not in str(caught.value)


def test_secrets_come_from_the_environment_or_a_file():
    Path("token").write_text("abc\n")
    options = {"secret": "${PW}", "authorization": "file:token", "source": "file:token", "n": 5}
    assert expand_options(options, {"secret", "authorization"}, Path()) == {
        "secret": "p@ss/w:rd", "authorization": "abc", "source": "file:token", "n": 5,
    }  # fmt: skip
    for literal in ("abc", 5):
        with pytest.raises(ValueError, match="secret: a secret must not be written here"):
            expand_options({"secret": literal}, {"secret"}, Path())
    Path("binary").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="secret: binary is not text in UTF-8"):
        expand_options({"secret": "file:binary"}, {"secret"}, Path())


def test_a_file_is_looked_for_beside_the_configuration():
    Path("etc").mkdir()
    Path("etc/hook").write_text(HOOK)
    path = Path("etc/redbox.toml")
    path.write_text("[[relay]]\nto='https://h/'\noptions={secret='file:hook'}")
    assert open_relays(path, load(path), lambda: "memory:")[0].target == "https://h/"


def test_policy_and_settings_agree():
    assert list(PolicySettings.__annotations__) == list(Policy.__struct_fields__)
    assert {field.policy for field in FIELDS.values() if field.policy} <= set(Policy.__struct_fields__)


# --- policies --------------------------------------------------------------------------------------------------


def test_retry_policies():
    event, error = Event("a"), ValueError()
    assert [parse_retry("fixed:10m")(event, n, error) for n in (1, 9)] == [600, 600]
    assert parse_retry("fixed:0")(event, 1, error) == 0
    exact = parse_retry("exp:1s..5m,nojitter")
    assert [exact(event, n, error) for n in (1, 2, 3, 20)] == [1, 2, 4, 300]
    assert all(0 <= parse_retry("exp:1s..5m")(event, 3, error) <= 4 for _ in range(50))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a retry policy; write fixed:10m"),
        ("10m", "is not a retry policy"),
        ("exp:1s", "is not a retry policy"),
        ("exp:1s..5m,jitter", "is not a retry policy"),
        ("fixed:", "'fixed:': '' is not a duration; give a number of seconds"),
        ("fixed:often", "'often' is not a duration"),
        ("exp:..5m", "'' is not a duration"),
        ("exp:5m..1s", "the first delay must be above 0, and not above the longest"),
        ("exp:0..1s", "the first delay must be above 0"),
        ("fixed:2000w", "delay must be between 0 and"),
    ],
)
def test_a_policy_that_cannot_be_right(text: str, said: str):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is looked at below
        parse_retry(text)
    assert said in str(caught.value)


def test_limits():
    assert [parse_attempts(text) for text in ("3", 7, "unlimited")] == [3, 7, None]
    assert [parse_limit(text) for text in ("2m", 1.5, "unlimited")] == [
        timedelta(minutes=2),
        timedelta(seconds=1.5),
        None,
    ]
    for wrong in ("0", 0, -1, "-1", "many", "٣"):
        with pytest.raises(ValueError, match="give a whole number of at least 1, or unlimited"):
            parse_attempts(wrong)


@pytest.mark.parametrize(
    ("argument", "message", "setting"),
    [
        ("timeout", "this is too short", "options"),
        ("url", "this is not a host", "to"),
        (None, "timeout must be positive", "to"),
        (None, "the target has no option for this", "to"),
    ],
)
def test_the_setting_of_an_error_does_not_depend_on_its_words(
    monkeypatch: pytest.MonkeyPatch, argument: str | None, message: str, setting: str
):
    def refusing(*_: object, **options: object) -> None:
        error = UsageError(message)
        error.argument = argument
        raise error

    monkeypatch.setattr(registry, "open_expanded", refusing)
    with pytest.raises(ConfigError, match=rf"relay 1 \(box orders\): {setting}: {message}"):
        relays('[[relay]]\nbox = "orders"\nto = "https://a"\noptions = { timeout = 1 }\n')
