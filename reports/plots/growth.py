"""Bubble against the number of microbatches: a line a schedule."""
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, NullLocator

from reports.analysis.steps.schedules import Growth
from reports.plots.frame import End, Heading, draw_line, label_ends, line_axes
from reports.plots.style import styles_for
from reports.units import short

MOST = 8  # lines with a colour: those with the least bubble at most microbatches


def growth_figure(growth: Growth, heading: Heading) -> Figure:
    order = sorted(growth.curves, key=lambda name: growth.curves[name][-1][1])
    styles = styles_for(order[:MOST])
    figure, axes = line_axes(heading, list(styles))
    counts = sorted({m for points in growth.curves.values() for m, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xlim(counts[0] / 1.15, counts[-1] * 1.15)
    axes.set_ylim(0, 1.08 * max(value for points in growth.curves.values() for _, value in points))
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_major_formatter(FixedFormatter([str(m) for m in counts]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{short(100 * value)} %"))
    axes.set_xlabel("microbatches")
    axes.set_ylabel("bubble, share of the makespan")
    for name in reversed(order):
        draw_line(axes, *zip(*growth.curves[name]), styles.get(name))
    ends = [End(name, *growth.curves[name][-1], styles[name]) for name in styles]
    label_ends(axes, ends)
    if len(order) > MOST:
        figure.text(0.985, 0.015, f"grey: {len(order) - MOST} other schedules", size=8, ha="right", va="bottom")
    return figure
