"""Scaling: efficiency over ranks, three times of a step side by side, and what they differ by."""
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, NullLocator

from reports.analysis.training.scaling import KINDS, ScalingResult, differences, line_name, off, signed
from reports.plots.frame import Heading, new_figure, spread, tidy
from reports.plots.part_bars import part_colours
from reports.plots.stacked_bars import BarRow, Scale, stacked_figure
from reports.plots.style import ALARM, GRID, INK, MUTED, numbered
from reports.records import Scaling
from reports.units import short, time_text

WIDTH, HEIGHT = 11.4, 4.5  # inches
LABELS = 2.9  # inches at the right for names
_WAYS = ("data parallel", "tensor parallel", "pipeline parallel", "mixed")


def way_of(line: Scaling) -> str:
    used = [line.layout.numbers.get(name, 1) > 1 for name in ("dp", "tp", "pp")]
    return _WAYS[used.index(True)] if sum(used) == 1 else _WAYS[3]


def efficiency_figure(result: ScalingResult, heading: Heading) -> Figure:
    """A point a layout; the best of each kind at each number of ranks joined by a line."""
    figure, top = new_figure(heading, HEIGHT, WIDTH)
    height = figure.get_figheight()
    axes = figure.add_axes([0.75 / WIDTH, 0.95 / height, 1 - (0.75 + LABELS) / WIDTH, top - 1.0 / height])
    tidy(axes)
    _ranks_axis(axes, result)
    axes.set_ylabel("tokens/s per rank, over one rank's (%)")
    lines = [one for one in result.lines if one.efficiency is not None]
    for mode in result.modes:
        for way in _WAYS:
            points = [one for one in lines if one.mode == mode and way_of(one) == way and one.ranks > 1]
            _draw(axes, points, way, mode)
    _mark_cores(axes, result)
    axes.set_ylim(0, max([100.0, *(100 * one.efficiency for one in lines)]) * 1.08)
    axes.axhline(100, color=INK, linewidth=0.9, zorder=2)
    _name_points(axes, [one for one in lines if one.ranks > 1])
    _legend(figure, result)
    return figure


def _draw(axes: Axes, points: list[Scaling], way: str, mode: str) -> None:
    if not points:
        return
    style = numbered(_WAYS.index(way))
    best = {one.ranks: max(100 * other.efficiency for other in points if other.ranks == one.ranks) for one in points}
    axes.plot([1, *sorted(best)], [100, *(best[ranks] for ranks in sorted(best))], color=style.colour, linewidth=1.5,
              linestyle="-" if mode == "weak" else (0, (4, 2)), zorder=3)
    axes.plot([one.ranks for one in points], [100 * one.efficiency for one in points], linestyle="none",
              marker=style.marker, markersize=6, color=style.colour, zorder=4,
              markerfacecolor=style.colour if mode == "weak" else "none")


def _ranks_axis(axes: Axes, result: ScalingResult) -> None:
    ranks = sorted({1, *(one.ranks for one in result.lines)})
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.87, ranks[-1] * 1.15)
    axes.xaxis.set_major_locator(FixedLocator(ranks))
    axes.xaxis.set_major_formatter(FixedFormatter([str(n) for n in ranks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.set_xlabel("ranks")


def _mark_cores(axes: Axes, result: ScalingResult) -> None:
    one = result.first
    cores = one.run.machine.cores / one.threads
    if all(line.ranks <= cores for line in result.lines):
        return
    edge = cores * 1.08
    axes.axvspan(edge, axes.get_xlim()[1], color=GRID, alpha=0.6, linewidth=0, zorder=0.5)
    axes.text(edge * 1.02, 0.02, "more ranks than cores", transform=axes.get_xaxis_transform(), size=8, color=ALARM,
              va="bottom", rotation=90)


def _name_points(axes: Axes, lines: list[Scaling]) -> None:
    """At the right edge, each joined to its point."""
    low, high = axes.get_ylim()
    wanted = [(100 * one.efficiency - low) / (high - low) for one in lines]
    gap = 0.145 / (axes.get_position().height * axes.figure.get_figheight())
    for one, here, place in zip(lines, wanted, spread(wanted, gap)):
        axes.annotate(line_name(one), xy=(one.ranks, 100 * one.efficiency), xycoords="data", xytext=(1.03, place),
                      textcoords="axes fraction", size=7.6, va="center", color=INK, annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkB": 4})


def _legend(figure: Figure, result: ScalingResult) -> None:
    ways = [way for way in _WAYS if any(way_of(one) == way and one.ranks > 1 for one in result.lines)]
    handles = [Line2D([], [], color=numbered(_WAYS.index(way)).colour, marker=numbered(_WAYS.index(way)).marker,
                      label=way) for way in ways]
    if "strong" in result.modes:
        handles += [Line2D([], [], color=INK, marker="o", label="weak: work grows with the ranks"),
                    Line2D([], [], color=INK, marker="o", markerfacecolor="none", linestyle=(0, (4, 2)),
                           label="strong: work stays")]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.05, 0.0), ncol=3, frameon=False, fontsize=8.5,
                  labelcolor=INK)


def three_times_figure(result: ScalingResult, heading: Heading) -> Figure:
    rows = []
    for line in result.lines:
        for kind, meaning in KINDS.items():
            step = line.step(kind)
            if step:
                name = f"{line_name(line)}: {meaning}" if kind == next(iter(KINDS)) else meaning
                rows.append(BarRow(name, step.parts_ms, _told(line, kind), gap=kind == next(iter(KINDS))))
    return stacked_figure(rows, Scale("time of a step, mean of the ranks (ms)",
                                      colours=part_colours(row.parts for row in rows)), heading)


def _told(line: Scaling, kind: str) -> str:
    took = time_text(1e3 * line.step(kind).step_ms)
    more = off(line, kind)
    return took if kind == "measured" or more is None else f"{took}, measured {signed(100 * more)} %"


def gap_figure(result: ScalingResult, heading: Heading) -> Figure:
    rows = []
    for line in result.lines:
        for kind, name in (("isolated", "less pieces alone"), ("contended", "less contention too")):
            parts = differences(line, kind)
            if parts:
                told = f"{signed(sum(parts.values()))} ms"
                first = kind == "isolated"
                rows.append(BarRow(f"{line_name(line)}: {name}" if first else name, parts, told, gap=first))
    colours = part_colours({name: abs(value) for name, value in row.parts.items()} for row in rows)
    return stacked_figure(rows, Scale("measured less predicted, by part (ms)", colours=colours), heading)
