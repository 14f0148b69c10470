"""Kernels as rows of dots: one configuration against another (dumbbells), and shares of the binding ceiling."""
from statistics import median
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.analysis.groups import by, cut
from reports.analysis.roofline.counted import CountedKernels, GOAL, GPUS
from reports.analysis.roofline.findings import Comparison, NEAR, ORDER, OTHER, Pair
from reports.analysis.roofline.rooflines import Case, Roofline, Way, way_text
from reports.pages.kernels import MOST_ROWS
from reports.plots.frame import axes_grid, Heading, key, legend_below, log_axis, marked, new_figure, row_axes
from reports.plots.style import GRID, INK, MUTED, numbered, OTHERS, PAPER, Style
from reports.records import Kernel
from reports.units import share_text, short

# ---- Style of kernels in every figure: colour and marker by family or by their bound, filled or hollow by dtype

GROUPS = {name: numbered(i) if name != OTHER else Style(OTHERS, "*", "-") for i, name in enumerate(ORDER)}
BOUNDS = {"memory": numbered(0), "compute": numbered(1), "launch": numbered(2)}
BOUND_NAMES = {"memory": "memory", "compute": "arithmetic", "launch": "launch"}

_FILLS = {"f32": "full", "bf16": "none", "f16": "bottom"}  # others: the left half
_FILL_NAMES = {"full": "filled", "none": "hollow", "bottom": "lower half", "left": "left half"}


def _fill(dtype: str) -> str:
    return _FILLS.get(dtype, "left")


def marks(style: Style, dtype: str, size: float) -> dict[str, object]:
    """Keywords of Axes.plot for one point: full f32, hollow bf16, half-filled f16 and others."""
    return {"color": style.colour, "marker": style.marker, "markersize": size, "linestyle": "none",
            "fillstyle": _fill(dtype), "markerfacecoloralt": PAPER, "markeredgewidth": 1.1,
            "markeredgecolor": style.colour}


def legend(figure: Figure, styles: dict[str, Style], dtypes: set[str], columns: int) -> None:
    """Legend of colours and markers, below the axes; and of fills, where there are several."""
    entries = [(name, marks(style, "f32", 6)) for name, style in styles.items()]
    fills = by(sorted(dtypes, key=lambda name: (name != "f32", name)), _fill)
    if len(dtypes) > 1:
        entries += [(f"{', '.join(fills[fill])}: {name}", marks(Style(MUTED, "o", "-"), fills[fill][0], 6))
                    for fill, name in _FILL_NAMES.items() if fill in fills]
    handles = [Line2D([], [], label=name, **look) for name, look in entries]
    legend_below(figure, handles, columns, handletextpad=0.3, columnspacing=1.6)


def _columns(heading: Heading, names: Sequence[str], titles: Sequence[str], margins: tuple[float, float, float], gap: float,
             label: str) -> tuple[Figure, list[Axes]]:
    """Adjacent axes over the same rows, whose names are in the left margin; all x axes have this `label`."""
    left, _, bottom = margins
    figure, top = new_figure(heading, bottom + 0.79 + ROW * max(len(names), 3), WIDTH)
    columns = axes_grid(figure, top, len(titles), len(titles), margins, (gap, 0.26, 0))
    for i, (axes, title) in enumerate(zip(columns, titles)):
        row_axes(axes, names if i == 0 else [""] * len(names), 8, 0.6)
        row_lines(axes, len(names), GRID)
        axes.tick_params(axis="x", labelsize=8.5)
        axes.set_title(title)
    figure.text((left / WIDTH + 0.985) / 2, (bottom - 0.45) / figure.get_figheight(), label, ha="center", size=9.5)
    return figure, columns


def row_lines(axes: Axes, rows: int, colour: str) -> None:
    """A thin line through each row of a chart, from the name to the dot."""
    for row in range(rows):
        axes.axhline(row, color=colour, linewidth=0.6, zorder=0.4)


# Two ways of timing the same cases: a row per case, two dots and the line between them, the ratio at the edge.

WIDTH = 11.4  # inches
ROW = 0.2
NAME = 46  # characters of a row's name
_SLOW, _FAST = numbered(1), numbered(0)


def dumbbells_figure(comparisons: Sequence[Comparison], heading: Heading) -> Figure:
    """A column per comparison."""
    rows = shown_rows(comparisons)
    names = [cut(f"{case.kernel} {case.dtype} {case.shape}", NAME) for case in rows]
    figure, columns = _columns(heading, names, [comparison.name for comparison in comparisons], (3.4, 0.51, 0.86), 0.85,
                               "declared bytes over time (GB/s)")
    limits = _limits(comparisons, rows)
    for axes, comparison in zip(columns, comparisons):
        log_axis(axes.xaxis, *limits, short)
        _draw(axes, rows, {pair.case: pair for pair in comparison.pairs})
        if len(rows) < len({pair.case for comparison in comparisons for pair in comparison.pairs}):  # between largest and smallest ratios
            axes.axhline(len(rows) / 2 - 0.5, color=MUTED, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
    _legend(figure, comparisons[0].sides)
    return figure


def shown_rows(comparisons: Sequence[Comparison]) -> list[Case]:
    """Cases by the ratio of the last comparison, largest first; if there are too many, both ends."""
    cases = [pair.case for comparison in reversed(comparisons) for pair in comparison.pairs]
    cases = list(dict.fromkeys(cases))
    return cases if len(cases) <= MOST_ROWS else cases[:MOST_ROWS // 2] + cases[-MOST_ROWS // 2:]


def rate(kernel: Kernel) -> float:
    return kernel.bytes / kernel.median_us / 1e3


def _limits(comparisons: Sequence[Comparison], rows: Sequence[Case]) -> tuple[float, float]:
    shown = set(rows)
    rates = [rate(kernel) for comparison in comparisons for pair in comparison.pairs if pair.case in shown
             for kernel in (pair.slow, pair.fast) if kernel.bytes]
    return min(rates, default=1) / 1.3, max(rates, default=10) * 1.3


def _draw(axes: Axes, rows: Sequence[Case], pairs: dict[Case, Pair]) -> None:
    for row, case in enumerate(rows):
        if pair := pairs.get(case):
            slow, fast = rate(pair.slow), rate(pair.fast)
            axes.plot([slow, fast], [row, row], color=MUTED, linewidth=2, zorder=2, solid_capstyle="butt")
            axes.plot([slow], [row], **marked(_SLOW, 5.5, hollow=True), markeredgewidth=1.3, zorder=3)
            axes.plot([fast], [row], **marked(_FAST, 5.5), zorder=4)
            axes.text(1.015, row, f"{short(pair.ratio, 2)}×", transform=axes.get_yaxis_transform(), size=8, va="center")


def _legend(figure: Figure, names: tuple[str, str]) -> None:
    slow, fast = key(names[0], _SLOW, hollow=True, markeredgewidth=1.3), key(names[1], _FAST)
    ratio = Line2D([], [], linestyle="none", label=f"at the right: speed of {names[1]} over speed of {names[0]}")
    legend_below(figure, [slow, fast, ratio], 3, handletextpad=0.3, columnspacing=1.6)


# ---- Share of the binding ceiling: a row per kernel, a dot per shape and dtype, a column per way of timing

MOST_KERNELS = 60  # rows
CUT = 1.25  # dots beyond are counted at the edge, so that the others stay distinguishable
EDGE = 1.8  # end of the axes if there are such dots
NAME_LENGTH = 32  # characters of a row's name
Dots = dict[str, list[tuple[Case, Kernel]]]  # by row


def shares_figure(roofline: Roofline, heading: Heading) -> Figure:
    dots = {way: found for way in roofline.ways if (found := _dots(roofline, way))}
    shown = [dot for found in dots.values() for row in found.values() for dot in row]
    names = rows_of(roofline)[:MOST_KERNELS]
    highest = max(kernel.share for _, kernel in shown)
    end = EDGE if highest > CUT else 1.05 * max(highest, 1.0)
    beyond = f"; at the edge: how many are beyond {share_text(CUT)}, and the highest" if highest > CUT else ""
    figure, columns = _columns(heading, [cut(name, NAME_LENGTH) for name in names], [way_text(way, roofline.device) for way in dots],
                               (2.5, 0.17, 0.92), 0.2, f"share of the ceiling that binds (%); dashed: {share_text(NEAR)}{beyond}")
    # Ticks at the limit, and at the share that counts as reaching it if there is room for both.
    ticks = [0, 0.25, 0.5, NEAR, 1] if end < EDGE and len(dots) <= 4 else [0, 0.5, 1]
    for axes, found in zip(columns, dots.values()):
        axes.set_xlim(0, end)
        axes.set_xticks(ticks, [f"{100 * tick:.0f}" for tick in ticks])
        axes.axvline(1, color=INK, linewidth=1.2, zorder=1)
        axes.axvline(NEAR, color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        _draw_shares(axes, names, found)
    bounds, dtypes = {kernel.bound for _, kernel in shown}, {case.dtype for case, _ in shown}
    legend(figure, {f"bound by {BOUND_NAMES[name]}": style for name, style in BOUNDS.items() if name in bounds}, dtypes, 6)
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


def _dots(roofline: Roofline, way: Way) -> Dots:
    timed = roofline.timed.get(way, {}).items()
    return by(((case, kernel) for case, kernel in timed if kernel.share is not None),
              lambda dot: dot[0].kernel + (f" ({dot[0].implementation})" if dot[0].implementation else ""))


def _draw_shares(axes: Axes, names: Sequence[str], dots: Dots) -> None:
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
            text = f"{len(beyond)} \N{BLACK RIGHT-POINTING TRIANGLE} {share_text(max(beyond))}"
            axes.text(EDGE, row, text, ha="right", va="center", size=7.4, color=INK, zorder=5)


# ---- Kernels by their counts: a row per kernel, a dot per dtype, a column per GPU

def counted_figure(counted: CountedKernels, heading: Heading) -> Figure:
    rows = by(counted.judged, lambda case: case.label.replace(f" {case.first.dtype}", ""))
    names = list(rows)[:MOST_KERNELS]
    figure, columns = _columns(heading, [cut(name, NAME_LENGTH) for name in names], [gpu.name for gpu in GPUS], (2.5, 0.17, 0.92), 0.2,
                               f"instructions issued over those that memory allows; dashed: {GOAL}, the goal")
    excesses = [case.excess(gpu) for name in names for case in rows[name] for gpu in GPUS]
    for axes, gpu in zip(columns, GPUS):
        log_axis(axes.xaxis, min(excesses) / 1.2, max(*excesses, GOAL) * 1.2, short)
        axes.axvline(1, color=INK, linewidth=1.2, zorder=1)
        axes.axvline(GOAL, color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        for row, name in enumerate(names):
            for case in rows[name]:
                axes.plot([case.excess(gpu)], [row], zorder=3, **marks(BOUNDS["memory"], case.first.dtype, 5))
    legend(figure, {}, {case.first.dtype for cases in rows.values() for case in cases}, 6)
    return figure
