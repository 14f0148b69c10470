"""Records of training runs and of scaling as dataclasses."""
from dataclasses import dataclass
from typing import Any, Optional

from reports.run_records import Run, Stats, only
from reports.step_records import Timeline, timeline_from
from reports.units import counted


@dataclass(frozen=True)
class TrainingStep:
    step: int
    loss: Optional[float]  # nats a token; None: not finite
    norm: Optional[float]
    rate: float
    skipped: bool
    ms: float
    tokens_per_s: float
    mfu: float


@dataclass(frozen=True)
class Validation:
    """Nats a token; unigram and bigram are what counting reaches."""

    loss: Optional[float]
    unigram: float
    bigram: float
    curve: tuple[tuple[int, Optional[float]], ...]  # step, loss


@dataclass(frozen=True)
class Energy:
    """Of the devices that ranks were on, as a whole, in all steps but the first."""

    source: str  # "nvml", "rapl"
    devices: int
    steps: int
    seconds: float
    joules_a_step: float
    watts: float
    tokens_per_joule: float

    @property
    def of(self) -> str:
        """2 GPUs, or 1 CPU package."""
        return counted(self.devices, "GPU" if self.source == "nvml" else "CPU package")


@dataclass(frozen=True)
class Training:
    run: Run
    program: str
    basis: str
    model: dict[str, Any]  # name, parameters, numbers
    layout: dict[str, Any]  # text, numbers
    schedule: str
    dtype: str
    ranks: int
    threads: int
    data: str
    tokens_a_step: int
    flop_convention: str
    peak_flops: float
    steps: tuple[TrainingStep, ...]
    validation: Optional[Validation]
    timed_step: int
    parts_ms: dict[str, float]
    memory_bytes: dict[str, float]
    timeline: Optional[Timeline]
    energy: Optional[Energy] = None  # where nothing counted
    graph: bool = False  # the step is a CUDA graph


@dataclass(frozen=True)
class StepTime:
    """A step predicted from pieces that ran alone, from pieces beside each other, or measured."""

    kind: str  # "isolated", "contended", "measured"
    step_ms: float
    samples_ms: tuple[float, ...]
    stats: Optional[Stats]
    parts_ms: dict[str, float]
    timeline: Optional[Timeline]


@dataclass(frozen=True)
class Slowdown:
    of: str
    beside: str
    ranks: int
    factor: float
    samples: int


@dataclass(frozen=True)
class Scaling:
    """One layout's step."""

    run: Run
    program: str
    basis: str
    mode: str
    model: dict[str, Any]
    layout: dict[str, Any]
    dtype: str
    ranks: int
    threads: int
    oversubscribed: bool
    sequences_a_step: int
    tokens_a_step: int
    steps: tuple[StepTime, ...]
    slowdowns: tuple[Slowdown, ...]
    tokens_per_s: float
    efficiency: Optional[float]

    def step(self, kind: str) -> Optional[StepTime]:
        return next((one for one in self.steps if one.kind == kind), None)


def training_from(data: dict[str, Any], run: Run) -> Training:
    known = {name: data.get(name) for name in Training.__dataclass_fields__}
    known["run"] = run
    known["steps"] = tuple(only(TrainingStep, step) for step in data["steps"])
    known["validation"] = data["validation"] and _validation_from(data["validation"])
    known["timeline"] = timeline_from(data["timeline"])
    known["energy"] = only(Energy, data["energy"]) if data.get("energy") else None
    known["graph"] = bool(data.get("graph"))
    return Training(**known)


def _validation_from(data: dict[str, Any]) -> Validation:
    return only(Validation, {**data, "curve": tuple((step, loss) for step, loss in data["curve"])})


def scaling_from(data: dict[str, Any], run: Run) -> Scaling:
    known = {name: data.get(name) for name in Scaling.__dataclass_fields__}
    known["run"] = run
    known["steps"] = tuple(_step_time_from(step) for step in data["steps"])
    known["slowdowns"] = tuple(only(Slowdown, one) for one in data["slowdowns"])
    return Scaling(**known)


def _step_time_from(data: dict[str, Any]) -> StepTime:
    return StepTime(data["kind"], data["step_ms"], tuple(data["samples_ms"]),
                    data["stats"] and only(Stats, data["stats"]), data["parts_ms"], timeline_from(data["timeline"]))
