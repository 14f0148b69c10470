"""How verdicts look in every figure: a colour and a shape each, so that grey print tells them apart too; and the axis of ratios."""

import math
from collections import Counter
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from reports.plots.style import ALARM, INK, MUTED, PAPER, Style
from reports.units import short

VERDICTS = {"slower": Style("#d55e00", ">", "-"), "undecided": Style("#e69f00", "D", "-"), "faster": Style("#009e73", "<", "-"),
            "same": Style("#0072b2", "o", "-")}
WORDS = {"slower": ALARM, "undecided": INK, "faster": INK, "same": MUTED}  # colour of text: dark enough to read


def marks(verdict: str, size: float = 6) -> dict[str, object]:
    """Keywords of Axes.plot for a case's centre: undecided is hollow."""
    style = VERDICTS[verdict]
    return {"color": style.colour, "marker": style.marker, "markersize": size, "linestyle": "none", "markeredgewidth": 1.3,
            "markeredgecolor": style.colour, "markerfacecolor": PAPER if verdict == "undecided" else style.colour}


def legend_entry(verdict: str, label: str) -> Line2D:
    return Line2D([], [], label=label, **marks(verdict))


LARGE = 0.6  # a change from which on the axis goes by factors
_PERCENT_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
_FACTORS = (1 / 100, 1 / 50, 1 / 20, 1 / 10, 1 / 5, 1 / 2, 1, 2, 5, 10, 20, 50, 100)


def limits_of(centres: Sequence[float], bounds: Sequence[float], least: float) -> tuple[float, float]:
    """Ratios from and to. All centres are in it; bounds, where that does not squeeze what they are bounds of."""
    reach = max([least, *(abs(math.log(ratio)) for ratio in centres if ratio > 0)])
    low = [-reach, *(max(math.log(bound), -2.5 * reach) for bound in bounds if bound > 0)]
    high = [reach, *(min(math.log(bound), 2.5 * reach) for bound in bounds if bound > 0)]
    return math.exp(1.12 * min(low)), math.exp(1.12 * max(high))


def percent_axis(axes: Axes, limits: tuple[float, float], label: str, most: int = 9) -> None:
    by_factors = limits[1] > 1 + LARGE or limits[0] < 1 / (1 + LARGE)
    if by_factors:
        axes.set_xscale("log")
    axes.set_xlim(*limits)
    ticks = _factor_ticks(limits, most) if by_factors else _even_ticks(limits, most)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([tick_text(tick) for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label, size=9.5)


def tick_text(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return "0" if abs(change) < 1e-9 else f"{'+' if change > 0 else '−'}{short(abs(change), 3)}"


def _even_ticks(limits: tuple[float, float], most: int) -> list[float]:
    low, high = (100 * (limit - 1) for limit in limits)
    step = next((step for step in _PERCENT_STEPS if (high - low) / step <= most), _PERCENT_STEPS[-1])
    return [1 + k * step / 100 for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _factor_ticks(limits: tuple[float, float], most: int) -> list[float]:
    ticks = [factor for factor in _FACTORS if limits[0] <= factor <= limits[1]]
    return ticks if len(ticks) <= most else [factor for factor in ticks if round(math.log10(factor), 9).is_integer()]


# ---- Names of rows of a chart that are longer than their place: in two lines, then without their middle; never two alike

BREAKS = " /,:"  # a line may end behind these


def in_two_lines(name: str, width: int) -> str:
    """One line if it fits, else two, broken where the name has a seam; what is too long for two loses its middle."""
    if len(name) <= width:
        return name
    name = without_middle(name, 2 * width - 2)
    least = len(name) - width
    seams = [i + 1 for i, letter in enumerate(name) if letter in BREAKS and least <= i + 1 <= width]
    at = min(seams, key=lambda place: abs(place - len(name) / 2), default=min(width, len(name)))
    return f"{name[:at].rstrip()}\n{name[at:].lstrip()}"


def without_middle(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[len(name) - (width - 1 - head):]}"


def row_names(names: Sequence[str], width: int) -> list[str]:
    shown = [in_two_lines(name, width) for name in names]
    often, seen = Counter(shown), Counter()
    for i, name in enumerate(shown):
        if often[name] > 1:
            seen[name] += 1
            shown[i] = f"{name} #{seen[name]}"
    return shown
