"""The records of docs/record_format.md as dataclasses: what the loader makes and everything else reads."""
from dataclasses import dataclass
from typing import Any, Optional

from reports.gate_records import GateCase, GateSeries
from reports.layer_records import Layer
from reports.run_records import Build, Link, Machine, Run, Stats, only, run_from
from reports.sharding_records import Sharding
from reports.step_records import ScheduleLine, Simulation
from reports.training_records import Scaling, Training

__all__ = ["Build", "Ceiling", "Kernel", "Link", "Machine", "PlanCounts", "Records", "Row", "Run", "ScheduleLine",
           "Simulation", "Stats", "ceiling_from", "kernel_from", "row_from", "run_from"]


@dataclass(frozen=True)
class PlanCounts:
    steps: int
    wire_bytes_max: int
    wire_bytes_total: int
    predicted_us: Optional[float]


@dataclass(frozen=True)
class Row:
    run: Run
    collective: str
    algorithm: str
    executor: str
    transport: str
    ranks: int
    bytes: int
    count: int
    dtype: str
    op: str
    root: int
    in_place: bool
    basis: str
    status: str
    error: Optional[str]
    wrong: Optional[int]
    iterations: int
    time_us: Optional[float]
    algbw_gbps: Optional[float]
    busbw_gbps: Optional[float]
    samples_us: tuple[float, ...]
    stats: Optional[Stats]
    plan: Optional[PlanCounts]

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def oversubscribed(self) -> bool:
        """A run may sweep several rank counts; its flag speaks of the largest."""
        return self.run.oversubscribed and (self.ranks == self.run.ranks or self.ranks > self.run.machine.cores)


@dataclass(frozen=True)
class Kernel:
    """One kernel, shape and dtype, timed one way. Shares and rates are those of the program, at the median."""

    run: Run
    kernel: str
    shape: str
    dtype: str
    device: str
    threads: int
    cores: tuple[int, ...]  # where each thread was seen; empty on a GPU
    cache: str
    timing: str
    implementation: Optional[str]
    basis: str
    status: str
    checked: bool
    error: Optional[str]
    flops: float
    bytes: float
    iterations: int
    time_us: Optional[float]
    samples_us: tuple[float, ...]
    stats: Optional[Stats]
    gbps: Optional[float]
    gflops: Optional[float]
    bound: Optional[str]
    ceiling_us: Optional[float]
    share: Optional[float]

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def median_us(self) -> Optional[float]:
        return self.stats.median if self.stats else self.time_us

    @property
    def intensity(self) -> float:
        """FLOP a byte, as declared; 0 for a kernel without arithmetic."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Ceiling:
    """What the machine can do; `stats` are in `unit`."""

    run: Run
    device: str
    threads: int
    name: str
    level: Optional[str]
    dtype: Optional[str]
    value: float
    unit: str
    stats: Optional[Stats]


@dataclass(frozen=True)
class Records:
    files: tuple[str, ...]
    runs: tuple[Run, ...]
    rows: tuple[Row, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    schedules: tuple[ScheduleLine, ...] = ()
    simulations: tuple[Simulation, ...] = ()
    trainings: tuple[Training, ...] = ()
    scalings: tuple[Scaling, ...] = ()
    shardings: tuple[Sharding, ...] = ()
    layers: tuple[Layer, ...] = ()
    verdicts: tuple[GateCase, ...] = ()
    histories: tuple[GateSeries, ...] = ()

    @property
    def lines(self) -> tuple:
        """All but the runs."""
        return (*self.rows, *self.kernels, *self.ceilings, *self.schedules, *self.simulations, *self.trainings,
                *self.scalings, *self.shardings, *self.layers, *self.verdicts,
                *self.histories)

    def of_collectives(self) -> "Records":
        """The rows and their runs."""
        return self._only(rows=self.rows)

    def of_kernels(self) -> "Records":
        """Kernels and ceilings, and the runs that they are of."""
        return self._only(kernels=self.kernels, ceilings=self.ceilings)

    def of_schedules(self) -> "Records":
        return self._only(schedules=tuple(line for line in self.schedules if not line.has_buckets))

    def of_buckets(self) -> "Records":
        """Real data-parallel steps."""
        return self._only(schedules=tuple(line for line in self.schedules if line.has_buckets))

    def of_simulations(self) -> "Records":
        return self._only(simulations=self.simulations)

    def of_training(self) -> "Records":
        return self._only(trainings=self.trainings)

    def of_scaling(self) -> "Records":
        return self._only(scalings=self.scalings)

    def of_sharding(self) -> "Records":
        return self._only(shardings=self.shardings)

    def of_layers(self) -> "Records":
        return self._only(layers=self.layers)

    def of_gate(self) -> "Records":
        return self._only(verdicts=self.verdicts, histories=self.histories)

    def _only(self, **kept: tuple) -> "Records":
        """Runs that left nothing at all are told once: with the first kind that there is."""
        mine = {line.run.run for lines in kept.values() for line in lines}
        used = {line.run.run for line in self.lines}
        is_first = bool(self.lines) and self.lines[0].run.run in mine
        runs = tuple(run for run in self.runs if run.run in mine or is_first and run.run not in used)
        return Records(self.files, runs, **kept)


def row_from(data: dict[str, Any], run: Run) -> Row:
    known = {name: data[name] for name in Row.__dataclass_fields__}
    known["run"] = run
    known["samples_us"] = tuple(data["samples_us"])
    known["stats"] = data["stats"] and only(Stats, data["stats"])
    known["plan"] = data["plan"] and only(PlanCounts, data["plan"])
    return Row(**known)


def kernel_from(data: dict[str, Any], run: Run) -> Kernel:
    known = {name: data[name] for name in Kernel.__dataclass_fields__}
    known["run"] = run
    known["cores"] = tuple(data["cores"])
    known["samples_us"] = tuple(data["samples_us"])
    known["stats"] = data["stats"] and only(Stats, data["stats"])
    return Kernel(**known)


def ceiling_from(data: dict[str, Any], run: Run) -> Ceiling:
    known = {name: data[name] for name in Ceiling.__dataclass_fields__}
    known["run"] = run
    known["stats"] = data["stats"] and only(Stats, data["stats"])
    return Ceiling(**known)
