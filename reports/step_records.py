"""Records of training steps as dataclasses: schedules that were played, emulated or run, and simulated layouts."""
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from reports.run_records import Run, Stats, only


class Task(NamedTuple):
    """-1: of no stage, of no microbatch, of the whole stage. Times are ms from the start of the step."""

    lane: str
    op: str
    stage: int
    microbatch: int
    part: int
    start: float
    end: float


Timeline = tuple[tuple[Task, ...], ...]  # a rank's tasks, in the order in which they were issued
Points = tuple[tuple[float, float], ...]  # ms, value: kept until the next


@dataclass(frozen=True)
class Memory:
    unit: str
    of_rank: tuple[dict[str, Points], ...]  # by kind


@dataclass(frozen=True)
class Times:
    """ms, of a rank's whole share of the model."""

    forward: float
    input_gradient: float
    weight_gradient: float
    message: float


@dataclass(frozen=True)
class Bubbles:
    of_ideal: float
    of_makespan: float
    of_own_span: float
    own_of_ideal: float


@dataclass(frozen=True)
class Peaks:
    """A number a rank, in activations of one microbatch of the rank's share of the model."""

    until_w: tuple[float, ...]
    until_b: tuple[float, ...]


@dataclass(frozen=True)
class ClosedForm:
    cost: float
    of: str


@dataclass(frozen=True)
class Reductions:
    """Gradients of a real step on their way, bucket by bucket."""

    compression: str
    backward_ms: float
    one_by_one_ms: float
    exposed_ms: float
    exposed_samples_ms: tuple[float, ...]
    sent_bytes: float
    formula_bytes: float
    wrong: int
    status: str


@dataclass(frozen=True)
class Overlap:
    """Gradients or parameters that travel beside the computation."""

    layers: int
    bytes_a_layer: int
    replicas: int
    bucket_cap_bytes: int
    zero_stage: int
    prefetch: int
    algorithm: str
    collectives: int
    compute_alone_ms: float
    communication_alone_ms: float
    efficiency: float
    reductions: Optional[Reductions]  # of a real step; None where it was emulated


@dataclass(frozen=True)
class ScheduleLine:
    run: Run
    program: str
    schedule: str
    source: Optional[str]
    ranks: int
    microbatches: int
    chunks: int
    pipes: int
    basis: str
    times_ms: Optional[Times]
    memory_limit: Optional[float]
    w_memory: Optional[float]
    bound_ms: Optional[float]
    makespan_ms: float
    own_span_ms: float
    own_span_ms_of_rank: tuple[float, ...]
    work_ms: float
    bubbles: Bubbles
    peak_activations: Peaks
    sends: tuple[int, ...]
    weight_versions: Optional[tuple[int, ...]]
    hangs: dict[str, Optional[str]]
    closed_form_ms: Optional[ClosedForm]
    exposed_ms: tuple[float, ...]
    samples_ms: tuple[float, ...]
    stats: Optional[Stats]
    late_us: Optional[float]
    simulated_ms: Optional[float]
    timeline: Optional[Timeline]
    memory: Optional[Memory]
    overlap: Optional[Overlap]

    @property
    def peak(self) -> float:
        return max(self.peak_activations.until_w, default=0)

    @property
    def has_buckets(self) -> bool:
        """Of a real step, whose gradients travel in buckets."""
        return self.overlap is not None and self.overlap.reductions is not None


@dataclass(frozen=True)
class Simulation:
    """One step of a model in one layout on one machine."""

    run: Run
    program: str
    basis: str
    model: dict[str, Any]  # name, parameters, numbers
    layout: dict[str, Any]  # text, numbers
    schedule: str
    machine: str
    ranks: int
    global_batch: int
    step_ms: float
    parts_ms: dict[str, float]
    bubbles: Bubbles
    mfu: float
    hfu: float
    flop_convention: str
    model_tflops_a_gpu: float
    tokens_per_s: float
    memory_bytes: dict[str, float]
    capacity_bytes: float
    fits: bool
    events: int
    wall_s: float
    timeline: Optional[Timeline]
    memory: Optional[Memory]
    sent_bytes: Optional[dict[str, float]] = None  # in a step: messages between stages, and collectives by kind of group

    @property
    def makespan_ms(self) -> float:
        return self.step_ms


def timeline_from(data: Optional[dict[str, Any]]) -> Optional[Timeline]:
    return data and tuple(tuple(Task(*task) for task in rank) for rank in data["ranks"])


def _memory_from(data: Optional[dict[str, Any]]) -> Optional[Memory]:
    return data and Memory(data["unit"], tuple(
        {kind: tuple((at, value) for at, value in points) for kind, points in rank.items()}
        for rank in data["of_rank"]))


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def _overlap_from(data: Optional[dict[str, Any]]) -> Optional[Overlap]:
    if not data:
        return None
    of_real = data.get("reductions")
    return only(Overlap, {**data, "reductions": of_real and only(Reductions, _tuples(of_real))})


def schedule_from(data: dict[str, Any], run: Run) -> ScheduleLine:
    known = _tuples({name: data.get(name) for name in ScheduleLine.__dataclass_fields__})
    known["run"] = run
    known["bubbles"] = only(Bubbles, data["bubbles"])
    known["peak_activations"] = only(Peaks, _tuples(data["peak_activations"]))
    for name, cls in (("times_ms", Times), ("closed_form_ms", ClosedForm), ("stats", Stats)):
        known[name] = data.get(name) and only(cls, data[name])
    known["overlap"] = _overlap_from(data["overlap"])
    known["timeline"], known["memory"] = timeline_from(data["timeline"]), _memory_from(data["memory"])
    return ScheduleLine(**known)


def simulation_from(data: dict[str, Any], run: Run) -> Simulation:
    known = {name: data.get(name) for name in Simulation.__dataclass_fields__}
    known["run"], known["bubbles"] = run, only(Bubbles, data["bubbles"])
    known["timeline"], known["memory"] = timeline_from(data["timeline"]), _memory_from(data["memory"])
    return Simulation(**known)
