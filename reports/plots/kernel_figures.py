"""The figures of kernels: the roofline, and the words and files of all figures."""
from math import atan2, ceil, cos, degrees, sin

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from reports.analysis.roofline.findings import group_of
from reports.analysis.roofline.rooflines import Case, Ceilings, plotted, range_text, Roof, Roofline, Way, way_text
from reports.plots.frame import (
    axes_grid, Box, HALO, Heading, log_axis, new_figure, place_labels, point_box, SIZE, Wanted)
from reports.plots.kernel_dots import GROUPS, legend, marks
from reports.plots.style import INK, MUTED
from reports.records import Kernel
from reports.units import flops_text, rate_text, share_text, short

# ---- The roofline: FLOP/s against FLOPs per byte, log-log, a small plot for each way of timing, all on the same axes

WIDTH = 11.4  # inches: across the page
NAMED = 5  # most points that get a name, in each small plot
Limits = tuple[tuple[float, float], tuple[float, float]]


def roofline_figure(roofline: Roofline, heading: Heading) -> Figure:
    ways = roofline.ways
    columns = 1 if len(ways) == 1 else 2 if len(ways) <= 4 else 3
    height = 3.55 if columns > 1 else 5.2
    figure, top = new_figure(heading, 1.2 + (height + 0.1) * ceil(len(ways) / columns), WIDTH)
    limits = _limits(roofline)
    grid = axes_grid(figure, top, len(ways), columns, (0.8, 0.28, 0.98), (0.63, 0.34, 0.16))
    for i, (axes, way) in enumerate(zip(grid, ways)):
        _draw(axes, roofline, way, limits)
        axes.set_ylabel("speed (FLOP/s)" if i % columns == 0 else "")
        axes.set_xlabel("arithmetic intensity (FLOP/byte)" if i + columns >= len(ways) else "")
    cases = [case for timed in roofline.timed.values() for case, kernel in timed.items() if kernel.flops]
    present = {group_of(case.kernel) for case in cases}
    legend(figure, {name: style for name, style in GROUPS.items() if name in present}, {case.dtype for case in cases}, 5)
    return figure


def speed(kernel: Kernel) -> float:
    """GFLOP/s at the median."""
    return kernel.flops / kernel.median_us / 1e3


def _limits(roofline: Roofline) -> Limits:
    """Limits of x and y, for all small plots: they contain every point, every roof and the points where roofs meet."""
    points = [kernel for timed in roofline.timed.values() for _, kernel in plotted(timed)]
    ceilings = [roofline.ceilings_for(way) for way in roofline.ways]
    peaks = [roof.high for ceiling in ceilings for roof in ceiling.compute]
    narrow = [roof.low for ceiling in ceilings for roof in ceiling.memory]
    wide = [roof.high for ceiling in ceilings for roof in ceiling.memory]
    ridges = [max(peaks) / min(narrow), min(peaks) / max(wide)] if peaks and wide else []
    x = [kernel.intensity for kernel in points] + ridges
    y = [speed(kernel) for kernel in points] + peaks
    x_low, x_high = min(x, default=0.1) / 5, max(x, default=10) * 20
    starts = [width * x_low for width in narrow]
    return (x_low, x_high), (min(y + starts, default=0.1) / 1.6, max(y, default=100) * 2.4)


def _draw(axes: Axes, roofline: Roofline, way: Way, limits: Limits) -> None:
    log_axis(axes.xaxis, *limits[0], short)
    log_axis(axes.yaxis, *limits[1], _flops)
    axes.set_title(way_text(way, roofline.device))
    points = plotted(roofline.timed[way])
    for case, kernel in points:
        axes.plot([kernel.intensity], [speed(kernel)], zorder=4,
                  **marks(GROUPS[group_of(case.kernel)], case.dtype, 5.2))
    ceilings = roofline.ceilings_for(way)
    taken = [point_box(axes, kernel.intensity, speed(kernel)) for _, kernel in points]
    taken += _roofs(axes, ceilings, way.cache == "cold", taken)
    place_labels(axes, _wanted(points), taken, _lines(axes, ceilings))


def _flops(gflops: float) -> str:
    return flops_text(gflops).replace("FLOP/s", "")


def _wanted(points: list[tuple[Case, Kernel]]) -> list[Wanted]:
    """At most NAMED kernels that get a name: the fastest, and those farthest from their limits; each kernel once."""
    if not points:
        return []
    known = sorted((pair for pair in points if pair[1].share is not None), key=lambda pair: pair[1].share)
    named: dict[str, tuple[Case, Kernel]] = {}
    for case, kernel in [max(points, key=lambda pair: speed(pair[1])), *known]:
        named.setdefault(case.kernel, (case, kernel))
    return [Wanted(_label(case, kernel), kernel.intensity, speed(kernel))
            for case, kernel in list(named.values())[:NAMED]]


def _label(case: Case, kernel: Kernel) -> str:
    share = "" if kernel.share is None else f"  {share_text(kernel.share)}"
    return f"{case.kernel} {case.dtype}{share}"


def _roofs(axes: Axes, ceilings: Ceilings, cold: bool, points: list[Box]) -> list[Box]:
    """Draws bands from the lowest to the highest rate of the ways of access, and of computing; returns the pixels that names occupy."""
    (x_low, x_high), taken = axes.get_xlim(), []
    peak = max((roof.high for roof in ceilings.compute), default=axes.get_ylim()[1])
    for roof in ceilings.memory:
        binding = roof.name == "memory" or not cold
        ends = (x_low, peak / roof.high)
        axes.fill_between(ends, [roof.low * x for x in ends], [roof.high * x for x in ends], color=MUTED,
                          alpha=0.2 if binding else 0.08, linewidth=0, zorder=1)
        axes.plot(ends, [roof.high * x for x in ends], color=INK if binding else MUTED,
                  linewidth=1.3 if binding else 0.6, zorder=1.5)
        side = -1 if roof == ceilings.memory[-1] else 1  # below the lowest, where no other line is
        taken += _slanted(axes, roof, range_text(roof, rate_text), binding, side, [*points, *taken])
    widest = max((roof.high for roof in ceilings.memory), default=None)
    for roof in ceilings.compute:
        start = roof.high / widest if widest else x_low
        axes.fill_between((start, x_high), roof.low, roof.high, color=MUTED, alpha=0.2, linewidth=0, zorder=1)
        axes.plot((start, x_high), (roof.high, roof.high), color=INK, linewidth=1.3, zorder=1.5)
        taken.append(_level(axes, x_high, roof.high, f"{roof.name}  {range_text(roof, flops_text)}"))
    return taken


def _lines(axes: Axes, ceilings: Ceilings) -> list[Box]:
    """Small boxes along the roofs: names should not lie on them if there is another place."""
    (low, high), peak = axes.get_xlim(), max((roof.high for roof in ceilings.compute), default=axes.get_ylim()[1])
    steps = [low * (high / low) ** (i / 150) for i in range(151)]
    on_roofs = [(x, roof.high * x) for roof in ceilings.memory for x in steps if roof.high * x < peak]
    on_roofs += [(x, roof.high) for roof in ceilings.compute for x in steps]
    return [point_box(axes, x, y, 1) for x, y in on_roofs]


def _level(axes: Axes, x: float, y: float, text: str) -> Box:
    label = axes.annotate(text, (x, y), xytext=(-3, 2.5), textcoords="offset points", ha="right", va="bottom",
                          size=SIZE, color=INK, gid=HALO, zorder=3)
    return Box(*label.get_window_extent().extents)


def _slanted(axes: Axes, roof: Roof, text: str, binding: bool, side: int, taken: list[Box]) -> list[Box]:
    """Draws the name along a memory roof, above or below it, as far left as it covers nothing; returns its pixels as small boxes."""
    low, high = axes.get_xlim()
    (px, py), (qx, qy) = (axes.transData.transform((at, roof.high * at)) for at in (low, high))
    angle = atan2(qy - py, qx - px)
    off = (-2.6 * side * sin(angle), 2.6 * side * cos(angle))
    label = axes.annotate(f"{roof.name}  {text}", (low, roof.high * low), xytext=off, textcoords="offset points",
                          size=SIZE, color=INK if binding else MUTED, zorder=3, gid=HALO,
                          va="bottom" if side > 0 else "top")
    size = label.get_window_extent()
    starts = [(x, roof.high * x) for x in (low * 1.3 * (high / low) ** (i / 60) for i in range(30))]
    label.xy = min(starts, key=lambda at: _meetings(_along(axes, at, size, angle, side), taken))
    label.set_rotation(degrees(angle))
    label.set_rotation_mode("anchor")
    return _along(axes, label.xy, size, angle, side)


def _meetings(boxes: list[Box], taken: list[Box]) -> int:
    return sum(box.on(other) for box in boxes for other in taken)


def _along(axes: Axes, start: tuple[float, float], size: Bbox, angle: float, side: int) -> list[Box]:
    """Small boxes under a slanted name, as wide as it is high, as the corners of larger ones would extend beyond it."""
    px, py = axes.transData.transform(start)
    half = size.height / 2
    along = [(px + d * cos(angle), py + d * sin(angle) + side * half) for d in range(0, int(size.width) + 1, 6)]
    return [Box(x - half, y - half, x + half, y + half) for x, y in along]
