"""Share of the binding ceiling: a row per kernel, a dot per shape and dtype, a column per way of timing."""
from statistics import median
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from reports.analysis.roofline.findings import NEAR
from reports.analysis.roofline.rooflines import Case, Roofline, Way, way_text
from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.dumbbells import BOUND_NAMES, BOUNDS, legend, marks, row_lines
from reports.plots.style import GRID, INK, MUTED
from reports.records import Kernel
from reports.units import share_text

WIDTH = 11.4  # inches
ROW = 0.2  # inches
MOST = 60  # rows
CUT = 1.25  # dots beyond are counted at the edge, so that the others stay distinguishable
EDGE = 1.8  # end of the axes if there are such dots
NAME = 32  # characters of a row's name
Dots = dict[str, list[tuple[Case, Kernel]]]  # by row


def shares_figure(roofline: Roofline, heading: Heading) -> Figure:
    ways = [way for way in roofline.ways if _dots(roofline, way)]
    names = rows_of(roofline)[:MOST]
    figure, top = new_figure(heading, 1.7 + ROW * max(len(names), 3), WIDTH)
    height, left, right, gap = figure.get_figheight(), 2.5 / WIDTH, 0.985, 0.018
    width = (right - left - gap * (len(ways) - 1)) / len(ways)
    bottom = 0.92 / height
    highest = max(kernel.share for way in ways for found in _dots(roofline, way).values() for _, kernel in found)
    right_end = EDGE if highest > CUT else 1.05 * max(highest, 1.0)
    for i, way in enumerate(ways):
        axes = figure.add_axes([left + i * (width + gap), bottom, width, top - bottom - 0.26 / height])
        _frame(axes, names, right_end, i == 0, _ticks(right_end, len(ways)))
        axes.set_title(way_text(way, roofline.place.device), loc="left", size=10, color=INK, pad=5, weight="bold")
        _draw(axes, names, _dots(roofline, way))
    beyond = f"; at the edge: how many are beyond {share_text(CUT)}, and the highest" if highest > CUT else ""
    figure.text((left + right) / 2, 0.46 / height,
                f"share of the ceiling that binds (%); dashed: {share_text(NEAR)}{beyond}", ha="center", size=9.5,
                color=INK)
    _legend(figure, roofline)
    return figure


def rows_of(roofline: Roofline) -> list[str]:
    """Names of kernels, farthest from the limit first: by the median share in the main way, or in all ways if the main one lacks it."""
    main = _dots(roofline, roofline.main)
    everywhere: dict[str, list[float]] = {}
    for way in roofline.ways:
        for name, found in _dots(roofline, way).items():
            everywhere.setdefault(name, []).extend(kernel.share for _, kernel in found)

    def share(name: str) -> float:
        return median(kernel.share for _, kernel in main[name]) if name in main else median(everywhere[name])
    return sorted(everywhere, key=share)


def _row_name(case: Case) -> str:
    return case.kernel + (f" ({case.implementation})" if case.implementation else "")


def _cut(name: str) -> str:
    return name if len(name) <= NAME else name[:NAME - 1] + "…"


def _dots(roofline: Roofline, way: Way) -> Dots:
    dots: Dots = {}
    for case, kernel in roofline.timed.get(way, {}).items():
        if kernel.share is not None:
            dots.setdefault(_row_name(case), []).append((case, kernel))
    return dots


def _ticks(right: float, columns: int) -> list[float]:
    """Ticks, with the limit and the share that counts as reaching it if there is room for both."""
    return [0, 0.25, 0.5, NEAR, 1] if right < EDGE and columns <= 4 else [0, 0.5, 1]


def _frame(axes: Axes, names: Sequence[str], right: float, named: bool, ticks: list[float]) -> None:
    tidy(axes)
    axes.grid(False, axis="y")
    row_lines(axes, len(names), GRID)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, right)
    axes.axvline(1, color=INK, linewidth=1.2, zorder=1)
    axes.axvline(NEAR, color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}"))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_locator(FixedLocator(range(len(names))))
    axes.set_yticklabels([_cut(name) for name in names] if named else [], size=8.6)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8.5)


def _draw(axes: Axes, names: Sequence[str], dots: Dots) -> None:
    for row, name in enumerate(names):
        shares = [kernel.share for _, kernel in dots.get(name, [])]
        if not shares:
            axes.text(0.02, row, "not timed", size=7, color=MUTED, va="center")
            continue
        ends = [min(share, CUT) for share in (min(shares), max(shares))]
        axes.plot(ends, [row, row], color=MUTED, linewidth=1.1, zorder=2)
        for case, kernel in dots[name]:
            if kernel.share <= CUT:
                axes.plot([kernel.share], [row], zorder=3, **marks(BOUNDS[kernel.bound or "launch"], case.dtype, 5))
        beyond = [share for share in shares if share > CUT]
        if beyond:
            told = f"{len(beyond)} \N{BLACK RIGHT-POINTING TRIANGLE} {share_text(max(beyond))}"
            axes.text(EDGE, row, told, ha="right", va="center", size=7.4, color=INK, zorder=5)


def _legend(figure: Figure, roofline: Roofline) -> None:
    shown = [(case, kernel) for way in roofline.ways for found in _dots(roofline, way).values()
             for case, kernel in found]
    bounds = {kernel.bound for _, kernel in shown}
    dtypes = sorted({case.dtype for case, _ in shown}, key=lambda name: (name != "f32", name))
    legend(figure, {f"bound by {BOUND_NAMES[name]}": style for name, style in BOUNDS.items() if name in bounds}, dtypes,
           0.0, 6)
