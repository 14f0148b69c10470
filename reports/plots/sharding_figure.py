"""Memory of a rank by kind, a bar a stage of ZeRO; a mark where the formula has the end of the bar."""
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.analysis.training.sharding import STATES, ShardingResult, stage_text, states_bytes, told_text
from reports.plots.frame import Heading
from reports.plots.part_colours import kind_colours
from reports.plots.stacked_bars import BarRow, Scale, stacked_figure
from reports.plots.style import INK

MIB = 1 << 20


def sharding_figure(result: ShardingResult, heading: Heading) -> Figure:
    rows = [BarRow(stage_text(one), {kind: one.held_bytes.get(kind, 0.0) for kind in STATES}, told_text(one))
            for one in result.lines]
    scale = Scale("memory of a rank between steps (MiB)", 1 / MIB, kind_colours(row.parts for row in rows))
    figure = stacked_figure(rows, scale, heading)
    axes = figure.axes[0]
    axes.plot([states_bytes(one.formula_bytes) / MIB for one in result.lines], axes.get_yticks(), linestyle="",
              marker="|", markersize=15, markeredgewidth=2, color=INK, zorder=4, clip_on=False)
    handle = Line2D([], [], linestyle="", marker="|", markersize=9, markeredgewidth=2, color=INK)
    axes.legend([handle], ["the formulas' sum"], loc="lower right", frameon=False, fontsize=8.5, labelcolor=INK)
    return figure
