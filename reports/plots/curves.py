"""A panel's curves against size, one line per series: bus bandwidth, latency, time over the fastest's with its
p5-p95 band, spread of a call's time over its median, measured over predicted."""
from typing import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from reports.analysis.crossover import TOLERANCE, best_time
from reports.analysis.findings import Cell, WinnerMap
from reports.analysis.panels import Point, Series
from reports.analysis.results import PanelResult
from reports.plots.frame import (
    axes_grid, axes_within, bytes_axis, cell_axes, Curve, curves_figure, Heading, legend_below, new_figure, shortened, SIZE,
    value_axis)
from reports.plots.style import GRID, INK, MUTED, numbered, Style, TEXT
from reports.units import bytes_text, short, time_text

Of = tuple[PanelResult, dict[str, int]]  # the series that get a colour by the place of their style
Value = Callable[[Point, float], float]  # function of a point and of one of its times


def busbw(of: Of, heading: Heading) -> Figure:
    figure = _curves(of, heading, lambda point, time: point.busbw_gbps(time), short)
    figure.axes[0].set_ylabel("bus bandwidth (GB/s)")
    return figure


def latency(of: Of, heading: Heading) -> Figure:
    figure = _curves(of, heading, lambda point, time: time, time_text)
    figure.axes[0].set_ylabel("time of a call")
    return figure


def relative(of: Of, heading: Heading) -> Figure:
    """Figure of the time over the fastest's, which separates lines that coincide over five decades of time."""
    panel = of[0]
    best = {size: best_time(panel.series, size) for size in panel.sizes}
    figure = _curves(of, heading, lambda point, time: time / best[point.bytes], lambda v: f"{short(v)}×")
    axes = figure.axes[0]
    axes.set_ylabel("time / time of the fastest")
    axes.axhspan(1, 1 + TOLERANCE, color=GRID, zorder=0.5, linewidth=0)
    axes.set_ylim(bottom=0.93)
    return figure


def _styles(of: Of) -> dict[str, Style]:
    return {label: numbered(place) for label, place in of[1].items()}


def _curves(of: Of, heading: Heading, value: Value, text: Callable) -> Figure:
    panel, shown = of[0], _styles(of)
    curves = [Curve(series.label, series.sizes, [value(point, point.time_us) for point in series.points]) for series in panel.series]

    def scale(axes: Axes) -> None:
        _sizes(axes, panel.sizes, [value for curve in curves for value in curve.y], text)
    figure, axes, _ = curves_figure(heading, curves, scale, shown, "other algorithm")
    for series in (series for series in panel.series if series.label in shown):
        low, high = ([value(point, getattr(point.stats, end)) for point in series.points] for end in ("p5", "p95"))
        axes.fill_between(series.sizes, low, high, color=shown[series.label].colour, alpha=0.16, linewidth=0, zorder=2)
    return figure


def _sizes(axes: Axes, sizes: Sequence[int], values: Sequence[float], text: Callable) -> None:
    bytes_axis(axes, sizes)
    value_axis(axes, min(values), max(values), text)
    axes.set_xlabel("message size")


COLUMNS = 3


def percentiles(of: Of, heading: Heading) -> Figure:
    panel, shown = of[0], _styles(of)
    series = [series for series in panel.series if series.label in shown]
    columns = min(len(series), COLUMNS)
    figure, top = new_figure(heading, 1.1 + (1.85 if columns == COLUMNS else 2.4) * -(-len(series) // columns))
    timed = [point for curve in series for point in curve.points]
    low, high = min(p.stats.p5 / p.time_us for p in timed), max(p.stats.max / p.time_us for p in timed)
    grid = axes_grid(figure, top, len(series), columns, (0.63, 0.11, 0.42), (0.18, 0.3, 0.2))
    for i, (axes, line) in enumerate(zip(grid, series)):
        _draw(axes, line, shown[line.label], panel.sizes)
        value_axis(axes, low, max(high, 1.1), lambda value: f"{short(value)}×")
        axes.tick_params(labelleft=i % columns == 0)
    figure.text(0.985, 0.012, "band: p5 to p95    dashed: p99    dots: slowest call    1× is the median", ha="right",
                va="bottom", size=8, color=MUTED)
    return figure


def _draw(axes: Axes, series: Series, style: Style, sizes: Sequence[int]) -> None:
    bytes_axis(axes, sizes, most=5)
    points, x = series.points, series.sizes
    low, high = [p.stats.p5 / p.time_us for p in points], [p.stats.p95 / p.time_us for p in points]
    axes.fill_between(x, low, high, color=style.colour, alpha=0.3, linewidth=0)
    axes.axhline(1, color=style.colour, linewidth=1.5)
    axes.plot(x, [p.stats.p99 / p.time_us for p in points], color=INK, linewidth=1, linestyle=(0, (3, 1.5)))
    axes.plot(x, [p.stats.max / p.time_us for p in points], color=MUTED, linewidth=0, marker=".", markersize=4)
    axes.set_title(shortened(series.label))
    axes.tick_params(labelsize=7.8)


BAND = 1.25  # shaded: within 25 %


def predicted(of: Of, heading: Heading) -> Figure:
    shown = _styles(of)
    curves = [Curve(line.label, line.model.sizes, line.ratios) for line in of[0].predictions.by_label.values()]
    ratios = [ratio for curve in curves for ratio in curve.y]

    def scale(axes: Axes) -> None:
        _sizes(axes, sorted({size for curve in curves for size in curve.x}), [*ratios, 1 / BAND, BAND], lambda value: f"{short(value)}×")
    names = {curve.name for curve in curves}
    figure, axes, _ = curves_figure(heading, curves, scale, {name: style for name, style in shown.items() if name in names}, "other algorithm")
    axes.axhspan(1 / BAND, BAND, color=GRID, alpha=0.6, zorder=0.5, linewidth=0)
    axes.axhline(1, color=MUTED, linewidth=1.2, zorder=1)
    axes.set_ylabel("measured / predicted time")
    return figure


# ---- Sizes across, ranks upwards: each cell has the colour of its fastest algorithm, paler where the next is close

_FULL = 2.0  # margin from which on a cell has its full colour
_ROW = 0.27  # inches


def winner_map(winners: WinnerMap, heading: Heading) -> Figure:
    ranks = [result.first.ranks for result in winners.results]
    sizes = sorted({cell.bytes for cell in winners.cells})
    legend_rows = -(-len(winners.labels) // 3)
    figure, top = new_figure(heading, 0.95 + _ROW * len(ranks) + 0.2 * legend_rows)
    axes = axes_within(figure, top, 0.63, 0.11, 0.62 + 0.2 * legend_rows, 0)
    cell_axes(axes, [bytes_text(size) for size in sizes], [f"{n:,}" for n in ranks], 11)
    colours = {label: numbered(i).colour for i, label in enumerate(winners.labels)}
    for cell in winners.cells:
        x, y = sizes.index(cell.bytes), ranks.index(cell.ranks)
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=_shade(colours[cell.label], cell), edgecolor="white",
                                 linewidth=0.8))
        if cell.margin > 1 + TOLERANCE and len(sizes) <= 24:
            axes.text(x, y, _margin_text(cell.margin), ha="center", va="center", size=SIZE, color=TEXT)
    axes.set_xlabel("message size")
    axes.set_ylabel("ranks")
    handles = [Patch(facecolor=colours[label], label=label) for label in winners.labels]
    legend_below(figure, handles, 3, (0.075, 0.0), loc="lower left", fontsize=8)
    return figure


def _shade(colour: str, cell: Cell) -> tuple[float, ...]:
    """Colour of a cell: halfway to white where both are level."""
    part = 0.35 + 0.45 * min(max(cell.margin - 1, 0) / (_FULL - 1), 1)
    return tuple(1 - part * (1 - value) for value in to_rgb(colour))


def _margin_text(margin: float) -> str:
    return f"{margin:.1f}" if margin < 9.95 else f"{margin:.0f}"
