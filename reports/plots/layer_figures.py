"""Tensor-parallel layers: where their time goes, what communication adds in either form, and what ranks send."""
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.analysis.training.layers import Case, LayersResult, units_text
from reports.records import Layer
from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.stacked_bars import CHARACTER, BarRow, Scale, stacked_figure
from reports.plots.style import GRID, INK, MUTED, PAPER, numbered
from reports.units import counted, share_text, short, time_text

WIDTH, ROW = 11.4, 0.27  # inches
MIB = 1 << 20
_PARTS = (("products", "matrix products", "#0072b2"), ("other_kernels", "other kernels", "#56b4e9"),
          ("communication", "exposed communication", "#d55e00"))
_SERIAL, _ASYNC = numbered(1), numbered(0)


def split_figure(result: LayersResult, heading: Heading) -> Figure:
    """Two bars a case: one after the other in one tile, and beside each other in the number of tiles that is fastest."""
    rows = []
    for case in result.cases:
        rows.append(_split_row(f"{case.name}: one after the other", case.one, "serial", True))
        rows.append(_split_row(f"beside, {counted(case.best.tiles, 'tile')}", case.best, "async", False))
    return stacked_figure(rows, Scale("forward and backward, slowest rank (ms)", 1e-3, _PARTS), heading)


def _split_row(name: str, line: Layer, way: str, gap: bool) -> BarRow:
    return BarRow(name, line.parts_us(way), time_text(line.median_us(way)), gap)


def bytes_figure(result: LayersResult, heading: Heading) -> Figure:
    """A bar a case; a mark where the formula has its end."""
    cases = sorted(result.cases, key=lambda case: (case.one.ranks, case.one.sequence_parallel))
    ranks = [case.one.ranks for case in cases]
    rows = [BarRow(case.name, {"sent": case.one.sent_bytes}, units_text(case.one), gap=i > 0 and ranks[i - 1] != ranks[i])
            for i, case in enumerate(cases)]
    scale = Scale("sent by a rank, forward and backward (MiB)", 1 / MIB, (("sent", "counted", "#0072b2"),))
    figure = stacked_figure(rows, scale, heading)
    axes = figure.axes[0]
    axes.plot([case.one.formula_bytes / MIB for case in cases], axes.get_yticks(), linestyle="", marker="|",
              markersize=15, markeredgewidth=2, color=INK, zorder=4, clip_on=False)
    handle = Line2D([], [], linestyle="", marker="|", markersize=9, markeredgewidth=2, color=INK)
    figure.legend([handle], ["the formula"], loc="lower right", bbox_to_anchor=(0.985, 0.0), frameon=False, fontsize=8.5,
                  labelcolor=INK)
    return figure


def gain_figure(result: LayersResult, heading: Heading) -> Figure:
    """A row a case: what communication adds one after the other, and beside products in each number of tiles."""
    cases = result.cases
    figure, top = new_figure(heading, 1.5 + ROW * max(len(cases), 3), WIDTH)
    height = figure.get_figheight()
    left = (0.3 + CHARACTER * max(len(case.name) for case in cases)) / WIDTH
    bottom = 0.85 / height
    axes = figure.add_axes([left, bottom, 0.985 - 1.1 / WIDTH - left, top - bottom - 0.1 / height])
    tidy(axes)
    axes.grid(True, axis="y", color=GRID)
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.set_yticks(range(len(cases)), [case.name for case in cases], size=8.2)
    axes.tick_params(axis="y", length=0)
    for row, case in enumerate(cases):
        _draw_case(axes, row, case)
    axes.axvline(0, color=INK, linewidth=0.9, zorder=1.5)
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, 4)))
    axes.set_xlabel("longer than kernels alone in one tile, forward and backward (ms)", size=9.5)
    _gain_legend(figure)
    return figure


def _draw_case(axes: Axes, row: int, case: Case) -> None:
    serial, best = case.serial_us / 1e3, case.async_us / 1e3
    axes.plot([serial, best], [row, row], color=MUTED, linewidth=2, zorder=2, solid_capstyle="butt")
    axes.plot([serial], [row], marker=_SERIAL.marker, color=_SERIAL.colour, markersize=6, markerfacecolor=PAPER,
              markeredgewidth=1.4, zorder=3)
    for form in case.forms:
        at, is_best = case.added_us(form, "async") / 1e3, form is case.best
        axes.plot([at], [row], marker="o", color=_ASYNC.colour, markersize=6 if is_best else 4,
                  markerfacecolor=_ASYNC.colour if is_best else PAPER, zorder=4)
        axes.annotate(str(form.tiles), (at, row), xytext=(0, 4), textcoords="offset points", size=6.5, ha="center",
                      color=INK if is_best else MUTED)
    told = "adds nothing" if case.hidden is None else f"hides {share_text(case.hidden)}"
    axes.text(1.012, row, told, transform=axes.get_yaxis_transform(), size=8, va="center", color=INK)


def _gain_legend(figure: Figure) -> None:
    serial = Line2D([], [], linestyle="none", marker=_SERIAL.marker, color=_SERIAL.colour, markerfacecolor=PAPER,
                    markeredgewidth=1.4, label="one after the other")
    beside = Line2D([], [], linestyle="none", marker="o", color=_ASYNC.colour,
                    label="beside products; the number of tiles above, the fastest filled")
    figure.legend(handles=[serial, beside], loc="lower center", bbox_to_anchor=(0.5, 0.0), ncol=2, frameon=False,
                  fontsize=8.5, handletextpad=0.3, columnspacing=1.6, labelcolor=INK)
