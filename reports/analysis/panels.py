"""Groups rows into panels: rows that may share a plot. A line of a panel is a series: one algorithm, run in one way.

Lines of one panel come from one machine, one build, one basis and one emulated link; anything else is another panel.
"""
from dataclasses import dataclass, replace
from math import inf
from typing import Iterable, Optional

import numpy as np

from reports.analysis.estimate import Estimate, exact, median_of
from reports.analysis.groups import by
from reports.records import Build, Link, Machine, PlanCounts, Records, Row
from reports.units import collective_order


@dataclass(frozen=True)
class Setting:
    """Properties that the rows of a panel have in common."""

    collective: str
    ranks: int
    dtype: str
    op: str
    root: int
    basis: str
    link: Optional[Link]
    fingerprint: str
    build: Build
    devices_of: str = ""  # the described machine of simulated ranks


@dataclass(frozen=True)
class Point:
    """A series at one size; times in microseconds, the slowest rank's. time_us is the median of the samples."""

    bytes: int
    time_us: float
    p5: float
    p95: float
    p99: float
    min: float
    max: float
    ci_low: Optional[float]
    ci_high: Optional[float]
    samples: int  # 0: no samples were recorded, all times are the mean
    bus_bytes: float  # busbw times time, from which busbw at other times is computed
    plan: Optional[PlanCounts]
    is_exact: bool = False  # simulated, or a single mean that another tool printed, which is taken as it is
    plausible: bool = True  # False: its time is far beyond what its series' times at other sizes allow

    @property
    def estimate(self) -> Estimate:
        if self.is_exact or self.samples == 0:
            return exact(self.time_us)
        known = self.samples > 1 and self.ci_low is not None and self.ci_high is not None and self.plausible
        return Estimate(self.time_us, *((self.ci_low, self.ci_high) if known else (-inf, inf)), self.p5)

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
class Panel:
    setting: Setting
    machine: Machine
    rows: tuple[Row, ...]  # all rows: both placements, including wrong and failed ones
    series: tuple[Series, ...]
    in_place: bool  # placement that the series show

    @property
    def sizes(self) -> list[int]:
        return sorted({size for series in self.series for size in series.sizes})

    @property
    def oversubscribed(self) -> bool:
        return any(row.oversubscribed for row in self.rows)

    @property
    def gpus(self) -> str:
        """Text such as "NVIDIA H200, shared by the ranks"; empty where no row used a GPU."""
        runs = [row.run for row in self.rows if row.transport in ("cuda", "nccl")]
        if not runs:
            return ""
        models = self.machine.gpu_models or "GPUs of unknown model"
        shared = any(run.gpu and run.gpu.ranks_per_gpu > 1 for run in runs)
        return models + (", shared by the ranks" if shared else "")


def panels_of(records: Records) -> list[Panel]:
    panels = [_panel(setting, rows) for setting, rows in by(records.rows, _setting_of).items()]
    return sorted(panels, key=lambda panel: _order(panel.setting))


def variant_of(row: Row) -> Variant:
    return Variant(row.transport, row.executor, row.run.rank_kind)


def labels_of(rows: Iterable[Row]) -> dict[tuple[str, Variant], str]:
    """Names of the series of a panel: the algorithm, with as much of the variant as tells them apart.

    The transport is included wherever a panel has several, so that nobody mistakes MPI's numbers for shared memory's.
    """
    keys = sorted({(row.algorithm, variant_of(row)) for row in rows}, key=lambda key: (key[0], str(key[1])))
    several_transports = len({variant.transport for _, variant in keys}) > 1
    plain = {key: key[0] + (f" ({key[1].transport})" if several_transports else "") for key in keys}
    names = list(plain.values())
    return {key: name if names.count(name) == 1 else _full_label(*key) for key, name in plain.items()}


def _full_label(algorithm: str, variant: Variant) -> str:
    return f"{algorithm} ({variant.transport}, {variant.executor}, {variant.rank_kind})"


def _setting_of(row: Row) -> Setting:
    return Setting(row.collective, row.ranks, row.dtype, row.op, row.root, row.basis, row.run.link,
                   row.run.machine.fingerprint, row.run.build, row.run.simulated_machine or "")


def _order(setting: Setting) -> tuple:
    basis = ("measured", "emulated", "simulated").index(setting.basis)
    return (collective_order(setting.collective), basis, str(setting.link), setting.devices_of, setting.fingerprint,
            str(setting.build), setting.dtype, setting.op, setting.root, setting.ranks)


def _panel(setting: Setting, rows: list[Row]) -> Panel:
    timed = [row for row in rows if _is_plotted(row)]
    in_place = bool(timed) and all(row.in_place for row in timed)
    labels = labels_of(rows)
    by_series = by((row for row in timed if row.in_place == in_place), lambda row: (row.algorithm, variant_of(row)))
    series = tuple(_series(labels[key], *key, by_series[key]) for key in labels if key in by_series)
    return Panel(setting, rows[0].run.machine, tuple(rows), tuple(map(_checked, series)), in_place)


IMPLAUSIBLE = 8  # an algorithm that changes with the size, or a message that leaves a cache, takes less than this longer


def _checked(one: Series) -> Series:
    """The series with points that know whether they are plausible by its 5th percentiles at other sizes: a smaller message takes no
    longer, and a larger one no more than in proportion to its bytes. What is far beyond that waited for a core."""
    return replace(one, points=tuple(
        replace(point, plausible=point.p5 <= IMPLAUSIBLE * min(other.p5 * max(point.bytes / other.bytes, 1) for other in one.points))
        for point in one.points))


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
    bus_bytes = (first.busbw_gbps or 0.0) * (first.time_us or 0.0) * 1e3
    samples = [sample for row in rows for sample in row.samples_us]
    stats, is_exact = first.stats, first.basis == "simulated" or first.run.is_foreign and len(samples) == 1
    if stats and not samples:
        return Point(first.bytes, stats.median, stats.p5, stats.p95, stats.p99, stats.min, stats.max, stats.ci_low,
                     stats.ci_high, stats.count, bus_bytes, first.plan, is_exact)
    if not samples:
        mean = float(np.mean([row.time_us for row in rows]))
        return Point(first.bytes, mean, mean, mean, mean, mean, mean, None, None, 0, bus_bytes, first.plan, is_exact)
    median, p5, p95, p99 = np.percentile(samples, [50, 5, 95, 99]).tolist()
    interval = median_of(samples)
    if stats and len(rows) == 1:
        interval *= stats.median / max(median, 1e-9)
        median, p5, p95, p99 = stats.median, stats.p5, stats.p95, stats.p99
    return Point(first.bytes, median, p5, p95, p99, min(samples), max(samples), interval.low, interval.high, len(samples),
                 bus_bytes, first.plan, is_exact)
