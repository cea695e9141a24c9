"""The status of every error, and whether the client is asked to repeat its request."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from redbox import errors
from redbox.service.http.problems import NotFound, TooManyJobs, problem_of, problem_with
from tests.service.serving import Service

pytestmark = pytest.mark.req("SF-1", "SF-4")


def _classes(base: type[errors.RedboxError]) -> Iterator[type[errors.RedboxError]]:
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from _classes(kind)


def _made(kind: type[errors.RedboxError]) -> errors.RedboxError:
    error = kind.__new__(kind)
    errors.RedboxError.__init__(error)
    return error


#: Errors of the store that pass by themselves, or with a repeat.
PASSING = {
    errors.StoreUnavailable, errors.StoreFull, errors.UnexpectedReply, errors.EmbeddedServerFailed,
    errors.DurabilityNotReached,
}  # fmt: skip


@pytest.mark.parametrize("kind", list(_classes(errors.StoreError)), ids=lambda kind: kind.__name__)
def test_only_errors_of_the_store_that_pass_ask_for_a_repeat(kind: type[errors.RedboxError]):
    problem = problem_of(_made(kind))
    assert problem.status == (422 if kind is errors.DurabilityUnsupported else 503)
    assert problem.retry_after == (1 if kind in PASSING else None)


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (errors.BoxFull(), 429, 1),
        (TooManyJobs(), 429, 1),
        (NotFound(), 404, None),
        (errors.UnknownBox(), 404, None),
        (errors.InvalidEvent("payload", "is wrong"), 422, None),
        (errors.IdReused("one", "payload"), 409, None),
    ],
)
def test_the_other_errors(error: errors.RedboxError, status: int, retry_after: int | None):
    problem = problem_of(error)
    assert (problem.status, problem.retry_after) == (status, retry_after)


@pytest.mark.parametrize(
    ("status", "retry_after"), [(408, 1), (429, 1), (503, 1), (400, None), (401, None), (413, None)]
)
def test_one_rule_says_which_statuses_ask_for_a_repeat(status: int, retry_after: int | None):
    problem = problem_with(HTTPStatus(status), "a reason")
    body = problem.encode()
    headers = dict(problem.headers(body))
    assert headers[b"content-type"] == b"application/problem+json"
    assert headers[b"content-length"] == str(len(body)).encode()
    assert headers.get(b"retry-after") == (None if retry_after is None else b"1")


async def test_a_box_of_a_newer_redbox_is_not_asked_for_again_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    async def fail(*_: Any, **__: Any) -> None:
        raise errors.NewerLayout

    monkeypatch.setattr(service.box, "put", fail)
    monkeypatch.setattr(service.box, "put_many", fail)
    for path, body in (("events", {"event_type": "a"}), ("events:batch", [{"event_type": "a"}])):
        answer = await service.client.post(f"/v1/boxes/{service.box.name}/{path}", json=body)
        assert (answer.status_code, answer.json()["error"]) == (503, "NewerLayout")
        assert "upgrade" in answer.json()["detail"]
        assert "retry-after" not in answer.headers


def test_problems_need_no_litestar():
    """The server of metrics and health alone answers with them too."""
    modules = "redbox.service.http.problems, redbox.service.http.connections"
    code = f"import sys, {modules}; sys.exit('litestar' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)


async def test_too_many_open_files_ask_for_a_repeat(service: Service, monkeypatch: pytest.MonkeyPatch):
    async def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(type(service.box), "put", fail)
    problem = await service.post("events", {"event_type": "a"}, 503)
    assert problem["retry_after"] == 1
