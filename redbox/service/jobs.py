"""Runs jobs: long operations that can be watched and cancelled. They run in this process, and a few at a time.

A job changes events in steps, each an atomic script that also writes the operations log. So a job that is cancelled, or
whose process is killed, leaves the box consistent, and the log says how many events it changed. The log also says when
a job began and how it ended, so a job without an end can be found after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec

from redbox.arguments import counted
from redbox.box import Box
from redbox.box.reports import LogEntry
from redbox.errors import RedboxError
from redbox.service.operations.documents import Action, JobDocument, JobResult
from redbox.service.problems import NotFound, TooManyJobs

logger = logging.getLogger("redbox.service")

CANCEL_GRACE: Final = 1.0  # seconds for the step in flight, after which a wait is interrupted
LOGGED: Final = 500  # entries of the log in which jobs of earlier processes are sought
ACTION: Final = "job"
_LOGGED = re.compile(r"job ([0-9a-f]{8}) \((replay|drop|kill|reschedule|export)\) (began|done|failed|cancelled)(: .*)?")


class JobFailed(RedboxError):
    """The job did not do all of its work, and says why."""


class _Cancelled(RedboxError):
    """The job was asked to stop, and stops between two steps."""


class Job:
    """A job that this process runs or ran."""

    def __init__(self, box: Box, action: Action, who: str, why: str) -> None:
        self.box = box
        self.file: Path | None = None  # of an export
        self.document = JobDocument(
            id=token_hex(4), box=box.name, action=action, state="running", done=0, total=None,
            text="counting the events", who=who, why=why, started_at=datetime.now(UTC),
        )  # fmt: skip
        self._cancelled = False
        self._task: asyncio.Task[None] | None = None
        self._interrupt: asyncio.TimerHandle | None = None

    @property
    def why(self) -> str:
        """The reason for the log, which names the job."""
        return f"{self.document.why} (job {self.document.id})".lstrip()

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
        if self._cancelled:
            raise _Cancelled

    def watching(self, canaries: int) -> None:
        """Records that the job waits for its canary events."""
        self.document.state = "waiting_for_canary"
        self.document.text = f"waiting until {counted(canaries, 'canary event')} are published"

    def start(self, work: Callable[[Job], Awaitable[JobResult]]) -> None:
        self._task = asyncio.create_task(self._run(work), name=f"redbox job {self.document.id}")

    def cancel(self) -> None:
        """Asks the job to stop: after the step in flight, or at once if it waits."""
        if not self.running or self._cancelled or self._task is None:
            return
        self._cancelled = True
        self.document.text = f"stopping; {self._so_far()} done"
        self._interrupt = asyncio.get_running_loop().call_later(CANCEL_GRACE, self._task.cancel)

    async def ended(self) -> None:
        """Waits for the end of the job."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def forget(self) -> None:
        """Removes what the job left in this process."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)

    def _so_far(self) -> str:
        document = self.document
        of = "" if document.total is None else f" of {counted(document.total, 'event')}"
        return f"{document.done:,}{of}" if of else counted(document.done, "event")

    async def _run(self, work: Callable[[Job], Awaitable[JobResult]]) -> None:
        document = self.document
        try:
            await self._note("began")
            document.result = await work(self)
        except _Cancelled:
            self._end("cancelled", f"stopped after {self._so_far()}")
        except asyncio.CancelledError:
            self._end("cancelled", f"stopped after at least {self._so_far()}; the operations log has the exact number")
        except JobFailed as error:
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
        try:
            await self._note(f"{document.state}: {document.text}")
        except RedboxError as error:
            logger.warning("the end of job %s could not be recorded: %s", document.id, error)

    def _end(self, state: str, text: str, problem: str | None = None) -> None:
        if self._interrupt is not None:
            self._interrupt.cancel()
        document = self.document
        document.state = state  # type: ignore[assignment]
        document.text, document.problem, document.ended_at = text, problem, datetime.now(UTC)

    async def _note(self, words: str) -> None:
        document = self.document
        detail = f"job {document.id} ({document.action}) {words}"
        await self.box.operate.note(ACTION, who=document.who, why=document.why, detail=detail)


_DONE: Final = {
    "replay": "replayed", "drop": "dropped", "kill": "killed", "reschedule": "rescheduled", "export": "exported",
}  # fmt: skip


def _summary(action: Action, result: JobResult) -> str:
    refused = f", {result.refused_count:,} refused" if result.refused_count else ""
    return f"{counted(result.done, 'event')} {_DONE[action]}{refused}"


class Jobs:
    """The jobs of this process: those that run, and the last that ended."""

    def __init__(self, *, running: int, kept: int) -> None:
        self._most_running = running
        self._most_kept = kept
        self._jobs: dict[str, Job] = {}

    def start(
        self, box: Box, action: Action, who: str, why: str, work: Callable[[Job], Awaitable[JobResult]]
    ) -> JobDocument:
        """Starts a job. Raises TooManyJobs."""
        running = sum(job.running for job in self._jobs.values())
        if running >= self._most_running:
            raise TooManyJobs(f"{counted(running, 'job')} already running; cancel one, or wait until one has ended")
        ended = [job for job in self._jobs.values() if not job.running]
        for job in ended[: max(0, len(ended) + 1 - self._most_kept)]:
            self._jobs.pop(job.document.id).forget()
        job = Job(box, action, who, why)
        self._jobs[job.document.id] = job
        job.start(work)
        return job.document

    async def list_own(self, box: Box) -> list[JobDocument]:
        """The jobs of this process, the newest first. Reads nothing from the store."""
        own = [job.document for job in self._jobs.values() if job.document.box == box.name]
        return sorted(own, key=lambda each: each.started_at, reverse=True)

    async def list(self, box: Box) -> list[JobDocument]:
        """The jobs of a box, the newest first: those of this process, then those that the log knows."""
        own = await self.list_own(box)
        known = {each.id for each in own}
        earlier = [each for each in await _from_log(box) if each.id not in known]
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

    def own(self, box: Box, job_id: str) -> Job:
        """A job of this process. Raises NotFound."""
        job = self._jobs.get(job_id)
        if job is None or job.document.box != box.name:
            raise NotFound(f"this process has no job {job_id} of box {box.name!r}")
        return job

    async def aclose(self) -> None:
        """Cancels all jobs and waits for their ends."""
        for job in self._jobs.values():
            job.cancel()
        for job in self._jobs.values():
            await job.ended()
            job.forget()


async def _from_log(box: Box) -> list[JobDocument]:
    """The jobs that the operations log knows. One without an end did not end in its process."""
    found: dict[str, JobDocument] = {}
    changed: dict[str, int] = {}
    for entry in await box.operate.log(LOGGED):
        if entry.action == ACTION:
            _add(found, entry, box.name)
        elif entry.why.endswith(")") and "(job " in entry.why:
            changed[entry.why[-9:-1]] = entry.count
    for each in found.values():
        each.done = changed.get(each.id, 0)
        if each.ended_at is None:
            each.state = "failed"
            each.text = f"stopped after {counted(each.done, 'event')}, or another process runs it"
            each.problem = "this process does not run the job; if no other one does, its process ended before it did"
    return [each for each in found.values() if each.started_at is not _UNKNOWN]


_UNKNOWN: Final = datetime.min.replace(tzinfo=UTC)


def _add(found: dict[str, JobDocument], entry: LogEntry, box: str) -> None:
    """Adds the start or the end of a job; the log has the end first."""
    match = _LOGGED.fullmatch(entry.detail)
    if match is None:
        return
    job_id, action, word, text = match.groups()
    known = found.get(job_id) or msgspec.convert(
        {
            "id": job_id, "box": box, "action": action, "state": "running", "done": 0, "total": None, "text": "",
            "who": entry.who, "why": entry.why, "started_at": _UNKNOWN,
        },
        JobDocument,
    )  # fmt: skip
    if word == "began":
        known.started_at = entry.at
    else:
        known.state, known.text, known.ended_at = word, (text or "")[2:], entry.at  # type: ignore[assignment]
    found[job_id] = known
