"""Bars of stacked parts, a row per case, with words at the right end of each; and figures of steps made of such bars."""

from dataclasses import dataclass
from typing import Optional, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from reports.analysis.groups import cut, link_text
from reports.analysis.steps.layouts import KINDS, LayoutResult
from reports.analysis.steps.overlap import exposed_ms, hidden_text, OverlapResult, way_text
from reports.analysis.training.runs import NAMES, predicted_runs, run_name, TrainingResult
from reports.analysis.training.data_parallel import ShardingResult, stage_text, STATES, states_bytes, held_text
from reports.pages.simulations import MOST_BARS
from reports.plots.frame import axes_within, Heading, legend_below, new_figure, row_axes
from reports.plots.style import ALARM, COMPUTE, INK, MUTED, PAPER, STRIPS
from reports.records import Simulation
from reports.units import bytes_text, share_text, short, time_text


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
    alarm: bool = False  # words in the colour of an alarm
    mark: Optional[float] = None  # value with a mark


@dataclass(frozen=True)
class Scale:
    label: str
    factor: float = 1.0  # values are multiplied by this for the shown unit
    colours: tuple[tuple[str, str, str], ...] = ()  # part, its name, its colour; in the order of the stack
    mark: str = ""  # name of the rows' marks
    limit: Optional[tuple[float, str]] = None  # a line across all bars, and its name
    end: Optional[float] = None  # bars beyond are cut off


def stacked_figure(rows: Sequence[BarRow], scale: Scale, heading: Heading, width: float = WIDTH) -> Figure:
    places, at = [], 0.0
    for row in rows:
        at += 1.6 if row.gap and places else 1.0 if places else 0.0
        places.append(at)
    handles = _handles(scale)
    columns = min(max(len(handles), 1), int(COLUMNS * width / WIDTH))
    legend_inches = 0.2 * -(-len(handles) // columns)
    figure, top = new_figure(heading, HEAD + FOOT + legend_inches + ROW * max(at + 1, 2), width)
    left, right = (room + CHARACTER * max(map(len, texts)) for room, texts in
                   ((0.25, [row.name for row in rows]), (0.2, [row.label for row in rows])))
    axes = axes_within(figure, top, left, right, 0.62 + legend_inches)
    row_axes(axes, [row.name for row in rows], places=places)
    for row, place in zip(rows, places):
        axes.text(1.01, place, row.label, transform=axes.get_yaxis_transform(), size=8, va="center",
                  color=ALARM if row.alarm else INK)
    _stack(axes, rows, places, scale)
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.xaxis.set_major_formatter(lambda value, _: short(value, 4))
    axes.set_xlabel(scale.label)
    legend_below(figure, handles, columns, handlelength=1.4, handleheight=1.0, columnspacing=1.6)
    return figure


def _handles(scale: Scale) -> list[Artist]:
    handles: list[Artist] = [Patch(facecolor=colour, edgecolor=MUTED if colour == PAPER else colour, linewidth=0.5, label=name)
                             for _, name, colour in scale.colours]
    if scale.mark:
        handles.append(Line2D([], [], linestyle="", marker="|", markersize=9, markeredgewidth=2, color=INK, label=scale.mark))
    if scale.limit:
        handles.append(Line2D([], [], color=ALARM, linewidth=1.4, label=scale.limit[1]))
    return handles


def _stack(axes: Axes, rows: Sequence[BarRow], places: Sequence[float], scale: Scale) -> None:
    up, down = np.zeros(len(rows)), np.zeros(len(rows))
    for part, _, colour in scale.colours:
        values = np.array([scale.factor * row.parts.get(part, 0.0) for row in rows])
        axes.barh(places, values, left=np.where(values >= 0, up, down), height=0.76, color=colour, zorder=2,
                  edgecolor=MUTED if colour == PAPER else PAPER, linewidth=0.5)
        up += np.maximum(values, 0)
        down += np.minimum(values, 0)
    low, high = min(down), scale.factor * scale.end if scale.end else max(up)
    room = 0.02 * (high - low or 1)
    axes.set_xlim(low - room if low < 0 else 0, high + room)
    if low < 0:
        axes.axvline(0, color=INK, linewidth=0.9, zorder=3)
    if scale.limit:
        axes.axvline(scale.factor * scale.limit[0], color=ALARM, linewidth=1.4, zorder=4)
    if scale.mark:
        axes.plot([scale.factor * row.mark for row in rows], places, linestyle="", marker="|", markersize=15, markeredgewidth=2, color=INK,
                  zorder=4, clip_on=False)


# The parts of a step and the kinds of memory as bars: their colours, training runs, stages of ZeRO.

_LIKE = {"forward": "F", "backward": "B", "recompute": "RECOMPUTE", "optimizer": "STEP", "exposed_tensor": "tensor",
         "exposed_pipeline": "receive", "exposed_gather": "gather", "exposed_reduce": "reduce", "exposed_copy": "copy"}
_PARTS = {**{part: {**COMPUTE, **STRIPS}[name][0] for part, name in _LIKE.items()}, "bubble": PAPER,
          "around": "#cfd4da"}
_KINDS = dict(zip(KINDS, ("#0072b2", "#56b4e9", "#e69f00", "#009e73", "#a0a0a0")))


def step_bars(rows: Sequence[BarRow], label: str, heading: Heading, factor: float = 1.0) -> Figure:
    """Bars of the parts of steps."""
    return stacked_figure(rows, Scale(label, factor, _colours(rows, NAMES, _PARTS)), heading)


def _colours(rows: Sequence[BarRow], names: dict[str, str], colours: dict[str, str]) -> tuple[tuple[str, str, str], ...]:
    """Part, name and colour of each part that any bar has, in the order of the stack."""
    parts = dict.fromkeys([*names, *(part for row in rows for part in row.parts if part != "total")])
    return tuple((part, names.get(part, part), colours.get(part, OTHER)) for part in parts if any(row.parts.get(part) for row in rows))


def kind_colours(rows: Sequence[BarRow]) -> tuple[tuple[str, str, str], ...]:
    return _colours(rows, {kind: kind for kind in KINDS}, _KINDS)


MIB, GIB = 1 << 20, 1 << 30


def parts_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = [BarRow(run_name(line), line.parts_ms, time_text(1e3 * sum(line.parts_ms.values()))) for line in result.lines]
    return step_bars(rows, "time of a step, mean of the ranks (ms)", heading)


def predicted_figure(result: TrainingResult, heading: Heading) -> Figure:
    """Two bars per run: the prediction before it ran, and its measured step."""
    rows = []
    for run in predicted_runs(result.lines):
        predicted = run.predicted
        rows.append(BarRow(f"{run.layout.text}, {run.dtype}: predicted", predicted.parts_ms,
                           f"{time_text(1e3 * predicted.step_ms)}, {100 * predicted.error:+.0f} %", gap=True))
        rows.append(BarRow("measured", predicted.measured_parts_ms, time_text(1e3 * predicted.measured_step_ms)))
    return step_bars(rows, "time of a step, mean of the ranks (ms)", heading)


def memory_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = [BarRow(run_name(line), line.memory_bytes, bytes_text(line.memory_bytes["total"], 3)) for line in result.lines]
    large = max(line.memory_bytes["total"] for line in result.lines) >= 4 * GIB
    return stacked_figure(rows, Scale(f"memory of the fullest rank at its peak ({'GiB' if large else 'MiB'})",
                                      1 / (GIB if large else MIB),
                                      kind_colours(rows)), heading)


def sharding_figure(result: ShardingResult, heading: Heading) -> Figure:
    rows = [BarRow(stage_text(line), {kind: line.held_bytes.get(kind, 0.0) for kind in STATES}, held_text(line), mark=states_bytes(line.formula_bytes))
            for line in result.lines]
    return stacked_figure(rows, Scale("memory of a rank between steps (MiB)", 1 / MIB, kind_colours(rows),
                                      "the formulas' sum"), heading)


# ---- Simulated layouts, the best first: parts of the time of a step, and kinds of memory

NAME = 55  # characters of a layout's name


def layout_parts_figure(result: LayoutResult, heading: Heading) -> Figure:
    layouts = result.lines[:MOST_BARS]
    shares = {id(layout): 1 if result.alike else layout.ranks / layout.global_batch for layout in layouts}
    longest = max(layout.step_ms * shares[id(layout)] for layout in layouts)
    unit, scale = ("s", 1e-3) if longest >= 2000 else ("ms", 1.0)
    rows = [BarRow(cut(result.name_of(layout), NAME), {part: ms * shares[id(layout)] for part, ms in layout.parts_ms.items()},
                   f"{time_text(1e3 * layout.step_ms)}, MFU {share_text(layout.mfu)}{_fit_warning(layout)}", alarm=not layout.fits) for layout in layouts]
    what = "time of a step" if result.alike else "time of all devices for a sequence"
    return step_bars(rows, f"{what} ({unit})", heading, scale)


def layout_memory_figure(result: LayoutResult, heading: Heading) -> Figure:
    """Bars that are far too large are cut off: a triangle."""
    layouts = result.lines[:MOST_BARS]
    capacity, most = layouts[0].capacity_bytes, max(layout.memory_bytes["total"] for layout in layouts)
    end = max(min(most, 1.8 * capacity), 1.05 * capacity)
    rows = [BarRow(cut(result.name_of(layout), NAME), layout.memory_bytes,
                   ("\N{BLACK RIGHT-POINTING TRIANGLE} " if layout.memory_bytes["total"] > end else "") +
                   f"{short(layout.memory_bytes['total'] / GIB)} GiB{_fit_warning(layout)}", alarm=not layout.fits) for layout in layouts]
    return stacked_figure(rows, Scale("memory of the device that needs most (GiB)", 1 / GIB, kind_colours(rows),
                                      limit=(capacity, f"a device has {short(capacity / GIB)} GiB"), end=end), heading)


def _fit_warning(line: Simulation) -> str:
    return "" if line.fits else ": does not fit"


# ---- Collectives that overlap with computation: a bar per case, of computing and exposed communication, up to the sum of both

MOST = 40  # bars
_OVERLAPPED = (("computing", "computing alone", COMPUTE["F"][0]), ("exposed", "exposed collectives", "#d55e00"),
               ("hidden", "hidden: up to the serial time of computing and collectives", PAPER))


def overlap_figure(result: OverlapResult, heading: Heading) -> Figure:
    rows = []
    for line in result.lines[:MOST]:
        parts = {"computing": min(line.overlap.compute_alone_ms, line.makespan_ms), "exposed": exposed_ms(line)}
        hidden = line.overlap.compute_alone_ms + line.overlap.communication_alone_ms - sum(parts.values())
        rows.append(BarRow(f"{link_text(line.run.link)}: {way_text(line)}", {**parts, "hidden": max(hidden, 0.0)},
                           f"{time_text(1e3 * line.makespan_ms)}, {hidden_text(line)}"))
    return stacked_figure(rows, Scale("time of a step (ms)", colours=_OVERLAPPED), heading)
