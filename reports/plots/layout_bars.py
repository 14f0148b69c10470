"""Simulated layouts as bars, the best first: parts of the time of a step, and kinds of memory."""
from typing import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.analysis.steps.layouts import KINDS, PARTS, LayoutResult
from reports.pages.simulations import MOST_BARS
from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.style import ALARM, COMPUTE, INK, MUTED, PAPER, STRIPS
from reports.records import Simulation
from reports.units import share_text, short, time_text

WIDTH, ROW = 11.4, 0.25  # inches
TOLD = 1.9  # inches at the right for words on each bar
NAME = 55  # characters of a layout's name
GIB = 2 ** 30

_LIKE = {"forward": "F", "backward": "B", "recompute": "RECOMPUTE", "optimizer": "STEP", "exposed_tensor": "tensor",
         "exposed_pipeline": "receive", "exposed_gather": "gather", "exposed_reduce": "reduce", "exposed_copy": "copy"}
_PARTS = {**{part: {**COMPUTE, **STRIPS}[name][0] for part, name in _LIKE.items()}, "bubble": PAPER}
_KINDS = dict(zip(KINDS, ("#0072b2", "#56b4e9", "#e69f00", "#009e73", "#a0a0a0")))
_OTHER = "#4d4d4d"


def parts_figure(result: LayoutResult, heading: Heading) -> Figure:
    layouts = result.layouts[:MOST_BARS]
    known = [*PARTS, *(name for one in layouts for name in one.parts_ms if name not in PARTS)]
    names = [name for name in dict.fromkeys(known) if any(one.parts_ms.get(name) for one in layouts)]
    figure, axes = _bars(result, heading, layouts)
    shares = {id(one): 1 if result.alike else one.ranks / one.global_batch for one in layouts}
    _stack(axes, layouts, names, lambda one, name: one.parts_ms.get(name, 0.0) * shares[id(one)], _PARTS)
    longest = max(one.step_ms * shares[id(one)] for one in layouts)
    unit, scale = ("s", 1e-3) if longest >= 2000 else ("ms", 1.0)
    what = "time of a step" if result.alike else "time of all devices for a sequence"
    _value_axis(axes, longest, scale, f"{what} ({unit})")
    for row, one in enumerate(layouts):
        told = f"{time_text(1e3 * one.step_ms)}, MFU {share_text(one.mfu)}" + ("" if one.fits else ": does not fit")
        _tell(axes, row, told, one.fits)
    _legend(figure, [(PARTS.get(name, name), _PARTS.get(name, _OTHER)) for name in names])
    return figure


def memory_figure(result: LayoutResult, heading: Heading) -> Figure:
    layouts = result.layouts[:MOST_BARS]
    known = [*KINDS, *(name for one in layouts for name in one.memory_bytes if name not in (*KINDS, "total"))]
    names = [name for name in dict.fromkeys(known) if any(one.memory_bytes.get(name) for one in layouts)]
    figure, axes = _bars(result, heading, layouts)
    capacity = layouts[0].capacity_bytes
    most = max(one.memory_bytes["total"] for one in layouts)
    end = max(min(most, 1.8 * capacity), 1.05 * capacity)  # bars that are far too large are cut off: a triangle
    _stack(axes, layouts, names, lambda one, name: one.memory_bytes.get(name, 0.0), _KINDS)
    _value_axis(axes, end, 1 / GIB, "memory of the device that needs most (GiB)")
    axes.axvline(capacity, color=ALARM, linewidth=1.4, zorder=4)
    for row, one in enumerate(layouts):
        total = one.memory_bytes["total"]
        beyond = "\N{BLACK RIGHT-POINTING TRIANGLE} " if total > end else ""
        _tell(axes, row, f"{beyond}{short(total / GIB)} GiB" + ("" if one.fits else ": does not fit"), one.fits)
    line = Line2D([], [], color=ALARM, linewidth=1.4, label=f"a device has {short(capacity / GIB)} GiB")
    _legend(figure, [(name, _KINDS.get(name, _OTHER)) for name in names], line)
    return figure


def _bars(result: LayoutResult, heading: Heading, layouts: Sequence[Simulation]) -> tuple[Figure, Axes]:
    figure, top = new_figure(heading, 1.75 + ROW * max(len(layouts), 3), WIDTH)
    height, left = figure.get_figheight(), 3.95 / WIDTH
    axes = figure.add_axes([left, 0.98 / height, 1 - left - TOLD / WIDTH, top - 1.1 / height])
    tidy(axes)
    axes.grid(False, axis="y")
    axes.set_ylim(len(layouts) - 0.45, -0.55)
    axes.set_yticks(range(len(layouts)), [_cut(result.name_of(one)) for one in layouts], size=8.2)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def _cut(text: str) -> str:
    return text if len(text) <= NAME else text[:NAME - 1] + "…"


def _stack(axes: Axes, layouts: Sequence[Simulation], names: Sequence[str],
           value: Callable[[Simulation, str], float], colours: dict[str, str]) -> None:
    start = [0.0] * len(layouts)
    for name in names:
        widths = [value(one, name) for one in layouts]
        colour = colours.get(name, _OTHER)
        axes.barh(range(len(layouts)), widths, left=start, height=0.72, color=colour, zorder=2,
                  edgecolor=MUTED if colour == PAPER else PAPER, linewidth=0.5)
        start = [at + width for at, width in zip(start, widths)]


def _value_axis(axes: Axes, end: float, scale: float, label: str) -> None:
    axes.set_xlim(0, 1.01 * end)
    axes.xaxis.set_major_locator(_Scaled(scale))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value * scale, 4)))
    axes.set_xlabel(label, size=9.5)


class _Scaled(MaxNLocator):
    """Round numbers of the unit that is shown."""

    def __init__(self, scale: float) -> None:
        super().__init__(10)
        self._scale = scale

    def tick_values(self, vmin: float, vmax: float):
        return super().tick_values(vmin * self._scale, vmax * self._scale) / self._scale


def _tell(axes: Axes, row: int, text: str, fits: bool) -> None:
    axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), size=8, va="center", color=INK if fits else ALARM)


def _legend(figure: Figure, entries: Sequence[tuple[str, str]], *more: Line2D) -> None:
    handles = [Patch(facecolor=colour, edgecolor=MUTED if colour == PAPER else colour, linewidth=0.5, label=name)
               for name, colour in entries]
    handles += more
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncol=min(len(handles), 4),
                  frameon=False, fontsize=8.5, handlelength=1.4, handleheight=1.0, columnspacing=1.6, labelcolor=INK)
