"""Bus bandwidth, latency, and time over the fastest's time, against size: one line a series, with its p5-p95 band."""
from typing import Callable

from matplotlib.figure import Figure

from reports.analysis.crossover import TOLERANCE, best_time
from reports.analysis.panels import Panel, Point, Series
from reports.plots.frame import End, Heading, bytes_axis, draw_line, label_ends, line_axes, value_axis
from reports.plots.style import GRID, Style
from reports.units import short, time_text

Value = Callable[[Point, float], float]  # of a point and one of its times


def busbw(panel: Panel, shown: dict[str, Style], heading: Heading) -> Figure:
    figure = _curves(panel, shown, heading, lambda point, time: point.busbw_gbps(time), short)
    figure.axes[0].set_ylabel("bus bandwidth (GB/s)")
    return figure


def latency(panel: Panel, shown: dict[str, Style], heading: Heading) -> Figure:
    figure = _curves(panel, shown, heading, lambda point, time: time, time_text)
    figure.axes[0].set_ylabel("time of a call")
    return figure


def relative(panel: Panel, shown: dict[str, Style], heading: Heading) -> Figure:
    """Where lines that lie on each other over five decades of time come apart."""
    best = {size: best_time(panel.series, size) for size in panel.sizes}
    figure = _curves(panel, shown, heading, lambda point, time: time / best[point.bytes], lambda v: f"{short(v)}×")
    axes = figure.axes[0]
    axes.set_ylabel("time / time of the fastest")
    axes.axhspan(1, 1 + TOLERANCE, color=GRID, zorder=0.5, linewidth=0)
    axes.set_ylim(bottom=0.93)
    return figure


def _curves(panel: Panel, shown: dict[str, Style], heading: Heading, value: Value, text: Callable) -> Figure:
    figure, axes = line_axes(heading, list(shown))
    values = [value(point, point.time_us) for series in panel.series for point in series.points]
    bytes_axis(axes, panel.sizes)
    value_axis(axes, min(values), max(values), text)
    axes.set_xlabel("message size")
    for series in panel.series:
        style = shown.get(series.label)
        draw_line(axes, series.sizes, [value(point, point.time_us) for point in series.points], style)
        if style:
            _band(axes, series, style, value)
    ends = [_end(series, shown[series.label], value) for series in panel.series if series.label in shown]
    label_ends(axes, ends, len(panel.series) - len(ends))
    return figure


def _band(axes, series: Series, style: Style, value: Value) -> None:
    low = [value(point, point.p5) for point in series.points]
    high = [value(point, point.p95) for point in series.points]
    axes.fill_between(series.sizes, low, high, color=style.colour, alpha=0.16, linewidth=0, zorder=2)


def _end(series: Series, style: Style, value: Value) -> End:
    last = series.points[-1]
    return End(series.label, last.bytes, value(last, last.time_us), style)
