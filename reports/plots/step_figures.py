"""The figures of schedules and layouts: their words, bubbles against memory and microbatches, and their files."""

from typing import NamedTuple, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.analysis.groups import by
from reports.analysis.steps.schedules import bubble, Contest, Growth
from reports.plots.frame import (
    Curve, curves_figure, few_ticks, Heading, key, legend_below, new_figure, place_labels, point_box, SIZE, value_axis,
    Wanted)
from reports.plots.style import GRID, INK, numbered, PAPER, styles_for
from reports.records import ScheduleLine
from reports.units import share_text, short


# Bubble against activations held: a point per schedule, and the line of those that no other beats in both.

HEIGHT, WIDTH = 4.9, 7.4
_MAKESPAN, _OWN = numbered(0), numbered(1)


class Point(NamedTuple):
    peak: float
    bubble: float
    own: float  # bubble of the own span
    name: str


def tradeoff_figure(contest: Contest, heading: Heading) -> Figure:
    figure, top = new_figure(heading, HEIGHT, WIDTH)
    axes = figure.add_axes([0.1, 0.2, 0.86, top - 0.2])
    points = [Point(line.peak, bubble(line), max(line.bubbles.of_own_span, 0), _name(name, line))
              for name, line in contest.entries]
    highest = _highest(points)
    axes.set_xlim(0, 1.12 * max(point.peak for point in points))
    axes.set_ylim(-0.03 * highest, 1.12 * highest)
    frontier = [(line.peak, bubble(line)) for _, line in contest.frontier]
    ends = (frontier[0][0], max(1.2 * highest, frontier[0][1])), (axes.get_xlim()[1], frontier[-1][1])
    axes.step(*zip(ends[0], *frontier, ends[1]), where="post", color=_MAKESPAN.colour, linewidth=1.2, alpha=0.5,
              zorder=1.5)
    for point in points:
        axes.plot([point.peak] * 2, [point.own, point.bubble], color=GRID, linewidth=1.4, zorder=1)
        axes.plot([point.peak], [point.own], marker="o", markersize=5, color=_OWN.colour, markerfacecolor=PAPER,
                  zorder=2)
        axes.plot([point.peak], [point.bubble], marker="o", markersize=6.5, color=_MAKESPAN.colour, markeredgewidth=0,
                  zorder=3)
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{short(100 * value)} %"))
    axes.set_xlabel("activations held by the rank that holds most (microbatches)")
    axes.set_ylabel("bubble: idle share of the time")
    _names(axes, [point for point in points if point.bubble <= highest], frontier)
    _above(axes, [point for point in points if point.bubble > highest])
    _legend(figure)
    return figure


def _name(name: str, line: ScheduleLine) -> str:
    """Weights that a rank keeps more than once cost memory too, which the axis does not show."""
    kept = line.pipes * max(line.weight_versions or (1,))
    return name if kept == 1 else f"{name} ({kept}× weights)"


def _highest(points: Sequence[Point]) -> float:
    """Largest value that is drawn; a single schedule far above all others would press them together."""
    values = sorted(max(point.bubble, point.own) for point in points)
    highest = values[-2] if len(values) > 3 and values[-1] > 1.7 * values[-2] else values[-1]
    return max(highest, 0.01)


def _names(axes: Axes, points: Sequence[Point], frontier: Sequence[tuple[float, float]]) -> None:
    """Schedules that lie on one point share a name."""
    at = by(points, lambda point: (round(point.peak, 3), round(point.bubble, 4)), lambda point: point.name)
    taken = [point_box(axes, point.peak, y, 4) for point in points for y in (point.bubble, point.own)]
    ends = [*frontier[1:], (axes.get_xlim()[1], frontier[-1][1])]
    lines = [point_box(axes, x + (end[0] - x) * i / 25, y, 1) for (x, y), end in zip(frontier, ends) for i in range(25)]
    place_labels(axes, [Wanted(", ".join(names), x, y) for (x, y), names in at.items()], taken, lines)


def _above(axes: Axes, points: Sequence[Point]) -> None:
    top = axes.get_ylim()[1]
    for point in points:
        axes.annotate(f"{point.name}: {share_text(point.bubble)}, above", (point.peak, top), xytext=(6, -4),
                      textcoords="offset points", size=SIZE, color=INK, va="top")
        axes.plot([point.peak], [top], marker="^", markersize=7, color=_MAKESPAN.colour, markeredgewidth=0,
                  clip_on=False, zorder=4)


def _legend(figure: Figure) -> None:
    handles = [key("of the makespan (all ranks wait at the optimizer)", _MAKESPAN, 6.5, markeredgewidth=0),
               key("of a rank's own span (no rank waits there)", _OWN, 5, hollow=True, marker="o"),
               Line2D([], [], color=_MAKESPAN.colour, alpha=0.5, linewidth=1.2, label="least bubble for the memory")]
    legend_below(figure, handles, 2, fontsize=8.2, handletextpad=0.4, columnspacing=1.4)


# ---- Bubble against the number of microbatches: a line per schedule

LEAST = 1e-3  # on the logarithmic axis; none is drawn so
MOST = 8  # lines with a colour
KNOWN = ("1f1b", "gpipe")  # schedules that readers compare with


def growth_figure(growth: Growth, heading: Heading) -> Figure:
    order = sorted(growth.curves, key=lambda name: growth.curves[name][-1][1])
    curves = [Curve(name, [m for m, _ in growth.curves[name]], [max(b, LEAST) for _, b in growth.curves[name]]) for name in reversed(order)]
    values = [value for curve in curves for value in curve.y]

    def scale(axes: Axes) -> None:
        few_ticks(axes, {m for curve in curves for m in curve.x}, "microbatches", str, 1.15)
        value_axis(axes, min(values), max(values), lambda value: f"{short(100 * value)} %")
    figure, axes, _ = curves_figure(heading, curves, scale, styles_for(_shown(order)), "other schedule")
    axes.set_ylabel("bubble, share of the makespan")
    return figure


def _shown(order: Sequence[str]) -> list[str]:
    """At most MOST schedules of `order`, which has the smallest bubble at the largest number of microbatches first; KNOWN are always
    among them."""
    known = [name for name in order if name in KNOWN]
    best = [name for name in order if name not in known][:MOST - len(known)]
    return [name for name in order if name in best or name in known]
