"""A panel's curves against size, one line per series: bus bandwidth, latency, time over the fastest's with its
p5-p95 band, spread of a call's time over its median, measured over predicted."""
from typing import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.analysis.crossover import TOLERANCE, best_time
from reports.analysis.panels import Panel, Point, Series
from reports.analysis.fit import Predictions
from reports.plots.frame import (End, Heading, bytes_axis, draw_line, label_ends, line_axes, new_figure, shortened, tidy,
                                 value_axis)
from reports.plots.style import GRID, INK, MUTED, Style
from reports.units import short, time_text

Value = Callable[[Point, float], float]  # function of a point and of one of its times


def busbw(panel: Panel, shown: dict[str, Style], heading: Heading) -> Figure:
    figure = _curves(panel, shown, heading, lambda point, time: point.busbw_gbps(time), short)
    figure.axes[0].set_ylabel("bus bandwidth (GB/s)")
    return figure


def latency(panel: Panel, shown: dict[str, Style], heading: Heading) -> Figure:
    figure = _curves(panel, shown, heading, lambda point, time: time, time_text)
    figure.axes[0].set_ylabel("time of a call")
    return figure


def relative(panel: Panel, shown: dict[str, Style], heading: Heading) -> Figure:
    """Figure of the time over the fastest's, which separates lines that coincide over five decades of time."""
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


COLUMNS = 3


def percentiles(panel: Panel, shown: dict[str, Style], heading: Heading) -> Figure:
    series = [one for one in panel.series if one.label in shown]
    rows, columns = -(-len(series) // COLUMNS), min(len(series), COLUMNS)
    figure, top = new_figure(heading, 1.1 + (1.85 if columns == COLUMNS else 2.4) * rows)
    timed = [point for one in series for point in one.points]
    low, high = min(p.p5 / p.time_us for p in timed), max(p.max / p.time_us for p in timed)
    for i, one in enumerate(series):
        axes = figure.add_axes(_place(i, rows, columns, top, figure.get_figheight()))
        _draw(axes, one, shown[one.label], panel.sizes)
        value_axis(axes, low, max(high, 1.1), lambda value: f"{short(value)}×")
        axes.tick_params(labelleft=i % columns == 0)
    figure.text(0.985, 0.012, "band: p5 to p95    dashed: p99    dots: slowest call    1× is the median", ha="right",
                va="bottom", size=8, color=MUTED)
    return figure


def _place(i: int, rows: int, columns: int, top: float, height: float) -> Sequence[float]:
    left, right, bottom, gap = 0.085, 0.985, 0.42 / height, 0.025
    width = (right - left - gap * (columns - 1)) / columns
    cell = (top - bottom) / rows
    row, column = divmod(i, columns)
    return [left + column * (width + gap), top - cell * (row + 1) + 0.2 / height, width, cell - 0.5 / height]


def _draw(axes: Axes, one: Series, style: Style, sizes: Sequence[int]) -> None:
    tidy(axes)
    bytes_axis(axes, sizes, most=5)
    points, x = one.points, one.sizes
    low, high = [p.p5 / p.time_us for p in points], [p.p95 / p.time_us for p in points]
    axes.fill_between(x, low, high, color=style.colour, alpha=0.3, linewidth=0)
    axes.axhline(1, color=style.colour, linewidth=1.5)
    axes.plot(x, [p.p99 / p.time_us for p in points], color=INK, linewidth=1, linestyle=(0, (3, 1.5)))
    axes.plot(x, [p.max / p.time_us for p in points], color=MUTED, linewidth=0, marker=".", markersize=4)
    axes.set_title(shortened(one.label), loc="left", size=9.5, color=INK, pad=4)
    axes.tick_params(labelsize=7.8)


BAND = 1.25  # shaded: within 25 %


def predicted(predictions: Predictions, shown: dict[str, Style], heading: Heading) -> Figure:
    known = list(predictions.by_label.values())
    figure, axes = line_axes(heading, [p.label for p in known if p.label in shown])
    ratios = [ratio for p in known for ratio in p.ratios]
    bytes_axis(axes, sorted({size for p in known for size in p.model.sizes}))
    value_axis(axes, min(ratios + [1 / BAND]), max(ratios + [BAND]), lambda value: f"{short(value)}×")
    axes.axhspan(1 / BAND, BAND, color=GRID, alpha=0.6, zorder=0.5, linewidth=0)
    axes.axhline(1, color=MUTED, linewidth=1.2, zorder=1)
    axes.set_xlabel("message size")
    axes.set_ylabel("measured / predicted time")
    for p in known:
        draw_line(axes, p.model.sizes, p.ratios, shown.get(p.label))
    ends = [End(p.label, p.model.sizes[-1], p.ratios[-1], shown[p.label]) for p in known if p.label in shown]
    label_ends(axes, ends, len(known) - len(ends))
    return figure
