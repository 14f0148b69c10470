"""How much faster or slower the machine itself was in the second session: cases that no change of ours can touch, run in both."""
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gate.inputs.observation import Observation, Quantity
from gate.two_samples import differences, shift, shift_bounds

Sides = tuple[Sequence[float], Sequence[float]]  # costs of base and of head
NOTABLE = math.log1p(0.03)  # more is said: then it is hardly the same machine


@dataclass(frozen=True)
class Drift:
    """Logarithms of times, head over base."""

    middle: float
    low: float
    high: float


def of_quantity(base: Sequence[float], head: Sequence[float], error: float) -> Drift:
    """Bounds of logarithms, one per run. Where there are too few for bounds, their extremes: the widest that they can say."""
    low, high = shift_bounds(base, head, error)
    extremes = differences(base, head)
    return Drift(shift(base, head), max(low, float(extremes[0])), min(high, float(extremes[-1])))


def drifts(base: Mapping[Quantity, Sequence[Observation]], head: Mapping[Quantity, Sequence[Observation]],
           error: float) -> dict[str, Drift]:
    """By kind of case: the median over the calibration cases of that kind, of the middle and of each bound. `error`: the chance
    that any lower bound, or any upper one, is wrong. Where each case has one run a side, cases bound each other."""
    of_kind: dict[str, list[Sides]] = {}
    for quantity, runs in base.items():
        if quantity.calibrates and quantity.kind is not None and quantity in head:
            sides = tuple([quantity.log_cost(run.typical) for run in side] for side in (runs, head[quantity]))
            of_kind.setdefault(quantity.kind, []).append(sides)
    return {kind: _of_kind(cases, error / len(of_kind)) for kind, cases in of_kind.items()}


def _of_kind(cases: Sequence[Sides], error: float) -> Drift:
    found = [of_quantity(*sides, error) for sides in cases]
    single = all(len(side) == 1 for sides in cases for side in sides)
    least, most = (min, max) if single else (statistics.median, statistics.median)
    return Drift(statistics.median(one.middle for one in found), least(one.low for one in found), most(one.high for one in found))


def drift_of(kind: str | None, found: Mapping[str, Drift]) -> Drift:
    """Drift of a case of this kind. Where its kind was not calibrated nothing is taken out, but its interval holds all that any kind
    may have moved."""
    if kind in found:
        return found[kind]
    return Drift(0.0, min([0.0, *(one.low for one in found.values())]), max([0.0, *(one.high for one in found.values())]))


def notes(found: Mapping[str, Drift], trust: bool) -> list[str]:
    if not found:
        so = "" if trust else ", and no time is called slower or faster for it (gate.py calibrate; or --uncalibrated trust)"
        return [f"no calibration cases on both sides: what the machine itself changed is in the ratios{so}"]
    percent = {kind: f"{_percent(one.middle)} ({_percent(one.low)} .. {_percent(one.high)})" for kind, one in sorted(found.items())}
    told = ["calibration: " + ", ".join(f"{kind} {text}" for kind, text in percent.items()) + "; taken out of the ratios"]
    moved = [kind for kind in percent if abs(found[kind].middle) > NOTABLE]
    if moved:
        told.append(f"the machine was not the same: {', '.join(moved)} moved by more than {math.expm1(NOTABLE) * 100:.0f} %; "
                    "measure both sides again, in turn (gate.py ab)")
    return told


def _percent(log_ratio: float) -> str:
    return f"{math.expm1(log_ratio) * 100:+.1f} %"
