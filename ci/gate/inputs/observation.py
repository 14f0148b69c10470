"""The form that all inputs become: numbers of a case, with the run that they are from."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gate.model import Channel, Result, Verdict

UNKNOWN = "unknown"
FAILURES, WRONG = "failures", "wrong elements"  # units of faults, which must not happen at all


@dataclass(frozen=True)
class Origin:
    """A run: one process, or one group of ranks. Only runs are independent; samples of one are not."""

    run: str  # its id, or the file if it has none
    source: str  # last part of the file's path
    started: str = ""  # UTC, ISO 8601; empty if the file does not have it
    revision: str = UNKNOWN
    fingerprint: str = UNKNOWN  # fingerprint of the machine
    notes: tuple[str, ...] = ()  # notes of its reader on what is left out


@dataclass(frozen=True)
class Quantity:
    """The quantity that is compared: two observations of the same quantity are numbers of the same thing."""

    case: str
    channel: Channel  # STORED: times; EXACT: values that must not differ at all
    unit: str
    better: str = "lower"  # or "higher"
    # for STORED: the limit ("memory", "compute", "collective"), which decides which drift applies; a kernel's may vary between runs
    kind: str | None = field(default=None, compare=False)
    calibrates: bool = False  # it is measured only for calibration, and gets no verdict

    @property
    def is_fault(self) -> bool:
        """True for faults, which count if one run has them; other exact values must be equal in all runs."""
        return self.unit in (FAILURES, WRONG)

    def worse(self, before: float, after: float) -> float | None:
        """Ratio of the two values, above 1 if `after` is worse; None unless both are above 0 or equal."""
        if before == after:
            return 1.0
        if before <= 0 or after <= 0:
            return None
        return after / before if self.better == "lower" else before / after

    def log_cost(self, value: float) -> float:
        """Logarithm of the value, negated where more is better."""
        return math.log(value) if self.better == "lower" else -math.log(value)


@dataclass(frozen=True)
class Observation:
    quantity: Quantity
    origin: Origin
    values: tuple[float, ...]  # for times: samples, all above 0

    @property
    def typical(self) -> float:
        return statistics.median(self.values)


def notes_of(observations: Iterable[Observation]) -> list[str]:
    return list(dict.fromkeys(note for observed in observations for note in observed.origin.notes))


def by_quantity(observations: Iterable[Observation]) -> dict[Quantity, list[Observation]]:
    """One observation per run: repeated measurements of a run are merged."""
    grouped: dict[Quantity, dict[str, Observation]] = {}
    for observed in observations:
        runs = grouped.setdefault(observed.quantity, {})
        before = runs.get(observed.origin.run)
        runs[observed.origin.run] = observed if before is None else Observation(observed.quantity, observed.origin, before.values + observed.values)
    return {quantity: list(runs.values()) for quantity, runs in grouped.items()}


# ---- Counted, computed and simulated values must not differ at all: two sides are compared at zero tolerance


def compare_exactly(base: Mapping[Quantity, Sequence[Observation]], head: Mapping[Quantity, Sequence[Observation]]) -> list[Result]:
    """A result for each fact that both sides have."""
    return [_compared(quantity, _values(quantity, runs), _values(quantity, head[quantity])) for quantity, runs in base.items()
            if quantity in head and quantity.channel is Channel.EXACT]


def _values(quantity: Quantity, runs: Sequence[Observation]) -> list[float]:
    """Distinct values of all runs, ascending; for faults the largest alone."""
    found = sorted({value for run in runs for value in run.values})
    return found[-1:] if quantity.is_fault else found


def _compared(quantity: Quantity, base: list[float], head: list[float]) -> Result:
    if len(base) > 1 or len(head) > 1:
        side, values = ("base", base) if len(base) > 1 else ("head", head)
        return Result(quantity.case, Channel.EXACT, Verdict.UNDECIDED, quantity.unit, base[-1], head[-1],
                      why=f"not exact: runs of the {side} have {len(values)} values, {values[0]:g} to {values[-1]:g}")
    return judged(quantity, base[0], head[0])


def judged(quantity: Quantity, before: float, after: float, threshold: float = 0.0) -> Result:
    """Result for two values without noise."""
    worse, better = (after, before) if quantity.better == "lower" else (before, after)
    verdict = Verdict.SAME
    if worse > better * (1 + threshold):
        verdict = Verdict.SLOWER
    elif better > worse * (1 + threshold):
        verdict = Verdict.FASTER
    return Result(quantity.case, quantity.channel, verdict, quantity.unit, before, after, quantity.worse(before, after))
