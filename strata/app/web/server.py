"""The server: routes of all answers, jobs, the page's files, behind the guard."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from strata import __version__
from strata.app.web.answers import Route, all_routes, first_mistake
from strata.app.web.guard import LOOPBACK, Door, Guard
from strata.app.web.workers import Busy, Workers

STATIC = Path(__file__).parent / "static"
WAIT = 20.0  # s that a request for news of a job waits
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
JobKey = Annotated[str, InPath(pattern=r"^[0-9a-f]{16}$")]


class Told(BaseModel):
    """An error, in one line."""

    error: str


class JobTold(BaseModel):
    """A job: its state, what it has reported, its answer at the end."""

    job: str
    call: str
    state: str
    seconds: float
    told: list[dict[str, Any]]
    reports: int
    answer: Any = None
    error: str = ""


ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": Told} for code in (400, 401, 403, 404, 405, 413, 414, 415, 421, 422, 429, 504)
}


def web_app(folder: Path, door: Door | None = None, count: int | None = None) -> Any:
    """The page as an ASGI app; studies are read and written in `folder` alone."""
    folder.mkdir(parents=True, exist_ok=True)
    workers = Workers(str(folder.resolve()), count or max(2, min(4, os.cpu_count() or 2)))

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await workers.start()
        asked = (workers.ask("what_if.warm", {"worker": i}) for i in range(workers.count))
        warming = list(map(asyncio.create_task, asked))
        yield
        for task in warming:
            task.cancel()
        await workers.stop()

    app = FastAPI(
        title="Strata",
        version=__version__,
        description="Predict and optimise AI systems that do not exist yet.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.workers = workers
    for route in all_routes():
        _add(app, workers, route)
    _add_jobs(app, workers)
    _add_errors(app)
    _add_files(app)
    return Guard(app, door or Door(hosts=LOOPBACK, port=8765))


def _add(app: FastAPI, workers: Workers, route: Route) -> None:
    """One route: a short question is answered, a long one becomes a job."""
    kept: dict[str, Any] = {"responses": ERRORS, "summary": route.says, "tags": [route.call.split(".")[0]]}

    async def short(question: Any) -> Response:
        status, body = await workers.ask(route.call, question.model_dump())
        return Response(body, status, media_type="application/json")

    async def long(question: Any) -> Any:
        return workers.begin(route.call, question.model_dump(), route.kept).summary()

    async def plain() -> Response:
        return await short(route.question())

    kept["operation_id"] = route.call.replace(".", "_")
    if not route.question.model_fields and not route.job:
        app.get(f"/api/{route.path}", **kept)(plain)
        return
    endpoint = long if route.job else short
    endpoint.__annotations__["question"] = route.question
    kept |= {"status_code": 202, "response_model": JobTold} if route.job else {}
    app.post(f"/api/{route.path}", **kept)(endpoint)


def _add_jobs(app: FastAPI, workers: Workers) -> None:
    def job_of(key: str) -> Any:
        if key not in workers.jobs:
            raise HTTPException(404, "there is no such job, or it has been forgotten")
        return workers.jobs[key]

    @app.get("/api/jobs/{key}", response_model=JobTold, responses=ERRORS, tags=["jobs"])
    async def job_news(
        key: JobKey,
        since: Annotated[int, Query(ge=0, le=10**6)] = 0,
        wait: Annotated[float, Query(ge=0, le=WAIT)] = 0.0,
    ) -> Any:
        """What a job has reported after the first `since`; waits up to `wait` seconds for news."""
        job = job_of(key)
        if wait and len(job.told) <= since and not job.ended:
            with suppress(TimeoutError):
                await asyncio.wait_for(job.moved.wait(), wait)
        return job.summary(since)

    @app.get("/api/jobs/{key}/events", responses=ERRORS, tags=["jobs"])
    async def job_events(key: JobKey, request: Request) -> StreamingResponse:
        """The reports of a job as server-sent events, until it ends."""
        job = job_of(key)

        async def events() -> AsyncIterator[bytes]:
            since = 0
            while not await request.is_disconnected():
                told = job.summary(since)
                since = told["reports"]
                yield f"data: {json.dumps(told)}\n\n".encode()
                if job.ended:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(job.moved.wait(), WAIT)

        return StreamingResponse(events(), media_type="text/event-stream")

    @app.delete("/api/jobs/{key}", response_model=JobTold, responses=ERRORS, tags=["jobs"])
    async def job_cancel(key: JobKey) -> Any:
        """Stop a job at once; what it has reported stays."""
        job = job_of(key)
        workers.cancel(job)
        return job.summary()


def _add_errors(app: FastAPI) -> None:
    """Every error is one line of JSON."""

    @app.exception_handler(RequestValidationError)
    async def unread(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": first_mistake(error.errors())}, 422)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)

    @app.exception_handler(Busy)
    async def busy(_: Request, __: Busy) -> JSONResponse:
        return JSONResponse({"error": "too many questions at once; try again in a moment"}, 429)


class Shelf:
    """The page's files in memory, each read anew where it has changed: these and no others."""

    def __init__(self) -> None:
        import plotly

        self.known = {p.relative_to(STATIC).as_posix(): p for p in sorted(STATIC.rglob("*")) if p.is_file()}
        library = Path(plotly.__file__).parent  # the package ships it, so that pages open offline
        self.known["plotly.min.js"] = library / "package_data" / "plotly.min.js"
        self.read: dict[str, tuple[int, bytes, str]] = {}  # by name: when it changed, what it says, its tag

    def answer(self, name: str, request: Request) -> Response:
        """A file, or word that the browser's copy is the same."""
        if name not in self.known:
            raise HTTPException(404, "no such file")
        path = self.known[name]
        changed = path.stat().st_mtime_ns
        if self.read.get(name, (0,))[0] != changed:
            said = path.read_bytes()
            self.read[name] = (changed, said, f'"{sha256(said).hexdigest()[:24]}"')
        _, said, tag = self.read[name]
        kept = {"etag": tag, "cache-control": "max-age=86400" if name == "plotly.min.js" else "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=kept)
        return Response(said, media_type=KINDS[path.suffix], headers=kept)


def _add_files(app: FastAPI) -> None:
    """The page and its files, each under its own name."""
    shelf = Shelf()

    @app.get("/", include_in_schema=False)
    async def start(request: Request) -> Response:
        return shelf.answer("index.html", request)

    @app.get("/static/pages.js", include_in_schema=False)
    async def pages() -> Response:
        listed = f"export const PAGES = {json.dumps(page_list())};\n"
        return Response(listed, media_type=KINDS[".js"], headers={"cache-control": "no-cache"})

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str, request: Request) -> Response:
        return shelf.answer(name, request)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon(request: Request) -> Response:
        return shelf.answer("strata.svg", request)


def page_list() -> list[tuple[str, str, str, bool]]:
    """Pages in their order: name, title, a line for the start page, and whether they have rules of their own.

    The first line of a page's file says it: `// page 5, Technology: from budgets to a die.`

    >>> page_list()[0][:2]
    ('what-if', 'What-if')
    """
    listed = []
    for path in (STATIC / "pages").glob("*.js"):
        said = re.match(r"// page (\d+), (.+?): (.+)", path.read_text(encoding="utf-8"))
        if said:
            rules = path.with_suffix(".css").exists()
            listed.append((int(said[1]), (path.stem, said[2], said[3], rules)))
    return [page for _, page in sorted(listed)]
