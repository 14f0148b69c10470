"""Bars of stacked parts, a row per case, with words at the right end of each."""
from dataclasses import dataclass
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.style import INK, MUTED, PAPER
from reports.units import short

WIDTH, ROW = 11.4, 0.25  # inches
CHARACTER = 0.069  # inches of a name
HEAD, FOOT = 0.3, 1.0  # inches: above the axes, and below them for their label and the legend
COLUMNS = 4  # columns of the legend
OTHER = "#4d4d4d"


@dataclass(frozen=True)
class BarRow:
    name: str
    parts: dict[str, float]  # negative ones go to the left
    told: str  # at its right
    gap: bool = False  # room above: another case begins


@dataclass(frozen=True)
class Scale:
    label: str
    factor: float = 1.0  # applied to the values, as they are shown
    colours: tuple[tuple[str, str, str], ...] = ()  # part, its name, its colour; in the order of the stack


def stacked_figure(rows: Sequence[BarRow], scale: Scale, heading: Heading) -> Figure:
    places, at = [], 0.0
    for row in rows:
        at += 1.6 if row.gap and places else 1.0 if places else 0.0
        places.append(at)
    legend = 0.2 * -(-len(scale.colours) // COLUMNS)
    figure, top = new_figure(heading, HEAD + FOOT + legend + ROW * max(at + 1, 2), WIDTH)
    height = figure.get_figheight()
    left = (0.25 + CHARACTER * max(len(row.name) for row in rows)) / WIDTH
    right = (0.2 + CHARACTER * max(len(row.told) for row in rows)) / WIDTH
    bottom = (0.62 + legend) / height
    axes = figure.add_axes([left, bottom, 1 - left - right, top - bottom - 0.1 / height])
    _rows(axes, rows, places)
    _stack(axes, rows, places, scale)
    _axis(axes, scale)
    handles = [Patch(facecolor=colour, edgecolor=MUTED if colour == PAPER else colour, linewidth=0.5, label=name)
               for _, name, colour in scale.colours]
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncol=min(len(handles), COLUMNS),
                  frameon=False, fontsize=8.5, handlelength=1.4, handleheight=1.0, columnspacing=1.6, labelcolor=INK)
    return figure


def _rows(axes: Axes, rows: Sequence[BarRow], places: Sequence[float]) -> None:
    tidy(axes)
    axes.grid(False, axis="y")
    axes.set_ylim(places[-1] + 0.55, -0.55)
    axes.set_yticks(places, [row.name for row in rows], size=8.2)
    axes.tick_params(axis="y", length=0)
    for row, place in zip(rows, places):
        axes.text(1.01, place, row.told, transform=axes.get_yaxis_transform(), size=8, va="center", color=INK)


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
