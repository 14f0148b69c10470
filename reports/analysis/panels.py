"""Groups rows into panels: rows that may share a plot. A line of a panel is a series: one algorithm, run in one way.

Lines of one panel come from one machine, one build, one basis and one emulated link; anything else is another panel.
"""
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Iterable, Optional

import numpy as np

from reports.analysis.estimate import Estimate, exact, median_of, of_stats
from reports.analysis.groups import basis_order, by, Group, listed
from reports.records import PlanCounts, Row, Stats
from reports.units import collective_name, collective_order


@dataclass(frozen=True)
class Point:
    """A series at one size."""

    bytes: int
    stats: Stats  # times in µs, the slowest rank's; a count of 0: no samples were recorded, and all are the mean
    bus_bytes: float  # busbw times time, from which busbw at other times is computed
    plan: Optional[PlanCounts]
    is_exact: bool = False  # simulated, or a single mean that another tool printed, which is taken as it is
    plausible: bool = True  # False: its time is far beyond what its series' times at other sizes allow

    @property
    def time_us(self) -> float:
        return self.stats.median

    @property
    def estimate(self) -> Estimate:
        if self.is_exact or self.stats.count == 0:
            return exact(self.time_us)
        return of_stats(self.stats if self.plausible else replace(self.stats, ci_low=None))

    def busbw_gbps(self, time_us: float) -> float:
        return self.bus_bytes / time_us / 1e3


@dataclass(frozen=True)
class Variant:
    """How an algorithm was run."""

    transport: str
    executor: str
    rank_kind: str


@dataclass(frozen=True)
class Series:
    label: str  # unique in its panel
    algorithm: str
    variant: Variant
    points: tuple[Point, ...]  # by size; sizes and times are above 0
    pooled: int = 0  # sizes at which several rows were merged

    def at(self, size: int) -> Optional[Point]:
        return next((point for point in self.points if point.bytes == size), None)

    @property
    def sizes(self) -> list[int]:
        return [point.bytes for point in self.points]


@dataclass(frozen=True)
class Panel(Group):
    """`lines`: all rows, of both placements, including wrong and failed ones."""

    @property
    def title(self) -> str:
        """Words such as "All-reduce, float sum": what was run, whatever the number of ranks."""
        return f"{collective_name(self.first.collective)}, {self.dtype}"

    @property
    def dtype(self) -> str:
        """The dtype with the reduction, if there is one: "float sum"."""
        return self.first.dtype + ("" if self.first.op in ("none", "") else f" {self.first.op}")

    @property
    def in_place(self) -> bool:
        """Placement that the series show."""
        return bool(self._timed) and all(row.in_place for row in self._timed)

    @cached_property
    def _timed(self) -> list[Row]:
        return [row for row in self.lines if _is_plotted(row)]

    @cached_property
    def series(self) -> tuple[Series, ...]:
        shown = by((row for row in self._timed if row.in_place == self.in_place),
                   lambda row: (row.algorithm, variant_of(row)))
        labels = labels_of(self.lines)
        return tuple(_checked(_series(labels[key], *key, shown[key])) for key in labels if key in shown)

    @property
    def sizes(self) -> list[int]:
        return sorted({size for series in self.series for size in series.sizes})

    @property
    def oversubscribed(self) -> bool:
        return any(row.oversubscribed for row in self.lines)

    @property
    def gpus(self) -> str:
        """Text such as "NVIDIA H200, shared by the ranks"; empty where no row used a GPU."""
        runs = [row.run for row in self.lines if row.transport in ("cuda", "nccl")]
        if not runs:
            return ""
        shared = any(run.gpu and run.gpu.ranks_per_gpu > 1 for run in runs)
        return listed(runs[0].machine.gpu_models or "GPUs of unknown model", "shared by the ranks" if shared else "")


def rows_by_panel(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows that may share a plot, in the order in which they are shown."""
    return sorted(by(rows, setting_of).values(), key=lambda rows: _order(rows[0]))


def variant_of(row: Row) -> Variant:
    return Variant(row.transport, row.executor, row.run.rank_kind)


def labels_of(rows: Iterable[Row]) -> dict[tuple[str, Variant], str]:
    """Names of the series of a panel: the algorithm, with as much of the variant as distinguishes them.

    The transport is included wherever a panel has several, so that nobody mistakes MPI's numbers for shared memory's.
    """
    keys = sorted({(row.algorithm, variant_of(row)) for row in rows}, key=lambda key: (key[0], str(key[1])))
    several_transports = len({variant.transport for _, variant in keys}) > 1
    plain = {key: key[0] + (f" ({key[1].transport})" if several_transports else "") for key in keys}
    names = list(plain.values())
    return {key: name if names.count(name) == 1 else _full_label(*key) for key, name in plain.items()}


def _full_label(algorithm: str, variant: Variant) -> str:
    return f"{algorithm} ({variant.transport}, {variant.executor}, {variant.rank_kind})"


def setting_of(row: Row) -> tuple:
    """Properties that the rows of a panel have in common."""
    return row.collective, row.ranks, row.dtype, row.op, row.root, where_of(row)


def where_of(row: Row) -> tuple:
    """Machine, links and build, whatever was run there."""
    return row.basis, row.run.link, row.run.simulated_machine, row.run.machine.fingerprint, row.run.build


def _order(row: Row) -> tuple:
    run = row.run
    return (collective_order(row.collective), basis_order(row.basis), str(run.link), run.simulated_machine or "",
            run.machine.fingerprint, str(run.build), row.dtype, row.op, row.root, row.ranks)


IMPLAUSIBLE = 8  # an algorithm that changes with the size, or a message that leaves a cache, takes less than this longer


def _checked(series: Series) -> Series:
    """The series with points that know whether they are plausible by its 5th percentiles at other sizes: a smaller message takes no
    longer, and a larger one no more than in proportion to its bytes. What is far beyond that waited for a core."""
    def allowed(point: Point) -> float:
        return IMPLAUSIBLE * min(other.stats.p5 * max(point.bytes / other.bytes, 1) for other in series.points)
    return replace(series, points=tuple(replace(point, plausible=point.stats.p5 <= allowed(point)) for point in series.points))


def _is_plotted(row: Row) -> bool:
    """Logarithmic axes and ratios cannot contain 0; such rows are in the tables only."""
    time = row.stats.median if row.stats else row.time_us
    return row.ok and row.bytes > 0 and time is not None and time > 0


def _series(label: str, algorithm: str, variant: Variant, rows: list[Row]) -> Series:
    by_size = by(rows, lambda row: row.bytes)
    points = tuple(point_of(by_size[size]) for size in sorted(by_size))
    pooled = sum(len(same) > 1 for same in by_size.values())
    return Series(label, algorithm, variant, points, pooled)


def point_of(rows: list[Row]) -> Point:
    """Rows of one series and size as a point; several rows have their samples pooled."""
    first = rows[0]
    samples = [sample for row in rows for sample in row.samples_us]
    is_exact = first.basis == "simulated" or first.run.is_foreign and len(samples) == 1
    return Point(first.bytes, _stats_of(first.stats if len(rows) == 1 or not samples else None, samples, rows),
                 (first.busbw_gbps or 0.0) * (first.time_us or 0.0) * 1e3, first.plan, is_exact)


def _stats_of(known: Optional[Stats], samples: list[float], rows: list[Row]) -> Stats:
    """The record's statistics, with the interval of its samples as estimate.py computes it."""
    if not samples:
        return known or Stats(0, *[float(np.mean([row.time_us for row in rows]))] * 7, None, None)
    interval = median_of(samples)
    if known:
        interval *= known.median / max(interval.value, 1e-9)
        return replace(known, count=len(samples), ci_low=interval.low, ci_high=interval.high)
    p5, p95, p99 = np.percentile(samples, [5, 95, 99]).tolist()
    return Stats(len(samples), interval.value, float(np.mean(samples)), min(samples), max(samples), p5, p95, p99,
                 interval.low, interval.high)
