"""Bubble against activations held: a point a schedule, and the line of those that no other beats in both."""
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.analysis.steps.schedules import Contest, bubble
from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.place_labels import Wanted, place_labels, point_box
from reports.plots.style import GRID, INK, MUTED, PAPER, numbered
from reports.units import short

HEIGHT, WIDTH = 4.9, 7.4
_MAKESPAN, _OWN = numbered(0), numbered(1)


def tradeoff_figure(contest: Contest, heading: Heading) -> Figure:
    figure, top = new_figure(heading, HEIGHT, WIDTH)
    axes = figure.add_axes([0.1, 0.2, 0.86, top - 0.2])
    tidy(axes)
    points = [(line.peak, bubble(line), max(line.bubbles.of_own_span, 0), name) for name, line in contest.entries]
    axes.set_xlim(0, 1.12 * max(x for x, *_ in points))
    axes.set_ylim(-0.03 * _highest(points), 1.1 * _highest(points))
    frontier = [(line.peak, bubble(line)) for _, line in contest.frontier]
    ends = (frontier[0][0], axes.get_ylim()[1]), (axes.get_xlim()[1], frontier[-1][1])
    axes.step(*zip(ends[0], *frontier, ends[1]), where="post", color=_MAKESPAN.colour, linewidth=1.2, alpha=0.5, zorder=1.5)
    for x, y, own, _ in points:
        axes.plot([x, x], [own, y], color=GRID, linewidth=1.4, zorder=1)
        axes.plot([x], [own], marker="o", markersize=5, color=_OWN.colour, markerfacecolor=PAPER, zorder=2)
        axes.plot([x], [y], marker="o", markersize=6.5, color=_MAKESPAN.colour, markeredgewidth=0, zorder=3)
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{short(100 * value)} %"))
    axes.set_xlabel("activations held by the rank that holds most (microbatches)")
    axes.set_ylabel("bubble: share of the time that nothing is done")
    _names(axes, points)
    _legend(figure)
    return figure


def _highest(points) -> float:
    return max(max(max(y, own) for _, y, own, _ in points), 0.01)


def _names(axes, points) -> None:
    """Schedules that lie on one point share a name."""
    at: dict[tuple[float, float], list[str]] = {}
    for x, y, _, name in points:
        at.setdefault((round(x, 3), round(y, 4)), []).append(name)
    taken = [point_box(axes, x, y) for x, y, _, _ in points] + [point_box(axes, x, own, 3.5) for x, _, own, _ in points]
    place_labels(axes, [Wanted(", ".join(names), x, y) for (x, y), names in at.items()], taken, [])


def _legend(figure: Figure) -> None:
    handles = [Line2D([], [], linestyle="none", marker="o", markersize=6.5, color=_MAKESPAN.colour, markeredgewidth=0,
                      label="of the makespan (all ranks wait at the optimizer)"),
               Line2D([], [], linestyle="none", marker="o", markersize=5, color=_OWN.colour, markerfacecolor=PAPER,
                      label="of a rank's own span (no rank waits there)"),
               Line2D([], [], color=_MAKESPAN.colour, alpha=0.5, linewidth=1.2, label="least bubble for the memory")]
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncol=2, frameon=False, fontsize=8.2,
                  handletextpad=0.4, columnspacing=1.4, labelcolor=INK)
