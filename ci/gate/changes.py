"""Where the level of a noisy series changes, and how sure that is. Pure functions of numbers.

Means of neighbouring stretches are compared and the series in random order says what chance does, as in E-divisive means
(Matteson and James 2014; Daly et al. 2020 use it at MongoDB). As Hunter found (Fleming et al. 2023), answers must not vary from
call to call, and a step that is soon taken back hides in a long stretch: so the dice have a fixed seed, and the stretches are
seeded intervals (Kovacs et al. 2023) of many lengths, one limit for all of them together. What lies on both sides of a change is
searched again by itself. A point far from its four neighbours counts as nearer: one or two outliers are no change."""
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

LEAST_POINTS = 3  # each side of a change: fewer are outliers
_WINDOW = 5
_FAR = 3.0  # standard deviations from the window's median
_SEED = 20231
_BATCH = 250
_PERMUTATIONS = 4000
_ENOUGH = 8  # orders that are as clear end the search: it was chance (Besag and Clifford 1991)


def least_length() -> int:
    return 2 * LEAST_POINTS + 2


def find_changes(values: Sequence[float], level: float) -> list[tuple[int, float]]:
    """First index after each change and its chance, by place. In a series without any, one is found with a chance of `level`."""
    series = np.asarray(values, dtype=float)
    return _placed(series, dict(_search(series, 0, level)))


def _search(part: np.ndarray, first: int, level: float) -> list[tuple[int, float]]:
    """The clearest change of a part of a series that begins at `first`, then those on both sides of it."""
    if len(part) < least_length() or np.ptp(part) == 0:
        return []
    clear, at = _clearest(part)
    p = _chance(part, clear)
    if p > level:
        return []
    return [*_search(part[:at], first, level), (first + at, p), *_search(part[at:], first + at, level)]


def _clearest(series: np.ndarray) -> tuple[float, int]:
    sums = _sums(series[None, :])
    found: list[tuple[float, int]] = []
    for start, end in seeded_intervals(len(series)):
        clear = _clearness(sums, start, end)[0]
        found.append((float(clear.max()), start + LEAST_POINTS + int(clear.argmax())))
    return max(found)


@lru_cache(maxsize=None)
def seeded_intervals(n: int) -> tuple[tuple[int, int], ...]:
    """[start, end) of lengths n, n / sqrt 2, n / 2 ... evenly spread with overlap."""
    found: dict[tuple[int, int], None] = {}
    length, number = float(n), 1
    while length >= 2 * LEAST_POINTS:
        for start in np.linspace(0, n - length, number):
            found[math.floor(start), min(n, math.ceil(start + length))] = None
        length /= math.sqrt(2)
        number = 2 * math.ceil(n / length) - 1
    return tuple(found)


def _sums(rows: np.ndarray) -> np.ndarray:
    """Sums of each row's first 0 ... n values, in standard deviations of its noise, without outliers."""
    n = rows.shape[1]
    first = np.clip(np.arange(n) - _WINDOW // 2, 0, n - _WINDOW)
    middles = np.sort(rows[:, first[:, None] + np.arange(_WINDOW)], axis=2)[:, :, _WINDOW // 2]
    far = _FAR * _noise(rows)
    kept = np.clip(rows, middles - far, middles + far)
    # the mean of differences is surer than their median, where no outlier is in it; pi: as for normal noise
    spread = np.abs(np.diff(kept, axis=1)).mean(axis=1, keepdims=True) * math.sqrt(math.pi) / 2
    centred = (kept - kept.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    return np.concatenate([np.zeros((len(rows), 1)), np.cumsum(centred, axis=1)], axis=1)


def _noise(rows: np.ndarray) -> np.ndarray:
    """Standard deviation by the median of neighbours' differences, which few steps and outliers do not move; by their mean where
    most neighbours are alike."""
    apart = np.abs(np.diff(rows, axis=1))
    typical = np.median(apart, axis=1, keepdims=True) * 1.4826
    return np.where(typical > 0, typical, apart.mean(axis=1, keepdims=True)) / math.sqrt(2)


def _clearness(sums: np.ndarray, start: int, end: int) -> np.ndarray:
    """Distance of each row's means of [start, at) and [at, end), in standard deviations of that difference, for each
    `at` that leaves enough on both sides."""
    at = np.arange(start + LEAST_POINTS, end - LEAST_POINTS + 1)
    before, after = at - start, end - at
    left = sums[:, at] - sums[:, start:start + 1]
    whole = sums[:, end:end + 1] - sums[:, start:start + 1]
    return np.abs(left - whole * (before / (end - start))) * np.sqrt((end - start) / (before * after))


def _chance(series: np.ndarray, clear: float) -> float:
    """That the same values in random order have a place as clear as this. Beyond what so many orders show the tail is taken to
    fall off exponentially, as from the last fiftieth to the last five-hundredth; it falls off faster."""
    dice = np.random.default_rng(_SEED)
    found: list[np.ndarray] = []
    for _ in range(_PERMUTATIONS // _BATCH):
        found.append(_clearest_of_each(dice.permuted(np.tile(series, (_BATCH, 1)), axis=1)))
        as_clear = sum(int((one >= clear).sum()) for one in found)
        if as_clear >= _ENOUGH:
            return as_clear / (len(found) * _BATCH)
    near, last = np.quantile(np.concatenate(found), (0.98, 0.998))
    if as_clear > 0 or last <= near:
        return (1 + as_clear) / (1 + _PERMUTATIONS)
    return max(1e-6, 0.002 * 0.1 ** ((clear - last) / (last - near)))


def _clearest_of_each(rows: np.ndarray) -> np.ndarray:
    sums = _sums(rows)
    clearest = np.zeros(len(rows))
    for start, end in seeded_intervals(rows.shape[1]):
        np.maximum(clearest, _clearness(sums, start, end).max(axis=1), out=clearest)
    return clearest


def _placed(values: np.ndarray, found: dict[int, float]) -> list[tuple[int, float]]:
    """Each change where it divides the stretch between its neighbours best; stretches of the search end where they happen to."""
    order = sorted(found)
    ends = [0, *order, len(values)]
    for i in range(1, len(ends) - 1):
        ends[i] = _best_place(values, ends[i - 1], ends[i + 1])
    return [(at, found[before]) for at, before in zip(ends[1:-1], order, strict=True)]


def _best_place(values: np.ndarray, start: int, end: int) -> int:
    """By least absolute deviations from the medians of both sides: outliers do not pull."""
    def deviation(part: np.ndarray) -> float:
        return float(np.abs(part - np.median(part)).sum())
    places = range(start + LEAST_POINTS, end - LEAST_POINTS + 1)
    return min(places, key=lambda at: deviation(values[start:at]) + deviation(values[at:end]))
