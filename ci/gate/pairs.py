"""Pairs: fresh workers of both builds, alternated run by run."""

import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, ExitStack
from dataclasses import dataclass, field

from gate.model import CouldNotRun
from gate.worker import Worker


# ---- How long a worker runs before the other one runs

@dataclass(frozen=True)
class Timing:
    """Settings of a case's runs in a pair."""

    run_us: float = 250.0  # wanted length of a run: short compared with a time slice, so that most are not interrupted
    turns: int = 12  # runs of each build in a pair, if calls are not long
    least_turns: int = 4
    pair_us: float = 40_000.0  # wanted total time of each build's runs in a pair, where calls are long
    runs: int = 2  # in a turn: in the first, caches that the other worker emptied are filled and parked threads wake up
    long_us: float = 1000.0  # from this length on a call is long
    long_runs: int = 3  # in a turn of a long call: fewer turns with more calls that are warm


@dataclass(frozen=True)
class Turn:
    calls: int  # in a run
    runs: int  # in a turn
    turns: int  # runs of each build in a pair


def turn_for(us_of_call: Callable[[int], float], timing: Timing) -> Turn:
    """Calls, runs and turns of a case. For calls that take milliseconds, more pairs are better than more turns per pair, as the
    variation is between processes."""
    calls = calls_for(us_of_call, timing.run_us)
    call_us = us_of_call(1) if calls == 1 else 0.0
    if call_us <= timing.long_us:
        return Turn(calls, timing.runs, timing.turns)
    turns = round(timing.pair_us / (timing.long_runs * call_us))
    return Turn(1, timing.long_runs, min(max(turns, timing.least_turns), timing.turns))


def calls_for(us_of_call: Callable[[int], float], run_us: float) -> int:
    """Number of calls that take about run_us together, found by asking for more and more."""
    calls = 1
    while True:
        us = _shortest_run_us(us_of_call, calls, run_us)
        if us >= run_us / 2 or calls >= 1 << 40:
            return max(1, round(calls * run_us / max(us, 1e-3)))
        calls = max(2 * calls, min(10 * calls, round(calls * run_us / max(us, 1e-3))))


def _shortest_run_us(us_of_call: Callable[[int], float], calls: int, run_us: float) -> float:
    """Shortest of up to four runs; one suffices if it is clearly shorter or longer than run_us: others may be cold, or interrupted."""
    shortest = math.inf
    for _ in range(4):
        shortest = min(shortest, us_of_call(calls) * calls)
        if not run_us / 2 <= shortest < 200 * run_us:
            break
    return shortest


# A pair: fresh workers of both builds, alternated run by run.

@dataclass(frozen=True)
class PairTimes:
    """Measurements of one case in one pair: mean times of a call, run by run, in microseconds."""

    base_us: tuple[float, ...]
    head_us: tuple[float, ...]
    seconds: float

    def log_ratio(self) -> float:
        """Logarithm of head over base, of the faster halves: an interruption only makes a run slower, and both sides' runs alternate."""
        return _log_of_faster_half(self.head_us) - _log_of_faster_half(self.base_us)


def _log_of_faster_half(us: Sequence[float]) -> float:
    faster = sorted(us)[:(len(us) + 1) // 2]
    return statistics.fmean(map(math.log, faster))


@dataclass
class _Side:
    """One worker of a pair and its times of the case that is being run."""

    worker: Worker
    index: int  # position of the case in the worker's own list
    us: list[float] = field(default_factory=list)


StartWorker = Callable[[int | None], Worker]  # on one core, or as the worker wants


@dataclass
class Pairing:
    """Makes pairs of one command of two builds. Nothing in a pair has a fixed order: neither the starts, nor which worker touches memory
    first, nor the turns. Both have the same number of turns, which is found with both."""

    start_base: StartWorker
    start_head: StartWorker
    one_core: bool  # a worker with one thread: both of a pair use the same core, as cores of one machine differ
    timing: Timing = field(default_factory=Timing)
    dice: random.Random = field(default_factory=random.Random)
    _turns: dict[str, Turn] = field(default_factory=dict)
    _leaving: ExitStack = field(default_factory=ExitStack)  # workers of the pair before

    def cases(self) -> tuple[list[str], list[str]]:
        """Cases that base and head both have."""
        with self._pair(None) as (base, head):
            return base.cases, head.cases

    def close(self) -> None:
        """Ends all workers. Must be called after the last run()."""
        self._leaving.close()

    @contextmanager
    def _pair(self, core: int | None) -> Iterator[tuple[Worker, Worker]]:
        """Starts both workers concurrently, in random order, while the previous pair's workers end."""
        starts = [self.start_base, self.start_head]
        head_first = self.dice.random() < 0.5
        with ExitStack() as stack:
            first, other = (stack.enter_context(starts[side](core)) for side in (head_first, not head_first))
            base, head = (other, first) if head_first else (first, other)
            for worker in (first, other):
                worker.ready()
            self._leaving.close()
            yield base, head
            first.dismiss()
            other.dismiss()
            self._leaving = stack.pop_all()

    def run(self, cases: Iterable[str]) -> dict[str, PairTimes]:
        """Times these cases, which both must have, in random order."""
        order = list(cases)
        self.dice.shuffle(order)
        core = self.dice.choice(sorted(os.sched_getaffinity(0))) if self.one_core else None
        begin = time.monotonic()
        with self._pair(core) as (base, head):
            start_s = (time.monotonic() - begin) / max(len(order), 1)
            return {case: self._run_case(case, base, head, start_s) for case in order}

    def _run_case(self, case: str, base: Worker, head: Worker, start_s: float) -> PairTimes:
        begin = time.monotonic()
        sides = (_Side(base, base.cases.index(case)), _Side(head, head.cases.index(case)))
        turn = self._turn(case, sides)
        self._shuffled_means_us(sides, 1)  # makes the case ready
        self._alternate(sides, turn, max(1, turn.turns // 6))
        for side in sides:
            side.us.clear()  # cold: the other worker has prepared the case in between
        self._alternate(sides, turn, turn.turns)
        if min(min(side.us) for side in sides) <= 0:
            raise CouldNotRun(f"{case}: a run of {turn.calls} calls took no time")
        return PairTimes(tuple(sides[0].us), tuple(sides[1].us), start_s + time.monotonic() - begin)

    def _alternate(self, sides: Sequence[_Side], turn: Turn, couples: int) -> None:
        for head_first in self._order_of_turns(couples):
            for side in sides[::-1] if head_first else sides:
                side.us.extend(side.worker.run(side.index, turn.calls, turn.runs))

    def _turn(self, case: str, sides: Sequence[_Side]) -> Turn:
        """Lengths and number of a case's runs, found once with both builds, so that neither build's memory is always touched first."""
        if case not in self._turns:
            self._turns[case] = turn_for(lambda calls: statistics.fmean(self._shuffled_means_us(sides, calls)), self.timing)
        return self._turns[case]

    def _shuffled_means_us(self, sides: Sequence[_Side], calls: int) -> list[float]:
        """A run of each side, in random order."""
        return [side.worker.run(side.index, calls)[0] for side in self.dice.sample(sides, len(sides))]

    def _order_of_turns(self, turns: int) -> list[bool]:
        """For each turn, whether the head runs first: in half of the turns (rounded up or down at random), in random order."""
        spare = self.dice.random() < 0.5
        order = [number % 2 == spare for number in range(turns)]
        self.dice.shuffle(order)
        return order


def typical_us(pairs: Sequence[PairTimes], side: Callable[[PairTimes], Sequence[float]]) -> float:
    """Median over pairs of the times of their faster halves: the time of a call for readers; verdicts do not use it."""
    return math.exp(statistics.median(_log_of_faster_half(side(pair)) for pair in pairs))
