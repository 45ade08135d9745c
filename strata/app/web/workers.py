"""Worker processes of the server. Short questions go to a few warm workers, in turn; long ones (jobs) get a
process of their own that can be cancelled. The server itself only waits, so that no question holds up
another.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strata.app.web.worker import ANSWERS, LONGEST_FRAME, frame, parsed

SHORT_LIMIT = 20.0  # s for one short question
JOB_LIMIT = 900.0  # s for one job
MOST_JOBS = 2  # at once
LONELY = 120.0  # s that a job goes on where nobody asks after it, unless it keeps what it finds
MOST_WAITING = 400  # short questions
KEPT_JOBS = 40  # that have ended, with their answers
MOST_TOLD = 2000  # reports of one job that are kept
CACHED = 2000  # answers to short questions
CUT_SHORT = "the worker ended before it answered"


class Busy(Exception):
    """More questions than the server takes at once."""


class Worker:
    """One process that answers one question at a time."""

    def __init__(self, folder: str, answers: str, low: bool = False) -> None:
        self.folder, self.answers, self.low = folder, answers, low
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process where there is none."""
        if self.process is not None and self.process.returncode is None:
            return
        package = str(Path(__file__).resolve().parents[3])  # a worker stands in another folder
        found = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONSAFEPATH": "1", "PYTHONPATH": found}
        words = [sys.executable, "-m", "strata.app.web.worker", self.answers]
        self.process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env=env,
            limit=LONGEST_FRAME,
            preexec_fn=_low if self.low else None,
        )

    async def send(self, call: str, question: dict[str, Any]) -> None:
        """Put a question to the process."""
        await self.start()
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(frame({"call": call, "question": question}))
        await self.process.stdin.drain()

    async def line(self) -> bytes:
        """The next line of an answer; empty where the process has ended."""
        assert self.process is not None and self.process.stdout is not None
        return await self.process.stdout.readline()

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):  # `Process.kill` would collect what asyncio waits for
                os.kill(self.process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """End the process at once, and wait until it is gone."""
        self.kill()
        if self.process is not None:
            await self.process.wait()


def _low() -> None:
    os.nice(10)


def _error(status: int, why: str) -> tuple[int, bytes]:
    return status, frame({"error": why}).strip()


@dataclass(eq=False, kw_only=True)
class Job:
    """A long question: what was reported on the way, and how it ended."""

    key: str
    call: str
    question: dict[str, Any]
    state: str = "waiting"  # waiting, running, done, failed, cancelled
    told: list[dict[str, Any]] = field(default_factory=list)
    answer: Any = None
    error: str = ""
    kept: bool = False  # what it finds lies in the study folder: it goes on where nobody asks
    asked: float = field(default_factory=time.monotonic)
    began: float = 0.0
    ended: float = 0.0
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    worker: Worker | None = None

    def note(self) -> None:
        """Wake whoever waits for news."""
        self.moved.set()
        self.moved = asyncio.Event()

    def summary(self, since: int = 0) -> dict[str, Any]:
        """State, reports after the first `since`, and the answer where there is one."""
        self.asked = time.monotonic()
        until = self.ended or self.asked
        return {
            "job": self.key,
            "call": self.call,
            "state": self.state,
            "seconds": round(until - self.began, 3) if self.began else 0.0,
            "told": self.told[since:],
            "reports": len(self.told),
            "answer": self.answer,
            "error": self.error,
        }


class Workers:
    """The server's processes."""

    def __init__(self, folder: str, count: int = 2, answers: str = ANSWERS, lonely: float = LONELY) -> None:
        self.folder, self.count, self.answers, self.lonely = folder, count, answers, lonely
        self.idle: asyncio.Queue[Worker] = asyncio.Queue()
        self.all: list[Worker] = []
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self.cache: OrderedDict[tuple[str, bytes], tuple[int, bytes]] = OrderedDict()
        self.under_way: dict[tuple[str, bytes], asyncio.Future[tuple[int, bytes]]] = {}
        self.slots = asyncio.Semaphore(MOST_JOBS)
        self.tasks: set[asyncio.Task[None]] = set()
        self.waiting = 0

    async def start(self) -> None:
        """Start the short questions' workers."""
        for _ in range(self.count):
            worker = Worker(self.folder, self.answers)
            await worker.start()
            self.all.append(worker)
            self.idle.put_nowait(worker)

    async def stop(self) -> None:
        """End every process."""
        for task in self.tasks:
            task.cancel()
        for worker in [*self.all, *(j.worker for j in self.jobs.values() if j.worker)]:
            await worker.end()

    async def ask(self, call: str, question: dict[str, Any], limit: float = SHORT_LIMIT) -> tuple[int, bytes]:
        """Status and JSON of the answer to a short question; equal questions are answered once."""
        key = (call, frame(question))
        if key in self.cache:
            self.cache.move_to_end(key)
            return self.cache[key]
        if key in self.under_way:
            return await asyncio.shield(self.under_way[key])
        if self.waiting >= MOST_WAITING:
            raise Busy
        self.under_way[key] = asyncio.get_running_loop().create_future()
        self.waiting += 1
        try:
            found = await self._ask(call, question, limit)
        except BaseException as error:
            waiting = self.under_way.pop(key)
            waiting.set_result(_error(503, "the question was given up"))
            raise error
        finally:
            self.waiting -= 1
        self.under_way.pop(key).set_result(found)
        if found[0] < 500:
            self.cache[key] = found
            if len(self.cache) > CACHED:
                self.cache.popitem(last=False)
        return found

    async def _ask(self, call: str, question: dict[str, Any], limit: float) -> tuple[int, bytes]:
        worker = await self.idle.get()
        whole = False
        try:
            async with asyncio.timeout(limit):
                await worker.send(call, question)
                line = await worker.line()
            whole = line.endswith(b"\n")
        except TimeoutError:
            return _error(504, f"this took longer than {limit:g} s and was stopped")
        except (ConnectionError, ValueError):
            return _error(500, CUT_SHORT)
        finally:
            if not whole:
                await worker.end()
            self.idle.put_nowait(worker)
        if not whole:
            return _error(500, CUT_SHORT)
        if line.startswith(b'{"done":'):
            return 200, line[len(b'{"done":') : -2]
        told = parsed(line)
        return _error(int(told.get("status", 500)), told.get("error", ""))

    def begin(self, call: str, question: dict[str, Any], kept: bool = False) -> Job:
        """Start a job, or let it wait for its turn."""
        alive = sum(j.state in ("waiting", "running") for j in self.jobs.values())
        if alive >= 10 * MOST_JOBS:
            raise Busy
        job = Job(key=secrets.token_hex(8), call=call, question=question, kept=kept)
        self.jobs[job.key] = job
        for key in [k for k, j in self.jobs.items() if j.ended][: max(0, len(self.jobs) - KEPT_JOBS)]:
            del self.jobs[key]
        for story in (self._run(job), self._mind(job)):
            task = asyncio.create_task(story)
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        return job

    async def _mind(self, job: Job) -> None:
        """Cancel a job whose page was closed, so that it does not hold up those of others."""
        while not job.ended and not job.kept:
            await asyncio.sleep(self.lonely / 4.0)
            if time.monotonic() - job.asked > self.lonely and not job.ended:
                self.cancel(job)

    async def _run(self, job: Job) -> None:
        async with self.slots:
            if job.state != "waiting":
                return
            job.state, job.began = "running", time.monotonic()
            job.worker = Worker(self.folder, self.answers, low=True)
            job.note()
            try:
                async with asyncio.timeout(JOB_LIMIT):
                    await self._follow(job)
            except TimeoutError:
                self._end(job, "failed", f"this took longer than {JOB_LIMIT:g} s and was stopped")
            except (ConnectionError, ValueError):
                self._end(job, "failed", CUT_SHORT)
            finally:
                await job.worker.end()
                job.worker = None

    async def _follow(self, job: Job) -> None:
        assert job.worker is not None
        await job.worker.send(job.call, job.question)
        while line := await job.worker.line():
            told = parsed(line)
            if "told" in told:
                if len(job.told) < MOST_TOLD:
                    job.told.append(told["told"])
                else:
                    job.told[-1] = told["told"]
                job.note()
                continue
            if "done" in told:
                job.answer = told["done"]
                self._end(job, "done")
            else:
                self._end(job, "failed", str(told.get("error", "")))
            return
        self._end(job, "failed", CUT_SHORT)

    def _end(self, job: Job, state: str, error: str = "") -> None:
        if job.state in ("waiting", "running"):
            job.state, job.error, job.ended = state, error, time.monotonic()
        job.note()

    def cancel(self, job: Job) -> None:
        """Stop a job at once; what it has reported stays."""
        self._end(job, "cancelled", "cancelled")
        if job.worker is not None:
            job.worker.kill()
