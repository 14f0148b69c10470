"""Bars of stacked parts, a row per case, with words at the right end of each; and figures of steps made of them."""

from dataclasses import dataclass
from typing import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.analysis.steps.layouts import KINDS
from reports.analysis.steps.overlap import exposed_ms, hidden_text, link_text, OverlapResult, way_text
from reports.analysis.training.runs import NAMES, predicted_runs, run_name, TrainingResult
from reports.analysis.training.data_parallel import ShardingResult, stage_text, STATES, states_bytes, told_text
from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.style import ALARM, COMPUTE, INK, MUTED, PAPER, STRIPS
from reports.records import ScheduleLine
from reports.units import bytes_text, short, time_text


WIDTH, ROW = 11.4, 0.25  # inches
CHARACTER = 0.069  # inches of a name
HEAD, FOOT = 0.3, 1.0  # inches: above the axes, and below them for their label and the legend
COLUMNS = 4  # columns of the legend
OTHER = "#4d4d4d"


@dataclass(frozen=True)
class BarRow:
    name: str
    parts: dict[str, float]  # negative ones extend to the left
    label: str  # words at its right
    gap: bool = False  # space above, where another case begins


@dataclass(frozen=True)
class Scale:
    label: str
    factor: float = 1.0  # values are multiplied by this for the shown unit
    colours: tuple[tuple[str, str, str], ...] = ()  # part, its name, its colour; in the order of the stack


def stacked_figure(rows: Sequence[BarRow], scale: Scale, heading: Heading, width: float = WIDTH) -> Figure:
    places, at = [], 0.0
    for row in rows:
        at += 1.6 if row.gap and places else 1.0 if places else 0.0
        places.append(at)
    columns = min(max(len(scale.colours), 1), int(COLUMNS * width / WIDTH))
    legend = 0.2 * -(-len(scale.colours) // columns)
    figure, top = new_figure(heading, HEAD + FOOT + legend + ROW * max(at + 1, 2), width)
    height = figure.get_figheight()
    left = (0.25 + CHARACTER * max(len(row.name) for row in rows)) / width
    right = (0.2 + CHARACTER * max(len(row.label) for row in rows)) / width
    bottom = (0.62 + legend) / height
    axes = figure.add_axes([left, bottom, 1 - left - right, top - bottom - 0.1 / height])
    _rows(axes, rows, places)
    _stack(axes, rows, places, scale)
    _axis(axes, scale)
    handles = [Patch(facecolor=colour, edgecolor=MUTED if colour == PAPER else colour, linewidth=0.5, label=name)
               for _, name, colour in scale.colours]
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncol=columns,
                  frameon=False, fontsize=8.5, handlelength=1.4, handleheight=1.0, columnspacing=1.6, labelcolor=INK)
    return figure


def _rows(axes: Axes, rows: Sequence[BarRow], places: Sequence[float]) -> None:
    tidy(axes)
    axes.grid(False, axis="y")
    axes.set_ylim(places[-1] + 0.55, -0.55)
    axes.set_yticks(places, [row.name for row in rows], size=8.2)
    axes.tick_params(axis="y", length=0)
    for row, place in zip(rows, places):
        axes.text(1.01, place, row.label, transform=axes.get_yaxis_transform(), size=8, va="center", color=INK)


def _stack(axes: Axes, rows: Sequence[BarRow], places: Sequence[float], scale: Scale) -> None:
    up, down = [0.0] * len(rows), [0.0] * len(rows)
    for part, _, colour in scale.colours:
        values = [scale.factor * row.parts.get(part, 0.0) for row in rows]
        starts = [up[i] if value >= 0 else down[i] for i, value in enumerate(values)]
        axes.barh(places, values, left=starts, height=0.76, color=colour, zorder=2,
                  edgecolor=MUTED if colour == PAPER else PAPER, linewidth=0.5)
        up = [at + max(value, 0) for at, value in zip(up, values)]
        down = [at + min(value, 0) for at, value in zip(down, values)]
    low, high = min(down), max(up)
    room = 0.02 * (high - low or 1)
    axes.set_xlim(low - room if low < 0 else 0, high + room)
    if low < 0:
        axes.axvline(0, color=INK, linewidth=0.9, zorder=3)


def _axis(axes: Axes, scale: Scale) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, 4)))
    axes.set_xlabel(scale.label, size=9.5)


# The parts of a step and the kinds of memory as bars: their colours, training runs, stages of ZeRO.

_LIKE = {"forward": "F", "backward": "B", "recompute": "RECOMPUTE", "optimizer": "STEP", "exposed_tensor": "tensor",
         "exposed_pipeline": "receive", "exposed_gather": "gather", "exposed_reduce": "reduce", "exposed_copy": "copy"}
_PARTS = {**{part: {**COMPUTE, **STRIPS}[name][0] for part, name in _LIKE.items()}, "bubble": PAPER,
          "around": "#cfd4da"}
_KINDS = dict(zip(KINDS, ("#0072b2", "#56b4e9", "#e69f00", "#009e73", "#a0a0a0")))


def part_colours(of: Iterable[dict[str, float]]) -> tuple[tuple[str, str, str], ...]:
    """Part, name and colour of each part that any bar has, in the order of the stack."""
    return _present(of, [*NAMES], lambda part: (part, NAMES.get(part, part), _PARTS.get(part, OTHER)))


def kind_colours(of: Iterable[dict[str, float]]) -> tuple[tuple[str, str, str], ...]:
    return _present(of, [*KINDS], lambda kind: (kind, kind, _KINDS.get(kind, OTHER)))


def _present(of: Iterable[dict[str, float]], known: list[str], entry) -> tuple[tuple[str, str, str], ...]:
    of = list(of)
    names = dict.fromkeys([*known, *(name for one in of for name in one if name != "total")])
    return tuple(entry(name) for name in names if any(one.get(name) for one in of))


MIB, GIB = 1 << 20, 1 << 30


def parts_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = [BarRow(run_name(one), one.parts_ms, time_text(1e3 * sum(one.parts_ms.values()))) for one in result.runs]
    return stacked_figure(rows, Scale("time of a step, mean of the ranks (ms)",
                                      colours=part_colours(row.parts for row in rows)), heading)


def predicted_figure(result: TrainingResult, heading: Heading) -> Figure:
    """Two bars per run: the prediction before it ran, and its measured step."""
    rows = []
    for one in predicted_runs(result.runs):
        told = one.predicted
        rows.append(BarRow(f"{one.layout.text}, {one.dtype}: predicted", told.parts_ms,
                           f"{time_text(1e3 * told.step_ms)}, {100 * told.error:+.0f} %", gap=True))
        rows.append(BarRow("measured", told.measured_parts_ms, time_text(1e3 * told.measured_step_ms)))
    return stacked_figure(rows, Scale("time of a step, mean of the ranks (ms)",
                                      colours=part_colours(row.parts for row in rows)), heading)


def memory_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = [BarRow(run_name(one), one.memory_bytes, bytes_text(one.memory_bytes["total"], 3)) for one in result.runs]
    large = max(one.memory_bytes["total"] for one in result.runs) >= 4 * GIB
    return stacked_figure(rows, Scale(f"memory of the fullest rank at its peak ({'GiB' if large else 'MiB'})",
                                      1 / (GIB if large else MIB),
                                      kind_colours(row.parts for row in rows)), heading)


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


# Collectives beside the computation: a bar per case, of computing and exposed communication, up to the sum of both.

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
