"""Compares two sets of stored observations: finds cases that differ by more than their runs differ among themselves.

Only runs (processes) are independent; a run counts as the median of its samples. Each case is judged by the exact rank-sum
test of its runs, and a comparison's cases together by Holm."""
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gate.drift import Drift, drift_of, drifts, notes
from gate.inputs.observation import by_quantity, compare_exactly, judged, Observation, Quantity
from gate.model import Channel, Result, Verdict
from gate.rule import holm, least_p, p_above, shift, shift_bounds

Runs = Mapping[Quantity, Sequence[Observation]]


@dataclass(frozen=True)
class StoredRule:
    """Settings, fixed before any data are looked at."""

    threshold: float = 0.02  # smaller changes do not matter
    error: float = 0.05  # probability that one bound of one interval is wrong
    # Probability that any of all cases is called slower where none is; the same for faster. Half of it is for the drift's bound, which
    # all cases share, half for the cases
    family: float = 0.01
    trust: bool = False  # assume the same speed of the machine without calibration; otherwise nothing is then called slower or faster

    @property
    def of_cases(self) -> float:
        return self.family / 2


@dataclass(frozen=True)
class Timing:
    """A case that both sides have: logarithms of costs, one per run, and its results before the correction for all cases together."""

    quantity: Quantity
    base: tuple[float, ...]
    head: tuple[float, ...]
    drift: Drift
    calibrated: bool

    @property
    def middle(self) -> float:
        return shift(self.base, self.head) - self.drift.middle

    def bounds(self, error: float) -> tuple[float, float]:
        low, high = shift_bounds(self.base, self.head, error)
        return low - self.drift.high, high - self.drift.low

    def p_slower(self) -> float:
        """P-value that it is no worse at all, for any drift within the bounds."""
        return p_above(self.base, self.head, self.drift.high)

    def p_faster(self) -> float:
        return p_above(self.head, self.base, -self.drift.low)


def compare(base: Sequence[Observation], head: Sequence[Observation], rule: StoredRule) -> tuple[list[Result], list[str]]:
    """A result for each case of either side (outputs sort them), and notes for the reader."""
    of_base, of_head = by_quantity(base), by_quantity(head)
    found = drifts(of_base, of_head, rule.family / 2)
    timings = [_timing(quantity, of_base[quantity], of_head[quantity], found) for quantity in of_base
               if quantity in of_head and quantity.channel is Channel.STORED and not quantity.calibrates]
    slower = holm([timing.p_slower() for timing in timings])
    faster = holm([timing.p_faster() for timing in timings])
    results = [_judged(timing, *ps, len(timings), rule) for timing, *ps in zip(timings, slower, faster, strict=True)]
    told = (notes(found, rule.trust) if timings else []) + _too_few(timings, rule)
    return results + compare_exactly(of_base, of_head) + _faults(of_base, of_head) + _one_sided(of_base, of_head), told


def _timing(quantity: Quantity, base: Sequence[Observation], head: Sequence[Observation], found: Mapping[str, Drift]) -> Timing:
    costs = [tuple(quantity.log_cost(run.typical) for run in runs) for runs in (base, head)]
    return Timing(quantity, costs[0], costs[1], drift_of(quantity.kind, found), bool(found))


def _judged(timing: Timing, p_slower: float, p_faster: float, cases: int, rule: StoredRule) -> Result:
    """As in `ab`, slower is beyond the threshold, with a lower bound beyond half of it; it must also pass the correction for all cases."""
    far, half = math.log1p(rule.threshold), math.log1p(rule.threshold / 2)
    low, high = timing.bounds(rule.error)
    runs = f"{len(timing.base)} and {len(timing.head)} runs"
    if p_slower <= rule.of_cases and timing.middle > far and low > half:
        verdict, why = Verdict.SLOWER, f"{runs}, p = {p_slower:.2g} with Holm"
    elif p_faster <= rule.of_cases and timing.middle < -far and high < -half:
        verdict, why = Verdict.FASTER, f"{runs}, p = {p_faster:.2g} with Holm"
    elif -far < low and high < far:
        verdict, why = Verdict.SAME, runs
    else:
        verdict, why = Verdict.UNDECIDED, _why_undecided(timing, runs, cases, rule)
    if verdict in (Verdict.SLOWER, Verdict.FASTER) and not (timing.calibrated or rule.trust):
        verdict, why = Verdict.UNDECIDED, f"{why}: {verdict.value} if the machine was the same, which nothing says"
    return replace(_measured(timing), verdict=verdict, why=why, low=_exp(low), high=_exp(high))


def _measured(timing: Timing) -> Result:
    sign = 1 if timing.quantity.better == "lower" else -1
    base, head = (math.exp(sign * statistics.median(costs)) for costs in (timing.base, timing.head))
    zero = statistics.median(timing.base) + timing.drift.middle
    return Result(timing.quantity.case, Channel.STORED, Verdict.UNDECIDED, timing.quantity.unit, base, head,
                  math.exp(timing.middle), pairs=min(len(timing.base), len(timing.head)),
                  ratios=tuple(math.exp(cost - zero) for cost in timing.head))


def _why_undecided(timing: Timing, runs: str, cases: int, rule: StoredRule) -> str:
    if max(len(timing.base), len(timing.head)) == 1:
        return "one run a side: nothing says how much runs differ"
    if least_p(len(timing.base), len(timing.head)) * cases > rule.of_cases:
        return f"{runs} are too few for {counted(cases)}"
    return f"not clear with {runs}"


def counted(cases: int) -> str:
    return "1 case" if cases == 1 else f"{cases} cases"


def _too_few(timings: Sequence[Timing], rule: StoredRule) -> list[str]:
    """States the number of runs needed to find anything, if some cases have fewer."""
    lacking = [timing for timing in timings
               if least_p(len(timing.base), len(timing.head)) * len(timings) > rule.of_cases]
    if not lacking:
        return []
    needed = next(n for n in range(2, 100) if least_p(n, n) * len(timings) <= rule.of_cases)
    return [f"{len(lacking)} of {counted(len(timings))} have too few runs to be found slower among so many at "
            f"{rule.family * 100:g} %; {needed} runs (processes) a side are needed"]


def _faults(base: Runs, head: Runs) -> list[Result]:
    """Faults that only the head was checked for, and has."""
    found = [judged(quantity, 0.0, max(value for run in runs for value in run.values))
             for quantity, runs in head.items() if quantity.is_fault and quantity not in base]
    return [result for result in found if result.verdict is not Verdict.SAME]


def _one_sided(base: Runs, head: Runs) -> list[Result]:
    """Cases that one side lacks, a line each, whatever values they have; and values that the head lacks in cases that both have."""
    def cases(runs: Runs) -> dict[str, Quantity]:
        return {_case_of(quantity): quantity for quantity in runs if not quantity.calibrates}
    both = cases(base), cases(head)
    lacking = [Result(quantity.case, quantity.channel, Verdict.GONE, quantity.unit) for quantity in base
               if quantity not in head and not quantity.calibrates and not quantity.is_fault and _case_of(quantity) in both[1]]
    return lacking + [Result(case, quantity.channel, verdict, quantity.unit)
                      for mine, other, verdict in ((*both, Verdict.GONE), (*reversed(both), Verdict.NEW))
                      for case, quantity in mine.items() if case not in other]


def _case_of(quantity: Quantity) -> str:
    return quantity.case.split(": ")[0]


def _exp(bound: float) -> float | None:
    return math.exp(bound) if math.isfinite(bound) else None
