"""The spread of a call's time over its median: p5 to p95, p99 and the slowest call, a small plot a shown series."""
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.analysis.panels import Panel, Series
from reports.plots.frame import Heading, bytes_axis, new_figure, shortened, tidy, value_axis
from reports.plots.style import INK, MUTED, Style
from reports.units import short

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
    axes.tick_params(labelsize=7.5)
