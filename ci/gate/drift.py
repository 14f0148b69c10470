"""gate.py calibrate: measures the speed of the machine now, as records. Add them to the records of each session that is compared later, so that
`compare` can separate changes of the machine from changes of the code. Any build will do, but use the same for all sessions."""
import argparse
import json
import math
import os
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gate.builds import add_build_arguments, Build, resolve, ROOT
from gate.inputs.observation import Observation, Quantity
from gate.inputs.records import CALIBRATION_PROGRAM
from gate.model import UsageError
from gate.outputs.records import check_writable, text_of, write_whole
from gate.pairs import calls_for
from gate.rule import differences, Shift, shift_of
from gate.worker import Line as WorkerLine, Worker
from reports.lines import Line, line_of, stats_of

# ---- Drift of the machine: how much faster or slower it was in the second session, from cases that no change of ours can affect

Sides = tuple[Sequence[float], Sequence[float]]  # costs of base and of head
NOTABLE = math.log1p(0.03)  # more is reported, as it may not be the same machine


def of_quantity(base: Sequence[float], head: Sequence[float], error: float) -> Shift:
    """Drift between two sides' logarithms of costs, one per run; each bound is wrong with probability `error`. With too few runs for such
    bounds, the smallest and largest differences stand in for them."""
    found, extremes = shift_of(base, head, error), differences(base, head)
    return Shift(found.middle, max(found.low, float(extremes[0])), min(found.high, float(extremes[-1])))


def drifts(base: Mapping[Quantity, Sequence[Observation]], head: Mapping[Quantity, Sequence[Observation]],
           error: float) -> dict[str, Shift]:
    """Drift by kind of case: the median over the calibration cases of that kind, of the centre and of each bound. `error` is the
    probability that any lower bound, or any upper one, is wrong. With one run per case and side, cases bound each other."""
    of_kind: dict[str, list[Sides]] = {}
    for quantity, runs in base.items():
        if quantity.calibrates and quantity.kind is not None and quantity in head:
            sides = tuple([quantity.log_cost(run.typical) for run in side] for side in (runs, head[quantity]))
            of_kind.setdefault(quantity.kind, []).append(sides)
    return {kind: _of_kind(cases, error / len(of_kind)) for kind, cases in of_kind.items()}


def _of_kind(cases: Sequence[Sides], error: float) -> Shift:
    found = [of_quantity(*sides, error) for sides in cases]
    single = all(len(side) == 1 for sides in cases for side in sides)
    least, most = (min, max) if single else (statistics.median, statistics.median)
    return Shift(statistics.median(drift.middle for drift in found), least(drift.low for drift in found), most(drift.high for drift in found))


def drift_of(kind: str | None, found: Mapping[str, Shift]) -> Shift:
    """Drift of a case of this kind. If the kind was not calibrated, nothing is subtracted, but the interval contains the drift of
    every kind."""
    if kind in found:
        return found[kind]
    return Shift(0.0, min([0.0, *(drift.low for drift in found.values())]), max([0.0, *(drift.high for drift in found.values())]))


def notes(found: Mapping[str, Shift], trust: bool) -> list[str]:
    if not found:
        so = "" if trust else ", and no time is called slower or faster for it (gate.py calibrate; or --uncalibrated trust)"
        return [f"no calibration cases on both sides: what the machine itself changed is in the ratios{so}"]
    percent = {kind: f"{_percent(drift.middle)} ({_percent(drift.low)} .. {_percent(drift.high)})" for kind, drift in sorted(found.items())}
    lines = ["calibration: " + ", ".join(f"{kind} {text}" for kind, text in percent.items()) + "; taken out of the ratios"]
    moved = [kind for kind in percent if abs(found[kind].middle) > NOTABLE]
    if moved:
        lines.append(f"the machine was not the same: {', '.join(moved)} moved by more than {math.expm1(NOTABLE) * 100:.0f} %; "
                    "measure both sides again, alternating them (gate.py ab)")
    return lines


def _percent(log_ratio: float) -> str:
    return f"{math.expm1(log_ratio) * 100:+.1f} %"


# Speed of the machine now: gate_planted's cases, which no change of ours affects, each in fresh processes, as records.

RUN_LINE_PROGRAM = "all_reduce_perf"  # any program that writes records: the machine and the build are in its run line
_RUN_US, _RUNS = 1000.0, 12  # time and number of runs of each case
GROUPS = (WorkerLine("alone", "one", (CALIBRATION_PROGRAM, "alone")), WorkerLine("collective", "all", (CALIBRATION_PROGRAM, "collective")))

# By case: the kind of its record line, and the fields besides its samples. The sizes are as in bench/gate_planted.cpp.
LINES: dict[str, tuple[str, Line]] = {
    "memory": ("kernel", {"kernel": "calibration_memory", "bound": "memory", "shape": "32MiB", "bytes": 256 << 10, "dtype": "f64"}),
    "compute": ("kernel", {"kernel": "calibration_compute", "bound": "compute", "shape": "fixed", "flops": 2 * 8 * 4000, "dtype": "f64"}),
    # Each of two ranks sends half of its part to the other, twice.
    "collective": ("row", {"collective": "all_reduce", "algorithm": "two_shot", "executor": "direct", "transport": "local", "ranks": 2,
                           "bytes": 64 << 10, "count": 16 << 10, "dtype": "float", "op": "sum"}),
}


def line_of_case(case: str, run: str, samples_us: Sequence[float], calls: int) -> Line:
    """Record line of a case of gate_planted, unchecked, by the run's id and the number of timed calls."""
    kind, fields = LINES[case]
    stats = stats_of(samples_us)
    gb_per_s = fields.get("bytes", 0) / stats["median"] / 1e3
    rates = ({"algbw_gbps": gb_per_s, "busbw_gbps": gb_per_s} if kind == "row" else
             {"gbps": gb_per_s, "gflops": fields.get("flops", 0) / stats["median"] / 1e3})
    return line_of(kind, case, run=run, iterations=calls, time_us=stats["mean"], samples_us=list(samples_us), stats=stats, **fields, **rates)


def calibrate(build: Build, processes: int) -> list[Line]:
    """Run lines, each with the lines of its process."""
    like = _run_line(build)
    return [line for _ in range(processes) for group in GROUPS for line in _of_process(build, group, like)]


def _of_process(build: Build, group: WorkerLine, like: Line) -> list[Line]:
    run = f"{random.getrandbits(64):016x}"
    ranks = 1 if group.one_core else 2
    lines = [like | {"run": run, "program": CALIBRATION_PROGRAM, "command": [*group.command, "--serve"], "ranks": ranks}]
    core = random.choice(sorted(os.sched_getaffinity(0))) if group.one_core else None
    with build.start(group.command, {}, core) as worker:
        for index, case in enumerate(worker.ready()):
            samples, calls = _samples(worker, index)
            lines.append(line_of_case(case, run, samples, calls * len(samples)))
    return lines


def _samples(worker: Worker, case: int) -> tuple[list[float], int]:
    calls = calls_for(lambda number: worker.run(case, number)[0], _RUN_US)
    worker.run(case, calls)  # its caches and page tables are warm
    return worker.run(case, calls, _RUNS), calls


def _run_line(build: Build) -> Line:
    """Line `run` of this machine and build, as our programs write it."""
    with tempfile.TemporaryDirectory() as folder:
        file = build.records("calibrate", [RUN_LINE_PROGRAM, *"--ranks 2 -b 8 -e 8 -n 1 -w 0".split()], Path(folder) / "run.jsonl")
        return json.loads(file.read_text().splitlines()[0])


# ---- The command of gate.py

def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--build", required=True, metavar="REV|BUILD", help="a build folder, or a revision")
    parser.add_argument("--json", required=True, type=Path, metavar="FILE", help="file for the records")
    parser.add_argument("--processes", type=int, default=8, metavar="N",
                        help="number of fresh processes of each case: only processes are independent (default: 8)")
    add_build_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.processes < 1:
        raise UsageError(f"--processes {arguments.processes}; allowed: at least 1")
    check_writable(arguments.json, "--json")
    programs = [CALIBRATION_PROGRAM, RUN_LINE_PROGRAM]
    build = resolve(arguments.build, "--build", programs, ROOT, arguments.build_cache, arguments.cmake)
    lines = calibrate(build, arguments.processes)
    write_whole(arguments.json, text_of(lines), "--json")
    print(f"{arguments.json}: {arguments.processes} runs of each of the calibration cases")
    return 0
