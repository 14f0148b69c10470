#!/usr/bin/env python3
"""Measures the gate itself on this machine: how often `gate.py ab` cries wolf when both sides are the same build, how many planted
slowdowns it finds, and what a verdict costs. docs/gate.md has the figures.

    python3 ci/gate_selftest.py --build build/release                 # the targets' numbers of trials: about 40 minutes
    python3 ci/gate_selftest.py --build build/release --same 20 --planted 5
"""
import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gate.ab import Budget, measure
from gate.builds import Build, build_at
from gate.errors import GateError, UsageError
from gate.model import Result, Verdict
from gate.noise import background_noise
from gate.pairs import Pairing
from gate.progress import say, wipe
from gate.rule import Rule
from gate.statistics import wilson

CASES = (("alone", True, ("memory", "compute")), ("collective", False, ("collective",)))
TRIAL_BUDGET_S = 30
# In percent: at most so many false alarms; at least so many found, by percent planted.
MOST_ALARMS, LEAST_FOUND, MOST_SECONDS = 1.0, {5: 85.0, 10: 97.0}, 1.5


@dataclass
class Tally:
    """The verdicts of one case at one planted slowdown, without or with noise."""

    verdicts: list[Verdict] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.verdicts.append(result.verdict)
        self.seconds.append(result.seconds)

    def count(self, verdict: Verdict) -> int:
        return self.verdicts.count(verdict)


def trial(build: Build, which: str, one_core: bool, percent: float) -> list[Result]:
    command = ("gate_planted", which)
    pairing = Pairing(partial(build.start, command, {}),
                      partial(build.start, command, {"LOCKSTEP_PLANTED_PERCENT": str(percent)}), one_core)
    return measure({which: pairing}, Rule(), Budget(TRIAL_BUDGET_S))


def run_trials(build: Build, percent: float, trials: int) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {case: Tally() for _, _, cases in CASES for case in cases}
    for number in range(trials):
        for which, one_core, _ in CASES:
            for result in trial(build, which, one_core, percent):
                tallies[result.case.split(": ")[1]].add(result)
        say(f"{percent:g} %: trial {number + 1} of {trials}")
    return tallies


def rate_text(found: int, trials: int) -> str:
    low, high = wilson(found, trials)
    return f"{100 * found / trials:5.1f} % ({100 * low:.1f} - {100 * high:.1f})"


def meets_target(percent: float, tally: Tally) -> bool | None:
    """None where there is no target."""
    rate = 100 * tally.count(Verdict.SLOWER) / len(tally.verdicts)
    if percent != 0 and percent not in LEAST_FOUND:
        return None
    if statistics.mean(tally.seconds) > MOST_SECONDS:
        return False
    return rate <= MOST_ALARMS if percent == 0 else rate >= LEAST_FOUND[percent]


def rows(noise: str, percent: float, tallies: dict[str, Tally]) -> Iterable[str]:
    for case, tally in tallies.items():
        answer = {True: "met", False: "MISSED", None: ""}[meets_target(percent, tally)]
        trials = len(tally.verdicts)
        yield (f"{noise:5}  {percent:4g} %  {case:10}  {trials:6}  {rate_text(tally.count(Verdict.SLOWER), trials):24}"
               f"{tally.count(Verdict.SAME):6}{tally.count(Verdict.FASTER):8}{tally.count(Verdict.UNDECIDED):11}"
               f"{statistics.mean(tally.seconds):10.2f}  {answer}").rstrip()


HEADING = (f"{'noise':5}  {'planted':6}  {'case':10}  {'trials':6}  {'slower (95 %, Wilson)':24}{'same':>6}{'faster':>8}"
           f"{'undecided':>11}{'s/verdict':>10}  target")


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, help="a build folder with bin/gate_planted")
    parser.add_argument("--same", type=int, default=300, metavar="N", help="trials of a build against itself (default: 300)")
    parser.add_argument("--planted", type=int, default=100, metavar="N", help="trials of each planted slowdown (default: 100)")
    parser.add_argument("--percent", default="1,2,5,10", metavar="LIST", help="of the planted slowdowns (default: 1,2,5,10)")
    parser.add_argument("--noise", choices=("off", "on", "both"), default="both", help="other processes beside it (default: both)")
    parser.add_argument("--noise-processes", type=int, default=2, metavar="N", help="how many (default: 2)")
    return parser.parse_args(words)


def percents_of(text: str) -> list[float]:
    try:
        percents = [float(word) for word in text.split(",")]
    except ValueError:
        percents = []
    if not percents or not all(0 < percent <= 1000 for percent in percents):
        raise UsageError(f"--percent {text}; allowed: a list of numbers above 0, up to 1000")
    return percents


def main(words: list[str] | None = None) -> int:
    arguments = parse(words)
    missed = False
    start = time.monotonic()
    try:
        percents = percents_of(arguments.percent)
        build = build_at(Path(arguments.build), "--build")
        print(f"{Rule()}\n{HEADING}", flush=True)
        for noise in ("off", "on") if arguments.noise == "both" else (arguments.noise,):
            with background_noise(arguments.noise_processes) if noise == "on" else nullcontext():
                for percent, trials in ((0.0, arguments.same), *((p, arguments.planted) for p in percents)):
                    if trials < 1:
                        continue
                    tallies = run_trials(build, percent, trials)
                    wipe()
                    missed |= any(meets_target(percent, tally) is False for tally in tallies.values())
                    print("\n".join(rows(noise, percent, tallies)), flush=True)
    except GateError as error:
        wipe()
        print(f"gate_selftest.py: {error}", file=sys.stderr)
        return error.status
    print(f"{time.monotonic() - start:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
