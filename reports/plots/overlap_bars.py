"""Collectives beside the computation: a bar per case, of computing and what is exposed, up to the sum of both."""
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.analysis.steps.overlap import OverlapResult, exposed_ms, hidden_text, link_text, way_text
from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.style import ALARM, COMPUTE, INK, MUTED, PAPER
from reports.records import ScheduleLine
from reports.units import short, time_text

WIDTH, ROW = 11.4, 0.25  # inches
TOLD = 2.65  # inches at the right for words on each bar
MOST = 40  # bars
_COMPUTED = COMPUTE["F"][0]


def overlap_figure(result: OverlapResult, heading: Heading) -> Figure:
    lines = result.lines[:MOST]
    figure, top = new_figure(heading, 1.75 + ROW * max(len(lines), 3), WIDTH)
    height, left = figure.get_figheight(), 3.9 / WIDTH
    axes = figure.add_axes([left, 0.98 / height, 1 - left - TOLD / WIDTH, top - 1.1 / height])
    tidy(axes)
    axes.grid(False, axis="y")
    axes.set_ylim(len(lines) - 0.45, -0.55)
    axes.set_yticks(range(len(lines)), [f"{link_text(line.run.link)}: {way_text(line)}" for line in lines], size=8.2)
    axes.tick_params(axis="y", length=0)
    _bars(axes, lines)
    _time_axis(axes, max(_one_after_the_other(line) for line in lines))
    for row, line in enumerate(lines):
        axes.text(1.01, row, f"{time_text(1e3 * line.makespan_ms)}, {hidden_text(line)}", color=INK,
                  transform=axes.get_yaxis_transform(), size=8, va="center")
    _legend(figure)
    return figure


def _one_after_the_other(line: ScheduleLine) -> float:
    return line.overlap.compute_alone_ms + line.overlap.communication_alone_ms


def _bars(axes: Axes, lines: Sequence[ScheduleLine]) -> None:
    rows = range(len(lines))
    axes.barh(rows, [_one_after_the_other(line) for line in lines], height=0.72, facecolor=PAPER, edgecolor=MUTED,
              linewidth=0.8, linestyle=(0, (2, 2)), zorder=1.5)
    axes.barh(rows, [min(line.overlap.compute_alone_ms, line.makespan_ms) for line in lines], height=0.72,
              color=_COMPUTED, zorder=2)
    axes.barh(rows, [exposed_ms(line) for line in lines], left=[line.overlap.compute_alone_ms for line in lines],
              height=0.72, facecolor=PAPER, edgecolor=ALARM, hatch="//////", linewidth=0, zorder=2)


def _time_axis(axes: Axes, end: float) -> None:
    axes.set_xlim(0, 1.02 * end)
    axes.xaxis.set_major_locator(MaxNLocator(9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, 4)))
    axes.set_xlabel("time of a step (ms)", size=9.5)


def _legend(figure: Figure) -> None:
    handles = [Patch(facecolor=_COMPUTED, label="computing alone"),
               Patch(facecolor=PAPER, edgecolor=ALARM, hatch="//////", linewidth=0, label="exposed collectives"),
               Patch(facecolor=PAPER, edgecolor=MUTED, linestyle=(0, (2, 2)), linewidth=0.8,
                     label="hidden: up to computing and collectives one after the other")]
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncol=3, frameon=False, fontsize=8.5,
                  handlelength=1.6, handleheight=1.0, columnspacing=1.8, labelcolor=INK)
