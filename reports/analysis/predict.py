"""What the plans predict of a series, and up to which size latency decides.

Two predictions, the better one first: the program's own (plan.predicted_us), which plays the plan out message by
message with the alpha and beta that it measured; else alpha * steps + beta * bytes with alpha and beta fitted here.
"""
from dataclasses import dataclass, replace
from typing import Optional, Sequence, Union

from reports.analysis.fit import Fit, FitKey, NoFit, key_of
from reports.analysis.panels import Panel, Series


@dataclass(frozen=True)
class Prediction:
    """Of one series; `model` has its sizes with predicted in place of measured times."""

    label: str
    model: Series
    played_out: bool  # message by message, by the program; else alpha * steps + beta * bytes
    ratios: tuple[float, ...]  # measured over predicted, by size
    steps: int  # at the smallest size
    wire_per_byte: float  # bytes that the busiest rank sends for a byte of the message, at the largest size
    fit: Optional[Fit]
    latency_bound_below: Optional[float]  # bytes; None without a fit


@dataclass(frozen=True)
class Predictions:
    no_fit: str  # why some series has no fit of alpha and beta; empty if all have
    by_label: dict[str, Prediction]
    left_out: tuple[str, ...] = ()  # series with plans but without a prediction


def predictions_of(panel: Panel, fits: dict[FitKey, Union[Fit, NoFit]]) -> Predictions:
    planned = [series for series in panel.series if all(point.plan for point in series.points)]
    if not planned:
        return Predictions("no row has a plan (a library's own collectives have none)", {})
    # Variants may differ in their links (shared memory, MPI): each series is predicted by its own fit.
    found = {series.label: fits.get(key_of(panel.setting, series.variant)) for series in planned}
    made = {s.label: predict(s, fit if isinstance(fit := found[s.label], Fit) else None) for s in planned}
    no_fit = "" if all(isinstance(fit, Fit) for fit in found.values()) else _reason(found, panel)
    return Predictions(no_fit, {label: p for label, p in made.items() if p}, tuple(s for s, p in made.items() if not p))


def _reason(found: dict[str, Optional[Union[Fit, NoFit]]], panel: Panel) -> str:
    told = next((fit.reason for fit in found.values() if isinstance(fit, NoFit)), None)
    return told or f"there are no send/recv rows of the same build and transport at {panel.setting.ranks} ranks"


def predict(series: Series, fit: Optional[Fit]) -> Optional[Prediction]:
    """None if neither the program nor a fit predicts all sizes."""
    recorded = [point.plan.predicted_us for point in series.points]
    if all(recorded):
        return _prediction(series, recorded, True, fit)
    if fit is None:
        return None
    closed = [fit.predict(point.plan.steps, point.plan.wire_bytes_max) for point in series.points]
    return _prediction(series, closed, False, fit)


def _prediction(series: Series, times: Sequence[float], played_out: bool, fit: Optional[Fit]) -> Prediction:
    pairs = list(zip(series.points, times))
    points = tuple(replace(point, time_us=time, ci_low=None, ci_high=None) for point, time in pairs)
    steps, last = series.points[0].plan.steps, series.points[-1]
    wire = last.plan.wire_bytes_max / last.bytes
    below = fit.alpha_us * steps / (fit.beta_us_per_byte * wire) if fit and wire > 0 else None
    ratios = tuple(point.time_us / time for point, time in pairs)
    return Prediction(series.label, replace(series, points=points), played_out, ratios, steps, wire, fit, below)
