"""Executors: who does the work of a round. This process, a process for each core, JAX, or a Ray cluster; the
answers are the same.

An executor is opened once for a search, and each worker gets the space once. A worker that dies costs the
pieces of work it held, which are done again.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any, Protocol
from warnings import catch_warnings, simplefilter

import numpy as np

from strata.base.arrays import cores
from strata.base.errors import StrataError, UnknownName, require
from strata.search.points import Evaluated, evaluate_points
from strata.search.space import Space


class Work(Protocol):
    """What a worker does for a sampler: a picklable record whose `perform` is pure in it and the space."""

    def perform(self, space: Space, backend: str) -> Any: ...


@dataclass(frozen=True, eq=False)
class PointsWork:
    """Points to evaluate, a row of digits each; done, they are an `Evaluated`."""

    digits: np.ndarray

    def perform(self, space: Space, backend: str) -> Evaluated:
        return evaluate_points(space, self.digits, backend)


def perform(space: Space, work: Work, backend: str = "numpy") -> Any:
    """A piece of work, done: the one function that every executor calls, wherever it runs."""
    return work.perform(space, backend)


Run = Callable[[Sequence[Work]], list[Any]]  # pieces of work in, what came of them out, in order
RETRIES = 5  # times that lost work is done again before a search gives up: more is no accident
# workers share the cores, not fight for them
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}

RAY_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_SILENT_MODE": "1",
}


class LostWorkers(StrataError):
    """Workers die again and again."""

    def __init__(self, pieces: int):
        super().__init__(
            f"workers died {RETRIES + 1} times over {pieces} pieces of work;"
            " is there memory enough for them? fewer: --workers"
        )


@contextmanager
def _one(space: Space, workers: int, address: str) -> Iterator[Run]:
    yield lambda works: [perform(space, w) for w in works]


@contextmanager
def _jax(space: Space, workers: int, address: str) -> Iterator[Run]:
    require(find_spec("jax") is not None, "executor jax needs the package jax: pip install 'strata[jax]'")
    yield lambda works: [perform(space, w, "jax") for w in works]


@contextmanager
def _cores(space: Space, workers: int, address: str) -> Iterator[Run]:
    pool = _Pool(space, workers or cores())
    with _one_thread():
        try:
            yield pool.run
        finally:
            pool.close()


class _Pool:
    """A pool of processes that is started anew when a worker dies."""

    def __init__(self, space: Space, workers: int):
        self.space, self.workers = space, workers
        self.pool: ProcessPoolExecutor | None = None

    def run(self, works: Sequence[Work]) -> list[Any]:
        done: list[Any] = [None] * len(works)
        left = list(range(len(works)))
        for _ in range(RETRIES + 1):
            futures = [(i, self._submitted(works[i])) for i in left]
            left = [i for i, future in futures if not self._kept(done, i, future)]
            if not left:
                return done
            self.close()
        raise LostWorkers(len(left))

    def _submitted(self, work: Work) -> Future[Any] | None:
        if self.pool is None:
            # New processes, not forked ones: a copy of a process with threads may hang.
            self.pool = ProcessPoolExecutor(self.workers, get_context("spawn"), _start_worker, (self.space,))
        try:
            return self.pool.submit(_perform_here, work)
        except BrokenProcessPool:
            return None

    @staticmethod
    def _kept(done: list[Any], place: int, future: Future[Any] | None) -> bool:
        try:
            done[place] = future.result() if future else None
        except BrokenProcessPool:
            return False
        return future is not None

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
        self.pool = None


@contextmanager
def _one_thread() -> Iterator[None]:
    """What processes inherit when they start, the only way to tell their arithmetic libraries."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_HELD: dict[str, Space] = {}  # of a worker: the spaces it was given


def _start_worker(space: Space) -> None:
    import signal
    import threading

    # Ctrl-C is for the process that holds the study; it closes the pool
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _HELD["here"] = space


def _leave_with_parent() -> None:
    """End this worker when the process that started it is gone, even if it was killed: nobody else would."""
    import multiprocessing
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _perform_here(work: Work) -> Any:
    return perform(_HELD["here"], work)


@contextmanager
def _ray(space: Space, workers: int, address: str) -> Iterator[Run]:
    """Tasks of a Ray cluster: the one at an address, or one on this machine that lives with the search."""
    require(find_spec("ray") is not None, "executor ray needs the package ray: pip install 'strata[ray]'")
    import ray

    joined = ray.is_initialized()
    if not joined:
        with catch_warnings():
            simplefilter("ignore")
            _start_ray(ray, workers, address or os.environ.get("RAY_ADDRESS", ""))
    packed = ray.put(pickle.dumps(space))  # as bytes: each worker unpacks it once, not for each piece of work
    task = ray.remote(_perform_there).options(max_retries=RETRIES, num_cpus=1)

    def run(works: Sequence[Work]) -> list[Any]:
        try:
            return list(ray.get([task.remote(packed, space.hash, work) for work in works]))
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
            raise LostWorkers(len(works)) from None
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None

    try:
        yield run
    finally:
        if not joined:
            ray.shutdown()


def _start_ray(ray: Any, workers: int, address: str) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "CRITICAL"}
    # A cluster asks for nothing on the way out, and for no accelerator that it does not use.
    # What its own processes log stands in its files, not on the terminal of who searches.
    for name, value in RAY_QUIET.items():
        os.environ.setdefault(name, value)
    if address:
        _reached(address)
        try:
            ray.init(address=address, runtime_env={"env_vars": ONE_THREAD}, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise StrataError(
                f"no Ray cluster answers at {address}: {' '.join(str(error).split())[:200]}"
            ) from None
        return
    small = 256 << 20  # [B] rounds are a few megabytes
    with _one_thread():  # its workers inherit it
        ray.init(
            address="local",
            num_cpus=workers or cores(),
            include_dashboard=False,
            object_store_memory=small,
            **quiet,
        )


def _reached(address: str) -> None:
    """Refuse an address where nobody listens at once; Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if not (colon and port.isdecimal()):
        return  # a word such as auto: Ray looks for it on this machine
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except OSError as error:
        raise StrataError(
            f"no Ray cluster answers at {address}: {error.strerror or error};"
            " start one with: ray start --head"
        ) from None


def _perform_there(packed: bytes, key: str, work: Work) -> Any:
    if key not in _HELD:
        _HELD[key] = pickle.loads(packed)
    return perform(_HELD[key], work)


EXECUTORS: dict[str, Callable[[Space, int, str], AbstractContextManager[Run]]] = {
    "one": _one,
    "cores": _cores,
    "jax": _jax,
    "ray": _ray,
}


def open_executor(
    name: str, space: Space, workers: int = 0, address: str = ""
) -> AbstractContextManager[Run]:
    """An executor, as a context that gives the function that does work; `workers` 0 is one for each core.

    >>> open_executor("core", None)
    Traceback (most recent call last):
    ...
    strata.base.errors.UnknownName: no executor called 'core'; nearest: cores, one; all: one, cores, jax, ray
    """
    if name not in EXECUTORS:
        raise UnknownName("executor", name, EXECUTORS, ", ".join(EXECUTORS))
    require(workers >= 0, "workers must be a positive number, or 0 for one on each core", workers=workers)
    return EXECUTORS[name](space, workers, address)
