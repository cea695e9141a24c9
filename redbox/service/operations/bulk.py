"""Operations on many events, as jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from litestar import Response
from litestar.datastructures import State as AppState
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody
from litestar.response import Stream

from redbox.box import Box
from redbox.box.bulk.export_file import readable_lines
from redbox.box.desk.delivery import delivery_obstacle
from redbox.box.desk.error_groups import require_group
from redbox.box.inspect import Budget
from redbox.box.reports import Applied, Canary, Dropped, Replayed
from redbox.errors import UsageError
from redbox.events import State
from redbox.service.boxes import Boxes
from redbox.service.exports import ExportFile
from redbox.service.jobs import Job, JobFailed, Jobs
from redbox.service.operations.documents import (
    ACTIONS,
    Action,
    CanaryDocument,
    JobDocument,
    JobList,
    JobResult,
    Preview,
    RefusedEvent,
)
from redbox.service.operations.filters import JobRequest, duration, moment_of
from redbox.service.operations.routes import BoxName, JobId, delete, get, post, problems
from redbox.service.options import ServiceOptions

SHOWN: Final = 100  # refused events of a result
NDJSON: Final = "application/x-ndjson"
Work = Callable[[Job], Awaitable[JobResult]]


@post("/v1/boxes/{box:str}/jobs", status_code=202, summary="Start a job")
async def start_job(
    state: AppState,
    boxes: NamedDependency[Boxes],
    jobs: NamedDependency[Jobs],
    options: NamedDependency[ServiceOptions],
    operator: NamedDependency[str],
    box: BoxName,
    data: JSONBody[JobRequest],
) -> Response[JobDocument | Preview]:
    """Replays, drops, kills, reschedules or exports many events. Answers 202 with the job, or, with `dry_run`, 200 with
    the number of events, of at most 100,000 that are read, or 10,000 for a filter by phase or text. Only events that
    match at the start are changed. An unknown error group is refused with 404, or its job fails if only the whole
    search shows that it is unknown."""
    where = await boxes.get(box)
    if data.dry_run:
        with jobs.dry_run():
            preview = await (await _operation(where, data, operator)).preview(options)
        return Response(preview, status_code=200)
    jobs.ensure_room()
    operation = await _operation(where, data, operator)
    await operation.check(options)
    work = operation.work(jobs, options, then=lambda: state.censuses.recount(where))
    job = jobs.start(where, data.action, operator, data.why, work)
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
    boxes: NamedDependency[Boxes],
    jobs: NamedDependency[Jobs],
    operator: NamedDependency[str],
    box: BoxName,
    job_id: JobId,
) -> JobDocument:
    """The job stops after the step in flight; what it did stays. A job that has ended is left as it is. One that
    another process of the service runs is refused."""
    return await jobs.cancel(await boxes.get(box), job_id, operator)


@get(
    "/v1/boxes/{box:str}/jobs/{job_id:str}/export",
    summary="The file of an export",
    media_type=NDJSON,
    responses={
        HTTPStatus.OK: ResponseSpec(str, description="Lines of JSON.", media_type=NDJSON, generate_examples=False),
        **problems(HTTPStatus.CONFLICT),
    },
)
async def get_export(boxes: NamedDependency[Boxes], jobs: NamedDependency[Jobs], box: BoxName, job_id: JobId) -> Stream:
    """The exported events, one line of JSON each, which `redbox put --many` puts back."""
    file = await jobs.export(await boxes.get(box), job_id)
    headers = {
        "content-length": str(file.size),
        "content-disposition": f'attachment; filename="{box}-{job_id}.ndjson"',
    }
    return Stream(file.chunks(), headers=headers, media_type=NDJSON)


HANDLERS: Final = [start_job, list_jobs, get_job, cancel_job, get_export]


# --- what a job does -------------------------------------------------------------------------------------------


async def _operation(box: Box, request: JobRequest, who: str) -> _Operation:
    """Checks the request. Raises UsageError."""
    defaults = JobRequest(action=request.action)
    for name in dict.fromkeys(each for action in ACTIONS.values() for each in action.takes):
        if name not in ACTIONS[request.action].takes and getattr(request, name) != getattr(defaults, name):
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
    live = ACTIONS[action].live
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

    async def check(self, options: ServiceOptions) -> None:
        """Raises UsageError for what the box would refuse, before the job is started, and UnknownGroup. Searches for no
        event but one of an error group, among those that the options permit one page to read."""
        if self._action != "export":
            await self._call(dry_run=True, limit=1, budget=Budget(0))
        await self._require_group(Budget(options.look))

    async def preview(self, options: ServiceOptions) -> Preview:
        """Counts the events among those that the options permit to be read."""
        budget = self._budget(options)
        if self._action == "export":
            count = await self._count(budget)
            result = JobResult(matched=count, done=count)
        else:
            result = _result(await self._call(dry_run=True, budget=budget))
        if not result.matched:
            await self._require_group(Budget(options.look))
        return Preview(
            count=result.matched - result.refused_count,
            matched=result.matched,
            looked=result.matched if "ids" in self._chosen else budget.looked,
            complete=not budget.spent,
            refused_count=result.refused_count,
            conflicts=result.conflicts,
            refused=result.refused,
            obstacle=delivery_obstacle(await self._box.stats()) if self._action == "replay" else "",
        )

    def work(self, jobs: Jobs, options: ServiceOptions, *, then: Callable[[], None]) -> Work:
        """The function that a job runs. `then` is called at its end, whatever that is."""

        async def run(job: Job) -> JobResult:
            budget = self._budget(options)
            total = await self._count(budget)
            job.counted(None if budget.spent else total)
            if not total:
                await self._require_group()
            if self._action == "export":
                return await self._export(job, jobs, options.export_bytes)
            watching = {"watching": job.watching} if self._action == "replay" else {}
            try:
                report = await self._call(why=job.why, progress=job.progress, **watching)
            finally:
                then()
            job.document.result = result = _result(report)
            canary = report.canary if isinstance(report, Replayed) else None
            if canary is not None and not canary.passed:
                raise JobFailed(_canary_failure(canary, delivery_obstacle(await self._box.stats())))
            return result

        return run

    async def _require_group(self, budget: Budget | None = None) -> None:
        if "group" in self._chosen:
            await require_group(self._box, self._chosen["group"], self._chosen["state"], budget)

    def _budget(self, options: ServiceOptions) -> Budget:
        """Payloads are read for a filter by phase or text, so fewer events."""
        return Budget(options.look if self._chosen.keys() & {"phase", "text"} else options.preview)

    async def _count(self, budget: Budget) -> int:
        ids = self._chosen.get("ids")
        return len(ids) if ids is not None else await self._box.count(budget=budget, **self._chosen)

    async def _call(self, *, why: str | None = None, **more: Any) -> Replayed | Dropped | Applied:
        by: dict[str, Any] = {"who": self._who, "why": self._why if why is None else why}
        if self._action == "replay":
            return await self._box.replay(**self._chosen, **self._options, **by, **more)
        if self._action == "drop":
            return await self._box.drop(**self._chosen, **by, **more)
        assert self._action in ("kill", "reschedule")
        return await self._box.operate.apply(self._action, **self._chosen, **self._options, **by, **more)

    async def _export(self, job: Job, jobs: Jobs, most_bytes: int) -> JobResult:
        file, result = ExportFile(most_bytes), JobResult(matched=0, done=0)

        def skip(event_id: str, problem: str) -> None:
            result.refused_count += 1
            if len(result.refused) < SHOWN:
                result.refused.append(RefusedEvent(event_id=event_id, reason=problem))

        try:
            async for line in readable_lines(self._box.export(**self._chosen), skip):
                file.write(line)
                result.done += 1
                job.progress(result.done + result.refused_count)
            file.end()
        except BaseException:
            file.close()
            raise
        result.matched = result.done + result.refused_count
        jobs.add_export(job, file)
        return result


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


def _canary_failure(canary: Canary, obstacle: str) -> str:
    if canary.died:
        return f"{canary.in_words}. The error: {next(iter(canary.died.values()))}"
    if canary.gone:
        return canary.in_words
    reason = f"{obstacle[0].upper()}{obstacle[1:]}." if obstacle else "The target may be slow, or retries wait."
    return f"{canary.in_words}. {reason}"
