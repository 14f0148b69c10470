"""Memory over time of a step: a line per rank, or where there are many the span of all and the extremes."""
from bisect import bisect_right
from typing import Sequence

import matplotlib
from matplotlib.axes import Axes

from reports.plots.frame import tidy
from reports.plots.style import GRID, INK, MUTED
from reports.records import Memory, Points
from reports.units import bytes_text, short

MOST = 8  # ranks with a line of their own
UNITS = {"bytes": 2 ** 30}


def memory_axes(axes: Axes, memory: Memory, basis: str, end: float) -> None:
    tidy(axes)
    scale = UNITS.get(memory.unit, 1)
    totals = [total_of(kinds.values()) for kinds in memory.of_rank]
    peaks = [max((value for _, value in points), default=0) for points in totals]
    shown = _shown(peaks)
    if len(shown) < len(totals):
        _band(axes, totals, scale)
    for rank in shown:
        colour = matplotlib.colormaps["viridis"](0.25 + 0.6 * rank / max(len(totals) - 1, 1))
        at, values = _steps(totals[rank], end)
        axes.step(at, [value / scale for value in values], where="post", color=colour, linewidth=1.4, zorder=3,
                  label=f"rank {rank}")
    axes.set_ylim(0, max(max(peaks) / scale * 1.4, 1e-9))
    axes.set_ylabel("GiB" if memory.unit == "bytes" else "microbatches", size=9)
    what = "Memory" if memory.unit == "bytes" else "Activations held"
    axes.set_title(f"{what} over time ({basis}): at most {peak_text(memory, max(peaks))}, on rank "
                   f"{peaks.index(max(peaks))}", loc="left", size=9.5, weight="bold", pad=4, color=INK)
    axes.tick_params(axis="y", labelsize=8)
    axes.legend(loc="upper right", ncol=len(shown) + 1, fontsize=7.5, frameon=True, facecolor=axes.get_facecolor(),
                edgecolor=GRID, framealpha=0.85, handlelength=1.4, columnspacing=1.0, labelcolor=INK, borderpad=0.25)


def peak_text(memory: Memory, value: float) -> str:
    return bytes_text(value, 3) if memory.unit == "bytes" else f"those of {short(value)} microbatches"


def total_of(kinds: Sequence[Points]) -> list[tuple[float, float]]:
    """The sum of several steps."""
    changes: dict[float, float] = {}
    for points in kinds:
        before = 0.0
        for at, value in points:
            changes[at] = changes.get(at, 0.0) + value - before
            before = value
    total, points = 0.0, []
    for at in sorted(changes):
        total += changes[at]
        points.append((at, total))
    return points


def _shown(peaks: Sequence[float]) -> list[int]:
    """All of a few; else the first, the last and the one with the highest peak."""
    if len(peaks) <= MOST:
        return list(range(len(peaks)))
    return sorted({0, len(peaks) - 1, peaks.index(max(peaks))})


def _steps(points: Sequence[tuple[float, float]], end: float) -> tuple[list[float], list[float]]:
    at, values = [0.0], [0.0]
    for time, value in [*points, (end, points[-1][1] if points else 0.0)]:
        at.append(time)
        values.append(value)
    return at, values


def _band(axes: Axes, totals: Sequence[Sequence[tuple[float, float]]], scale: float) -> None:
    times = sorted({at for points in totals for at, _ in points})
    times = times[::max(1, len(times) // 1500)]
    moments = [[at for at, _ in points] for points in totals]
    low, high = [], []
    for time in times:
        held = [points[i - 1][1] if (i := bisect_right(at, time)) else 0.0 for points, at in zip(totals, moments)]
        low.append(min(held) / scale)
        high.append(max(held) / scale)
    axes.fill_between(times, low, high, step="post", color=MUTED, alpha=0.2, linewidth=0, zorder=1, label="all ranks")
