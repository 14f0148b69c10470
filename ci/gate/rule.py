"""The rule: when independent comparisons of two builds are enough for a verdict, and for which."""
import math
from collections.abc import Sequence
from dataclasses import dataclass

from .model import Verdict
from .statistics import hodges_lehmann, signed_rank_bounds


@dataclass(frozen=True)
class Rule:
    """Fixed before anything is measured. A comparison is a fresh pair of processes; only these are independent."""

    threshold: float = 0.02  # what is less does not matter
    error: float = 0.03  # chance that one bound is wrong, at one look
    confirm_error: float = 0.01  # the same, of the fresh pairs that what looks different must convince again
    looks: tuple[int, ...] = (6, 9, 13, 19, 28, 42, 63, 94, 141)  # pairs after which it is asked: each half as many again


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    ratio: float
    low: float
    high: float


def decide(log_ratios: Sequence[float], rule: Rule) -> Decision:
    """Of logarithms of head over base, one a pair. Slower: the ratio is beyond the threshold, and its lower bound beyond
    half of it. Same: both bounds are within the threshold."""
    middle = hodges_lehmann(log_ratios)
    low, high = signed_rank_bounds(log_ratios, rule.error)
    far, half = math.log1p(rule.threshold), math.log1p(rule.threshold / 2)
    if middle > far and low > half:
        verdict = Verdict.SLOWER
    elif middle < -far and high < -half:
        verdict = Verdict.FASTER
    elif -far < low and high < far:
        verdict = Verdict.SAME
    else:
        verdict = Verdict.UNDECIDED
    return Decision(verdict, math.exp(middle), math.exp(low), math.exp(high))
