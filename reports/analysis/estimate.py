"""A figure with the interval that its samples give, and what that interval decides. docs/method.md has the rules; core::estimate
(core/statistics.h) is the same for programs."""

from dataclasses import dataclass
from math import inf
from typing import Callable, Optional, Sequence

import numpy as np

from reports.units import share_text

TOLERANCE = 0.05  # smaller differences are of no interest
MATTERS = 1.5  # two times are alike only if their samples exclude a factor of this size
SLACK = 0.1  # part of what is possible by which an interval may miss it
PRECISE = 0.25  # a share is given if it is known within this, a time within this part of itself
# A row's consecutive parts: all of 6 are on one side of the truth in 3 of 100 cases, also where other programs disturb many samples in a
# row. Fewer samples have their range with as much again on both sides.
PARTS = 6
FEWEST = 3  # two samples that happen to be alike would decide anything


@dataclass(frozen=True)
class Estimate:
    """A value and its interval. `least`: 5th percentile of the samples, which other programs lengthen least; None without."""

    value: float
    low: float
    high: float
    least: Optional[float] = None

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    @property
    def spread(self) -> float:
        """Half of the interval's width, relative to the value."""
        return self.half / abs(self.value) if self.value else inf if self.half else 0.0

    def within(self, low: float, high: float) -> "Estimate":
        """The same, limited to what is physically possible; all of that if it is far from it, as then it is noise."""
        far = SLACK * (high - low)
        ends = (low, high) if self.low > high + far or self.high < low - far else (self.low, self.high)
        return Estimate(*(min(max(bound, low), high) for bound in (self.value, *ends)), self.least)

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(self.value + other.value, self.low + other.low, self.high + other.high)

    def __mul__(self, factor: float) -> "Estimate":
        """`factor` is at least 0."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def __truediv__(self, other: "Estimate") -> "Estimate":
        """The quotient of times, which are above 0; its upper bound is infinite if the divisor's interval reaches 0."""
        return Estimate(self.value / other.value, self.low / other.high, self.high / other.low if other.low > 0 else inf)


def exact(value: float) -> Estimate:
    """Counted or simulated: it has no noise."""
    return Estimate(value, value, value, value)


def estimate(figure: Callable[..., float], *columns: Sequence[float]) -> Estimate:
    """The figure of the columns' medians, such as step - compute, and its least and largest value over PARTS parts of consecutive
    rounds. Columns are samples of the same rounds, in order."""
    rounds = np.asarray(columns, dtype=float)
    count = rounds.shape[1]
    value, least = float(figure(*np.median(rounds, axis=1))), float(figure(*np.percentile(rounds, 5, axis=1)))
    if count < FEWEST:
        return Estimate(value, -inf, inf, least)
    parts = [value, *(float(figure(*np.median(part, axis=1))) for part in np.array_split(rounds, min(count, PARTS), axis=1))]
    more = max(parts) - min(parts) if count < PARTS else 0.0
    return Estimate(value, min(parts) - more, max(parts) + more, least)


def median_of(samples: Sequence[float]) -> Estimate:
    return estimate(lambda median: median, samples)


def of_stats(stats) -> Estimate:
    """A time whose statistics a record has."""
    known = stats.count > 1 and stats.ci_low is not None
    return Estimate(stats.median, *((stats.ci_low, stats.ci_high) if known else (-inf, inf)), stats.p5)


def certain_factor(slow: Estimate, fast: Estimate) -> float:
    """By how many times one is slower than the other at least, by its interval and its least disturbed samples; 1 if that is not
    certain."""
    least = slow.low if slow.least is None else min(slow.low, slow.least)
    return least / fast.high if slow.value > fast.value * (1 + TOLERANCE) and 0 < fast.high < least else 1.0


def alike(line: Estimate, other: Estimate) -> bool:
    """True if samples exclude that one is slower by a factor that matters."""
    return all(b.low > 0 and a.high / b.low < MATTERS for a, b in ((line, other), (other, line)))


def undecided(spread: float, oversubscribed: Optional[bool] = None) -> str:
    """Words instead of a finding, with what would decide it; `spread` is relative to the figure, or to the whole of which it is a
    share."""
    text = "unknown, with fewer than three samples" if spread == inf else share_text(spread) if spread < 10 else "more than 1,000 %"
    remedy = {None: "", True: "; fewer ranks than cores would decide it", False: "; more samples or less other load would decide it"}
    return f"undecided on this machine: spread {text}{remedy[oversubscribed]}"


def decided_share(share: Estimate, what: str = "") -> str:
    """Words such as "63 % (58 % to 67 %) hidden", or that it is undecided; without an interval that is narrower than the rounding."""
    if share.half > PRECISE:
        return f"{what}: {undecided(share.half)}".removeprefix(": ")
    ends = f" ({share_text(share.low)} to {share_text(share.high)})" if share.half >= 0.005 else ""
    return f"{share_text(share.value)}{ends} {what}".rstrip()
