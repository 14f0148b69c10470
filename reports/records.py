"""The records of docs/record_format.md as dataclasses: what the loader makes and everything else reads."""
from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Machine:
    fingerprint: str
    cpu: Optional[str]
    cores: int
    memory_bytes: Optional[int]
    kernel: Optional[str]
    caches: Optional[dict[str, Optional[int]]]
    mhz: Optional[float]
    gpus: list[str]
    hosts: int


@dataclass(frozen=True)
class Build:
    """What was built: lines of one plot come from one build."""

    revision: str
    dirty: Optional[bool]
    compiler: Optional[str]
    flags: Optional[str]
    type: Optional[str]

    @property
    def short_revision(self) -> str:
        return self.revision[:10] + (" with uncommitted changes" if self.dirty else "")


@dataclass(frozen=True)
class Link:
    """An emulated link."""

    latency_us: Optional[float]
    gbps: Optional[float]


@dataclass(frozen=True)
class Run:
    run: str
    program: str
    command: list[str]
    started: str
    build: Build
    machine: Machine
    libraries: dict[str, str]
    ranks: int
    transport: str
    rank_kind: str
    oversubscribed: bool
    seed: Optional[int]
    link: Optional[Link]
    basis: str


@dataclass(frozen=True)
class Stats:
    """Of the samples, in their unit; ci is a 95 % bootstrap interval of the median."""

    count: int
    median: float
    mean: float
    min: float
    max: float
    p5: float
    p95: float
    p99: float
    ci_low: Optional[float]
    ci_high: Optional[float]


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

    def of_collectives(self) -> "Records":
        """The rows and their runs."""
        return Records(self.files, self._runs_of(self.rows, bool(self.rows)), rows=self.rows)

    def of_kernels(self) -> "Records":
        """Kernels and ceilings, and the runs that they are of."""
        lines = (*self.kernels, *self.ceilings)
        return Records(self.files, self._runs_of(lines, not self.rows), kernels=self.kernels, ceilings=self.ceilings)

    def _runs_of(self, lines: tuple, empty_too: bool) -> tuple[Run, ...]:
        """Runs that left nothing at all are told once: with the rows, if there are any."""
        mine = {line.run.run for line in lines}
        used = {line.run.run for line in (*self.rows, *self.kernels, *self.ceilings)}
        return tuple(run for run in self.runs if run.run in mine or empty_too and run.run not in used)


def _only(cls: type, data: dict[str, Any]) -> Any:
    """An object of a dataclass from a checked record; fields that we do not know are left out."""
    return cls(**{name: data[name] for name in cls.__dataclass_fields__})


def run_from(data: dict[str, Any]) -> Run:
    known = {name: data[name] for name in Run.__dataclass_fields__ if name in data}
    known["build"] = _only(Build, {**data["build"], **data["git"]})
    known["machine"] = _only(Machine, data["machine"])
    known["link"] = data["link"] and _only(Link, data["link"])
    return Run(**known)


def row_from(data: dict[str, Any], run: Run) -> Row:
    known = {name: data[name] for name in Row.__dataclass_fields__}
    known["run"] = run
    known["samples_us"] = tuple(data["samples_us"])
    known["stats"] = data["stats"] and _only(Stats, data["stats"])
    known["plan"] = data["plan"] and _only(PlanCounts, data["plan"])
    return Row(**known)


def kernel_from(data: dict[str, Any], run: Run) -> Kernel:
    known = {name: data[name] for name in Kernel.__dataclass_fields__}
    known["run"] = run
    known["cores"] = tuple(data["cores"])
    known["samples_us"] = tuple(data["samples_us"])
    known["stats"] = data["stats"] and _only(Stats, data["stats"])
    return Kernel(**known)


def ceiling_from(data: dict[str, Any], run: Run) -> Ceiling:
    known = {name: data[name] for name in Ceiling.__dataclass_fields__}
    known["run"] = run
    known["stats"] = data["stats"] and _only(Stats, data["stats"])
    return Ceiling(**known)
