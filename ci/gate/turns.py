"""How long a worker runs before it is the other one's turn."""
import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """How a case is run in a pair."""

    run_us: float = 250.0  # wanted length of a run: short beside a time slice, so that most are not interrupted
    turns: int = 12  # runs of each build in a pair, if calls are not long
    least_turns: int = 4
    pair_us: float = 40_000.0  # wanted of each build's turns in a pair, where calls are long
    runs: int = 2  # in a turn: in the first, caches that the other worker emptied are filled and parked threads wake up
    long_us: float = 1000.0  # from this length on a call is long
    long_runs: int = 3  # in a turn of a long call: fewer turns with more calls that are warm


@dataclass(frozen=True)
class Turn:
    calls: int  # in a run
    runs: int  # in a turn
    turns: int  # runs of each build in a pair


def turn_for(us_of_call: Callable[[int], float], timing: Timing) -> Turn:
    """More pairs are worth more than more turns of a call that takes milliseconds: what differs is processes."""
    calls = calls_for(us_of_call, timing.run_us)
    call_us = us_of_call(1) if calls == 1 else 0.0
    if call_us <= timing.long_us:
        return Turn(calls, timing.runs, timing.turns)
    turns = round(timing.pair_us / (timing.long_runs * call_us))
    return Turn(1, timing.long_runs, min(max(turns, timing.least_turns), timing.turns))


def calls_for(us_of_call: Callable[[int], float], run_us: float) -> int:
    """Calls that take about run_us together, by asking for more and more of them."""
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
