"""One figure for each study of `simulate`: curves, a map, a Pareto front, bars."""
from dataclasses import replace
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from reports.analysis.groups import by
from reports.analysis.steps.layouts import moved, published_pairs, series_of, StudyResult
from reports.plots.frame import (
    axes_within, cell_axes, Curve, curves_figure, few_ticks, Heading, key, legend_below, new_figure, place_labels, point_box,
    row_axes, value_axis, Wanted)
from reports.plots.stacked_bars import BarRow, step_bars
from reports.plots.style import ALARM, GRID, INK, MUTED, PAPER, TEXT, numbered
from reports.records import StudyPoint
from reports.units import short, time_text

WIDTH = 11.4  # inches


# ---- Scaling: throughput per device against devices, and parts of the step

def efficiency_figure(result: StudyResult, heading: Heading) -> Figure:
    return published_figure(result, heading) if result.published else _efficiency(result, heading)


def _series(result: StudyResult, field: str, value: str, factor: float = 1.0) -> list[Curve]:
    return [Curve(name, [point.at[field] for point in points], [factor * point.values[value] for point in points])
            for name, points in result.series.items()]


def _powers(axes: Axes, result: StudyResult, field: str, label: str) -> None:
    few_ticks(axes, [point.at[field] for point in result.simulated], label, lambda value: f"{value:,.0f}", most=12)


def _efficiency(result: StudyResult, heading: Heading) -> Figure:
    def scale(axes: Axes) -> None:
        _powers(axes, result, "gpus", "GPUs")
        axes.set_ylabel("throughput per GPU, over the first point's (%)")
        axes.set_ylim(0, 108 * max(1.0, *(point.values["efficiency"] for point in result.simulated)))
    figure, axes, _ = curves_figure(heading, _series(result, "gpus", "efficiency", 100), scale)
    axes.axhline(100, color=INK, linewidth=0.9, zorder=2)
    tight = [point for point in result.simulated if not point.fits]
    axes.plot([point.at["gpus"] for point in tight], [100 * point.values["efficiency"] for point in tight], linestyle="none", marker="x", markersize=8,
              color=ALARM, zorder=4)
    if tight:
        figure.text(0.985, 0.015, "× does not fit in the memory", size=8, color=ALARM, ha="right", va="bottom")
    return figure


def published_figure(result: StudyResult, heading: Heading) -> Figure:
    field = "gpus" if "gpus" in result.simulated[0].at else "tp"

    def scale(axes: Axes) -> None:
        _powers(axes, result, field, "GPUs" if field == "gpus" else "tensor-parallel ranks")
        axes.set_ylabel("TFLOP/s per GPU")
        axes.set_ylim(0, 1.12 * max(point.values["tflops_per_gpu"] for point in result.drawn))
    figure, axes, styles = curves_figure(heading, _series(result, field, "tflops_per_gpu"), scale)
    published = by(result.published, series_of)
    for ours, theirs in published_pairs(result):
        axes.plot([ours.at[field]] * 2, [ours.values["tflops_per_gpu"], theirs.values["tflops_per_gpu"]], color=GRID, linewidth=3,
                  zorder=1.5)
    for name, points in published.items():
        axes.plot([point.at[field] for point in points], [point.values["tflops_per_gpu"] for point in points], linestyle="none",
                  marker=styles[name].marker, markersize=8, markerfacecolor="none", markeredgewidth=1.6,
                  color=styles[name].colour, zorder=4)
    if field == "tp":
        _mark_node(axes, result)
    if published:
        handles = [Line2D([], [], color=INK, marker="o", markersize=4.4, label="simulated"),
                   Line2D([], [], color=INK, marker="o", markersize=8, markerfacecolor="none", linestyle="none",
                          label="published")]
        axes.legend(handles=handles, loc="lower left")
    return figure


def _mark_node(axes: Axes, result: StudyResult) -> None:
    edge = result.simulated[0].at["node"] * 1.41
    if edge < axes.get_xlim()[1]:
        axes.axvspan(edge, axes.get_xlim()[1], color=GRID, alpha=0.6, linewidth=0, zorder=0.5)
        axes.text(edge * 1.04, 0.97, "more ranks than a node has", transform=axes.get_xaxis_transform(), size=8.5, color=ALARM,
                  va="top")


def parts_figure(result: StudyResult, heading: Heading) -> Figure:
    """Bars of shares, so that steps of all lengths can be read."""
    rows, last = [], ""
    several = len(result.series) > 1
    for name, points in result.series.items():
        for point in points:
            where = f"{point.at['gpus']:,.0f} GPUs" if "gpus" in point.at else f"tp={point.at['tp']:.0f}"
            shares = {part: 100 * ms / point.values["step_ms"] for part, ms in point.parts_ms.items()}
            rows.append(BarRow(f"{name}, {where}" if several else where, shares,
                               f"{time_text(1e3 * point.values['step_ms'])}, {short(point.values['tflops_per_gpu'])} TFLOP/s per GPU"
                               + ("" if point.fits else ": does not fit"), gap=name != last))
            last = name
    return step_bars(rows, "share of the step (%)", heading)


# ---- Order: parts of the step, in each order

def order_figure(result: StudyResult, heading: Heading) -> Figure:
    rows = [BarRow(point.series, point.parts_ms, f"{time_text(1e3 * point.values['step_ms'])}"
                   + (f", {point.values['slower_percent']:+.0f} %" if point.values["slower_percent"] >= 0.5 else ""))
            for point in sorted(result.simulated, key=lambda point: point.values["step_ms"])]
    return step_bars(rows, "time of a step (ms); neighbouring ranks differ in the first of an order", heading)


# ---- The map of the fastest layouts

# Data parallelism alone is green, with tensor parallelism blue, with pipelines orange, with both purple; ZeRO-3 is darker.
_WAYS = {"one device": "#cfd4da", "DP": "#8fd3a8", "ZeRO-1": "#4fb37c", "ZeRO-2": "#1f8a57", "ZeRO-3": "#0b5d3b",
         "TP": "#56b4e9", "TP+DP": "#a9d6f5", "TP+ZeRO-3": "#0072b2", "PP": "#e69f00", "PP+DP": "#f5cf7a",
         "PP+ZeRO-3": "#b06a00", "TP+PP": "#cc79a7", "TP+PP+DP": "#e6bcd4", "TP+PP+ZeRO-3": "#8a3d68", "nothing fits": PAPER}
_DARK = {"ZeRO-2", "ZeRO-3", "TP+ZeRO-3", "PP+ZeRO-3", "TP+PP+ZeRO-3"}  # white words
CELL = 0.42  # inches high


def map_figure(result: StudyResult, heading: Heading) -> Figure:
    links = sorted({line.at["gbps"] for line in result.lines})
    models = sorted({point.at["parameters"] for point in result.lines})
    names = {line.at["parameters"]: line.note.split(":")[0] for line in result.lines}
    figure, top = new_figure(heading, 1.5 + CELL * max(len(models), 3), WIDTH)
    axes = axes_within(figure, top, 1.75, 0.2, 0.95)
    for line in result.lines:
        _cell(axes, links.index(line.at["gbps"]), models.index(line.at["parameters"]), line)
    cell_axes(axes, [short(gbps) for gbps in links], [names[size] for size in models], len(links))
    axes.set_xlabel("bandwidth of the link per GPU and direction (GB/s); in a cell: how much slower the second fastest is")
    shown = [name for name in _WAYS if any(line.series == name for line in result.lines)]
    handles = [Patch(facecolor=_WAYS[name], edgecolor=MUTED, linewidth=0.5, label=name) for name in shown]
    legend_below(figure, handles, min(len(handles), 8), handlelength=1.4, handleheight=1.0, columnspacing=1.4)
    return figure


def _cell(axes: Axes, x: int, y: int, point: StudyPoint) -> None:
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=_WAYS.get(point.series, GRID), edgecolor=PAPER, linewidth=1.2))
    margin = point.values.get("margin_percent")
    text = "" if not point.best else "alone" if margin is None else f"+{margin:.0f} %" if margin >= 0.95 else "even"
    colour = "#ffffff" if point.series in _DARK else TEXT
    axes.text(x, y + 0.16, point.series if point.best else "nothing fits", ha="center", va="center", size=7.2,
              color=colour if point.best else MUTED, weight="bold" if point.best else "normal")
    axes.text(x, y - 0.2, text, ha="center", va="center", size=7.2, color=colour)


# ---- Memory of ZeRO stages against ranks

def memory_figure(result: StudyResult, heading: Heading) -> Figure:
    curves = [replace(curve, name=f"{curve.name}: {short(curve.y[-1])} GB") for curve in _series(result, "ranks", "total_gb")]
    values = [value for curve in curves for value in curve.y]
    capacity = result.simulated[0].values["capacity_gb"]

    def scale(axes: Axes) -> None:
        _powers(axes, result, "ranks", "data-parallel ranks")
        value_axis(axes, min([*values, capacity]), max([*values, capacity]), short)
        axes.set_ylabel("model states per rank (GB)")
    figure, axes, _ = curves_figure(heading, curves, scale)
    axes.axhspan(capacity, axes.get_ylim()[1], color=GRID, alpha=0.6, linewidth=0, zorder=0.5)
    axes.axhline(capacity, color=ALARM, linewidth=1.3, zorder=2)
    axes.text(0.01, capacity * 1.04, f"a device has {short(capacity)} GB", transform=axes.get_yaxis_transform(), size=8,
              color=ALARM, va="bottom")
    return figure


# ---- Recomputation: memory against time

def pareto_figure(result: StudyResult, heading: Heading) -> Figure:
    figure, top = new_figure(heading, 4.7, 8.6)
    axes = figure.add_axes([0.1, 0.12, 0.87, top - 0.14])
    scale, unit = _time_unit(result.simulated)
    points = [(point, point.values["memory_gb"], point.values["step_ms"] * scale) for point in result.simulated]
    best = sorted((memory, time) for point, memory, time in points if point.best)
    times, capacity = [time for _, _, time in points], points[0][0].values["capacity_gb"]
    low, high = min(times), max(times)
    room = 0.12 * (high - low or high)
    axes.set_ylim(low - room, high + room)
    axes.set_xlim(0, 1.1 * max(capacity, *(memory for _, memory, _ in points)))
    if best:
        axes.step(*zip(*best), where="post", color=numbered(0).colour, linewidth=1.3, alpha=0.6, zorder=2)
    axes.axvspan(capacity, axes.get_xlim()[1], color=GRID, alpha=0.6, linewidth=0, zorder=0.5)
    axes.axvline(capacity, color=ALARM, linewidth=1.3, zorder=2)
    axes.text(capacity, axes.get_ylim()[1], f" a device has {short(capacity)} GB ", size=8, color=ALARM, va="top", ha="right")
    for study_point, memory, time in points:
        axes.plot([memory], [time], marker="o", markersize=7, color=numbered(0 if study_point.best else 1).colour,
                  markerfacecolor=None if study_point.best else PAPER, zorder=3)
    axes.set_xlabel("memory of the device that needs most (GB)")
    axes.set_ylabel(f"time of a step ({unit})")
    axes.yaxis.set_major_locator(MaxNLocator(8))
    axes.yaxis.set_major_formatter(lambda value, _: short(value, 4))
    place_labels(axes, [Wanted(study_point.series if study_point.best else f"k={study_point.at['every']:.0f}", memory, time)
                        for study_point, memory, time in sorted(points, key=lambda point: not point[0].best)],
                 [point_box(axes, memory, time, 5) for _, memory, time in points], [])
    handles = [key("no other needs less memory and less time", numbered(0), 7, marker="o"),
               key("another is better; k: layers between kept inputs", numbered(1), 7, hollow=True, marker="o")]
    axes.legend(handles=handles, loc="lower left")
    return figure


def _time_unit(points: Sequence[StudyPoint]) -> tuple[float, str]:
    return (1e-3, "s") if max(point.values["step_ms"] for point in points) >= 2000 else (1.0, "ms")


# ---- Sensitivity: a bar in each direction

LEAST = 0.005  # per cent; smaller changes are not drawn


def tornado_figure(result: StudyResult, heading: Heading) -> Figure:
    points = [point for point in sorted(result.simulated, key=lambda point: -moved(point)) if moved(point) >= LEAST] or \
        list(result.simulated[:1])
    percent = points[0].at["percent"]
    figure, top = new_figure(heading, 1.45 + 0.3 * max(len(points), 3), 9.4)
    axes = axes_within(figure, top, 2.9, 0.3, 0.85)
    row_axes(axes, [f"{point.series} = {short(point.at['value'])}" for point in points])
    for row, point in enumerate(points):
        for name, colour in (("less_percent", numbered(1).colour), ("more_percent", numbered(0).colour)):
            value = point.values.get(name)
            if value is None:
                continue
            axes.barh(row, value, height=0.66, color=colour, zorder=3)
            axes.text(value, row, f" {value:+.2f} ", va="center", ha="left" if value >= 0 else "right", size=7.6, color=INK)
    widest = max(moved(point) for point in points) or 1.0
    axes.set_xlim(-1.22 * widest, 1.22 * widest)
    axes.axvline(0, color=INK, linewidth=0.9, zorder=4)
    axes.set_xlabel("change of the step's time (%)")
    handles = [Patch(color=numbered(0).colour, label=f"{short(percent)} % more"),
               Patch(color=numbered(1).colour, label=f"{short(percent)} % less")]
    legend_below(figure, handles, 2, (0.6, 0.0))
    return figure


# ---- Bubbles: utilization without and with work in them

def bubbles_figure(result: StudyResult, heading: Heading) -> Figure:
    points = result.simulated
    figure, top = new_figure(heading, 1.6 + 0.62 * len(points), 8.6)
    axes = axes_within(figure, top, 0.16 * 8.6, 0.04 * 8.6, 0.75)
    row_axes(axes, [f"{point.series}\n{point.values['refresh_steps']:.0f} steps per refresh" for point in points], 8.5)
    for row, point in enumerate(points):
        for at, name in enumerate(("utilization_without_percent", "utilization_percent")):
            axes.barh(row + 0.36 * (at - 0.5), point.values[name], height=0.34, color=numbered(1 - at).colour, zorder=3)
            axes.text(point.values[name], row + 0.36 * (at - 0.5), f" {point.values[name]:.1f} %", va="center", size=8.2, color=INK)
    axes.set_xlim(0, 112)
    axes.set_xlabel("part of the time in which ranks compute (%)")
    handles = [Patch(color=numbered(1).colour, label="a first-order step"),
               Patch(color=numbered(0).colour, label="with K-FAC's work in the bubbles")]
    legend_below(figure, handles, 2, (0.56, 0.0))
    return figure


# ---- Clocks: energy over time

def clocks_figure(result: StudyResult, heading: Heading) -> Figure:
    figure, top = new_figure(heading, 4.3, 8.6)
    axes = figure.add_axes([0.1, 0.13, 0.87, top - 0.15])
    scale, unit = _time_unit(result.simulated)
    for at, (name, points) in enumerate(result.series.items()):
        style = numbered(at)
        axes.plot([point.values["step_ms"] * scale for point in points], [point.values["joules"] / 1e3 for point in points],
                  color=style.colour, marker="o", markersize=6, linewidth=1.4, label=f"a clock for each {name}", zorder=3)
        for point in points:
            axes.annotate(f"{0.0 - round(point.values['saved_percent'], 1):.1f} %", (point.values["step_ms"] * scale, point.values["joules"] / 1e3), ha="center",
                          textcoords="offset points", xytext=(0, 7 if at == 0 else -14), size=8, color=style.colour)
    first = result.simulated[0]
    top_joules = first.values["joules"] / (1 - first.values["saved_percent"] / 100) / 1e3
    axes.axhline(top_joules, color=MUTED, linewidth=1.0, linestyle="--", zorder=2)
    axes.set_ylim(0, 1.12 * top_joules)
    axes.text(axes.get_xlim()[1], top_joules, "all at the top clock ", ha="right", va="bottom", size=8.5, color=MUTED)
    axes.set_xlabel(f"time of a step ({unit})")
    axes.set_ylabel("energy of a step, all devices (kJ)")
    axes.legend(loc="lower left")
    return figure
