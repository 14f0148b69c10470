"""What every kind of record is of: a run, on a machine, of a build; and the statistics of samples."""
from collections import Counter
from dataclasses import dataclass
from typing import Any, Optional

from reports.units import joined


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

    @property
    def gpu_models(self) -> str:
        """NVIDIA H200, or 2 × NVIDIA H200; empty without one."""
        return joined([f"{number} × {gpu}" if number > 1 else gpu for gpu, number in Counter(self.gpus).items()])


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
class Gpu:
    """How ranks are on GPUs; the models are the machine's."""

    gpus: int
    ranks_per_gpu: int
    label: str
    clock_mhz: Optional[float]


@dataclass(frozen=True)
class GateSide:
    name: str  # as the user named it
    revision: str
    source: str  # build folder or record file, its last part


@dataclass(frozen=True)
class Compared:
    """What the regression gate compared in a run."""

    mode: str  # "ab", "compare", "exact"
    base: GateSide
    head: GateSide
    threshold: float
    confidence: float
    seconds: float
    notes: tuple[str, ...]


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
    gpu: Optional[Gpu] = None  # of ranks on GPUs
    gate: Optional[Compared] = None  # of the regression gate
    partial: bool = False  # its program was stopped, and its file says so by its name


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


def only(cls: type, data: dict[str, Any]) -> Any:
    """An object of a dataclass from a checked record; fields that we do not know are left out."""
    return cls(**{name: data[name] for name in cls.__dataclass_fields__})


def run_from(data: dict[str, Any]) -> Run:
    known = {name: data[name] for name in Run.__dataclass_fields__ if name in data}
    known["build"] = only(Build, {**data["build"], **data["git"]})
    known["machine"] = only(Machine, data["machine"])
    known["link"] = data["link"] and only(Link, data["link"])
    known["gpu"] = only(Gpu, data["gpu"]) if data.get("gpu") else None
    known["gate"] = _compared(data["gate"]) if data.get("gate") else None
    return Run(**known)


def _compared(data: dict[str, Any]) -> Compared:
    sides = {side: only(GateSide, data[side]) for side in ("base", "head")}
    return Compared(**{**only(Compared, data).__dict__, **sides, "notes": tuple(data["notes"])})
