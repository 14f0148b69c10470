"""Gantt charts of a step: a row per rank, a chart per basis on one time axis, and memory over time below."""

from collections import Counter
from itertools import accumulate
from typing import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from reports.analysis.steps.overlap import Box, Chart, labels_are_layers, lanes_of, RankLanes
from reports.plots.frame import Heading, legend_below, new_figure
from reports.plots.style import ALARM, COMPUTE, GRID, INK, MUTED, OTHER, PAPER, shade, STRIPS, TEXT
from reports.records import Memory, Points
from reports.units import bytes_text, short, time_text


# ---- Memory over time: a line per rank, or for many ranks the range of all and the extremes

MOST = 8  # most ranks with a line of their own
UNITS = {"bytes": 2 ** 30}


def memory_axes(axes: Axes, memory: Memory, basis: str, end: float) -> None:
    scale = UNITS.get(memory.unit, 1)
    totals = [total_of(kinds.values()) for kinds in memory.of_rank]
    peaks = [max((value for _, value in points), default=0) for points in totals]
    shown = _shown(peaks)
    if len(shown) < len(totals):
        _band(axes, totals, scale)
    for rank in shown:
        colour = matplotlib.colormaps["viridis"](0.25 + 0.6 * rank / max(len(totals) - 1, 1))
        at, values = zip((0.0, 0.0), *totals[rank], (end, totals[rank][-1][1] if totals[rank] else 0.0))
        axes.step(at, np.array(values) / scale, where="post", color=colour, linewidth=1.4, zorder=3,
                  label=f"rank {rank}")
    axes.set_ylim(0, max(max(peaks) / scale * 1.4, 1e-9))
    axes.set_ylabel("GiB" if memory.unit == "bytes" else "microbatches", size=9)
    what = "Memory" if memory.unit == "bytes" else "Activations held"
    axes.set_title(f"{what} over time ({basis}): at most {peak_text(memory, max(peaks))}, on rank "
                   f"{peaks.index(max(peaks))}")
    axes.tick_params(axis="y", labelsize=8)
    axes.legend(loc="upper right", ncol=len(shown) + 1, fontsize=7.5, frameon=True, facecolor=axes.get_facecolor(),
                edgecolor=GRID, framealpha=0.85, handlelength=1.4, columnspacing=1.0, labelcolor=INK, borderpad=0.25)


def peak_text(memory: Memory, value: float) -> str:
    return bytes_text(value, 3) if memory.unit == "bytes" else f"{short(value)} microbatches"


def total_of(kinds: Sequence[Points]) -> list[tuple[float, float]]:
    """The sum of several steps."""
    changes: Counter[float] = Counter()
    for points in kinds:
        for (at, value), (_, before) in zip(points, [(0.0, 0.0), *points]):
            changes[at] += value - before
    times = sorted(changes)
    return list(zip(times, accumulate(changes[at] for at in times)))


def _shown(peaks: Sequence[float]) -> list[int]:
    """Ranks with a line: all if they are few; else the first, the last and the one with the highest peak."""
    if len(peaks) <= MOST:
        return list(range(len(peaks)))
    return sorted({0, len(peaks) - 1, peaks.index(max(peaks))})


def _band(axes: Axes, totals: Sequence[Sequence[tuple[float, float]]], scale: float) -> None:
    times = np.unique([at for points in totals for at, _ in points])
    times = times[::max(1, len(times) // 1500)]
    steps = [np.array([(-np.inf, 0.0), *points]) for points in totals]
    held = [step[np.searchsorted(step[:, 0], times, "right") - 1, 1] / scale for step in steps]
    axes.fill_between(times, np.min(held, axis=0), np.max(held, axis=0), step="post", color=MUTED, alpha=0.2, linewidth=0,
                      zorder=1, label="all ranks")


# Gantt charts of a schedule: a row per rank, a chart per basis on one time axis, and memory over time below.

WIDTH = 11.4  # inches
LEFT, RIGHT = 0.72, 0.2
MEMORY = 1.25
MOST_ROWS = 8.0  # inches for the rows of all charts
STRIPS_UP_TO = 32  # most ranks of a chart with strips; in thinner rows they could not be seen
RASTER_FROM = 2500  # number of boxes from which on the chart is a raster image: an SVG with as many paths is slow to open
COLUMNS = 5  # columns of the legend
PIXEL = 0.006  # inches; narrower boxes are merged
HATCHED = 0.03  # inches; narrower spans are filled
LETTER = 0.062  # inches per digit of a box's label


def gantt_figure(lines: Sequence[Chart], heading: Heading) -> Figure:
    ranks, end = max(line.ranks for line in lines), max(line.end_ms for line in lines)
    row = min(max(MOST_ROWS / (ranks * len(lines)), 0.085), 0.3)
    remembered = next((line for line in lines if line.memory), None)
    handles = _handles(lines)
    legend = 0.2 * -(-(len(handles) + 1) // COLUMNS)
    height = len(lines) * (row * ranks + 0.3) + (MEMORY + 0.34 if remembered else 0) + 1.25 + legend
    figure, top = new_figure(heading, height, WIDTH)
    at, height, axes = top * figure.get_figheight(), figure.get_figheight(), []
    for inches, gap in [*[(row * ranks, 0.3)] * len(lines), *([(MEMORY, 0.34)] if remembered else [])]:
        at -= gap + inches
        axes.append(figure.add_axes([LEFT / WIDTH, at / height, 1 - (LEFT + RIGHT) / WIDTH, inches / height]))
    for chart, line in zip(axes, lines):
        _chart(chart, line, end, row)
    if remembered:
        memory_axes(axes[-1], remembered.memory, remembered.basis, end)
    time_axis(axes, end)
    handles += _numbers(figure, lines)
    legend_below(figure, handles, min(len(handles), COLUMNS), handlelength=1.4, handleheight=1.0, columnspacing=1.5)
    return figure


def time_axis(below: Sequence[Axes], end: float) -> None:
    """One time axis for axes that are one below the other."""
    unit, scale = ("s", 1e-3) if end >= 10000 else ("ms", 1.0) if end >= 1 else ("µs", 1e3)
    for axes in below:
        axes.set_xlim(0, end)
        axes.xaxis.set_major_locator(MaxNLocator(12))
        axes.xaxis.set_major_formatter(lambda value, _: short(value * scale, 4))
        axes.tick_params(axis="x", length=3, labelbottom=axes is below[-1], labelsize=8.5)
    below[-1].set_xlabel(f"time from the start of the step ({unit})")


def _chart(axes: Axes, line: Chart, end: float, row: float) -> None:
    inch = end / (WIDTH - LEFT - RIGHT)  # ms
    ranks = lanes_of(line.timeline, PIXEL * inch)
    strips = [lane for lane in STRIPS if line.ranks <= STRIPS_UP_TO and any(lane in rank.strips for rank in ranks)]
    chunks = max((box.chunk for rank in ranks for box in rank.compute), default=0) + 1
    share = 0.9 - min(0.13 * len(strips), 0.45)  # share of the row's height for computations
    drawn = sum(len(rank.compute) + sum(map(len, rank.strips.values())) for rank in ranks)
    raster = drawn > RASTER_FROM
    _boxes(axes, [(r, box) for r, rank in enumerate(ranks) for box in rank.compute], (0.05, share), chunks, raster)
    for i, lane in enumerate(strips):
        thick = (0.92 - share) / len(strips)
        _strip(axes, ranks, lane, (0.06 + share + i * thick, 0.8 * thick), raster)
    _exposed(axes, ranks, (0.05, share), inch, raster)
    _labels(axes, ranks, 0.05 + share / 2, row * share, inch)
    _frame(axes, line, row)


def _boxes(axes: Axes, boxes: Sequence[tuple[int, Box]], place: tuple[float, float], chunks: int, raster: bool) -> None:
    groups: dict[str, list] = {}
    for rank, box in boxes:
        colour = shade(COMPUTE.get(box.op, OTHER)[0], box.chunk, chunks)
        groups.setdefault(colour, []).append(_corners(rank, box.start, box.end, place))
    edge = 0 if len(boxes) > RASTER_FROM else 0.4
    for colour, corners in groups.items():
        axes.add_collection(PolyCollection(corners, facecolor=colour, edgecolor=PAPER, linewidth=edge,
                                           rasterized=raster, zorder=2))


def _strip(axes: Axes, ranks: Sequence[RankLanes], lane: str, place: tuple[float, float], raster: bool) -> None:
    corners = [_corners(r, box.start, box.end, place)
               for r, rank in enumerate(ranks) for box in rank.strips.get(lane, ())]
    # Not moved to whole pixels, so that the shade of many short ones shows their share of the time.
    axes.add_collection(PolyCollection(corners, facecolor=STRIPS[lane][0], linewidth=0, rasterized=raster, snap=False,
                                       zorder=2))


def _exposed(axes: Axes, ranks: Sequence[RankLanes], place: tuple[float, float], inch: float, raster: bool) -> None:
    """Hatched spans; filled where hatching lines would be wider than the span."""
    spans = [(r, start, end) for r, rank in enumerate(ranks) for start, end in rank.exposed]
    wide = [_corners(*span, place) for span in spans if span[2] - span[1] >= HATCHED * inch]
    fine = [_corners(*span, place) for span in spans if span[2] - span[1] < HATCHED * inch]
    axes.add_collection(PolyCollection(wide, facecolor="none", edgecolor=ALARM, linewidth=0, hatch="//////",
                                       rasterized=raster, zorder=1.5))
    axes.add_collection(PolyCollection(fine, facecolor=ALARM, alpha=0.6, linewidth=0, rasterized=raster, snap=False,
                                       zorder=1.5))


def _corners(rank: int, start: float, end: float, place: tuple[float, float]) -> list[tuple[float, float]]:
    top, height = rank + place[0], place[1]
    return [(start, top), (end, top), (end, top + height), (start, top + height)]


def _labels(axes: Axes, ranks: Sequence[RankLanes], middle: float, height: float, inch: float) -> None:
    """Microbatch numbers: all or none of a kind, so that a missing number has no meaning."""
    if height < 0.115:
        return
    size = min(7.5, 55 * height)
    boxes = [(r, box) for r, rank in enumerate(ranks) for box in rank.compute if box.label]
    for op in {box.op for _, box in boxes}:
        mine = [(r, box) for r, box in boxes if box.op == op]
        narrowest = min((box.end - box.start) / inch for _, box in mine)
        if narrowest < LETTER * max(len(box.label) for _, box in mine) + 0.02:
            continue
        for r, box in mine:
            axes.text((box.start + box.end) / 2, r + middle, box.label, size=size, color=TEXT, ha="center",
                      va="center_baseline", zorder=3)


def _frame(axes: Axes, line: Chart, row: float) -> None:
    axes.set_ylim(line.ranks, 0)
    step = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n * row >= 0.14 or n == 128)
    axes.set_yticks([r + 0.5 for r in range(0, line.ranks, step)], [str(r) for r in range(0, line.ranks, step)], size=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("rank", size=9)
    axes.grid(False)
    axes.set_title(basis_heading(line), color=INK if line.basis == "measured" else ALARM)
    axes.axvline(line.makespan_ms, color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)


def basis_heading(line: Chart) -> str:
    return f"{line.basis.upper()}: {time_text(1e3 * line.makespan_ms)}, {line.label}"


def _handles(lines: Sequence[Chart]) -> list[Patch]:
    tasks = [task for line in lines for rank in line.timeline for task in rank if task.end > task.start]
    ops = {task.op for task in tasks if task.lane == "compute"}
    lanes = {task.lane for task in tasks} if lines[0].ranks <= STRIPS_UP_TO else set()
    handles = [Patch(facecolor=colour, label=f"{op}: {name}" if len(op) == 1 else name)
               for op, (colour, name) in COMPUTE.items() if op in ops]
    handles += [Patch(facecolor=colour, label=name) for lane, (colour, name) in STRIPS.items() if lane in lanes]
    if any(lanes.exposed for line in lines for lanes in lanes_of(line.timeline)):
        handles.append(Patch(facecolor="none", edgecolor=ALARM, linewidth=0, hatch="//////",
                             label="waits for data in flight"))
    return [*handles, Patch(facecolor=PAPER, edgecolor=MUTED, linewidth=0.6, label="idle")]


def _numbers(figure: Figure, lines: Sequence[Chart]) -> list[Line2D]:
    """Meaning of the numbers in boxes, if there are any."""
    there = any(text.get_text().isdigit() for axes in figure.axes for text in axes.texts)
    what = "layer" if labels_are_layers(lines[0].timeline) else "microbatch"
    return [Line2D([], [], linestyle="none", marker="$0$", color=TEXT, markersize=6, label=f"number: {what}")] * there
