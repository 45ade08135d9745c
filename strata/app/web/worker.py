"""A worker process: it reads questions from its standard input, answers one after the other, and ends when
the server does; it may not reach out of its fence. One JSON object a line, of plain types, goes either way.
`python -m strata.app.web.worker`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, BinaryIO

from strata.app.terminal import plain_json
from strata.app.web.answers import Tell
from strata.base.errors import StrataError, Unforeseen, printable_line

LONGEST_FRAME = 64 << 20  # bytes of one answer
READABLE = ("/proc", "/sys", "/dev", "/usr/share", "/etc/fonts", "/usr/lib")  # what libraries look at
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
ANSWERS = "strata.app.web.answers"
# what changes a folder, of one path or of two
OF_ONE, OF_TWO = (
    ("os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"),
    ("os.rename", "os.symlink", "os.link"),
)


def frame(told: dict[str, Any]) -> bytes:
    """An object as a line.

    >>> frame({"done": [1, None]})
    b'{"done":[1,null]}\\n'
    """
    return json.dumps(told, separators=(",", ":"), allow_nan=False, default=str).encode() + b"\n"


def parsed(line: bytes) -> dict[str, Any]:
    """A line as an object."""
    told: dict[str, Any] = json.loads(line)
    return told


class Fenced(PermissionError):
    """A file that lies outside of what the page may see."""


def inside(path: str, roots: tuple[str, ...]) -> bool:
    """Whether a file lies in one of some folders, links followed.

    >>> inside("/usr/share/../../etc/passwd", ("/usr/share",)), inside("/usr/share/x", ("/usr/share",))
    (False, True)
    """
    real = os.path.realpath(path)
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)


def roots_of(folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders that may be read, and those that may be written."""
    package = Path(__file__).resolve().parents[2]
    own = [str(package), *(str(package.parent / name) for name in ("validation", "studies"))]
    libraries = [
        sys.prefix,
        sys.base_prefix,
        *(p for p in sys.path if p and Path(p).name.endswith("-packages")),
    ]
    studies = os.path.realpath(folder)
    # links are followed before roots are compared, so roots are real paths, too
    read = (*tuple(os.path.realpath(p) for p in (*own, *libraries, *READABLE)), studies)
    return read, (studies, "/dev/null", "/dev/shm")


def fence(folder: str) -> None:
    """From now on this process opens no other file; there is no way back."""
    read, write = roots_of(folder)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int) or path is None:
                return
            name = os.fsdecode(path)
            writes = bool(flags & WRITING) if isinstance(flags, int) else "r" not in (mode or "r")
            if not inside(name, write if writes else read):
                raise Fenced(13, "outside of what the page may see", Path(name).name)
        elif event in (*OF_ONE, *OF_TWO):
            for name in arguments[:2] if event in OF_TWO else arguments[:1]:
                if not isinstance(name, int) and not inside(os.fsdecode(name), write):
                    raise Fenced(13, "outside of what the page may see", Path(os.fsdecode(name)).name)
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect"):
            raise Fenced(13, "a question starts no program and asks no other machine")

    sys.addaudithook(hook)


def answered(call: str, question: dict[str, Any], tell: Tell, package: str = ANSWERS) -> dict[str, Any]:
    """The answer of a function of `answers`, by "module.function"; jobs take `tell` and report on the way.

    >>> answered("what_if.shipped_names", {}, print)["done"]["chips"][0]["name"]
    'a100-40'
    >>> answered("what_if.predicted", {"model": "nonesuch", "system": "8xh200"}, print)["status"]
    422
    """
    module, _, name = call.partition(".")
    function = getattr(import_module(f"{package}.{module}"), name)
    try:
        reports = "route" in vars(function) and vars(function)["route"].job
        done = function(question, tell) if reports else function(question)
    except StrataError as error:
        return {"error": str(error), "status": 500 if isinstance(error, Unforeseen) else 422}
    except Fenced as error:
        return {"error": f"{error.filename or 'this'}: {error.strerror}", "status": 422}
    except RecursionError:
        return {"error": "this is nested too deep", "status": 422}
    except MemoryError:
        return {"error": "this needs more memory than a worker has", "status": 422}
    except Exception as error:  # a fault of ours; the page says so in a line and goes on
        if os.environ.get("STRATA_TRACEBACK"):
            import traceback

            traceback.print_exc()
        line = printable_line(f"a fault of strata's: {type(error).__name__}: {error}")
        return {"error": line, "status": 500}
    return {"done": plain_json(done)}


def work(inward: BinaryIO, outward: BinaryIO, package: str) -> None:
    """Answer questions until there are no more."""

    def tell(told: dict[str, Any]) -> None:
        outward.write(frame({"told": plain_json(told)}))
        outward.flush()

    while line := inward.readline():
        asked = parsed(line)
        outward.write(frame(answered(asked["call"], asked["question"], tell, package)))
        outward.flush()


def main() -> None:
    """Answer the server. What libraries print goes to stderr: the standard output carries answers alone."""
    warnings.simplefilter("ignore")
    package = sys.argv[1] if len(sys.argv) > 1 else ANSWERS
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")
    fence(os.getcwd())
    outward = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    work(sys.stdin.buffer, outward, package)


if __name__ == "__main__":
    main()
