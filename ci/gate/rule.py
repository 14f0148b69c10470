"""Statistics of the gate, and the rule by which pairs decide. docs/gate.md gives the reasons. Pure functions of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np

from gate.model import UsageError, Verdict


class Shift(NamedTuple):
    """By how much costs differ, in logarithms: above 0 is worse. Each bound is wrong with the probability that its maker states."""

    middle: float
    low: float
    high: float


def _in_middle(ordered: np.ndarray, distribution: np.ndarray, error: float) -> Shift:
    """The median of ordered differences or averages; its bounds by the distribution of the number of those that lie on one side of the
    true middle. Infinite where there are too few."""
    outside = int(np.searchsorted(distribution, error, side="right"))
    bounds = (ordered[outside - 1], ordered[len(ordered) - outside]) if outside else (-math.inf, math.inf)
    return Shift(float(np.median(ordered)), *map(float, bounds))


# ---- Two independent samples, and many tests at once

def differences(base: Sequence[float], head: Sequence[float]) -> np.ndarray:
    """Differences of each value of head and each of base, ascending."""
    return np.sort((np.asarray(head, dtype=float)[:, None] - np.asarray(base, dtype=float)[None, :]).ravel())


@lru_cache(maxsize=None)
def rank_sum_distribution(m: int, n: int) -> np.ndarray:
    """P(U <= u) for u = 0 ... m n of the Mann-Whitney count U of two samples from one distribution, without ties: the coefficients of
    the Gaussian binomial (m + n over n), the product of (1 - q^(m+i)) / (1 - q^i) for i = 1 ... n, in whole numbers."""
    ways = np.array([1] + [0] * (m * n), dtype=object)
    for i in range(1, n + 1):
        ways[m + i:] -= ways[:max(0, m * n + 1 - m - i)].copy()
        for first in range(i):
            ways[first::i] = np.cumsum(ways[first::i])
    return (np.cumsum(ways) / math.comb(m + n, n)).astype(float)


def shift_of(base: Sequence[float], head: Sequence[float], error: float) -> Shift:
    """Shift of head above base: the median of all differences (Hodges and Lehmann 1963), and bounds that are each wrong with a chance of at
    most `error`, whatever the distribution (Hollander and Wolfe 1999, section 4.3). For bounds, 1 / C(m + n, n) must be at most `error`."""
    return _in_middle(differences(base, head), rank_sum_distribution(len(base), len(head)), error * (1 + 1e-9))


def p_above(base: Sequence[float], head: Sequence[float], at: float) -> float:
    """Probability of this rank sum or a larger one if head lay above base by no more than `at`: the exact permutation test on ranks. Ties
    count against a difference."""
    below = int(np.searchsorted(differences(base, head), at, side="right"))  # differences that do not exceed it
    return float(rank_sum_distribution(len(base), len(head))[below])


def least_p(m: int, n: int) -> float:
    """p_above where all of head lies above all of base: the smallest value for these numbers of samples."""
    return 1 / math.comb(m + n, n)


def holm(ps: Sequence[float]) -> list[float]:
    """P-values adjusted for their number: rejecting each that is at most e keeps the probability of any false rejection at e, whatever
    the dependences between them (Holm 1979)."""
    order, adjusted = np.argsort(ps, kind="stable"), np.zeros(len(ps))
    adjusted[order] = np.minimum(np.maximum.accumulate(np.asarray(ps)[order] * np.arange(len(ps), 0, -1)), 1)
    return adjusted.tolist()


# ---- One sample

def walsh_averages(values: Sequence[float]) -> np.ndarray:
    """All means of two values, including each value with itself, ascending."""
    x = np.asarray(values, dtype=float)
    means = (x[:, None] + x[None, :]) / 2
    return np.sort(means[np.triu_indices(len(x))])


@lru_cache(maxsize=None)
def _signed_rank_distribution(n: int) -> np.ndarray:
    """P(T <= t) for t = 0 ... n(n+1)/2 of Wilcoxon's signed-rank sum T without ties: the product of (1 + q^rank) / 2."""
    return np.cumsum(reduce(lambda ways, rank: np.convolve(ways, [0.5, *[0] * (rank - 1), 0.5]), range(1, n + 1), np.ones(1)))


def centre_of(values: Sequence[float], error: float) -> Shift:
    """The centre of a symmetric distribution: the median of the Walsh averages (Hodges and Lehmann 1963), and bounds that are each wrong
    with a chance of at most `error`: the averages at the quantiles of the signed-rank sum (Hollander and Wolfe 1999, section 3.3). For
    bounds, 1 / 2^n must be at most `error`."""
    return _in_middle(walsh_averages(values), _signed_rank_distribution(len(values)), error)


# ---- The rule: when independent comparisons of two builds suffice for a verdict, and for which one

@dataclass(frozen=True)
class Rule:
    """Fixed before anything is measured. A comparison is a fresh pair of processes; only these are independent."""

    threshold: float = 0.02  # smaller changes do not matter
    error: float = 0.03  # probability that one bound is wrong, at one look
    confirm_error: float = 0.01  # the same for the fresh pairs of a second opinion
    looks: tuple[int, ...] = (6, 9, 13, 19, 28, 42, 63, 94, 141)  # pairs at which to look, each half as many again


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    ratio: float
    low: float
    high: float


def verdict_of(shift: Shift, threshold: float) -> Verdict:
    """Slower: the ratio is beyond the threshold, and its lower bound beyond half the threshold. Same: both bounds are within the
    threshold."""
    far, half = math.log1p(threshold), math.log1p(threshold / 2)
    if shift.middle > far and shift.low > half:
        return Verdict.SLOWER
    if shift.middle < -far and shift.high < -half:
        return Verdict.FASTER
    return Verdict.SAME if -far < shift.low and shift.high < far else Verdict.UNDECIDED


def decide(log_ratios: Sequence[float], rule: Rule) -> Decision:
    """Verdict by logarithms of head over base, one per pair."""
    found = centre_of(log_ratios, rule.error)
    return Decision(verdict_of(found, rule.threshold), math.exp(found.middle), math.exp(found.low), math.exp(found.high))


def threshold_of(text: str, flag: str) -> float:
    """The fraction that a flag's percentage means, such as 0.02 for 2%."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0.1 <= percent <= 100:
        raise UsageError(f"{flag} {text}; allowed: 0.1% to 100%")
    return percent / 100
