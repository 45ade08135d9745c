"""What a worker may read and write: the installed packages, the project's own data, and its study folder. A
question names things by name; a path that slips through is refused where the file would be opened.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

READABLE = ("/proc", "/sys", "/dev", "/usr/share", "/etc/fonts", "/usr/lib")  # what libraries look at
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


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
        elif event in (
            "os.remove",
            "os.rename",
            "os.mkdir",
            "os.rmdir",
            "shutil.rmtree",
            "os.symlink",
            "os.link",
        ):
            for name in arguments[:2] if event in ("os.rename", "os.symlink", "os.link") else arguments[:1]:
                if not isinstance(name, int) and not inside(os.fsdecode(name), write):
                    raise Fenced(13, "outside of what the page may see", Path(os.fsdecode(name)).name)
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect"):
            raise Fenced(13, "a question starts no program and asks no other machine")

    sys.addaudithook(hook)
