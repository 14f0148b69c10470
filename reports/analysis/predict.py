"""What the alpha-beta model says of a series: predicted times, and up to which size latency decides."""
from dataclasses import dataclass, replace
from typing import Optional, Union

from reports.analysis.fit import Fit, FitKey, NoFit, key_of
from reports.analysis.panels import Panel, Series


@dataclass(frozen=True)
class Prediction:
    """Of one series; `model` has its sizes with predicted in place of measured times."""

    label: str
    model: Series
    ratios: tuple[float, ...]  # measured over predicted, by size
    steps: int  # at the smallest size
    wire_per_byte: float  # bytes that the busiest rank sends for a byte of the message, at the largest size
    fit: Optional[Fit]  # None: the times were predicted by the program that wrote the records
    latency_bound_below: Optional[float]  # bytes; None without a fit


@dataclass(frozen=True)
class Predictions:
    source: str  # "fit", "recorded", "none"
    reason: str  # why not "fit"; empty if it is
    by_label: dict[str, Prediction]


def predictions_of(panel: Panel, fits: dict[FitKey, Union[Fit, NoFit]]) -> Predictions:
    planned = [series for series in panel.series if all(point.plan for point in series.points)]
    if not planned:
        return Predictions("none", "no row has a plan (a library's own collectives have none)", {})
    # Variants may differ in their links (shared memory, MPI): each series is predicted by its own fit.
    found = {series.label: fits.get(key_of(panel.setting, series.variant)) for series in planned}
    good = {label: fit for label, fit in found.items() if isinstance(fit, Fit)}
    if good:
        made = {s.label: predict_series(s, good[s.label]) for s in planned if s.label in good}
        return Predictions("fit", "", made)
    reason = _reason(found, panel)
    recorded = {s.label: p for s in planned if (p := recorded_prediction(s))}
    return Predictions("recorded" if recorded else "none", reason, recorded)


def _reason(found: dict[str, Optional[Union[Fit, NoFit]]], panel: Panel) -> str:
    told = next((fit.reason for fit in found.values() if isinstance(fit, NoFit)), None)
    return told or f"there are no send/recv rows of the same build and transport at {panel.setting.ranks} ranks"


def predict_series(series: Series, fit: Fit) -> Prediction:
    times = [fit.predict(point.plan.steps, point.plan.wire_bytes_max) for point in series.points]
    first, wire = series.points[0].plan.steps, _wire_per_byte(series)
    below = fit.alpha_us * first / (fit.beta_us_per_byte * wire) if wire > 0 else None
    return _prediction(series, times, fit, below)


def recorded_prediction(series: Series) -> Optional[Prediction]:
    """From the times that the program itself predicted, where it knew alpha and beta."""
    times = [point.plan.predicted_us for point in series.points]
    return _prediction(series, times, None, None) if all(times) else None


def _prediction(series: Series, times: list[float], fit: Optional[Fit], below: Optional[float]) -> Prediction:
    points = tuple(replace(point, time_us=time, ci_low=None, ci_high=None)
                   for point, time in zip(series.points, times))
    ratios = tuple(point.time_us / time for point, time in zip(series.points, times))
    return Prediction(series.label, replace(series, points=points), ratios, series.points[0].plan.steps,
                      _wire_per_byte(series), fit, below)


def _wire_per_byte(series: Series) -> float:
    last = series.points[-1]
    return last.plan.wire_bytes_max / last.bytes
