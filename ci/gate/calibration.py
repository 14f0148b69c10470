"""How fast the machine is now: gate_planted's cases, which no change of ours touches, each in fresh processes, as records."""
import json
import os
import random
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gate.builds import Build
from gate.errors import CouldNotRun
from gate.inputs.made_lines import Line, all_reduce_line, kernel_line
from gate.inputs.records import CALIBRATION_PROGRAM
from gate.turns import calls_for
from gate.worker import Worker

RUN_LINE_PROGRAM = "all_reduce_perf"  # any that writes records: the machine and the build are in its run line
_DEADLINE_S = 60
_RUN_US, _RUNS = 1000.0, 12  # time and number of runs of each case


@dataclass(frozen=True)
class Group:
    """Cases of one worker."""

    word: str  # gate_planted's
    one_core: bool


GROUPS = (Group("alone", True), Group("collective", False))

# By case: a line of samples in us and of calls timed. Sizes as bench/gate_planted.cpp has them.
LINES: dict[str, Callable[[str, list[float], int], Line]] = {
    "memory": lambda run, us, calls: kernel_line(run, "calibration_memory", "memory", us, calls, work_bytes=256 << 10, shape="32MiB"),
    "compute": lambda run, us, calls: kernel_line(run, "calibration_compute", "compute", us, calls, flops=2 * 8 * 4000),
    "collective": lambda run, us, calls: all_reduce_line(run, us, calls, 64 << 10),
}


def calibrate(build: Build, processes: int) -> list[Line]:
    """Run lines, each with the lines of its process."""
    like = _run_line(build)
    return [line for _ in range(processes) for group in GROUPS for line in _of_process(build, group, like)]


def _of_process(build: Build, group: Group, like: Line) -> list[Line]:
    run = f"{random.getrandbits(64):016x}"
    ranks = 1 if group.one_core else 2
    lines = [like | {"run": run, "program": CALIBRATION_PROGRAM, "command": [CALIBRATION_PROGRAM, group.word, "--serve"], "ranks": ranks}]
    core = random.choice(sorted(os.sched_getaffinity(0))) if group.one_core else None
    with build.start([CALIBRATION_PROGRAM, group.word], {}, core) as worker:
        for index, case in enumerate(worker.ready()):
            samples, calls = _samples(worker, index)
            lines.append(LINES[case](run, samples, calls * len(samples)))
    return lines


def _samples(worker: Worker, case: int) -> tuple[list[float], int]:
    calls = calls_for(lambda number: worker.run(case, number)[0], _RUN_US)
    worker.run(case, calls)  # its caches and page tables are warm
    return worker.run(case, calls, _RUNS), calls


def _run_line(build: Build) -> Line:
    """Line `run` of this machine and build, as our programs write it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        command = [str(build.program(RUN_LINE_PROGRAM)), *"--ranks 2 -b 8 -e 8 -n 1 -w 0 --json".split(), str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise CouldNotRun(f"{RUN_LINE_PROGRAM}: has not ended within {_DEADLINE_S} s") from error
        try:
            return json.loads(path.read_text().splitlines()[0])
        except (OSError, ValueError, IndexError) as error:
            raise CouldNotRun(f"{RUN_LINE_PROGRAM}: wrote no record (status {done.returncode}): {done.stderr.strip()[-200:]}") from error
