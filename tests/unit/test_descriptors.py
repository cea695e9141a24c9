"""How many connections the HTTP service accepts under a limit of open files."""

from __future__ import annotations

import resource

import pytest

from redbox.service.http.descriptors import RESERVE, permitted_connections

pytestmark = pytest.mark.req("SF-5")

ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "permitted", "soft_after"),
    [
        (64, 64, 16, 64),
        (256, 256, 64, 256),
        (1024, 1024, 768, 1024),
        (1024, 1100, 844, 1100),
        (1024, 4096, 1000, 1256),
        (64, ENDLESS, 1000, 1256),
        (2, 2, 1, 2),
        (4096, 4096, 1000, 4096),
        (ENDLESS, ENDLESS, 1000, ENDLESS),
    ],
)
def test_connections_leave_descriptors_to_others(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, permitted: int, soft_after: int
):
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    assert permitted_connections(1000) == permitted
    assert limits[-1] == (soft_after, hard)
    assert RESERVE == 256  # docs/forwarder.md


def test_a_limit_that_may_not_be_raised_stays(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (512, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert permitted_connections(1000) == 256
    assert "raise the limit" in caplog.text
