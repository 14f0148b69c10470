"""gate.py history: in a series of record files, one per revision, where did a case's level change, and which commits are to blame?
Status 1 if the last change of a case is for the worse and among its last points."""
import argparse
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from gate.inputs.files import read
from gate.inputs.observation import notes_of, Observation, Quantity, UNKNOWN
from gate.model import Change, Channel, Point, Report, Result, Series, Side, UsageError, Verdict
from gate.rule import Shift, shift_of, threshold_of

# ---- Finds changes of the level of a noisy series, and the probability that chance alone shows each. Pure functions of numbers.
#
# Means of neighbouring stretches are compared, and random permutations of the series show the effect of chance, as in E-divisive means
# (Matteson and James 2014; Daly et al. 2020 use it at MongoDB). As Hunter found (Fleming et al. 2023), answers must not vary from
# call to call, and a step that is soon reverted hides in a long stretch. So random numbers have a fixed seed, and the stretches are
# seeded intervals (Kovacs et al. 2023) of many lengths, with one limit for all. Both sides of a change are
# searched again separately. A point far from its four neighbours is moved nearer: one or two outliers are no change.

LEAST_POINTS = 3  # each side of a change: fewer are outliers
_WINDOW = 5
_FAR = 3.0  # standard deviations from the window's median
_SEED = 20231
_BATCH = 250
_PERMUTATIONS = 4000
_ENOUGH = 8  # number of permutations with an equally clear place that end the search as chance (Besag and Clifford 1991)


def least_length() -> int:
    return 2 * LEAST_POINTS + 2


def find_changes(values: Sequence[float], level: float) -> list[tuple[int, float]]:
    """First index after each change and its p-value, in order. In a series without any change, one is found with probability `level`."""
    series = np.asarray(values, dtype=float)
    return _placed(series, dict(_search(series, 0, level)))


def _search(part: np.ndarray, first: int, level: float) -> list[tuple[int, float]]:
    """The clearest change of a part of a series that begins at `first`, then the changes on both sides."""
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
    # the mean of differences is more precise than their median if it contains no outlier; pi: as for normal noise
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
    """Probability that the same values in random order have an equally clear place. Beyond the number of permutations the tail is
    assumed to fall exponentially, as from the last fiftieth to the last five-hundredth; it really falls faster."""
    dice = np.random.default_rng(_SEED)
    found: list[np.ndarray] = []
    for _ in range(_PERMUTATIONS // _BATCH):
        found.append(_clearest_of_each(dice.permuted(np.tile(series, (_BATCH, 1)), axis=1)))
        as_clear = sum(int((permuted >= clear).sum()) for permuted in found)
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
    """Moves each change to the index that best divides the stretch between its neighbours, as the search's stretches end anywhere."""
    order = sorted(found)
    ends = [0, *order, len(values)]
    for i in range(1, len(ends) - 1):
        ends[i] = _best_place(values, ends[i - 1], ends[i + 1])
    return [(at, found[before]) for at, before in zip(ends[1:-1], order, strict=True)]


def _best_place(values: np.ndarray, start: int, end: int) -> int:
    """Best index by least absolute deviations from the medians of both sides, which is robust against outliers."""
    def deviation(part: np.ndarray) -> float:
        return float(np.abs(part - np.median(part)).sum())
    places = range(start + LEAST_POINTS, end - LEAST_POINTS + 1)
    return min(places, key=lambda at: deviation(values[start:at]) + deviation(values[at:end]))


# A series of record files: where each case's level changed, by how much, and which commits are to blame.

@dataclass(frozen=True)
class HistoryRule:
    threshold: float = 0.02  # smaller steps are left out
    error: float = 0.01  # probability that a change is found in any case of a history without changes
    bound_error: float = 0.05  # probability that one bound of a step is wrong
    last: int = 10  # points that count as recent


def history(observations: Sequence[Observation], rule: HistoryRule) -> tuple[list[Series], list[str]]:
    """A series for each case, and notes for the reader. If there are several machines, only the machine of the newest file is used."""
    last = max((observed.origin for observed in observations), key=lambda origin: origin.started)
    newest = last.fingerprint
    mine = [observed for observed in observations if observed.origin.fingerprint == newest]
    points = points_of(mine)
    times = [quantity for quantity, series in points.items()
             if quantity.channel is Channel.STORED and not quantity.calibrates and len(series) >= least_length()]
    level = rule.error / max(1, len(times))
    found = {quantity: _series(quantity, series, level, rule) for quantity, series in points.items()}
    machine = {quantity: series for quantity, series in found.items() if quantity.calibrates}
    notes = _of_machines(observations, newest) + _ended(points, last.revision) + _short(found)
    notes += [note for series in machine.values() for note in _of_calibration(series)]
    return [_without_the_machines(quantity, series, machine) for quantity, series in found.items() if not quantity.calibrates], notes


def points_of(observations: Sequence[Observation]) -> dict[Quantity, list[Point]]:
    """Points in order of time, one per file and revision, as a file may hold runs of several revisions."""
    files: dict[Quantity, dict[tuple[str, str], list[Observation]]] = {}
    for observed in observations:
        files.setdefault(observed.quantity, {}).setdefault((observed.origin.source, observed.origin.revision), []).append(observed)
    return {quantity: sorted((_point(quantity, runs) for runs in of_file.values()), key=lambda point: (point.time, point.source))
            for quantity, of_file in files.items()}


def _point(quantity: Quantity, runs: Sequence[Observation]) -> Point:
    origin = min((run.origin for run in runs), key=lambda origin: origin.started)
    of_runs = max if quantity.is_fault else statistics.median
    return Point(origin.started, origin.revision, origin.source, of_runs([run.typical for run in runs]))


def _series(quantity: Quantity, points: list[Point], level: float, rule: HistoryRule) -> Series:
    why = ""
    if quantity.channel is Channel.EXACT:
        found = _differences(quantity, points, rule)
    elif len(points) < least_length():
        found, why = [], f"{len(points)} points; {least_length()} are needed"
    else:
        found = _changes(quantity, points, level, rule)
    return Series(quantity.case, quantity.channel, quantity.unit, quantity.better, tuple(points), tuple(found), why)


def _differences(quantity: Quantity, points: Sequence[Point], rule: HistoryRule) -> list[Change]:
    """Finds changes of exact values: each difference is one."""
    places = [at for at in range(1, len(points)) if points[at].value != points[at - 1].value]
    found = []
    for at in places:
        before, after = points[at - 1].value, points[at].value
        ratio = quantity.worse(before, after)
        worse = after > before if quantity.better == "lower" else after < before
        found.append(Change(at, blame(points, at), before, after, worse, ratio, ratio, ratio, 0.0,
                            at == places[-1] and at >= len(points) - rule.last))
    return found


def _changes(quantity: Quantity, points: Sequence[Point], level: float, rule: HistoryRule) -> list[Change]:
    costs = [quantity.log_cost(point.value) for point in points]
    places = dict(find_changes(costs, level))
    steps = _steps(costs, sorted(places), rule)
    while steps and not all(_matters(step, rule) for step in steps.values()):  # remove the smallest, redo its neighbours
        del places[min(steps, key=lambda at: (_matters(steps[at], rule), abs(steps[at].middle)))]
        steps = _steps(costs, sorted(places), rule)
    ends = [0, *steps, len(points)]
    return [_change(quantity, points, ends[i:i + 3], step, places[at], rule) for i, (at, step) in enumerate(steps.items())]


def _steps(costs: Sequence[float], places: Sequence[int], rule: HistoryRule) -> dict[int, Shift]:
    """Each change's step between the stretches before and after it."""
    ends = [0, *places, len(costs)]
    return {at: shift_of(costs[start:at], costs[at:end], rule.bound_error) for start, at, end in zip(ends, ends[1:], ends[2:])}


def _matters(step: Shift, rule: HistoryRule) -> bool:
    return abs(step.middle) > math.log1p(rule.threshold) and (step.low > 0 or step.high < 0)


def _change(quantity: Quantity, points: Sequence[Point], ends: Sequence[int], step: Shift, p: float, rule: HistoryRule) -> Change:
    start, at, end = ends
    before, after = (statistics.median(point.value for point in part) for part in (points[start:at], points[at:end]))
    recent = end == len(points) and at >= len(points) - rule.last
    return Change(at, blame(points, at), before, after, step.middle > 0, math.exp(step.middle), math.exp(step.low),
                  math.exp(step.high), p, recent)


def blame(points: Sequence[Point], at: int) -> str:
    """Range of commits for git log; or the reason why there is none."""
    base, head = (point.revision.rstrip("+") for point in (points[at - 1], points[at]))
    if UNKNOWN in (base, head):
        return f"revisions are not known: {points[at - 1].source} to {points[at].source}"
    if base == head:
        return f"no commit: {base[:12]} on both sides"
    return f"{base[:12]}..{head[:12]}"


def _without_the_machines(quantity: Quantity, series: Series, machine: Mapping[Quantity, Series]) -> Series:
    """A change that a calibration case of the kind (of any, where the case's is not known) has too, in that direction and not more
    than a point away, is not the code's: it does not count as recent."""
    if not series.changes or series.channel is not Channel.STORED:
        return series
    *others, last = series.changes
    time = series.points[last.at].time
    calibrations = [found for calibration, found in machine.items() if quantity.kind in (None, calibration.kind)]
    if not any(change.worse == last.worse and _near(found, change.at, time) for found in calibrations for change in found.changes):
        return series
    return replace(series, changes=(*others, replace(last, recent=False)), why="the machine changed there too")


def _near(series: Series, at: int, time: str) -> bool:
    return series.points[at - 1].time <= time <= series.points[min(at + 1, len(series.points) - 1)].time


def _of_machines(observations: Sequence[Observation], newest: str) -> list[str]:
    others = {observed.origin.source for observed in observations if observed.origin.fingerprint != newest}
    return [f"{len(others)} files of other machines are left out; this is machine {newest}"] if others else []


def _short(found: Mapping[Quantity, Series]) -> list[str]:
    """Note on times that were not searched: that nothing was found in them means nothing."""
    judged = [(quantity, series) for quantity, series in found.items() if quantity.channel is Channel.STORED and not quantity.calibrates]
    short = [len(series.points) for quantity, series in judged if len(series.points) < least_length()]
    return [f"{len(short)} of {len(judged)} timed cases have at most {max(short)} points, too few to find a change in: "
            f"{least_length()} are needed"] if short else []


def _ended(points: Mapping[Quantity, Sequence[Point]], newest: str) -> list[str]:
    """Note on cases that are not measured at the newest revision: they may have failed, or have another name."""
    judged = {quantity.case: series[-1] for quantity, series in points.items() if not quantity.calibrates}
    ended = [case for case, last in judged.items() if last.revision != newest]
    return [f"{len(ended)} of {len(judged)} cases end before the newest revision, {newest[:12]}: {ended[0]}"
            f"{' and others' if len(ended) > 1 else ''}"] if ended else []


def _of_calibration(series: Series) -> list[str]:
    return [f"the machine changed at {series.points[change.at].source}: {series.case} is {_percent(change.ratio)} from there on"
            for change in series.changes]


def _percent(ratio: float | None) -> str:
    return "other" if ratio is None else f"{(ratio - 1) * 100:+.1f} %"


# ---- A history as a report of two sides: before, and the newest revision

def _result(series: Series) -> Result:
    if series.verdict is Verdict.SAME:
        values = [point.value for point in series.points]
        level = series.changes[-1].after if series.changes else statistics.median(values) if values else None
        return Result(series.case, series.channel, Verdict.SAME, series.unit, level, level, why=series.why or f"{len(values)} points")
    change = series.changes[-1]
    return Result(series.case, series.channel, series.verdict, series.unit, change.before, change.after, change.ratio, change.low, change.high,
                  f"since {change.blame}")


def report_of(source: str, rule: HistoryRule, series: Sequence[Series], seconds: float, notes: Sequence[str]) -> Report:
    """Report on the series of records in `source`, the last part of a path."""
    last = max((point for one in series for point in one.points), key=lambda point: point.time, default=None)
    return Report("history", Side("before"), Side(source, last.revision if last else UNKNOWN, source), rule.threshold, 1 - 2 * rule.bound_error,
                  tuple(map(_result, series)), seconds, tuple(notes), tuple(series))


# ---- The command of gate.py

def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="DIR", help="folders, files or globs of measurements, ordered by their time")
    parser.add_argument("--last", type=int, default=10, metavar="N", help="points of a case that count as recent (default: 10)")
    parser.add_argument("--threshold", default="2%", metavar="PERCENT", help="smaller steps are left out (default: 2%%)")


def run(arguments: argparse.Namespace) -> Report:
    start = time.monotonic()
    if arguments.last < 1:
        raise UsageError(f"--last {arguments.last}; allowed: at least 1")
    rule = HistoryRule(threshold=threshold_of(arguments.threshold, "--threshold"), last=arguments.last)
    observations = read(arguments.files, "DIR")
    if not observations:
        raise UsageError(f"DIR {' '.join(arguments.files)}: no measurement; allowed: files with at least one")
    series, notes = history(observations, rule)
    return report_of(Path(arguments.files[0]).name, rule, series, time.monotonic() - start, [*notes, *notes_of(observations)])
