"""How long a worker runs before it is the other one's turn."""
import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """How a case is run in a pair."""

    run_us: float = 250.0  # wanted length of a run: short beside a time slice, so that most are not interrupted
    turns: int = 12  # of each build in a pair
    runs: int = 2  # in a turn: caches that the other worker emptied are filled in the first
    long_us: float = 1000.0  # what filling them does not matter to: a call that is longer is run once in a turn


@dataclass(frozen=True)
class Turn:
    calls: int  # a run
    runs: int


def turn_for(us_of_call: Callable[[int], float], timing: Timing) -> Turn:
    calls = calls_for(us_of_call, timing.run_us)
    is_long = calls == 1 and us_of_call(1) > timing.long_us
    return Turn(calls, 1 if is_long else timing.runs)


def calls_for(us_of_call: Callable[[int], float], run_us: float) -> int:
    """Calls that take about run_us together, by asking for more and more of them."""
    calls = 1
    while True:
        us = _shortest_run_us(us_of_call, calls, run_us)
        if us >= run_us / 2 or calls >= 1 << 40:
            return max(1, round(calls * run_us / max(us, 1e-3)))
        calls = max(2 * calls, min(10 * calls, round(calls * run_us / max(us, 1e-3))))


def _shortest_run_us(us_of_call: Callable[[int], float], calls: int, run_us: float) -> float:
    """Of one run if it is clearly shorter or longer than run_us; of several else: one may have been cold, or interrupted."""
    shortest = math.inf
    for _ in range(4):
        shortest = min(shortest, us_of_call(calls) * calls)
        if not run_us / 2 <= shortest < 200 * run_us:
            break
    return shortest
