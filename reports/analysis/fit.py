"""Fits alpha and beta to times of send/recv, and predicts times of collectives from their plans."""

from dataclasses import dataclass, replace
from typing import Mapping, Optional, Sequence, Union

import numpy as np
from scipy.optimize import least_squares, nnls

from reports.analysis.estimate import Estimate
from reports.analysis.groups import by
from reports.analysis.panels import Panel, Point, Series, Variant, where_of


# ---- The fit: time = alpha * messages one after another + beta * bytes of the busiest rank

MIN_SIZES = 4
MIN_SPAN = 64  # largest size over the smallest: less cannot separate latency from bandwidth
MIN_SHARE = 0.1  # share of the time that alpha must have at the smallest sizes and beta at the largest
_HUBER = 0.1  # relative errors beyond 10 % weigh less


@dataclass(frozen=True)
class Fit:
    alpha_us: float
    beta_us_per_byte: float
    r2: float  # coefficient of determination of the logarithm of time
    typical_error: float  # median of |predicted / measured - 1|
    worst_error: float
    worst_bytes: int
    sizes: int
    turn: Estimate  # alpha over beta: bytes of a message whose two parts take equally long

    @property
    def gbps(self) -> float:
        return 1e-3 / self.beta_us_per_byte

    @property
    def poor(self) -> bool:
        return self.typical_error > 0.25

    def predict(self, steps: float, wire_bytes: float) -> float:
        return self.alpha_us * steps + self.beta_us_per_byte * wire_bytes


@dataclass(frozen=True)
class NoFit:
    reason: str


Fits = Mapping[tuple, Union[Fit, NoFit]]


def key_of(panel: Panel, variant: Variant) -> tuple:
    """Rows that a fit is valid for: the same machine, build, basis, link, ranks, and the same way of running."""
    return panel.first.ranks, where_of(panel.first), variant


def fits_of(panels: Sequence[Panel]) -> Fits:
    """A fit, or the reason why there is none, for each way of running that has send_recv rows."""
    measured = [panel for panel in panels if panel.first.collective == "send_recv"]
    series = by(((panel, series) for panel in measured for series in panel.series),
                lambda pair: key_of(pair[0], pair[1].variant), lambda pair: pair[1])
    return {key: fit_points([point for line in found for point in line.points]) for key, found in series.items()}


def fit_points(points: Sequence[Point]) -> Union[Fit, NoFit]:
    sizes = sorted({point.bytes for point in points})
    if len(sizes) < MIN_SIZES or sizes[-1] < MIN_SPAN * sizes[0]:
        return NoFit(f"send/recv was run at {len(sizes)} sizes; a fit needs at least {MIN_SIZES}, "
                     f"the largest {MIN_SPAN} times the smallest")
    steps = np.array([point.plan.steps if point.plan else 1 for point in points], dtype=float)
    wire = np.array([point.plan.wire_bytes_max if point.plan else point.bytes for point in points], dtype=float)
    times = np.array([point.time_us for point in points])
    alpha, beta = robust_fit(steps, wire, times)
    if beta * wire.max() < MIN_SHARE * times.max():
        return NoFit("the times of send/recv do not grow with the size, so there is no bandwidth to be seen")
    if alpha * steps.min() < MIN_SHARE * times.min():
        return NoFit("the times of send/recv show no latency at the smallest sizes")
    predicted, logs = alpha * steps + beta * wire, np.log(times)
    error = np.abs(predicted / times - 1)
    worst = int(np.argmax(error))
    r2 = 1 - np.sum((logs - np.log(predicted)) ** 2) / max(float(np.sum((logs - logs.mean()) ** 2)), 1e-300)
    return Fit(alpha, beta, float(r2), float(np.median(error)), float(error[worst]), points[worst].bytes, len(sizes),
               _turn(alpha / beta, steps, wire, points))


def _turn(value: float, steps: np.ndarray, wire: np.ndarray, points: Sequence[Point]) -> Estimate:
    """The ends of its interval: small messages at one end of their times' intervals, large ones at the other."""
    low, high = (np.array([max(end, 1e-3 * point.time_us) for point, end in zip(points, ends)]) for ends in
                 zip(*((point.estimate.low, min(point.estimate.high, 1e3 * point.time_us)) for point in points)))
    is_small = wire <= np.median(wire)
    found = [robust_fit(steps, wire, np.where(is_small, line, other)) for line, other in ((low, high), (high, low))]
    ends = [alpha / max(beta, 1e-300) for alpha, beta in found]
    return Estimate(value, min(*ends, value), max(*ends, value))


def robust_fit(steps: np.ndarray, wire: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """Least squares of the relative error, neither number negative, outliers weighed down (Huber)."""
    matrix = np.column_stack([steps, wire]) / times[:, None]
    scale = matrix.max(axis=0)
    start = nnls(matrix / scale, np.ones(len(times)))[0]
    found = least_squares(lambda x: matrix / scale @ x - 1, start, lambda _: matrix / scale, bounds=(0, np.inf),
                          loss="huber", f_scale=_HUBER, xtol=1e-12, ftol=1e-12, gtol=1e-12)
    return tuple((found.x / scale).tolist())


# ---- Predictions of a series from its plans, and the size up to which latency decides. There are two, the better one first: the
# program's own (plan.predicted_us), which plays the plan message by message with the alpha and beta that it measured;
# else alpha * steps + beta * bytes with alpha and beta fitted here


@dataclass(frozen=True)
class Prediction:
    """Prediction of one series; `model` has its sizes with predicted instead of measured times."""

    label: str
    model: Series
    played_out: bool  # message by message, by the program; else alpha * steps + beta * bytes
    ratios: tuple[float, ...]  # measured over predicted, by size
    steps: int  # at the smallest size
    wire_per_byte: float  # bytes that the busiest rank sends per byte of the message, at the largest size
    fit: Optional[Fit]
    latency_bound_below: Optional[float]  # bytes; None without a fit


@dataclass(frozen=True)
class Predictions:
    no_fit: str  # reason why some series has no fit of alpha and beta; empty if all have
    by_label: dict[str, Prediction]
    left_out: tuple[str, ...] = ()  # series with plans but without a prediction


def predictions_of(panel: Panel, fits: Fits) -> Predictions:
    planned = [series for series in panel.series if all(point.plan for point in series.points)]
    if not planned:
        return Predictions("no row has a plan (a library's own collectives have none)", {})
    # Variants may differ in their links (shared memory, MPI): each series is predicted by its own fit.
    found = {series.label: fits.get(key_of(panel, series.variant)) for series in planned}
    made = {s.label: predict(s, fit if isinstance(fit := found[s.label], Fit) else None) for s in planned}
    no_fit = "" if all(isinstance(fit, Fit) for fit in found.values()) else _reason(found, panel)
    return Predictions(no_fit, {label: p for label, p in made.items() if p}, tuple(s for s, p in made.items() if not p))


def _reason(found: dict[str, Optional[Union[Fit, NoFit]]], panel: Panel) -> str:
    text = next((fit.reason for fit in found.values() if isinstance(fit, NoFit)), None)
    return text or f"there are no send/recv rows of the same build and transport at {panel.first.ranks} ranks"


def predict(series: Series, fit: Optional[Fit]) -> Optional[Prediction]:
    """None if neither the program nor a fit predicts all sizes."""
    times = [point.plan.predicted_us for point in series.points]
    played_out = all(times)
    if not played_out and fit is None:
        return None
    if not played_out:
        times = [fit.predict(point.plan.steps, point.plan.wire_bytes_max) for point in series.points]
    pairs = list(zip(series.points, times))
    points = tuple(replace(point, stats=replace(point.stats, median=time), is_exact=True) for point, time in pairs)
    steps, last = series.points[0].plan.steps, series.points[-1]
    wire = last.plan.wire_bytes_max / last.bytes
    below = fit.alpha_us * steps / (fit.beta_us_per_byte * wire) if fit and wire > 0 else None
    ratios = tuple(point.time_us / time for point, time in pairs)
    return Prediction(series.label, replace(series, points=points), played_out, ratios, steps, wire, fit, below)
