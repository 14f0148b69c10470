"""A pair: fresh workers of both builds, alternated run by run."""
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from .errors import CouldNotRun
from .turns import Timing, Turn, turn_for
from .worker import Worker


@dataclass(frozen=True)
class PairTimes:
    """Of one case in one pair: mean times of a call, run by run, in microseconds."""

    base_us: tuple[float, ...]
    head_us: tuple[float, ...]
    seconds: float

    def log_ratio(self) -> float:
        """Of the faster halves: an interruption only ever makes a run slower, and both sides' runs came in turn."""
        return _log_of_faster_half(self.head_us) - _log_of_faster_half(self.base_us)


def _log_of_faster_half(us: Sequence[float]) -> float:
    faster = sorted(us)[:(len(us) + 1) // 2]
    return statistics.fmean(map(math.log, faster))


StartWorker = Callable[[int | None], Worker]  # on one core, or as the worker wants


@dataclass
class Pairing:
    """Makes pairs of one command of two builds. Turns are found once, with the base, and are the same for both."""

    start_base: StartWorker
    start_head: StartWorker
    one_core: bool  # a worker with one thread: both of a pair get the same core, as cores of one machine differ
    timing: Timing = field(default_factory=Timing)
    dice: random.Random = field(default_factory=random.Random)
    _turns: dict[str, Turn] = field(default_factory=dict)
    _leaving: ExitStack = field(default_factory=ExitStack)  # workers of the pair before

    def cases(self) -> tuple[list[str], list[str]]:
        """What base and head have."""
        with self._pair(None) as (base, head):
            return base.cases, head.cases

    def close(self) -> None:
        """No worker lives on. Has to follow the last run()."""
        self._leaving.close()

    @contextmanager
    def _pair(self, core: int | None) -> Iterator[tuple[Worker, Worker]]:
        """Both make themselves ready side by side, in random order, while those of the pair before end."""
        starts = [self.start_base, self.start_head]
        head_first = self.dice.random() < 0.5
        with ExitStack() as stack:
            one, other = (stack.enter_context(starts[side](core)) for side in (head_first, not head_first))
            base, head = (other, one) if head_first else (one, other)
            for worker in (one, other):
                worker.ready()
            self._leaving.close()
            yield base, head
            one.dismiss()
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
        at_base, at_head = base.cases.index(case), head.cases.index(case)
        if case not in self._turns:
            self._turns[case] = turn_for(lambda calls: base.run(at_base, calls)[0], self.timing)
        turn = self._turns[case]
        base.run(at_base, turn.calls)  # each has its own page tables to warm
        head.run(at_head, turn.calls)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(self.timing.turns):
            sides = [(base, at_base, times[0]), (head, at_head, times[1])]
            self.dice.shuffle(sides)
            for worker, index, into in sides:
                into.extend(worker.run(index, turn.calls, turn.runs))
        if min(map(min, times)) <= 0:
            raise CouldNotRun(f"{case}: a run of {turn.calls} calls took no time")
        return PairTimes(tuple(times[0]), tuple(times[1]), start_s + time.monotonic() - begin)


def typical_us(pairs: Sequence[PairTimes], side: Callable[[PairTimes], Sequence[float]]) -> float:
    """The median over pairs of what their faster halves say: what a call takes, for people; verdicts do not use it."""
    return math.exp(statistics.median(_log_of_faster_half(side(pair)) for pair in pairs))
