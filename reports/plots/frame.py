"""The frame that all figures share: a title, a line below it on what was run, axes in bytes, labels."""
import textwrap
from dataclasses import dataclass
from typing import Callable, Optional, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from reports.plots.style import ALARM, GRID, INK, MUTED, OTHERS, Style
from reports.units import bytes_text, counted

WIDTH, HEIGHT = 7.4, 4.5  # inches
_LINE = 0.2  # inches a line of the title takes
_SMALL_LINE = 0.15  # and one of the line below it, where that is too long for one
_DOT = "  ·  "  # between the parts of that line
LABEL_LENGTH = 24


@dataclass(frozen=True)
class Heading:
    title: str
    subtitle: str
    badge: str  # "EMULATED ..."; empty for what was measured


def new_figure(heading: Heading, height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, float]:
    """The figure, and the height in figure coordinates below which axes may lie."""
    lines, below_them = textwrap.wrap(heading.title, int(10 * width)), _wrapped(heading.subtitle, int(15.5 * width))
    more = _SMALL_LINE * (len(below_them) - 1)
    head = _LINE * len(lines) + more + (0.46 if not heading.badge else 0.72)
    total = height + _LINE * len(lines) + more
    figure = Figure(figsize=(width, total))
    left = 0.11 / width
    figure.text(left, 1 - 0.12 / total, "\n".join(lines), va="top", weight="bold", size=11, color=INK, linespacing=1.15)
    below = 1 - (0.2 + _LINE * len(lines)) / total
    figure.text(left, below, "\n".join(below_them), va="top", size=8.5, color=MUTED)
    if heading.badge:
        figure.text(left + 0.02 / width, below - (0.24 + more) / total, heading.badge, va="top", size=8, weight="bold",
                    color=ALARM,
                    bbox={"boxstyle": "round,pad=0.25", "facecolor": "none", "edgecolor": ALARM, "linewidth": 0.9})
    return figure, 1 - head / total


def _wrapped(subtitle: str, columns: int) -> list[str]:
    """Lines of whole parts, each as long as goes in; one at least."""
    lines = [""]
    for part in subtitle.split(_DOT):
        if lines[-1] and len(lines[-1] + _DOT + part) > columns:
            lines.append(part)
        else:
            lines[-1] += (_DOT if lines[-1] else "") + part
    return lines


def line_axes(heading: Heading, labels: Sequence[str]) -> tuple[Figure, Axes]:
    """One pair of axes with room for the labels at its right."""
    figure, top = new_figure(heading)
    longest = max((len(shortened(label)) for label in labels), default=0)
    right = 1 - min(0.05 + 0.0105 * longest, 0.33)
    axes = figure.add_axes([0.115, 0.115, right - 0.115, top - 0.115])
    tidy(axes)
    return figure, axes


def tidy(axes: Axes) -> None:
    axes.grid(True, which="major", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=3, which="both")


def shortened(label: str) -> str:
    return label if len(label) <= LABEL_LENGTH else label[:LABEL_LENGTH - 1] + "…"


def bytes_axis(axes: Axes, sizes: Sequence[int], most: int = 9) -> None:
    """A log axis with powers of two as ticks, at most `most` of them."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    low, high = int(np.ceil(np.log2(sizes[0]))), int(np.floor(np.log2(sizes[-1])))
    step = max(1, -(-(high - low + 1) // most))
    ticks = [2 ** k for k in range(low, high + 1, step)] or list(sizes)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([bytes_text(tick) for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())


def value_axis(axes: Axes, low: float, high: float, text: Callable[[float], str]) -> None:
    """A log axis; within two decades it gets ticks at 1, 2 and 5."""
    axes.set_yscale("log")
    axes.set_ylim(low / 1.15, high * 1.15)
    close = high / low < 150
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if close else (1,), numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axes.yaxis.set_minor_locator(LogLocator(base=10, subs=range(1, 10), numticks=50))
    axes.yaxis.set_minor_formatter(NullFormatter())


@dataclass(frozen=True)
class End:
    """The last point of a line, which gets a label."""

    label: str
    x: float
    y: float
    style: Style


def label_ends(axes: Axes, ends: Sequence[End], others: int = 0) -> None:
    """Names at the right edge, pushed apart where the lines end close together; a thin leader joins name and line."""
    if not ends:
        return
    to_axes = axes.transAxes.inverted()
    heights = [to_axes.transform(axes.transData.transform((end.x, end.y)))[1] for end in ends]
    gap = 0.16 / (axes.get_position().height * axes.figure.get_figheight())
    for end, here, place in zip(ends, heights, spread(heights, gap)):
        colour = end.style.colour
        axes.plot([1.012, 1.03], [here, place], transform=axes.transAxes, color=colour, linewidth=0.7, clip_on=False)
        axes.plot([1.043], [place], marker=end.style.marker, markersize=5, transform=axes.transAxes, color=colour,
                  clip_on=False)
        axes.text(1.06, place, shortened(end.label), transform=axes.transAxes, va="center", size=8.8, color=INK)
    if others:
        axes.figure.text(0.985, 0.015, f"grey: {counted(others, 'other algorithm')}", size=8, color=MUTED, ha="right",
                         va="bottom")


def spread(places: Sequence[float], gap: float, low: float = 0.0, high: float = 1.0) -> list[float]:
    """The places, moved as little as needed to lie at least `gap` apart, in the same order, within [low, high]."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    gap = min(gap, (high - low) / max(len(places) - 1, 1))
    groups: list[list[float]] = []  # [centre, members]: neighbours that touch move as one
    for i in order:
        groups.append([min(max(places[i], low), high), 1])
        while len(groups) > 1 and _touch(groups[-2], groups[-1], gap):
            centre, members = groups.pop()
            before, count = groups.pop()
            merged = (before * count + centre * members) / (count + members)
            half = gap * (count + members - 1) / 2
            groups.append([min(max(merged, low + half), high - half), count + members])
    moved = [centre + gap * (k - (count - 1) / 2) for centre, count in groups for k in range(int(count))]
    result = [0.0] * len(places)
    for i, place in zip(order, moved):
        result[i] = place
    return result


def _touch(lower: list[float], upper: list[float], gap: float) -> bool:
    return upper[0] - lower[0] < gap * (lower[1] + upper[1]) / 2 - 1e-12


def draw_line(axes: Axes, x: Sequence[float], y: Sequence[float], style: Optional[Style]) -> None:
    """A series with its style; without one, in grey behind the others."""
    if style is None:
        axes.plot(x, y, color=OTHERS, linewidth=1.0, zorder=1.5)
        return
    axes.plot(x, y, color=style.colour, linestyle=style.dash, marker=style.marker, markersize=4.4, linewidth=1.7,
              markeredgewidth=0, zorder=3)
