"""Runs jobs: long operations that can be watched and cancelled. They run in this process, and a few at a time.

A job changes events in steps, each an atomic script that also writes the operations log. So a job that is cancelled, or
whose process is killed, leaves the box consistent, and the log says how many events it changed. The log also says when
a job began and how it ended, so a job without an end can be found after a restart. While a job runs, its process keeps
a mark in the box, so that the other processes of the service know that it runs.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import Final, get_args

import msgspec

from redbox.arguments import counted
from redbox.box import Box
from redbox.box.desk.error_groups import UnknownGroup
from redbox.box.desk.marks import Marks
from redbox.box.reports import LogEntry
from redbox.errors import RedboxError, Refused
from redbox.service.exports import ExportFailed, ExportFile
from redbox.service.http.problems import NotFound, TooManyJobs
from redbox.service.operations.documents import ACTIONS, Action, JobDocument, JobResult

logger = logging.getLogger("redbox.service")

CANCEL_GRACE: Final = 1.0  # seconds for the step in flight, after which a wait is interrupted
LOGGED: Final = 500  # entries of the log in which jobs of earlier processes are sought
ACTION: Final = "job"
BEAT_SECONDS: Final = 10.0  # between two heartbeats of a job
BEAT_HOLDS: Final = 45.0  # after which a job without one counts as ended
_LOGGED: Final = re.compile(
    rf"job ([0-9a-f]{{8}}) \(({'|'.join(get_args(Action))})\) (began|done|failed|cancelled)(: .*)?",
    re.DOTALL,  # an error may have several lines
)
_WHY: Final = re.compile(r"job ([0-9a-f]{8})(: .*)?", re.DOTALL)
_PROCESS: Final = token_hex(8)


class JobElsewhere(Refused):
    """Another process of the service runs the job."""


class JobFailed(RedboxError):
    """The job did not do all of its work, and says why."""


class _Cancelled(RedboxError):
    """The job was asked to stop, and stops between two steps."""


class Job:
    """A job that this process runs or ran."""

    def __init__(self, box: Box, action: Action, who: str, why: str) -> None:
        self.box = box
        self._marks = Marks(box)
        self.file: ExportFile | None = None  # of an export
        self.document = JobDocument(
            id=token_hex(4), box=box.name, action=action, state="running", done=0, total=None,
            text="counting the events", who=who, why=why, started_at=datetime.now(UTC),
        )  # fmt: skip
        self._cancelled_by: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._interrupt: asyncio.TimerHandle | None = None

    @property
    def why(self) -> str:
        """The reason for the log. The job is named first: the store cuts a long reason at its end."""
        return f"job {self.document.id}: {self.document.why}" if self.document.why else f"job {self.document.id}"

    @property
    def running(self) -> bool:
        return self.document.ended_at is None

    def counted(self, total: int | None) -> None:
        """Sets how many events there are to do; None if there are too many to count."""
        self.document.total = total
        self.progress(0)

    def progress(self, done: int) -> None:
        """Records how many events are done. Raises an error if the job is to stop, which ends the operation."""
        self.document.state = "running"
        self.document.done = done
        self.document.text = f"{self._so_far()} done"
        if self._cancelled_by is not None:
            raise _Cancelled

    def watching(self, canaries: int) -> None:
        """Records that the job waits for its canary events."""
        self.document.state = "waiting_for_canary"
        verb = "is" if canaries == 1 else "are"
        self.document.text = f"waiting until {counted(canaries, 'canary event')} {verb} published"

    def start(self, work: Callable[[Job], Awaitable[JobResult]]) -> None:
        self._task = asyncio.create_task(self._run(work), name=f"redbox job {self.document.id}")

    def cancel(self, who: str | None = None) -> None:
        """Asks the job to stop: after the step in flight, or at once if it waits. `who` cancels it; None: the end of
        the service."""
        if not self.running or self._cancelled_by is not None or self._task is None:
            return
        self._cancelled_by = who or ""
        self.document.text = f"stopping; {self._so_far()} done"
        self._interrupt = asyncio.get_running_loop().call_later(CANCEL_GRACE, self._task.cancel)

    async def ended(self) -> None:
        """Waits for the end of the job."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def forget(self) -> None:
        """Removes what the job left in this process."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def _so_far(self) -> str:
        document = self.document
        of = "" if document.total is None else f" of {counted(document.total, 'event')}"
        return f"{document.done:,}{of}" if of else counted(document.done, "event")

    async def _run(self, work: Callable[[Job], Awaitable[JobResult]]) -> None:
        document = self.document
        beating: asyncio.Task[None] | None = None
        try:
            await self._beat()  # before the log says that there is such a job
            beating = asyncio.create_task(self._keep_beating(), name=f"redbox heartbeat of job {document.id}")
            await self._note("began", document.who)
            document.result = await work(self)
        except _Cancelled:
            self._end("cancelled", f"{self._stopped()} after {self._so_far()}")
        except asyncio.CancelledError:
            self._end(
                "cancelled",
                f"{self._stopped()} after at least {self._so_far()}; the operations log has the exact number",
            )
        except (JobFailed, ExportFailed, UnknownGroup) as error:
            self._end("failed", f"stopped after {self._so_far()}", str(error))
        except RedboxError as error:
            self._end(
                "failed",
                f"stopped after at least {self._so_far()}; the operations log has the exact number",
                str(error),
            )
        except Exception as error:
            logger.error("job %s failed", document.id, exc_info=error)
            self._end("failed", f"stopped after at least {self._so_far()}", "a defect; see the log of the service")
        else:
            document.done = document.result.matched
            self._end("done", _summary(document.action, document.result))
        if document.state != "done":
            self.forget()
        if beating is not None:
            beating.cancel()
        try:
            problem = f"; {document.problem}" if document.problem else ""
            await self._note(f"{document.state}: {document.text}{problem}", self._cancelled_by or document.who)
            await self._marks.remove(_mark(document.id), _PROCESS)
        except RedboxError as error:
            logger.warning("the end of job %s could not be recorded: %s", document.id, error)

    def _stopped(self) -> str:
        return f"stopped by {self._cancelled_by}" if self._cancelled_by else "stopped by the end of the service"

    async def _beat(self) -> None:
        await self._marks.set(_mark(self.document.id), _PROCESS, BEAT_HOLDS)

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            with suppress(RedboxError):  # the next one may succeed
                await self._beat()

    def _end(self, state: str, text: str, problem: str | None = None) -> None:
        if self._interrupt is not None:
            self._interrupt.cancel()
        document = self.document
        document.state = state  # type: ignore[assignment]
        document.text, document.problem, document.ended_at = text, problem, datetime.now(UTC)

    async def _note(self, words: str, who: str) -> None:
        document = self.document
        detail = f"job {document.id} ({document.action}) {words}"
        await self.box.operate.note(ACTION, who=who, why=document.why, detail=detail)


def _mark(job_id: str) -> str:
    return f"job-{job_id}"


def _summary(action: Action, result: JobResult) -> str:
    refused = f", {result.refused_count:,} refused" if result.refused_count else ""
    return f"{counted(result.done, 'event')} {ACTIONS[action].done}{refused}"


class Jobs:
    """The jobs of this process: those that run, and the last that ended."""

    def __init__(self, *, running: int, kept: int, kept_bytes: int) -> None:
        """`running`: jobs, and also dry runs, at once. `kept`: ended jobs, and `kept_bytes` of their exports."""
        self._most_running = running
        self._most_kept = kept
        self._kept_bytes = kept_bytes
        self._jobs: dict[str, Job] = {}
        self._dry_runs = 0

    @contextmanager
    def dry_run(self) -> Iterator[None]:
        """Counts a dry run while the block runs. Raises TooManyJobs."""
        if self._dry_runs >= self._most_running:
            raise TooManyJobs(f"{counted(self._dry_runs, 'dry run')} already running; wait until one has ended")
        self._dry_runs += 1
        try:
            yield
        finally:
            self._dry_runs -= 1

    def ensure_room(self) -> None:
        """Raises TooManyJobs if no further job may start."""
        running = sum(job.running for job in self._jobs.values())
        if running >= self._most_running:
            raise TooManyJobs(f"{counted(running, 'job')} already running; cancel one, or wait until one has ended")

    def start(
        self, box: Box, action: Action, who: str, why: str, work: Callable[[Job], Awaitable[JobResult]]
    ) -> JobDocument:
        """Starts a job. Raises TooManyJobs."""
        self.ensure_room()
        ended = [job for job in self._jobs.values() if not job.running]
        for job in ended[: max(0, len(ended) + 1 - self._most_kept)]:
            self._jobs.pop(job.document.id).forget()
        job = Job(box, action, who, why)
        self._jobs[job.document.id] = job
        job.start(work)
        return job.document

    def add_export(self, job: Job, file: ExportFile) -> None:
        """Keeps the file of a job that has written it; the oldest files go if they are too large together."""
        job.file = file
        with_file = [each for each in self._jobs.values() if each.file is not None]
        total = sum(each.file.size for each in with_file if each.file is not None)
        for each in with_file[:-1]:
            if total <= self._kept_bytes or each.file is None:
                break
            total -= each.file.size
            each.forget()

    async def list_own(self, box: Box) -> list[JobDocument]:
        """The jobs of this process, the newest first. Reads nothing from the store."""
        own = [job.document for job in self._jobs.values() if job.document.box == box.name]
        return sorted(own, key=lambda each: each.started_at, reverse=True)

    async def list(self, box: Box) -> list[JobDocument]:
        """The jobs of a box, the newest first: those of this process, then those that the log knows."""
        own = await self.list_own(box)
        ids = {each.id for each in own}
        earlier = [each for each in await _from_log(box) if each.id not in ids]
        return sorted(own + earlier, key=lambda each: each.started_at, reverse=True)

    async def get(self, box: Box, job_id: str) -> JobDocument:
        """One job. Raises NotFound."""
        job = self._jobs.get(job_id)
        if job is not None and job.document.box == box.name:
            return job.document
        for each in await _from_log(box):
            if each.id == job_id:
                return each
        raise NotFound(f"there is no job {job_id} of box {box.name!r}")

    def own(self, box: Box, job_id: str) -> Job | None:
        """A job of this process; None if it has no such job."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.document.box == box.name else None

    async def cancel(self, box: Box, job_id: str, who: str) -> JobDocument:
        """Cancels a job; one that has ended is left as it is. Raises NotFound, or JobElsewhere."""
        job = self.own(box, job_id)
        if job is not None:
            job.cancel(who)
            return job.document
        found = await self.get(box, job_id)
        if found.ended_at is None and found.state == "running":
            raise JobElsewhere(f"job {job_id} runs in another process of the service; only that one can cancel it")
        return found

    async def export(self, box: Box, job_id: str) -> ExportFile:
        """The file of an export. Raises NotFound, or JobElsewhere."""
        job = self.own(box, job_id)
        found = await self.get(box, job_id)
        if found.action != "export":
            raise NotFound(f"job {job_id} has no file: it is not an export")
        if job is None and found.state in ("running", "done"):
            raise JobElsewhere(f"the file of job {job_id} is in the process that ran it; ask that one, or export again")
        if found.state != "done":
            raise NotFound(f"job {job_id} has no file: it is {found.state}")
        if job is None or job.file is None:
            raise NotFound(f"the file of job {job_id} was removed, since newer exports took its place; export again")
        return job.file

    async def aclose(self) -> None:
        """Cancels all jobs and waits for their ends."""
        for job in self._jobs.values():
            job.cancel()
        for job in self._jobs.values():
            await job.ended()
            job.forget()


async def _from_log(box: Box) -> list[JobDocument]:
    """The jobs that the operations log knows. One without an end runs if its process keeps its mark."""
    found: dict[str, JobDocument] = {}
    changed: dict[str, int] = {}
    for entry in await box.operate.log(LOGGED):
        if entry.action == ACTION:
            _add(found, entry, box.name)
        elif (match := _WHY.fullmatch(entry.why)) is not None:
            changed[match[1]] = entry.count
    for each in found.values():
        each.done = changed.get(each.id, 0)
        if each.ended_at is None and await Marks(box).read(_mark(each.id)):
            each.text = f"{counted(each.done, 'event')} done; another process runs it"
        elif each.ended_at is None:
            each.state = "failed"
            each.text = f"stopped after {counted(each.done, 'event')}"
            each.problem = "its process ended before it did"
    return [each for each in found.values() if each.started_at is not _UNKNOWN]


_UNKNOWN: Final = datetime.min.replace(tzinfo=UTC)


def _add(found: dict[str, JobDocument], entry: LogEntry, box: str) -> None:
    """Adds the start or the end of a job; the log has the end first."""
    match = _LOGGED.fullmatch(entry.detail)
    if match is None:
        return
    job_id, action, word, text = match.groups()
    document = found.get(job_id) or msgspec.convert(
        {
            "id": job_id, "box": box, "action": action, "state": "running", "done": 0, "total": None, "text": "",
            "who": "", "why": entry.why, "started_at": _UNKNOWN,
        },
        JobDocument,
    )  # fmt: skip
    if word == "began":
        document.started_at, document.who = entry.at, entry.who
    else:
        document.state, document.text, document.ended_at = word, (text or "")[2:], entry.at  # type: ignore[assignment]
    found[job_id] = document
