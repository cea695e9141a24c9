"""Operations on many events, as jobs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from litestar import Response
from litestar.di import NamedDependency
from litestar.params import JSONBody
from litestar.response import File

from redbox.arguments import counted
from redbox.box import Box
from redbox.box.reports import Applied, Dropped, Replayed
from redbox.errors import UsageError
from redbox.events import State
from redbox.service.boxes import Boxes
from redbox.service.jobs import Job, JobFailed, Jobs
from redbox.service.operations.documents import (
    Action,
    CanaryDocument,
    JobDocument,
    JobList,
    JobResult,
    Preview,
    RefusedEvent,
)
from redbox.service.operations.filters import JobRequest, duration, moment_of
from redbox.service.operations.routes import BoxName, JobId, delete, get, post
from redbox.service.options import ServiceOptions
from redbox.service.problems import NotFound

SHOWN: Final = 100  # refused events of a result
_REPLAY: Final = ("rate", "ramp", "canary", "canary_wait", "delay", "reset", "force")
#: Action → the fields of the request that it takes, beside those of every job.
_TAKES: Final[dict[Action, tuple[str, ...]]] = {
    "replay": _REPLAY, "drop": (), "kill": (), "reschedule": ("delay", "available_at"), "export": (),
}  # fmt: skip
Work = Callable[[Job], Awaitable[JobResult]]


@post("/v1/boxes/{box:str}/jobs", status_code=202, summary="Start a job")
async def start_job(
    boxes: NamedDependency[Boxes],
    jobs: NamedDependency[Jobs],
    options: NamedDependency[ServiceOptions],
    operator: NamedDependency[str],
    box: BoxName,
    data: JSONBody[JobRequest],
) -> Response[JobDocument | Preview]:
    """Replays, drops, kills, reschedules or exports many events. Answers 202 with the job, or, with `dry_run`, 200 with
    the number of events. Only events that match at the start are changed."""
    where = await boxes.get(box)
    operation = await _operation(where, data, operator)
    if data.dry_run:
        return Response(await operation.preview(options.preview), status_code=200)
    await operation.check()
    job = jobs.start(where, data.action, operator, data.why, operation.work(options))
    return Response(job, status_code=202)


@get("/v1/boxes/{box:str}/jobs", summary="The jobs of a box")
async def list_jobs(boxes: NamedDependency[Boxes], jobs: NamedDependency[Jobs], box: BoxName) -> JobList:
    """Running and ended jobs, the newest first."""
    return JobList(jobs=await jobs.list(await boxes.get(box)))


@get("/v1/boxes/{box:str}/jobs/{job_id:str}", summary="One job")
async def get_job(
    boxes: NamedDependency[Boxes], jobs: NamedDependency[Jobs], box: BoxName, job_id: JobId
) -> JobDocument:
    """Its state, how many events are done, and its result."""
    return await jobs.get(await boxes.get(box), job_id)


@delete("/v1/boxes/{box:str}/jobs/{job_id:str}", status_code=200, summary="Cancel a job")
async def cancel_job(
    boxes: NamedDependency[Boxes], jobs: NamedDependency[Jobs], box: BoxName, job_id: JobId
) -> JobDocument:
    """The job stops after the step in flight; what it did stays. A job that has ended is left as it is."""
    job = jobs.own(await boxes.get(box), job_id)
    job.cancel()
    return job.document


@get("/v1/boxes/{box:str}/jobs/{job_id:str}/export", summary="The file of an export", media_type="application/x-ndjson")
async def get_export(boxes: NamedDependency[Boxes], jobs: NamedDependency[Jobs], box: BoxName, job_id: JobId) -> File:
    """The exported events, one line of JSON each, which `redbox put --many` puts back."""
    job = jobs.own(await boxes.get(box), job_id)
    if job.file is None or job.document.state != "done":
        raise NotFound(f"job {job_id} has no file: it is not an export, or not done")
    return File(job.file, filename=f"{box}-{job_id}.ndjson", media_type="application/x-ndjson")


HANDLERS: Final = [start_job, list_jobs, get_job, cancel_job, get_export]


# --- what a job does -------------------------------------------------------------------------------------------


async def _operation(box: Box, request: JobRequest, who: str) -> _Operation:
    """Checks the request. Raises UsageError."""
    defaults = JobRequest(action=request.action)
    for name in (*_REPLAY, "available_at"):
        if name not in _TAKES[request.action] and getattr(request, name) != getattr(defaults, name):
            raise UsageError(f"{name}: {request.action} does not take it")
    if (request.ids is None) == (request.filter is None):
        raise UsageError('ids: select events in one way, by ids or by a filter; all dead events: {"state": "DEAD"}')
    chosen: dict[str, Any]
    if request.filter is None:
        chosen = {"ids": list(dict.fromkeys(request.ids or []))}
    else:
        chosen = await request.filter.resolved(box)
        if not chosen:
            raise UsageError('filter: give at least one filter; all dead events: {"state": "DEAD"}')
    chosen = _with_state(request.action, chosen)
    options: dict[str, Any] = {}
    if request.action == "replay":
        options = {"rate": request.rate, "canary": request.canary, "reset": request.reset, "force": request.force}
        options |= {name: duration(name, getattr(request, name)) for name in ("ramp", "delay")}
        if request.canary_wait is not None:
            options["canary_wait"] = duration("canary_wait", request.canary_wait)
    elif request.action == "reschedule":
        options["delay"] = duration("delay", request.delay)
        options["available_at"] = await moment_of(box, "available_at", request.available_at)
    return _Operation(box, request, chosen, options, who)


def _with_state(action: Action, chosen: dict[str, Any]) -> dict[str, Any]:
    """The selection with the state that the action takes by default, so that counting finds the same events."""
    live = action in ("kill", "reschedule")
    if not live and "phase" in chosen:
        raise UsageError(f"phase: {action} takes events in the phases DEAD and COMPLETED")
    return chosen if "ids" in chosen else {"state": State.PENDING if live else State.DEAD, **chosen}


class _Operation:
    """One operation on many events, which calls the functions of the box."""

    def __init__(
        self, box: Box, request: JobRequest, chosen: dict[str, Any], options: dict[str, Any], who: str
    ) -> None:
        self._box = box
        self._action = request.action
        self._chosen = chosen
        self._options = options
        self._who = who
        self._why = request.why

    async def check(self) -> None:
        """Raises UsageError for what the box would refuse, before the job is started."""
        await (self._count(1) if self._action == "export" else self._call(dry_run=True, limit=1))

    async def preview(self, limit: int) -> Preview:
        """Counts the events, at most `limit`."""
        if self._action == "export":
            matched = await self._count(limit)
            return Preview(count=matched, matched=matched, complete=matched < limit)
        report = await self._call(dry_run=True, limit=limit)
        result = _result(report)
        return Preview(
            count=result.matched - result.refused_count,
            matched=result.matched,
            complete=result.matched < limit or "ids" in self._chosen,
            refused_count=result.refused_count,
            conflicts=result.conflicts,
            refused=result.refused,
        )

    def work(self, options: ServiceOptions) -> Work:
        """The function that a job runs."""

        async def run(job: Job) -> JobResult:
            total = await self._count(options.preview)
            job.counted(total if total < options.preview or "ids" in self._chosen else None)
            if self._action == "export":
                return await self._export(job, options.export_bytes)
            watching = {"watching": job.watching} if self._action == "replay" else {}
            report = await self._call(why=job.why, progress=job.progress, **watching)
            job.document.result = result = _result(report)
            if result.canary is not None and not result.canary.passed:
                raise JobFailed(_canary_in_words(result.canary))
            return result

        return run

    async def _count(self, limit: int) -> int:
        ids = self._chosen.get("ids")
        return len(ids) if ids is not None else await self._box.count(limit=limit, **self._chosen)

    async def _call(self, *, why: str | None = None, **more: Any) -> Replayed | Dropped | Applied:
        by: dict[str, Any] = {"who": self._who, "why": self._why if why is None else why}
        if self._action == "replay":
            return await self._box.replay(**self._chosen, **self._options, **by, **more)
        if self._action == "drop":
            return await self._box.drop(**self._chosen, **by, **more)
        if self._action == "export":
            return Dropped()
        return await self._box.operate.apply(self._action, **self._chosen, **self._options, **by, **more)

    async def _export(self, job: Job, most_bytes: int) -> JobResult:
        number, name = tempfile.mkstemp(prefix="redbox-export-", suffix=".ndjson")  # only its owner can read it
        job.file, size, count = Path(name), 0, 0
        with os.fdopen(number, "wb") as file:
            async for line in self._box.export(**self._chosen):
                size += len(line)
                if size > most_bytes:
                    raise JobFailed(f"the export is larger than {most_bytes:,} bytes; narrow the filter")
                file.write(line)
                count += 1
                job.progress(count)
        return JobResult(matched=count, done=count)


def _result(report: Replayed | Dropped | Applied) -> JobResult:
    refused = [RefusedEvent(event_id=event_id, reason=_reason(*about)) for event_id, *about in report.refused[:SHOWN]]
    done = (
        report.replayed
        if isinstance(report, Replayed)
        else report.dropped
        if isinstance(report, Dropped)
        else report.done
    )
    canary = report.canary if isinstance(report, Replayed) else None
    return JobResult(
        matched=report.matched,
        done=done,
        refused_count=report.refused_count,
        conflicts=report.conflicts if isinstance(report, Replayed) else 0,
        refused=refused,
        canary=None if canary is None else CanaryDocument(
            passed=canary.passed, published=canary.published, died=canary.died, gone=canary.gone,
            unsettled=canary.unsettled,
        ),
    )  # fmt: skip


def _reason(outcome: Any, detail: str = "") -> str:
    words = str(getattr(outcome, "reason", outcome))
    return f"{words}: {detail}" if detail else words


def _canary_in_words(canary: CanaryDocument) -> str:
    total = canary.published + len(canary.died) + len(canary.gone) + len(canary.unsettled)
    of = counted(total, "canary event")
    if canary.died:
        return f"{len(canary.died)} of {of} died again: {next(iter(canary.died.values()))}"
    if canary.gone:
        return f"{len(canary.gone)} of {of} cannot be found; they may have died and been dropped"
    return f"{len(canary.unsettled)} of {of} were not settled in time; is a relay running, or the box paused?"
