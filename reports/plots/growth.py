"""Bubble against the number of microbatches: a line a schedule."""
from typing import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from reports.analysis.steps.schedules import Growth
from reports.plots.frame import End, Heading, draw_line, label_ends, line_axes, value_axis
from reports.plots.style import styles_for
from reports.units import short

LEAST = 1e-3  # on the logarithmic axis; none is drawn so
MOST = 8  # lines with a colour
KNOWN = ("1f1b", "gpipe")  # what readers compare with


def growth_figure(growth: Growth, heading: Heading) -> Figure:
    order = sorted(growth.curves, key=lambda name: growth.curves[name][-1][1])
    styles = styles_for(_shown(order))
    figure, axes = line_axes(heading, list(styles))
    counts = sorted({m for points in growth.curves.values() for m, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xlim(counts[0] / 1.15, counts[-1] * 1.15)
    values = [max(value, LEAST) for points in growth.curves.values() for _, value in points]
    value_axis(axes, min(values), max(values), lambda value: f"{short(100 * value)} %")
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_major_formatter(FixedFormatter([str(m) for m in counts]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("microbatches")
    axes.set_ylabel("bubble, share of the makespan")
    for name in reversed(order):
        draw_line(axes, [m for m, _ in growth.curves[name]], [max(b, LEAST) for _, b in growth.curves[name]],
                  styles.get(name))
    ends = [End(name, m, max(b, LEAST), styles[name]) for name in styles for m, b in growth.curves[name][-1:]]
    label_ends(axes, ends)
    if len(order) > len(styles):
        figure.text(0.985, 0.015, f"grey: {len(order) - len(styles)} other schedules", size=8, ha="right", va="bottom")
    return figure


def _shown(order: Sequence[str]) -> list[str]:
    """The least bubbles at most microbatches, and those that everybody knows."""
    known = [name for name in order if name in KNOWN]
    best = [name for name in order if name not in known][:MOST - len(known)]
    return [name for name in order if name in best or name in known]
