"""Bad inputs by the thousand: each must end with exit code 0 or 2 and one line, within 20 seconds and 4 GB.

    python tests/fuzz/fuzz.py --cases 100000 --seed 1        # what `make fuzz` runs
    python tests/fuzz/fuzz.py --only chip --seed 1 --case 1234   # one case again, with its traceback

A case is made from the seed and its number alone. Cases run in forked processes, some hundred in each, so that one
that hangs or eats memory is ended without the others; some command lines run as programs of their own too.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import io
import json
import multiprocessing
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from bases import ARGUMENTS, CALLS, COMMANDS, ROOT, SPACE, around, files
from found import found_call, found_line
from mutations import WORDS, bad_bytes, bad_csv, bad_expression, bad_log, bad_table, bad_text, toml_text

SECONDS, MEMORY = 20.0, 4 << 30  # what no case may pass
LONGEST = 420  # characters of an error, its file's name included
GRACE = 60.0  # seconds by the clock after which a case that does not listen is killed
AT_ONCE = 400  # cases of one process
PROGRAMS = 500  # of so many command lines one runs as a program of its own as well
# Out of a hundred cases.
SHARES = {"command": 38, "file": 33, "kept": 3, "expression": 8, "python": 18}
Placed = dict[str, bytes | str | None]  # content of files; text is where a link leads, None a folder


@dataclass(frozen=True)
class FuzzCase:
    """An input: a command line with the files it finds, an expression, or a call from Python."""

    kind: str
    words: tuple[str, ...] = ()
    files: Placed = field(default_factory=dict)
    text: str = ""
    best: Any = None  # of a study that is taken up again: what it must find, if it ends well

    @property
    def shown(self) -> str:
        return self.text if self.text else shlex.join(("strata", *self.words))


class TooSlow(BaseException):
    """A case ran past its time."""


# ------------------------------------------------------------------------------------------ cases


def make_case(seed: int, number: int, only: str = "") -> FuzzCase:
    """The case of a seed and a number."""
    rng = random.Random(f"{seed}:{number}")
    group = rng.choices(list(SHARES), list(SHARES.values()))[0]
    if only in SHARES:
        group = only
    elif only:
        group = "file"
    if group == "command":
        return _command(rng)
    if group == "file":
        return _file(rng, only if only != "file" else "")
    if group == "expression":
        return FuzzCase("expression", text=bad_expression(rng))
    if group == "kept":
        return _kept(rng)
    if rng.random() < 0.4:
        return FuzzCase("python", text=found_call(rng))
    return FuzzCase("python", text=rng.choice(CALLS).format(rng.choice(ARGUMENTS)))


def _command(rng: random.Random) -> FuzzCase:
    if rng.random() < 0.4:
        words = list(found_line(rng))
        return FuzzCase(f"command {words[0]}", tuple(w.replace("\x00", "") for w in words), around())
    line, _, pinned = rng.choice(COMMANDS).partition("|")
    words = line.split()
    lead = 2 if words[0] == "kernel" else 1
    for _ in range(1 if rng.random() < 0.7 else 2):
        at = rng.randrange(lead, len(words)) if len(words) > lead else lead
        how = rng.randrange(12)
        if how == 0:
            del words[at : at + 1]
        elif how == 1:
            words.insert(at, rng.choice(("--nosuch", "-z", "--json", "--help", rng.choice(WORDS))))
        elif how == 2:
            words.append(bad_text(rng, words[at] if at < len(words) else "x"))
        elif how == 3:
            words += words[at : at + 2]
        elif how == 4 and len(words) > lead + 1:
            other = rng.randrange(lead, len(words))
            words[at], words[other] = words[other], words[at]
        else:
            values = [i for i in range(lead, len(words)) if not words[i].startswith("-")]
            at = rng.choice(values) if values else len(words) - 1
            words[at] = bad_text(rng, words[at])
    kept = pinned.split()
    if kept and rng.random() < 0.1:
        kept[-1] = rng.choice(("0", "-1", "nan", "inf", "x", "1.5", ""))
    return FuzzCase(f"command {words[0]}", tuple(w.replace("\x00", "") for w in (*words, *kept)), around())


_FILES: list[Any] = []


def _file(rng: random.Random, only: str) -> FuzzCase:
    if not _FILES:
        _FILES.extend(files())
    kinds = sorted({kind for kind, *_ in _FILES})
    wanted = only or rng.choice(kinds)
    kind, name, content, commands = rng.choice([f for f in _FILES if f[0] == wanted])
    how = rng.random()
    made: bytes | str | None
    if how < 0.02:
        made = rng.choice((None, "loop", "nowhere", "."))
    elif how < 0.25:
        made = bad_bytes(rng, content)
    elif name.endswith(".csv"):
        made = bad_csv(rng, content)
    elif name.endswith(".log"):
        made = bad_log(rng, content)
    else:
        made = _written(rng, name, content)
    placed = {**around(), name: made}
    return FuzzCase(kind, tuple(rng.choice(commands).split()), placed)


def _written(rng: random.Random, name: str, content: bytes) -> bytes:
    import tomllib

    if name.endswith(".toml"):
        return toml_text(bad_table(rng, tomllib.loads(content.decode()))).encode("utf-8", "replace")
    return json.dumps(bad_table(rng, json.loads(content)), default=str).encode()


_STUDIES: dict[str, tuple[dict[str, bytes], Any]] = {}  # by sampler: the files of a finished study, its best


def _kept(rng: random.Random) -> FuzzCase:
    """A study on disk with files of it lost, cut, emptied, flipped, changed places, taken up again."""
    sampler = rng.choice(("exact", "random", "nsga2", "tpe", "hierarchical"))
    words = f"search space.toml --sampler {sampler} --budget 24 --executor one --seed 1 --out kept --resume --json"
    if sampler not in _STUDIES:
        _STUDIES[sampler] = _study(words.split())
    files, best = _STUDIES[sampler]
    placed: Placed = {**around(), **files}
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(sorted(n for n in placed if n.startswith("kept/")) or ["kept/manifest.json"])
        content = placed.get(name) or b""
        how = rng.randrange(6)
        if how == 0:
            placed.pop(name, None)
        elif how == 1:
            placed[name] = rng.choice((None, "loop", "nowhere"))
        elif how == 2 and name.endswith(".json"):
            placed[name] = _written(rng, name, files[name])
        elif how == 3:
            other = rng.choice(sorted(files))
            placed[name], placed[other] = files[other], content
        elif how == 4:
            placed[f"{name}{rng.choice(('.partial', 'x', '2.parquet', '.npz'))}"] = content
        else:
            placed[name] = bad_bytes(rng, content if isinstance(content, bytes) and content else b"x")
    return FuzzCase("study taken up again", tuple(words.split()), placed, best=best)


def _study(words: list[str]) -> tuple[dict[str, bytes], Any]:
    from strata.app.cli import run_command

    here, out = Path.cwd(), io.StringIO()
    with tempfile.TemporaryDirectory(prefix="strata-fuzz-") as made:
        os.chdir(made)
        Path("space.toml").write_text(SPACE)
        try:
            with contextlib.redirect_stdout(out):
                run_command([w for w in words if w != "--resume"])
        finally:
            os.chdir(here)
        files = {
            str(p.relative_to(made)): p.read_bytes()
            for p in sorted(Path(made, "kept").rglob("*"))
            if p.is_file() and p.name != ".lock"
        }
    return files, json.loads(out.getvalue())["best"]


# ------------------------------------------------------------------------------------------ one case


def run_case(case: FuzzCase, folder: Path) -> str:
    """What is wrong with how a case ends, or nothing."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    went: str = ""
    warned: list[warnings.WarningMessage] | None = None
    inside = folder / "here"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir(parents=True)
    _place(case, inside)
    os.chdir(inside)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of work: other programs may share the machine
            try:
                code = _outcome(case)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
    except TooSlow:
        went = f"ran over {SECONDS:g} s at {_where()}"
    except MemoryError:
        went = f"took over {MEMORY / 2**30:g} GiB at {_where()}"
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        went = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''} at {_where()}"
    finally:
        os.chdir(folder)
    if not went and case.best is not None and code in (0, None):
        found = json.loads(out.getvalue())["best"]
        went = "" if found == case.best else f"another best than the whole study has: {str(found)[:150]}"
    if warned and not went:
        first = warned[0]
        where = f"{Path(first.filename).name}:{first.lineno}"
        went = f"a warning: {first.category.__name__}: {str(first.message)[:150]} at {where}"
    return went or _judged(code, err.getvalue())


def _outcome(case: FuzzCase) -> Any:
    if case.words:
        from strata.app.cli import run_command

        return run_command(list(case.words))
    import numpy as np

    import strata as st
    from strata.base.errors import Unforeseen
    from strata.base.expression import Names, calculate

    try:
        if case.kind == "expression":
            arrays = {"a": np.array([1.0, 2.0, 4.0]), "b": 3.0, "ep": np.array([1.0, 2.0]), "cp": 1.0}
            calculate(case.text, {**arrays, "run": Names("run", arrays)}, "here")
        else:
            Path("space.toml").write_text(SPACE)
            known = {"st": st, "np": np, "inf": np.inf, "nan": np.nan, "Path": Path, "SPACE": "space.toml"}
            eval(case.text, known)
    except Unforeseen as error:
        raise error.__cause__ or error from None
    except st.StrataError as error:
        sys.stderr.write(f"strata: {error}\n")
        return 2
    return 0


def _judged(code: Any, said: str) -> str:
    lines = said.splitlines()
    if code not in (0, 2, None):
        return f"exit code {code}: {said[:200]}"
    if "Traceback" in said or "Warning" in said:
        where = next((line for line in lines if "Warning" in line or "Traceback" in line), "")
        return f"a warning: {where[:200]}"
    written = (
        "report: ",
        "picture: ",
        "pictures: ",
        "graph: ",
        "trace: ",
        "roofline: ",
        "result: ",
        "chip: ",
    )
    lines = [line for line in lines if not line.startswith(written)]
    said = "\n".join(lines)
    if code == 2 and (len(lines) != 1 or not said.startswith("strata: ") or len(said) < 12):
        return f"{len(lines)} lines of error: {said[:200]!r}"
    if "a fault of strata" in said:
        return f"unforeseen: {said[:200]}"
    if code == 2 and len(said) > LONGEST and ": missing key" not in said:  # of which all are said
        return f"an error of over {LONGEST} characters: {len(said)}, {said[:160]}"
    return ""


def _where() -> str:
    """The innermost line of strata that a failure passed through."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    own = [f for f in frames if f"{os.sep}strata{os.sep}" in f.filename]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}" if own else "?"


def _place(case: FuzzCase, folder: Path) -> None:
    for name, content in case.files.items():
        path = folder / name
        if not path.parent.is_dir():
            path.parent.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)


def run_program(case: FuzzCase, folder: Path) -> str:
    """The same as a program of its own."""
    inside = folder / "there"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir(parents=True)
    _place(case, inside)
    ran = [sys.executable, "-m", "strata.app.cli", *case.words]
    around_it = {k: v for k, v in os.environ.items() if k != "STRATA_TRACEBACK"} | {"PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            ran, cwd=inside, env=around_it, capture_output=True, timeout=SECONDS + 5, check=False
        )
    except subprocess.TimeoutExpired:
        return f"ran over {SECONDS:g} s"
    return _judged(done.returncode, done.stderr.decode("utf-8", "replace"))


# ------------------------------------------------------------------------------------------ smaller


def smaller(case: FuzzCase, failure: str, folder: Path) -> FuzzCase:
    """A case as short as it fails in the same way: words and lines of files left out one by one."""

    def same(trial: FuzzCase) -> bool:
        return _class(run_case(trial, folder)) == _class(failure)

    if "ran over" in failure or "took over" in failure or case.best is not None:
        return case
    i = len(case.words) - 1
    while i > 0:
        trial = replace(case, words=case.words[:i] + case.words[i + 1 :])
        if same(trial):
            case = trial
        i -= 1
    own = {
        name: content
        for name, content in case.files.items()
        if any(name.split("/")[0] in w for w in case.words)
    }
    if own != case.files and same(trial := replace(case, files=own)):
        case = trial
    for name, content in case.files.items():
        lines = content.split(b"\n") if isinstance(content, bytes) else []
        if len(lines) > 40:
            continue
        for j in range(len(lines) - 1, -1, -1):
            trial = replace(case, files={**case.files, name: b"\n".join(lines[:j] + lines[j + 1 :])})
            if same(trial):
                case, lines = trial, lines[:j] + lines[j + 1 :]
    return case


def _class(failure: str) -> str:
    """A failure without its values: the kind of exception and where it was raised."""
    head, at, where = failure.rpartition(" at ")
    return f"{head.split(':')[0]} at {where}" if at else failure[:60]


# ------------------------------------------------------------------------------------------ many


def work(seed: int, numbers: list[int], only: str, pipe: Connection) -> None:
    """Cases one after the other, in a process of their own; what each found goes to the pipe."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, lambda *_: (_ for _ in ()).throw(TooSlow()))
    faulthandler.disable()
    folder = Path(tempfile.mkdtemp(prefix="strata-fuzz-"))
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 0)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        for number in numbers:
            pipe.send(("start", number))
            case = make_case(seed, number, only)
            began = time.monotonic()
            failure = run_case(case, folder)
            if not failure and case.words and number % PROGRAMS == 0:
                failure = run_program(case, folder)
            pipe.send(("done", number, case.kind, failure, time.monotonic() - began))
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
        pipe.close()


@dataclass
class Worker:
    process: Any
    pipe: Connection
    left: list[int]
    case: int = -1
    began: float = 0.0


def run_cases(
    seed: int, numbers: list[int], only: str = "", workers: int = 2, until: float = 0.0
) -> list[dict[str, Any]]:
    """What every case found: its number, kind, failure and time; none is begun after `until` seconds."""
    warm()
    fork = multiprocessing.get_context("fork")
    waiting = [numbers[i : i + AT_ONCE] for i in range(0, len(numbers), AT_ONCE)][::-1]
    found: list[dict[str, Any]] = []
    busy: list[Worker] = []
    ends = time.monotonic() + until if until else float("inf")

    def start(share: list[int]) -> None:
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=work, args=(seed, share, only, theirs), daemon=True)
        process.start()
        theirs.close()
        busy.append(Worker(process, ours, share))

    while waiting or busy:
        while waiting and len(busy) < workers and time.monotonic() < ends:
            start(waiting.pop())
        if time.monotonic() >= ends:
            waiting.clear()
        ready = wait([w.pipe for w in busy], timeout=1.0)
        for worker in list(busy):
            late = worker.case >= 0 and time.monotonic() - worker.began > SECONDS + GRACE
            ended = time.monotonic() >= ends
            if worker.pipe in ready and not ended:
                try:
                    told = worker.pipe.recv()
                except EOFError:
                    told = None
                if told and told[0] == "start":
                    worker.case, worker.began = told[1], time.monotonic()
                    continue
                if told:
                    worker.case = -1
                    worker.left = worker.left[worker.left.index(told[1]) + 1 :]
                    found.append(dict(zip(("number", "kind", "failure", "seconds"), told[1:], strict=True)))
                    _tell(found[-1])
                    if len(found) % 10_000 == 0:
                        print(f"{len(found):,} cases", file=sys.stderr, flush=True)
                    continue
            elif not late and not ended:
                continue
            worker.process.kill()
            worker.process.join()
            busy.remove(worker)
            if worker.case >= 0 and not ended:  # it hung, or the process died under it
                said = f"ran over {SECONDS:g} s and did not listen" if late else "the process died"
                kind = make_case(seed, worker.case, only).kind
                found.append(
                    {
                        "number": worker.case,
                        "kind": kind,
                        "failure": said,
                        "seconds": time.monotonic() - worker.began,
                    }
                )
                _tell(found[-1])
                rest = worker.left[worker.left.index(worker.case) + 1 :]
                if rest:
                    waiting.append(rest)
    return found


def _tell(found: dict[str, Any]) -> None:
    """A failure is said when it is found: a run of hours need not end to be of use."""
    if found["failure"]:
        print(
            f"case {found['number']}, {found['kind']}: {found['failure'][:180]}", file=sys.stderr, flush=True
        )


def warm() -> None:
    """Load what cases need before processes are forked."""
    import strata.app.cli
    import strata.base.calls
    import strata.search
    import strata.serving
    from strata.app.cli import run_command

    os.environ["STRATA_TRACEBACK"] = "1"  # what no check foresaw counts, and where it was
    strata.base.calls.quiet = contextlib.nullcontext
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run_command(["predict", "-m", "llama-3-8b", "-s", "8xh200", "--plan", "tp=8", "--explain"])


def summary(found: list[dict[str, Any]]) -> str:
    """Cases and failures by kind of input, then failures by cause with the first of each."""
    kinds = collections.Counter(f["kind"] for f in found)
    failed = [f for f in found if f["failure"]]
    bad = collections.Counter(f["kind"] for f in failed)
    slowest = collections.defaultdict(float)
    for f in found:
        slowest[f["kind"]] = max(slowest[f["kind"]], f["seconds"])
    lines = [f"{'kind':24} {'cases':>7} {'failed':>7} {'slowest':>8}"]
    lines += [f"{k:24} {n:7} {bad[k]:7} {slowest[k]:7.1f}s" for k, n in sorted(kinds.items())]
    lines += [
        f"{'all':24} {len(found):7} {len(failed):7} {max([f['seconds'] for f in found], default=0):7.1f}s"
    ]
    causes = collections.defaultdict(list)
    for f in failed:
        causes[_class(f["failure"])].append(f)
    for cause, of in sorted(causes.items(), key=lambda item: -len(item[1])):
        kinds_of = collections.Counter(f["kind"] for f in of)
        lines.append(
            f"{len(of):5} x {cause}   [{', '.join(f'{k} {n}' for k, n in kinds_of.most_common(4))}] case {of[0]['number']}"
        )
        lines.append(f"        {of[0]['failure'][:180]}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="command, file, expression, python, or one kind of file")
    parser.add_argument("--case", type=int, default=-1, help="run one case here, with its traceback")
    parser.add_argument("--first", type=int, default=0, help="the number to begin with, to go on with a run")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=0.0, help="begin none after so long")
    parser.add_argument(
        "--show", type=int, default=20, help="of so many causes the smallest input that shows it"
    )
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if given.case >= 0:
        return _one(given)
    numbers = list(range(given.first, given.cases))
    found = run_cases(given.seed, numbers, given.only, given.workers, given.minutes * 60)
    print(summary(found))
    shown: dict[str, dict[str, Any]] = {}
    for f in found:
        if f["failure"]:
            shown.setdefault(_class(f["failure"]), f)
    for f in list(shown.values())[: given.show]:
        _show_smaller(given.seed, f, given.only)
    return 1 if shown else 0


def _show_smaller(seed: int, f: dict[str, Any], only: str) -> None:
    ran = [sys.executable, __file__, "--seed", str(seed), "--case", str(f["number"]), "--only", only]
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(ran, capture_output=True, text=True, timeout=120, check=False)
        print("-" * 100 + "\n" + "\n".join(done.stdout.splitlines()[-25:]))


def _content(held: bytes | str | None) -> str:
    if isinstance(held, bytes):
        return held[:1500].decode("utf-8", "replace")
    return "(a folder)" if held is None else f"(a link to {held})"


def _one(given: argparse.Namespace) -> int:
    warm()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, lambda *_: (_ for _ in ()).throw(TooSlow()))
    with tempfile.TemporaryDirectory(prefix="strata-fuzz-") as folder:
        case = make_case(given.seed, given.case, given.only)
        failure = run_case(case, Path(folder))
        if failure:
            case = smaller(case, failure, Path(folder))
        print(f"case {given.case} of seed {given.seed}, {case.kind}: {failure or 'fine'}\n{case.shown[:600]}")
        named = [n for n in case.files if any(n.split("/")[0] in w for w in case.words)]
        for name in named:
            print(f"--- {name}\n{_content(case.files[name])}")
        os.chdir("/")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
