"""Requests made from the server's own OpenAPI schema, right and wrong ones: none may end as a fault of ours.

    python tests/app/web/schema_fuzz.py --cases 2000 --seed 1        # what `make fuzz-web` runs

A third of them are as the schema allows, a third break it, and a third keep to it and name what there is, so that
they come past the door and into the equations.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from schemathesis import GenerationMode

sys.path.insert(0, str(Path(__file__).parents[3]))  # as a program it stands in another folder
from benchmarks.served import serving
from strata.app.web.answers import all_routes

WATCHED = 0.6  # s that a job is given
VALUES = [
    "0",
    "1",
    "2",
    "-1",
    "3",
    "0.5",
    "1e-30",
    "1e300",
    "nan",
    "inf",
    "x2",
    "4 GB",
    "1 ns",
    "900 GB/s",
    "85 degC",
    "true",
]
PLANS = [
    "",
    "",
    "",
    "tp=8",
    "tp=2,pp=2",
    "tp=0",
    "dp=8",
    "tp=8,ep=8",
    "tp=16,dp=16,ep=256",
    "x",
    "tp=3",
    "pp=99",
]


@dataclass
class Report:
    """How many requests were sent, what they were answered with, and which of them ended as faults."""

    cases: int = 0
    statuses: Counter = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slow: list[tuple[float, str]] = field(default_factory=list)


class Names:
    """What there is, by the names that fields of questions have."""

    def __init__(self, client: httpx.Client) -> None:
        told = client.get("/api/catalogue").json()
        self.by = {kind: [e["name"] if isinstance(e, dict) else e for e in told[kind]] for kind in told}
        numbers = client.post("/api/numbers", json={"system": "8xstack-ref"}).json()
        owners = numbers.get("owners", numbers)
        self.paths = [n["path"] for o in owners.values() if isinstance(o, dict) for n in o.get("numbers", [])]

    def one(self, key: str, random: Random) -> str | None:
        """A name that fits a field, where one is known."""
        kinds = {"model": ["models", "programs"], "program": ["programs", "models"], "chip": ["chips"]}
        kinds |= {"weights": ["precisions"], "kv": ["precisions"], "precision": ["precisions"]}
        if key in ("system", "systems"):
            return f"{random.choice([1, 2, 8, 64, 256])}x{random.choice(self.by['chips'])}"
        if key == "plan":
            return random.choice(PLANS)
        found = kinds.get(key) or [k for k in (key, f"{key}s", f"{key[:-1]}ies") if k in self.by]
        return random.choice(self.by[random.choice(found)]) if found else None

    def seasoned(self, body: Any, random: Random, key: str = "") -> Any:
        """A question with names of things there are, and paths of numbers there are."""
        if isinstance(body, dict) and key == "set":
            count = random.choice([0, 0, 1, 1, 2])
            return {random.choice(self.paths): random.choice(VALUES) for _ in range(count)}
        if isinstance(body, dict):
            return {k: self.seasoned(v, random, k) for k, v in body.items()}
        if isinstance(body, list):
            return [self.seasoned(v, random, key) for v in body]
        if isinstance(body, int) and not isinstance(body, bool) and random.random() < 0.7:
            return body if abs(body) < 100 else random.choice([1, 2, 4, 64, 1024])
        named = self.one(key, random) if isinstance(body, str) and random.random() < 0.9 else None
        return body if named is None else named


def send(client: httpx.Client, case: Any, body: Any, report: Report) -> None:
    """Send one request; note what it was answered with, and how long that took."""
    path = case.formatted_path if hasattr(case, "formatted_path") else case.path
    for name, value in (case.path_parameters or {}).items():
        path = path.replace("{" + name + "}", str(value))
    query = {**(case.query or {}), **({"wait": 0} if "wait" in (case.query or {}) else {})}
    how: dict[str, Any] = {"params": query} if query else {}
    if not isinstance(body, type(schemathesis.core.NOT_SET)):
        how["content"] = body if isinstance(body, bytes) else json.dumps(body, default=str).encode()
    said = f"{case.method} {path} {how}"[:600]
    report.cases += 1
    began = time.monotonic()
    try:
        answer = client.request(case.method, path, **how)
    except (ValueError, UnicodeError, httpx.InvalidURL, httpx.UnsupportedProtocol):
        report.statuses["no request"] += 1  # what cannot be written as one
        return
    report.slow.append((time.monotonic() - began, said))
    report.statuses[answer.status_code] += 1
    if answer.status_code >= 500:
        report.faults.append(f"{answer.status_code} {answer.text[:200]} <- {said}")
    elif answer.status_code >= 400 and set(answer.json()) != {"error"}:
        report.faults.append(f"{answer.status_code} is not one line: {answer.text[:200]} <- {said}")
    elif answer.status_code == 202:
        told = answer.json()
        client.delete(f"/api/jobs/{told['job']}")
        question = next(r.question for r in all_routes() if r.call == told["call"])
        worked(told["call"], question(**json.loads(how["content"])).model_dump(), said, report)


class Enough(BaseException):
    """A job has run as long as it may."""


def _enough(*_: Any) -> None:
    raise Enough


def worked(call: str, question: dict[str, Any], said: str, report: Report) -> None:
    """A job's work, begun in this process: a new one for each takes longer to start than it is watched. It
    may fail for what it was asked, not by a fault.
    """
    from strata.app.web.worker import answered

    here = os.getcwd()
    signal.signal(signal.SIGALRM, _enough)
    signal.setitimer(signal.ITIMER_REAL, WATCHED, 0.2)  # again, where a callback swallowed it
    try:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            told = answered(call, question, lambda _: None)
        report.statuses["job done" if "done" in told else f"job {told['status']}"] += 1
        if "done" not in told and told["status"] >= 500:
            report.faults.append(f"job: {told['error'][:200]} <- {said}")
    except Enough:
        report.statuses["job running"] += 1
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(here)  # the alarm may have come between the work and its end


def fuzz(url: str, cases: int, seed: int, quiet: bool = False) -> Report:
    """Send requests of every kind to every operation, in equal shares."""
    warnings.simplefilter("ignore")
    report = Report()
    with httpx.Client(base_url=url, timeout=60, headers={"content-type": "application/json"}) as client:
        schema = schemathesis.openapi.from_dict(client.get("/api/openapi.json").json())
        operations = [found.ok() for found in schema.get_all_operations()]
        names = Names(client)
        asking = [o for o in operations if o.body]
        plain = [o for o in operations if not o.body]
        few = max(2, cases // (10 * len(operations)))  # of those that take no question
        each = max(3, (cases - 2 * few * len(plain)) // len(asking))
        for operation in operations:
            if not quiet:
                print(
                    f"{report.cases} cases, {len(report.faults)} faults; next {operation.label}", flush=True
                )
            count = -(-each // 3) if operation.body else few
            kinds = [(GenerationMode.POSITIVE, False), (GenerationMode.NEGATIVE, False)]
            for mode, known in [*kinds, *([(GenerationMode.POSITIVE, True)] if operation.body else [])]:
                _run(client, operation, mode, count, seed, names if known else None, report)
    return report


def _run(client, operation, mode, count, seed, names, report) -> None:
    @seeded(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode), number=st.integers(0, 2**32))
    def ask(case: Any, number: int) -> None:
        body = case.body if names is None else names.seasoned(case.body, Random(number))
        send(client, case, body, report)

    try:
        ask()
    except Exception as error:
        if type(error).__name__ not in ("Unsatisfiable", "UnsatisfiableError"):
            raise  # nothing can be wrong with an operation that takes nothing


def main() -> None:
    told = argparse.ArgumentParser()
    told.add_argument("--cases", type=int, default=2000)
    told.add_argument("--seed", type=int, default=1)
    told.add_argument("--url", default="", help="of a server that runs")
    words = told.parse_args()
    began = time.monotonic()
    if words.url:
        report = fuzz(words.url, words.cases, words.seed)
    else:
        with tempfile.TemporaryDirectory() as folder, serving(folder) as server:
            report = fuzz(server.url, words.cases, words.seed)
    for line in report.faults:
        print(line)
    print("slowest:", *(f"  {took:.2f} s {said[:220]}" for took, said in sorted(report.slow)[-8:]), sep="\n")
    answers = ", ".join(f"{count} x {status}" for status, count in report.statuses.most_common())
    took = time.monotonic() - began
    print(f"{report.cases} cases in {took:.0f} s: {answers}; {len(report.faults)} faults")
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
