"""What boards say of themselves: nvidia-smi, amd-smi and rocm-smi, read as samples; nan for what they do not."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from strata.measure.measure import Refused, Sample

NVIDIA_FIELDS = "power.draw,clocks.sm,clocks.mem,temperature.gpu,temperature.memory"
SAMPLE_EVERY = 100  # ms, of nvidia-smi's own loop
POLLED_EVERY = 0.05  # s between two calls of a tool without a loop; a call itself takes longer
PATIENCE = 20.0  # s that one call may take


def board_sample(line: str) -> Sample:
    """A line of nvidia-smi (`NVIDIA_FIELDS`, without units).

    >>> board_sample("652.1, 1500, 3201, 64, [N/A]")
    Sample(power_w=652.1, sm_mhz=1500.0, mem_mhz=3201.0, temp_c=64.0, mem_temp=nan)
    """
    return Sample(*(_number(cell) for cell in line.split(",")))


def nvidia_samples(text: str) -> list[Sample]:
    """The samples of nvidia-smi's loop; a line that was cut off is left out."""
    return [board_sample(line) for line in text.splitlines() if line.count(",") == NVIDIA_FIELDS.count(",")]


def amd_smi_samples(text: str) -> list[Sample]:
    """One sample for each GPU of `amd-smi metric --json`: socket power, mean clock of the compute dies that
    say it, memory clock, hotspot and memory temperature.

    >>> told = '[{"gpu": 0, "power": {"socket_power": {"value": 141, "unit": "W"}}, "clock": {"gfx_0": '
    >>> told += '{"clk": {"value": 2100, "unit": "MHz"}}, "gfx_1": "N/A"}, "temperature": "N/A"}]'
    >>> amd_smi_samples(told)
    [Sample(power_w=141.0, sm_mhz=2100.0, mem_mhz=nan, temp_c=nan, mem_temp=nan)]
    """
    told = _json(text)
    boards = told.get("gpu_data", []) if isinstance(told, dict) else told
    listed = boards if isinstance(boards, list) else []
    return [_amd_smi(board) for board in listed if isinstance(board, dict)]


def _amd_smi(board: Mapping[str, Any]) -> Sample:
    power, clock, heat = (_part(board, name) for name in ("power", "clock", "temperature"))
    sockets = ("socket_power", "current_socket_power", "average_socket_power")
    drawn = [_value(power.get(name)) for name in sockets]
    return Sample(
        power_w=next((w for w in drawn if not math.isnan(w)), math.nan),
        sm_mhz=_mean(_value(_part(clock, n).get("clk")) for n in clock if re.fullmatch(r"gfx(_\d+)?", n)),
        mem_mhz=_mean(_value(_part(clock, n).get("clk")) for n in clock if re.fullmatch(r"mem(_\d+)?", n)),
        temp_c=_value(heat.get("hotspot")),
        mem_temp=_value(heat.get("mem")),
    )


def rocm_smi_samples(text: str) -> list[Sample]:
    """One sample for each card of `rocm-smi --showpower --showclocks --showtemp --json`.

    >>> told = '{"card0": {"Average Graphics Package Power (W)": "35.0", "sclk clock speed:": "(132Mhz)", '
    >>> told += '"Temperature (Sensor junction) (C)": "41.0", "Temperature (Sensor memory) (C)": "33.0"}}'
    >>> rocm_smi_samples(told)
    [Sample(power_w=35.0, sm_mhz=132.0, mem_mhz=nan, temp_c=41.0, mem_temp=33.0)]
    """
    told = _json(text)
    cards = told.items() if isinstance(told, dict) else ()
    return [_rocm_smi(card) for name, card in cards if name.startswith("card") and isinstance(card, dict)]


def _rocm_smi(card: Mapping[str, Any]) -> Sample:
    def said(form: str) -> float:
        found = (value for key, value in card.items() if re.search(form, key, re.I))
        return next((n for n in map(_number, found) if not math.isnan(n)), math.nan)

    return Sample(
        power_w=said(r"^(current socket|average) graphics package power"),
        sm_mhz=said(r"^sclk clock speed"),
        mem_mhz=said(r"^mclk clock speed"),
        temp_c=said(r"sensor junction"),
        mem_temp=said(r"sensor mem"),
    )


def _json(text: str) -> Any:
    """What a tool printed as JSON, warnings before it left out; nothing where it is cut off."""
    at = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=0)
    try:
        return json.loads(text[at:])
    except (ValueError, RecursionError):
        return None


def _part(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = table.get(name)
    return part if isinstance(part, dict) else {}


def _value(told: Any) -> float:
    """A number with its unit beside it, a bare one, or what stands for none."""
    return _number(told.get("value") if isinstance(told, dict) else told)


def _number(cell: Any) -> float:
    """The number of a cell, a unit and brackets around it left out."""
    found = re.fullmatch(r"\s*\(?(-?\d+(?:\.\d+)?)\s*[A-Za-z°]*\)?\s*", str(cell))
    return float(found[1]) if found else math.nan


def _mean(values: Iterator[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return sum(known) / len(known) if known else math.nan


# ------------------------------------------------------------------------------------------- tools


# Tools that are asked again and again about a board, and how their answers are read.
AMD_TOOLS: dict[str, Callable[[str], list[Sample]]] = {
    "amd-smi metric -g {board} --power --clock --temperature --json": amd_smi_samples,
    "rocm-smi -d {board} --showpower --showclocks --showtemp --json": rocm_smi_samples,
}


def first_visible(environment: Mapping[str, str]) -> int:
    """The board behind PyTorch's first AMD device, as its tools count them.

    >>> first_visible({"HIP_VISIBLE_DEVICES": "3,4"}), first_visible({})
    (3, 0)
    """
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if (first := environment.get(name, "").split(",")[0].strip()).isdigit():
            return int(first)
    return 0


@contextmanager
def nvidia_watch(board: str) -> Iterator[list[Sample]]:
    """Samples of a board by nvidia-smi's own loop; the list is full when the block has ended."""
    samples: list[Sample] = []
    command = ["nvidia-smi", f"--id={board}", f"--query-gpu={NVIDIA_FIELDS}"]
    command += ["--format=csv,noheader,nounits", f"--loop-ms={SAMPLE_EVERY}"]
    with tempfile.TemporaryFile("w+") as told:
        try:
            sampler = subprocess.Popen(command, stdout=told, stderr=subprocess.DEVNULL)
        except OSError:
            raise Refused("the board told no power: nvidia-smi is not installed") from None
        try:
            yield samples
        finally:
            sampler.terminate()
            sampler.wait()
            told.seek(0)
            samples += nvidia_samples(told.read())


@contextmanager
def amd_watch(index: int) -> Iterator[list[Sample]]:
    """Samples of a board by the first of AMD's tools that is installed, asked again beside the load."""
    tool = next((command for command in AMD_TOOLS if shutil.which(command.split()[0])), "")
    if not tool:
        raise Refused("the board told no power: neither amd-smi nor rocm-smi is installed")
    samples: list[Sample] = []
    done = threading.Event()
    asked = (tool.format(board=index).split(), AMD_TOOLS[tool], samples, done)
    asker = threading.Thread(target=_ask_until, args=asked, daemon=True)
    asker.start()
    try:
        yield samples
    finally:
        done.set()
        asker.join(PATIENCE)


def _ask_until(
    command: list[str], read: Callable[[str], list[Sample]], samples: list[Sample], done: threading.Event
) -> None:
    while not done.is_set():
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.SubprocessError):
            return
        samples += read(answer.stdout)[:1]
        done.wait(POLLED_EVERY)
