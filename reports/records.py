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
    """Of the samples, in microseconds; ci is a 95 % bootstrap interval of the median."""

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
class Records:
    files: tuple[str, ...]
    runs: tuple[Run, ...]
    rows: tuple[Row, ...]


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
