"""Statistics of two independent samples and of many tests at once; docs/gate.md says why these. Pure functions of numbers."""
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def differences(base: Sequence[float], head: Sequence[float]) -> np.ndarray:
    """Differences of each value of head and each of base, ascending."""
    return np.sort((np.asarray(head, dtype=float)[:, None] - np.asarray(base, dtype=float)[None, :]).ravel())


def shift(base: Sequence[float], head: Sequence[float]) -> float:
    """By how much head lies above base: the median of all differences (Hodges and Lehmann 1963)."""
    return float(np.median(differences(base, head)))


@lru_cache(maxsize=None)
def rank_sum_distribution(m: int, n: int) -> np.ndarray:
    """P(U <= u) for u = 0 ... m n of the Mann-Whitney count U of two samples from one distribution, without ties. Ways to
    place samples are counted by the largest value (Mann and Whitney 1947): it is of either sample."""
    rows = [np.ones(1)] * (n + 1)  # row i, column j: chances of u = 0 ... i j with i values of the first sample and j = 0 ... n of the second
    for i in range(1, m + 1):
        above = rows
        rows = [np.ones(1)]
        for j in range(1, n + 1):
            chances = np.zeros(i * j + 1)
            chances[:i * (j - 1) + 1] += rows[j - 1] * j / (i + j)  # the largest is of the second: no pair of it counts
            chances[j:] += above[j] * i / (i + j)  # the largest is one of the first: j pairs do
            rows.append(chances)
    return np.cumsum(rows[n])


def shift_bounds(base: Sequence[float], head: Sequence[float], error: float) -> tuple[float, float]:
    """Lower and upper bound of the shift, each wrong with a chance of at most `error`, whatever the distribution (Hollander and
    Wolfe 1999, section 4.3). Infinite where there are too few values: 1 / C(m + n, n) must be at most `error`."""
    ordered = differences(base, head)
    outside = int(np.searchsorted(rank_sum_distribution(len(base), len(head)), error * (1 + 1e-9), side="right"))
    if outside == 0:
        return -math.inf, math.inf
    return float(ordered[outside - 1]), float(ordered[len(ordered) - outside])


def p_above(base: Sequence[float], head: Sequence[float], at: float) -> float:
    """Chance of a rank sum like this if head lay above base by no more than `at`: the exact permutation test on ranks. Ties
    count against a difference."""
    below = int(np.searchsorted(differences(base, head), at, side="right"))  # differences that do not exceed it
    return float(rank_sum_distribution(len(base), len(head))[below])


def least_p(m: int, n: int) -> float:
    """p_above where all of head lies above all of base: the least that so many values can give."""
    return 1 / math.comb(m + n, n)


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted for their number: to reject where it is at most e keeps the chance of any false rejection at e, whatever hangs
    together with what (Holm 1979)."""
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for done, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - done) * ps[i]))
        adjusted[i] = largest
    return adjusted
