#!/usr/bin/env python3
"""Measures the gate itself on this machine: trials of `gate.py ab` in which both sides are one build, and trials with a planted
slowdown, on every case of the real suite. docs/gate.md has the figures.

    cmake -B build/plant -G Ninja -DLOCKSTEP_PLANT=ON && cmake --build build/plant
    python3 ci/gate_selftest.py --build build/plant --records selftest.jsonl --seconds 240     # again and again
    python3 ci/gate_selftest.py --records selftest.jsonl --summary

Each call adds the trials of which the records have the fewest, so that they can be collected in slices of a few minutes."""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np

from gate.ab import Budget, measure
from gate.builds import Build, build_at, say, wipe
from gate.commands.ab import SUITE
from gate.model import GateError, UsageError
from gate.pairs import Pairing
from gate.rule import Rule
from gate.selftest import CASE_SECONDS, Kind, Records, summary, Trial
from gate.worker import Line, load_suite

# ---- Load by other programs, for tests: processes that compute or stream memory in bursts of random length


@contextmanager
def background_noise(processes: int) -> Iterator[None]:
    """Runs this many processes, busy about two thirds of the time, while the body runs."""
    command = [sys.executable, "-c", "from gate_selftest import make_noise; make_noise()"]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
    noisy = [subprocess.Popen(command, env=environment) for _ in range(processes)]
    try:
        yield
    finally:
        for process in noisy:
            process.send_signal(signal.SIGKILL)
            process.wait()


def make_noise() -> None:
    """Bursts of 2 ms to 2 s, half of them arithmetic and half memory, with pauses half as long."""
    words = np.ones(1 << 22)  # 32 MiB
    few = np.ones(1 << 10)
    parent = os.getppid()
    while os.getppid() == parent:  # its parent may have been killed
        length = 10 ** random.uniform(-2.7, 0.3)
        array = random.choice([words, few])
        end = time.monotonic() + length
        while time.monotonic() < end:
            array *= 1.0000001
        time.sleep(length * random.uniform(0, 1))


def trial_of(line: Line, kind: Kind, build: Build) -> list[Trial]:
    """One verdict on each of the line's cases."""
    head = {"LOCKSTEP_PLANTED_PERCENT": f"{kind.percent:g}"} if kind.percent else {}
    pairing = Pairing(partial(build.start, line.command, {}), partial(build.start, line.command, head), line.one_core)
    with background_noise(kind.noise) if kind.noise else nullcontext():
        base, _ = pairing.cases()
        results = measure({line.name: pairing}, Rule(), Budget(CASE_SECONDS * len(base)))
    return [Trial.of(result, line.name, kind) for result in results]


def collect(lines: list[Line], kinds: dict[Kind, int], build: Build, records: Records, seconds: float) -> None:
    """Runs trials, beginning with the kinds that have the fewest for their goal, until all goals or the time are reached."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done = {(line, kind): records.trials_of(line.name, kind) / goal for line in lines for kind, goal in kinds.items()}
        least = min(done.values())
        if least >= 1:
            return
        line, kind = random.choice([one for one, share in done.items() if share == least])
        records.add(trial_of(line, kind, build))
        say(f"{line.name}, {kind}: {100 * least:.0f} % of the trials of all lines are done")


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", help="a build folder, for planted trials one with LOCKSTEP_PLANT=ON")
    parser.add_argument("--suite", type=Path, default=SUITE, metavar="FILE", help="lines NAME CORES COMMAND (default: ci/gate_suite.txt)")
    parser.add_argument("--same", type=int, default=100, metavar="N", help="trials of a build against itself, per case (default: 100)")
    parser.add_argument("--planted", type=int, default=100, metavar="N", help="trials of each planted slowdown (default: 100)")
    parser.add_argument("--percent", default="3,5", metavar="LIST", help="the planted slowdowns (default: 3,5)")
    parser.add_argument("--noise", type=int, default=0, metavar="N", help="number of busy processes beside the trials (default: 0)")
    parser.add_argument("--records", type=Path, required=True, metavar="FILE", help="JSON Lines: trials so far, to which this call adds")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S",
                        help="time after which no trial begins (default: all trials are made)")
    parser.add_argument("--summary", action="store_true", help="run no trials, only print the table of those in the records")
    return parser.parse_args(words)


def kinds_of(arguments: argparse.Namespace) -> dict[Kind, int]:
    """The wanted number of trials of each kind."""
    try:
        percents = [float(word) for word in arguments.percent.split(",")]
    except ValueError:
        percents = []
    if not percents or not all(0 < percent <= 1000 for percent in percents):
        raise UsageError(f"--percent {arguments.percent}; allowed: a list of numbers above 0, up to 1000")
    wanted = {0.0: arguments.same, **dict.fromkeys(percents, arguments.planted)}
    return {Kind(percent, arguments.noise): number for percent, number in wanted.items() if number > 0}


def main(words: list[str] | None = None) -> int:
    arguments = parse(words)
    try:
        records = Records(arguments.records)
        if not arguments.summary:
            if arguments.build is None:
                raise UsageError("--build is missing; allowed: a build folder, or --summary")
            build = build_at(Path(arguments.build), "--build")
            collect(load_suite(arguments.suite), kinds_of(arguments), build, records, arguments.seconds)
            wipe()
        text, met = summary(records.trials)
        print(text)
        return 0 if met else 1
    except GateError as error:
        wipe()
        print(f"gate_selftest.py: {error}", file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
