"""Training runs over their steps: the loss with what counting reaches, and tokens per second."""
from statistics import median
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.analysis.training.runs import TrainingResult, run_name
from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.style import INK, MUTED, numbered
from reports.records import Training
from reports.units import short

WIDTH, HEIGHT = 7.4, 4.7  # inches
LEGEND = 0.19  # inches a line of it
MOST = 8  # runs with a line of their own
SMOOTH = 200  # steps from which on a line is a running median


def loss_figure(result: TrainingResult, heading: Heading) -> Figure:
    figure, axes = run_axes(result.runs, heading, 2)
    for number, one in enumerate(result.runs[:MOST]):
        style = numbered(number)
        steps = [step for step in one.steps if step.loss is not None]
        axes.plot([s.step for s in steps], smooth([s.loss for s in steps]), color=style.colour, linewidth=1.5,
                  linestyle=style.dash, label=run_name(one), zorder=3)
        points = [point for point in one.validation.curve if point[1] is not None] if one.validation else []
        if points:
            axes.plot(*zip(*points), linestyle="none", marker=style.marker, markersize=6, color=style.colour,
                      markeredgecolor=INK, markeredgewidth=0.7, zorder=4, label="validation" if number == 0 else None)
    _baselines(axes, result.runs)
    axes.set_ylabel("loss (nats per token)")
    axes.set_ylim(bottom=0)
    legend(figure)
    return figure


def _baselines(axes: Axes, runs: Sequence[Training]) -> None:
    told = next((one.validation for one in runs if one.validation), None)
    if told is None:
        return
    for value, name in ((told.unigram, "counting tokens"), (told.bigram, "counting pairs of tokens")):
        axes.axhline(value, color=MUTED, linewidth=1.1, linestyle=(0, (5, 2)), zorder=2)
        axes.text(0.995, value, f"{name}: {short(value)}", transform=axes.get_yaxis_transform(), ha="right",
                  va="bottom", size=8, color=INK)


def speed_figure(result: TrainingResult, heading: Heading) -> Figure:
    figure, axes = run_axes(result.runs, heading, 1)
    for number, one in enumerate(result.runs[:MOST]):
        style = numbered(number)
        axes.plot([s.step for s in one.steps], [s.tokens_per_s for s in one.steps], color=style.colour, linewidth=1.2,
                  linestyle=style.dash, marker=style.marker if len(one.steps) < 60 else None, markersize=3,
                  label=run_name(one), zorder=3)
    axes.set_ylabel("tokens per second, all ranks")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    legend(figure)
    return figure


def smooth(values: Sequence[float]) -> list[float]:
    """Long curves are noise around a line: a running median over a hundredth of the steps."""
    if len(values) < SMOOTH:
        return list(values)
    half = len(values) // 200
    return [median(values[max(i - half, 0):i + half + 1]) for i in range(len(values))]


def run_axes(runs: Sequence[Training], heading: Heading, more: int, most: int = MOST) -> tuple[Figure, Axes]:
    lines = min(len(runs), most) + more - 1
    figure, top = new_figure(heading, HEIGHT + LEGEND * lines)
    bottom = (0.55 + LEGEND * lines) / figure.get_figheight()
    axes = figure.add_axes([0.115, bottom, 0.86, top - bottom])
    tidy(axes)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    return figure, axes


def legend(figure: Figure, from_zero: bool = True) -> None:
    if from_zero:
        figure.axes[0].set_xlim(left=0)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.1, 0.0), ncol=1, frameon=False, fontsize=8.5,
                  labelcolor=INK, labelspacing=0.25)
