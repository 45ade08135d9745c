"""The real server in a process of its own, for tests and measurements: `strata serve` on a free port."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[1]
CHROMIUM = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def serving(studies, *words, root=ROOT):
    """The server of a checkout while it is needed: its address, its port, its process and its study folder."""
    env = {k: v for k, v in os.environ.items() if k != "STRATA_CHECK"}
    env |= {"PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "strata", "serve", "--port", "0", "--studies", str(studies), *words]
    process = subprocess.Popen(command, env=env, cwd=root, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        found = re.search(r"http://([^/ ]+):(\d+)/(\?token=\S+)?", said)
        assert found, f"strata serve said: {said!r}"
        port = int(found[2])
        _listening(process, port)
        yield SimpleNamespace(
            url=f"http://127.0.0.1:{port}",
            port=port,
            token=(found[3] or "").removeprefix("?token="),
            process=process,
            studies=Path(studies),
        )
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _listening(process, port, limit=60.0):
    """Wait until somebody can come in."""
    until = time.monotonic() + limit
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < until, "the server did not start"
            time.sleep(0.05)
