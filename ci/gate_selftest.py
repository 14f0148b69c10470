#!/usr/bin/env python3
"""Measures the gate itself on this machine: trials of `gate.py ab` in which both sides are one build, and trials with a planted
slowdown, on every case of the real suite. docs/gate.md has the figures.

    cmake -B build/plant -G Ninja -DLOCKSTEP_PLANT=ON && cmake --build build/plant
    python3 ci/gate_selftest.py --build build/plant --records selftest.jsonl --seconds 240     # again and again
    python3 ci/gate_selftest.py --records selftest.jsonl --summary

Each call adds the trials of which the records have the fewest, so that they can be collected in slices of a few minutes."""

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from gate.ab import Budget, measure, SUITE
from gate.builds import Build, build_at, wipe
from gate.model import GateError, Result, UsageError, Verdict
from gate.pairs import Pairing
from gate.rule import Rule
from gate.worker import Line, load_suite
from reports.progress import Progress

# ---- Trials: their verdicts, kept as JSON Lines, and their summary

CASE_SECONDS = 4.0  # a trial's budget for each case of its line
# Goals on a quiet machine, in percent: for a build against itself, and for planted slowdowns by their size.
MOST_BIAS, MOST_FALSE, LEAST_SAME = 0.3, 1.0, 90.0
LEAST_FOUND = {3.0: 60.0, 5.0: 90.0}


@dataclass(frozen=True, order=True)
class Kind:
    """Settings of a trial."""

    percent: float  # slowdown planted in the head; 0: one build against itself
    noise: int  # number of busy processes at the same time

    def __str__(self) -> str:
        return f"{self.percent:g} % planted" + (f", {self.noise} busy processes" if self.noise else "")


@dataclass(frozen=True)
class Trial:
    """One verdict on one case."""

    line: str
    case: str
    percent: float
    noise: int
    verdict: str
    change: float | None  # head over base, minus 1, in percent; None where the budget was spent before there was one
    low: float | None
    high: float | None
    seconds: float
    ratios: list[float]  # ratios of its pairs

    @classmethod
    def of(cls, result: Result, line: str, kind: Kind) -> "Trial":
        percents = (None if ratio is None else round(100 * (ratio - 1), 4) for ratio in (result.ratio, result.low, result.high))
        return cls(line, result.case, kind.percent, kind.noise, result.verdict.value, *percents, round(result.seconds, 3),
                   [round(ratio, 5) for ratio in result.ratios])


class Records:
    """A file of trials, one per line, to which more are added."""

    def __init__(self, path: Path):
        self._path = path
        self.trials: list[Trial] = []
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), start=1):
            try:
                self.trials.append(Trial(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise UsageError(f"--records {path}, line {number}: not a trial; allowed: a file of this program's, or a new one") from error

    def add(self, trials: Iterable[Trial]) -> None:
        with self._path.open("a") as file:
            for trial in trials:
                file.write(json.dumps(asdict(trial)) + "\n")
                self.trials.append(trial)

    def trials_of(self, line: str, kind: Kind) -> int:
        """Number of trials of this kind for the line's case that has the most."""
        cases = [trial.case for trial in self.trials if (trial.line, trial.percent, trial.noise) == (line, kind.percent, kind.noise)]
        return max(map(cases.count, set(cases)), default=0)


@dataclass(frozen=True)
class Tally:
    """Trials of one kind."""

    trials: Sequence[Trial]

    def share(self, *verdicts: Verdict) -> float:
        """In percent."""
        return 100 * self._count(*verdicts) / len(self.trials)

    def interval(self, *verdicts: Verdict) -> tuple[float, float]:
        """95 % interval of the rate that share() estimates, in percent."""
        interval = binomtest(self._count(*verdicts), len(self.trials)).proportion_ci(method="wilson")
        return 100 * interval.low, 100 * interval.high

    def bias(self) -> tuple[float, float]:
        """The mean signed change, and half the width of its interval of 95 %, in percent. Trials are independent."""
        changes = [trial.change for trial in self.trials if trial.change is not None]
        if len(changes) < 2:
            return statistics.fmean(changes or [0.0]), math.inf
        return statistics.fmean(changes), 1.96 * statistics.stdev(changes) / math.sqrt(len(changes))

    def seconds(self) -> float:
        return statistics.fmean(trial.seconds for trial in self.trials)

    def refutes(self, percent: float, *verdicts: Verdict, at_most: bool) -> bool:
        """Whether this number of verdicts, or a more extreme one, would come in fewer than 1 of 40 such sets of trials if their rate
        were `percent`. The test is exact, which intervals are not for single verdicts."""
        side = "greater" if at_most else "less"
        return binomtest(self._count(*verdicts), len(self.trials), percent / 100, side).pvalue < 0.025

    def _count(self, *verdicts: Verdict) -> int:
        return sum(trial.verdict in verdicts for trial in self.trials)


def missed_goals(percent: float, tally: Tally) -> list[str]:
    """Goals that the trials refute with a confidence of 95 %, two-sided."""
    if percent == 0:
        mean, half = tally.bias()
        goals = {"bias": abs(mean) - half <= MOST_BIAS, "false": not tally.refutes(MOST_FALSE, Verdict.SLOWER, Verdict.FASTER, at_most=True),
                 "same": not tally.refutes(LEAST_SAME, Verdict.SAME, at_most=False), "seconds": tally.seconds() <= CASE_SECONDS}
    elif percent in LEAST_FOUND:
        goals = {"found": not tally.refutes(LEAST_FOUND[percent], Verdict.SLOWER, at_most=False)}
    else:
        goals = {}
    return [name for name, met in goals.items() if not met]


HEADING = (f"{'trials':>6}  {'mean change (95 %)':>20}  {'same':>5}  {'undecided':>9}  {'faster':>6}  {'slower':>6}  {'slower or faster (95 %)':>23}"
           f"  {'s':>5}  missed    case")


def _row(name: str, percent: float, tally: Tally) -> str:
    mean, half = tally.bias()
    shares = [tally.share(verdict) for verdict in (Verdict.SAME, Verdict.UNDECIDED, Verdict.FASTER, Verdict.SLOWER)]
    low, high = tally.interval(Verdict.SLOWER, Verdict.FASTER)
    return (f"{len(tally.trials):6}  {mean:+9.2f} +- {half:4.2f} %  {shares[0]:5.0f}  {shares[1]:9.0f}  {shares[2]:6.1f}  {shares[3]:6.1f}"
            f"  {low:10.1f} to {high:5.1f} %  {tally.seconds():5.2f}  {','.join(missed_goals(percent, tally)) or '-':8}  {name}")


def summary(trials: Sequence[Trial]) -> tuple[str, bool]:
    """A table for people, a row per case and one for all cases; and whether no goal is missed. Shares are in percent."""
    rows, met = [], True
    for kind in sorted({Kind(trial.percent, trial.noise) for trial in trials}):
        of_kind = [trial for trial in trials if (trial.percent, trial.noise) == (kind.percent, kind.noise)]
        rows += [str(kind), HEADING]
        for case in sorted({trial.case for trial in of_kind}):
            tally = Tally([trial for trial in of_kind if trial.case == case])
            rows.append(_row(case, kind.percent, tally))
            met = met and not missed_goals(kind.percent, tally)
        rows += [_row("all cases", kind.percent, Tally(of_kind)), ""]
    return "\n".join(rows) or "no trials", met


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
    """Bursts of 2 ms to 2 s, half arithmetic and half memory, with pauses half as long."""
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


# ---- Trials on this machine, a few minutes for each call

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
    progress = Progress("percent of the trials of all lines", 100)
    while time.monotonic() < end:
        done = {(line, kind): records.trials_of(line.name, kind) / goal for line in lines for kind, goal in kinds.items()}
        least = min(done.values())
        if least >= 1:
            return
        line, kind = random.choice([one for one, share in done.items() if share == least])
        records.add(trial_of(line, kind, build))
        progress(f"{line.name}, {kind}", int(100 * least))


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", help="a build folder, for planted trials one with LOCKSTEP_PLANT=ON")
    parser.add_argument("--suite", type=Path, default=SUITE, metavar="FILE", help="lines NAME CORES COMMAND (default: ci/gate_suite.txt)")
    parser.add_argument("--same", type=int, default=100, metavar="N", help="trials of a build against itself, per case (default: 100)")
    parser.add_argument("--planted", type=int, default=100, metavar="N", help="trials of each planted slowdown (default: 100)")
    parser.add_argument("--percent", default="3,5", metavar="LIST", help="the planted slowdowns (default: 3,5)")
    parser.add_argument("--noise", type=int, default=0, metavar="N", help="number of busy processes during the trials (default: 0)")
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
