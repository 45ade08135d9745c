"""Rows on the page: how soon a moved slider shows its answer in a browser, and how a crowd is served.

python -m benchmarks.page --clients 50 --seconds 30      # the crowd alone, with where the time goes
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.served import CHROMIUM, serving

STATIC = Path(__file__).parents[1] / "strata" / "app" / "web" / "static"
# What people look at together: the models and systems of most questions, each with a plan, as the page asks while a
# slider moves.
LOOKED_AT = [
    {"model": "llama-3-70b", "system": "8xh200", "plan": "tp=8"},
    {"model": "llama-3-8b", "system": "1xh100", "plan": "tp=1"},
    {"model": "deepseek-v3", "system": "8xb200", "plan": "tp=8,ep=8"},
    {"model": "deepseek-v3", "system": "256xstack-ref", "plan": "tp=16,dp=16,ep=256", "phase": "decode"},
]
SHARES = {"file": 0.4, "again": 0.4, "new": 0.2}
PAUSE = 0.25  # s between an answer and the next question of one person, on average
HEATED = {
    "model": "deepseek-v3",
    "system": "256xstack-ref",
    "phase": "decode",
    "batch": 64,
    "plan": "tp=16,dp=16,ep=256",
}


@dataclass
class Crowd:
    """What a crowd saw: seconds by kind of request, and answers that were none."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in SHARES})
    wrong: Counter[str] = field(default_factory=Counter)
    client_cpu: float = 0.0  # s of this process
    server_cpu: float = 0.0  # s of the server's own process
    worker_cpu: float = 0.0  # s of its workers
    wall: float = 0.0

    @property
    def every(self) -> list[float]:
        return sorted(s for found in self.seconds.values() for s in found)

    def p(self, share: float, kind: str = "") -> float:
        """A percentile of the seconds of one kind, or of all."""
        found = sorted(self.seconds[kind]) if kind else self.every
        return found[min(len(found) - 1, int(share * len(found)))] if found else float("nan")


class Line:
    """One connection that is kept open, with no more of HTTP than is needed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of an answer."""
        if self.ends is None:
            self.ends = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.ends
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        told = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        long = int(told.split("content-length:")[1].split("\r\n")[0])
        return int(told.split()[1]), await reader.readexactly(long)

    def close(self) -> None:
        if self.ends is not None:
            self.ends[1].close()


def request_of(kind: str, chance: random.Random, files: list[str]) -> tuple[str, str, bytes]:
    """One request: a file of the page, a question that others have asked, or one that nobody has."""
    if kind == "file":
        return "GET", chance.choice(files), b""
    design = dict(chance.choice(LOOKED_AT))
    design["batch"] = chance.choice([32, 64, 256]) if kind == "again" else 16 * chance.randint(1, 100_000)
    design["input"] = 1024 if kind == "again" else chance.randint(128, 4096)
    return "POST", "/api/predict", json.dumps(design).encode()


async def person(
    port: int, until: float, chance: random.Random, files: list[str], pause: float, crowd: Crowd
) -> None:
    """One client: asks, reads, rests a moment, and asks again."""
    line = Line(port)
    await asyncio.sleep(chance.random() * max(pause, 0.05))
    while time.monotonic() < until:
        kind = chance.choices(list(SHARES), list(SHARES.values()))[0]
        asked = request_of(kind, chance, files)
        began = time.monotonic()
        try:
            status, body = await asyncio.wait_for(line.ask(*asked), 20)
            crowd.seconds[kind].append(time.monotonic() - began)
            if status != 200 or not body:
                crowd.wrong[f"{status} {body[:80]!r}"] += 1
        except (OSError, TimeoutError, EOFError, asyncio.IncompleteReadError) as error:
            crowd.wrong[type(error).__name__] += 1
            line.close()
            line = Line(port)
        if pause:
            await asyncio.sleep(chance.expovariate(1 / pause))
    line.close()


def cpu_of(pid: int) -> tuple[float, float]:
    """Seconds of processor time of a process, and of the processes it has started and that still run."""
    tick = os.sysconf("SC_CLK_TCK")

    def own(number: int) -> float:
        try:
            parts = Path(f"/proc/{number}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(parts[11]) + int(parts[12])) / tick

    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        text = ""
    return own(pid), sum(own(int(child)) for child in text.split())


def crowd(port: int, pid: int, clients: int, seconds: float, pause: float = PAUSE, seed: int = 1) -> Crowd:
    """A crowd at the page for a while."""
    files = ["/", *(f"/static/{p.relative_to(STATIC).as_posix()}" for p in sorted(STATIC.rglob("*.*s*")))]
    files = [name for name in files if name.endswith((".js", ".css", ".svg", "/"))]
    found, before, own = Crowd(), cpu_of(pid), time.process_time()

    async def all_of_them() -> None:
        until = time.monotonic() + seconds
        people = (
            person(port, until, random.Random(seed * 1000 + i), files, pause, found) for i in range(clients)
        )
        await asyncio.gather(*people)

    began = time.monotonic()
    asyncio.run(all_of_them())
    found.wall = time.monotonic() - began
    after = cpu_of(pid)
    found.client_cpu = time.process_time() - own
    found.server_cpu, found.worker_cpu = after[0] - before[0], after[1] - before[1]
    return found


def warmed(port: int) -> None:
    """Wait until the server's workers have read what they need."""

    async def all_of_them() -> None:
        line = Line(port)
        for design in LOOKED_AT:
            for batch in (8, 24, 40, 48):
                await line.ask("POST", "/api/predict", json.dumps({**design, "batch": batch}).encode())
        line.close()

    asyncio.run(all_of_them())


# A slider that is moved by a key, and the time until the numbers above it are others.
MOVE = """async ([label, step]) => {
  const slider = document.querySelector(`[aria-label="${label}"]`);
  const values = () => [...document.querySelectorAll("#answer .cards .value")].map((e) => e.textContent).join();
  const before = values();
  const began = performance.now();
  slider.value = String(Number(slider.value) + step);
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  for (;;) {
    await new Promise((done) => requestAnimationFrame(done));
    if (values() !== before) break;
    if (performance.now() - began > 10000) return null;
  }
  const took = performance.now() - began;
  slider.dispatchEvent(new Event("change", { bubbles: true }));
  return took;
}"""


def slider_times(url: str, moves: int) -> list[float]:
    """Seconds from a moved slider of the stack's layers to new numbers in the browser: DeepSeek-V3 on 256 chips
    with heat. Each move is to a number nobody has asked for.
    """
    from base64 import urlsafe_b64encode

    from playwright.sync_api import sync_playwright

    state = json.dumps({"designs": [HEATED]}).encode()
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{url}/#what-if/{urlsafe_b64encode(state).decode().rstrip('=')}")
        found = []
        label = "chip.stack.transfer_rate, slider"
        find_slider(page, label)
        for _ in range(moves):
            took = page.evaluate(MOVE, [label, -0.1])
            found.append(10.0 if took is None else took / 1e3)
            page.wait_for_timeout(900)  # let go: the best plan is looked for, numbers are drawn anew
        browser.close()
    return found


def find_slider(page: Any, label: str) -> None:
    """Search a number by its path, as people do, until its slider stands there."""
    page.locator("#answer .cards .card").first.wait_for(timeout=60_000)
    sought = page.get_by_label("Search the hardware's numbers")
    sought.first.wait_for(timeout=60_000)
    sought.first.fill(label.partition(",")[0].removeprefix("chip."))
    page.get_by_label(label).first.wait_for(timeout=20_000)
    page.wait_for_timeout(1500)


def add_page(add: Callable[..., None]) -> str:
    """Rows of the page; where there is no browser, why the first is missing."""
    with tempfile.TemporaryDirectory() as folder, serving(folder) as server:
        warmed(server.port)
        seen = crowd(server.port, server.process.pid, 50, 30.0)
        target = "the target: 300 ms"
        rate = len(seen.every) / seen.wall
        how = {"requests_per_s": rate, "errors": sum(seen.wrong.values()), "clients": 50}
        add("page_p95_50_clients", seen.p(0.95) * 1e3, "ms", target, 300.0, smaller=True, **how)
        if shutil.which("chromium") is None:
            return "page_slider skipped: chromium is not installed"
        took = statistics.median(slider_times(server.url, 12)) * 1e3
        add("page_slider", took, "ms", "the target: 150 ms", 150.0, smaller=True)
    return ""


def told(seen: Crowd) -> str:
    """What a crowd saw, for people."""
    lines = [
        f"{len(seen.every)} requests in {seen.wall:.1f} s ({len(seen.every) / seen.wall:.0f} a second), "
        f"errors: {dict(seen.wrong) or 'none'}"
    ]
    for kind in ("", *SHARES):
        count = len(seen.seconds[kind]) if kind else len(seen.every)
        shares = ", ".join(f"p{100 * s:g} {seen.p(s, kind) * 1e3:.0f} ms" for s in (0.5, 0.95, 0.99))
        lines.append(f"{kind or 'all':6s} {count:6d}: {shares}")
    cpu = {"clients": seen.client_cpu, "server": seen.server_cpu, "workers": seen.worker_cpu}
    lines.append(
        "processor time: "
        + ", ".join(f"{k} {v:.1f} s ({v / seen.wall:.0%} of a core)" for k, v in cpu.items())
    )
    return "\n".join(lines)


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--clients", type=int, default=50)
    words.add_argument("--seconds", type=float, default=30.0)
    words.add_argument(
        "--pause", type=float, default=PAUSE, help="mean rest of a client; 0 asks without rest"
    )
    words.add_argument("--moves", type=int, default=0, help="moves of a slider in the browser, too")
    said = words.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(folder) as server:
        warmed(server.port)
        if said.clients:
            print(told(crowd(server.port, server.process.pid, said.clients, said.seconds, said.pause)))
        if said.moves:
            took = sorted(slider_times(server.url, said.moves))
            print(
                f"slider: median {statistics.median(took) * 1e3:.0f} ms, of {[round(t * 1e3) for t in took]}"
            )
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
