"""Statistics of the gate; docs/gate.md says why these. Pure functions of numbers."""
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def walsh_averages(values: Sequence[float]) -> np.ndarray:
    """All means of two values, each with itself too, ascending."""
    x = np.asarray(values, dtype=float)
    means = (x[:, None] + x[None, :]) / 2
    return np.sort(means[np.triu_indices(len(x))])


def hodges_lehmann(values: Sequence[float]) -> float:
    """The centre of a symmetric distribution: the median of the Walsh averages (Hodges and Lehmann 1963)."""
    return float(np.median(walsh_averages(values)))


@lru_cache(maxsize=None)
def _signed_rank_distribution(n: int) -> tuple[float, ...]:
    """P(T <= t) for t = 0 ... n(n+1)/2 of Wilcoxon's signed-rank sum T without ties."""
    ways = np.zeros(n * (n + 1) // 2 + 1)
    ways[0] = 1
    for rank in range(1, n + 1):
        more = ways.copy()
        more[rank:] += ways[:-rank]
        ways = more
    return tuple(np.cumsum(ways) / ways.sum())


def signed_rank_bounds(values: Sequence[float], error: float) -> tuple[float, float]:
    """Lower and upper bound of the centre, each wrong with a chance of at most `error`, whatever the symmetric
    distribution: the Walsh averages at the quantiles of the signed-rank sum (Hollander and Wolfe 1999, section 3.3).
    Infinite where there are too few values: 1 / 2^n must be at most `error`."""
    means = walsh_averages(values)
    distribution = _signed_rank_distribution(len(values))
    outside = int(np.searchsorted(distribution, error, side="right"))
    if outside == 0:
        return -math.inf, math.inf
    return float(means[outside - 1]), float(means[len(means) - outside])


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Interval of a rate (Wilson 1927); z = 1.96: 95 %, two-sided."""
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)
