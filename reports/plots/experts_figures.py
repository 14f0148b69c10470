"""Mixtures of experts: parts of the time, and time against the router's imbalance."""
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.analysis.training.experts import ExpertsResult, case_name
from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.stacked_bars import BarRow, Scale, stacked_figure
from reports.plots.style import GRID, INK, numbered
from reports.units import short, time_text

WIDTH = 11.4  # inches
_PARTS = (("router", "router", "#999999"), ("permute", "permute", "#56b4e9"), ("dispatch", "dispatch, with waits", "#d55e00"),
          ("shared", "shared experts", "#009e73"), ("experts", "experts", "#0072b2"),
          ("combine", "combine, with waits", "#e69f00"), ("unpermute", "unpermute", "#cc79a7"))


def parts_figure(result: ExpertsResult, heading: Heading) -> Figure:
    """A bar per case: parts of forward and backward, one after the other."""
    rows, before = [], None
    for one in result.lines:
        group = (one.experts, one.top_k, one.capacity_factor, one.skew)
        rows.append(BarRow(case_name(one), one.parts_us("serial"), time_text(one.median_us("serial")), group != before))
        before = group
    return stacked_figure(rows, Scale("forward and backward, slowest rank (ms)", 1e-3, _PARTS), heading)


def load_figure(result: ExpertsResult, heading: Heading) -> Figure:
    """A line per number of ranks: time over the load of the most loaded expert; dropless filled, with a capacity hollow."""
    figure, top = new_figure(heading, 4.6, WIDTH)
    axes = figure.add_axes([0.075, 0.13, 0.66, top - 0.16])
    tidy(axes)
    axes.grid(True, color=GRID)
    series: dict[tuple, list] = {}
    for one in result.lines:
        series.setdefault((one.experts, one.top_k, one.capacity_factor, one.ranks), []).append(one)
    for number, ((experts, top_k, capacity, ranks), lines) in enumerate(series.items()):
        look = numbered(number)
        told = "dropless" if capacity == 0 else f"capacity {short(capacity, 3)}"
        lines.sort(key=lambda line: line.load)
        axes.plot([line.load for line in lines], [line.median_us("serial") / 1e3 for line in lines], color=look.colour,
                  marker=look.marker, markersize=6, linewidth=1.6, label=f"{experts} experts, top {top_k}, ep={ranks}, {told}")
    axes.set_xlabel("copies for the most loaded expert, of an even share", size=9.5)
    axes.set_ylabel("forward and backward, slowest rank (ms)", size=9.5)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, 4)))
    figure.legend(loc="upper left", bbox_to_anchor=(0.745, top - 0.02), frameon=False, fontsize=8, labelcolor=INK)
    return figure
