"""The figures of training runs and of scaling, and their files."""
from typing import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from scipy.ndimage import median_filter

from reports.analysis.training.curves import Curve, efficiency_text, LOSSES
from reports.analysis.training.runs import (
    behind_ms, by_bytes, differences, KINDS, line_name, loss_by_bytes, off, run_name, ScalingResult, signed, slowed, TrainingResult, way,
    way_name)
from reports.plots import style
from reports.plots.frame import axes_within, few_ticks, Heading, legend_below, marked, new_figure
from reports.plots.stacked_bars import BarRow, Scale, stacked_figure, step_bars
from reports.plots.style import ALARM, COMPUTE, GRID, INK, MUTED, numbered
from reports.records import Step, Training
from reports.units import bytes_text, short, time_text, unbroken


# ---- Runs over their steps: the loss, with the losses that counting tokens reaches, and tokens per second

HEIGHT = 4.7  # inches, without the legend
LEGEND = 0.19  # inches per line
MOST = 8  # most runs with a line of their own
SMOOTH = 200  # number of steps from which on a line is a running median
FEW = 30  # points of a line that are marked
Points = Sequence[tuple[float, float]]


def loss_figure(result: TrainingResult, heading: Heading) -> Figure:
    runs = result.lines[:MOST]
    figure, axes = run_axes(heading, len(runs) + 1, "loss (nats per token)")
    _draw_runs(axes, runs, lambda panel_axes: _smooth([(step.step, step.loss) for step in panel_axes.steps if step.loss is not None]))
    for number, run in enumerate(runs):
        points = [point for point in run.validation.curve if point[1] is not None] if run.validation else []
        if points:
            axes.plot(*zip(*points), **marked(numbered(number)), markeredgecolor=INK, markeredgewidth=0.7, zorder=4,
                      label="validation" if number == 0 else None)
    _baselines(axes, result.lines)
    axes.set_ylim(bottom=0)
    legend(figure)
    return figure


def _baselines(axes: Axes, runs: Sequence[Training]) -> None:
    validation = next((run.validation for run in runs if run.validation), None)
    if validation is None:
        return
    for value, name in ((validation.unigram, "counting tokens"), (validation.bigram, "counting pairs of tokens")):
        axes.axhline(value, color=MUTED, linewidth=1.1, linestyle=(0, (5, 2)), zorder=2)
        axes.text(0.995, value, f"{name}: {short(value)}", transform=axes.get_yaxis_transform(), ha="right",
                  va="bottom", size=8, color=INK)


def speed_figure(result: TrainingResult, heading: Heading) -> Figure:
    runs = result.lines[:MOST]
    figure, axes = run_axes(heading, len(runs), "tokens per second, all ranks")
    _draw_runs(axes, runs, lambda panel_axes: [(step.step, step.tokens_per_s) for step in panel_axes.steps], most=2 * FEW)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    legend(figure)
    return figure


def run_axes(heading: Heading, lines: int, label: str) -> tuple[Figure, Axes]:
    """`lines`: of the legend; `label`: of the y axis."""
    figure, top = new_figure(heading, HEIGHT + LEGEND * lines)
    axes = axes_within(figure, top, 0.85, 0.185, 0.55 + LEGEND * lines, 0)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    return figure, axes


def _draw_runs(axes: Axes, runs: Sequence[Training], points: Callable[[Training], Points],
               name: Callable[[Training], str] = run_name, most: int = 0) -> None:
    """A line for each run; runs of at most `most` points have markers."""
    for number, run in enumerate(runs):
        look, (x, y) = numbered(number), np.array(points(run)).reshape(-1, 2).T
        axes.plot(x, y, color=look.colour, linewidth=1.4, linestyle=look.dash, label=name(run),
                  marker=look.marker if len(x) <= most else None, markersize=3.5, zorder=3)


def _smooth(points: Points) -> Points:
    """Long curves are noise around a line: a running median over a hundredth of the steps."""
    if len(points) < SMOOTH:
        return points
    x, y = zip(*points)
    return list(zip(x, median_filter(y, 2 * (len(y) // 200) + 1, mode="nearest")))


def legend(figure: Figure, from_zero: bool = True) -> None:
    if from_zero:
        figure.axes[0].set_xlim(left=0)
    handles, _ = figure.axes[0].get_legend_handles_labels()
    legend_below(figure, handles, 1, (0.1, 0.0), loc="lower left", labelspacing=0.25)


# How data-parallel ranks synchronise: the loss over bytes sent, and a step's time with a slow replica.

OWN, AGREE = "own", "agree"
LINES = 20


def bytes_figure(result: TrainingResult, heading: Heading) -> Figure:
    runs = by_bytes(result.lines)[:LINES]
    figure, axes = run_axes(heading, len(runs) - 1, "loss (nats per token)")
    _draw_runs(axes, runs, lambda panel_axes: _smooth(loss_by_bytes(panel_axes)), way, FEW)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: bytes_text(int(value), 2))
    axes.set_xlabel("sent so far by the rank that sends most (bytes)")
    legend(figure, from_zero=False)
    return figure


def straggler_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = []
    runs = slowed(result.lines)
    for run, before in zip(runs, (None, *runs)):
        whole, agreeing = run.mean_ms, behind_ms(run)
        rows.append(BarRow(way_name(run), {OWN: max(whole - agreeing, 0.0), AGREE: agreeing}, time_text(1e3 * whole),
                           gap=before is not None and before.sync.straggler != run.sync.straggler))
    colours = ((OWN, "replicas' own steps", COMPUTE["F"][0]), (AGREE, "after them: waits and messages", "#d55e00"))
    return stacked_figure(rows, Scale("mean time of a step, mean of the replicas (ms)", colours=colours), heading)


# Scaling: tokens per second over ranks, what takes the efficiency, three times of a step, and their differences.

SCALING_WIDTH, SCALING_HEIGHT = 7.0, 4.4  # inches
CURVES = 6  # most curves of a figure
_LOSS_COLOURS = {"reached": "#009e73", "compute": "#56b4e9", "communication": "#d55e00", "bubble": "#e69f00",
                 "other": "#b4bac2", "cores": "#cc79a7"}


def curve_figure(result: ScalingResult, heading: Heading) -> Figure:
    """Tokens per second over ranks: measured points with the range of their rounds, simulated ones hollow and dashed."""
    curves = result.curves[:CURVES]
    legend_inches = LEGEND * -(-(len(curves) + 2) // 2)
    figure, top = new_figure(heading, SCALING_HEIGHT + legend_inches, SCALING_WIDTH)
    axes = axes_within(figure, top, 1.2, 0.2, 0.6 + legend_inches)
    axes.set_yscale("log")
    for number, curve in enumerate(curves):
        _draw(axes, curve, numbered(number))
    _ideal(axes, curves)
    _ranks_axis(axes, result)
    axes.set_ylabel("tokens per second, all ranks")
    handles = [Line2D([], [], color=numbered(i).colour, marker=numbered(i).marker, label=curve.name) for i, curve in enumerate(curves)]
    handles += [Line2D([], [], color=MUTED, linewidth=1, label="ideal: one rank's times the ranks"),
                Line2D([], [], color=INK, marker="o", markerfacecolor="none", linestyle=(0, (4, 2)), label="simulated")]
    legend_below(figure, handles, 2, (0.05, 0.0), loc="lower left")
    return figure


def _draw(axes: Axes, curve: Curve, drawn: style.Style) -> None:
    run = [line for line in (curve.one, *curve.measured) if line and line.basis != "simulated"]
    near, far = zip(*(_range(step) for step in run)) if run else ((), ())
    axes.errorbar([step.ranks for step in run], [step.tokens_per_s for step in run], yerr=[near, far], color=drawn.colour,
                  marker=drawn.marker, markersize=6, linewidth=1.5, capsize=3, zorder=4)
    axes.plot([point.ranks for point in curve.simulated], [point.tokens_per_s for point in curve.simulated], color=drawn.colour,
              marker=drawn.marker, markersize=6, markerfacecolor="none", linewidth=1.2, linestyle=(0, (4, 2)), zorder=3)


def _range(step: Step) -> tuple[float, float]:
    """Distances of the slowest and the fastest round from the median, in tokens per second."""
    rates = [1e3 * step.tokens_per_step / ms for ms in step.rounds_ms] or [step.tokens_per_s]
    return max(step.tokens_per_s - min(rates), 0), max(max(rates) - step.tokens_per_s, 0)


def _ideal(axes: Axes, curves: Sequence[Curve]) -> None:
    ranks = [line.ranks for curve in curves for line in (*curve.measured, *curve.simulated)]
    for rate in {curve.one.tokens_per_s for curve in curves if curve.one}:
        axes.plot([1, max(ranks)], [rate, rate * max(ranks)], color=MUTED, linewidth=1, zorder=2)


def _ranks_axis(axes: Axes, result: ScalingResult) -> None:
    lines = (*result.run, *result.beyond)
    few_ticks(axes, {1, *(line.ranks for line in lines)}, "ranks (number)", lambda n: f"{n:,}", 1.15)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    shared = [line.ranks for line in lines if line.oversubscribed]
    if shared:
        axes.axvspan(min(shared) / 1.08, max(shared) * 1.08, color=GRID, alpha=0.6, linewidth=0, zorder=0.5)
        axes.text(min(shared), 0.98, "measured with more ranks than cores", transform=axes.get_xaxis_transform(), size=8.5,
                  color=ALARM, va="top", ha="center", rotation=90)


def losses_figure(result: ScalingResult, heading: Heading) -> Figure:
    """A bar for each measured layout, and for the last simulated one of each curve: what is reached, and what takes the rest."""
    rows = []
    for curve in result.curves[:CURVES]:
        for line in (*curve.measured, *curve.simulated[-1:]):
            if line.efficiency:
                parts = {} if line.efficiency.undecided else {
                    "reached": line.efficiency.value, **{loss.to: loss.share for loss in line.efficiency.losses}}
                text = (efficiency_text(line) if line.efficiency.undecided else
                        f"{efficiency_text(line)} % of {line.efficiency.ideal_speedup:,.0f} ranks' ideal")
                rows.append(BarRow(line_name(line), parts, unbroken(text), gap=line is (*curve.measured, *curve.simulated)[0]))
    names = {"reached": "reached", **LOSSES}
    colours = tuple((part, names[part], colour) for part, colour in _LOSS_COLOURS.items()
                    if part == "reached" or any(part in row.parts for row in rows))
    return stacked_figure(rows, Scale("share of the step (%)", 100, colours=colours), heading, SCALING_WIDTH)


def three_times_figure(result: ScalingResult, heading: Heading) -> Figure:
    rows = []
    for line in result.pieces:
        for kind, meaning in KINDS.items():
            step = line.step(kind)
            if step:
                name = f"{line_name(line)}: {meaning}" if kind == next(iter(KINDS)) else meaning
                rows.append(BarRow(name, step.parts_ms, _total_text(line, kind), gap=kind == next(iter(KINDS))))
    return step_bars(rows, "time of a step, mean of the ranks (ms)", heading)


def _total_text(line: Step, kind: str) -> str:
    took = time_text(1e3 * line.step(kind).step_ms)
    more = off(line, kind)
    return took if kind == "measured" or more is None else f"{took}, measured {signed(100 * more)} %"


def gap_figure(result: ScalingResult, heading: Heading) -> Figure:
    rows = []
    for line in result.run:
        for kind, name in (("isolated", "less pieces alone"), ("contended", "less contention too")):
            parts = differences(line, kind)
            if parts:
                text = f"{signed(sum(parts.values()))} ms"
                first = kind == "isolated"
                rows.append(BarRow(f"{line_name(line)}: {name}" if first else name, parts, text, gap=first))
    return step_bars(rows, "measured minus predicted, by part (ms)", heading)
