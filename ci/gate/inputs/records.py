"""Our record files (docs/record_format.md), and what reports/ reads as such (nccl-tests, OSU), as observations: the names of their cases,
their exact values, and their times."""
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate.inputs.observation import FAILURES, Observation, Origin, Quantity, UNKNOWN, WRONG
from gate.model import Channel, UsageError
from reports.load import load
from reports.records import plural, Records, Row, Run, ScheduleLine, Step
from reports.schema import ReportError

# ---- Exact values in our records: counted, computed or simulated. Measured times are none.

def always(_: Any) -> bool:
    return True


def simulated(line: Any) -> bool:
    return line.basis == "simulated"


def stated(line: Any) -> bool:
    """True if the step's costs were stated by the user. The costs of a measured step are measured, and so are values computed from them."""
    return line.basis != "measured"


def in_order(line: Any) -> bool:
    """True if the places that a kernel's threads access do not depend on which of them comes first."""
    return not line.by_atomics


@dataclass(frozen=True)
class Fact:
    path: str  # fields of docs/record_format.md; "x.*": every field of x; a list counts as its sum, or its maximum
    unit: str
    holds: Callable[[Any], bool] = always
    of_list: Callable[[Any], float] = sum
    better: str = "lower"


# All counts of a step are exact. Units of those that are not bytes:
COUNTS = {"padded_elems": "elements", "pairs": "of all", "dropped": "copies", "most_rows": "rows", "wrong": WRONG}


def facts_of(kind: "Kind", line: Any) -> Iterator[tuple[str, str, float, str]]:
    """Name, unit and value of each fact of a line, and what is better; those that it does not have are left out."""
    for name, value in (getattr(line, "counts", None) or {}).items():
        yield name, COUNTS.get(name, "bytes"), float(value), "lower"
    for fact in kind.facts:
        if not fact.holds(line):
            continue
        for name, value in _values(line, fact.path.split("."), ()):
            if isinstance(value, (list, tuple)):
                value = fact.of_list(value) if value else None
            if value is not None:
                yield name, fact.unit, float(value), fact.better


def _values(at: Any, path: list[str], walked: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not path or at is None:
        yield ".".join(walked), at
    elif path[0] == "*":
        for key in at:
            yield from _values(at[key], path[1:], (*walked, key))
    else:
        yield from _values(at[path[0]] if isinstance(at, dict) else getattr(at, path[0]), path[1:], (*walked, path[0]))


# ---- What each kind of line is, and the names of its cases: all conditions that two times of the same case must share

CALIBRATION_PROGRAM = "gate_planted"  # its runs measure the speed of the machine (gate.py calibrate)
_COMPUTE_LEVELS = (None, "l1", "l2")  # a ceiling whose operands lie there depends on the clock alone


@dataclass(frozen=True)
class Timed:
    """Samples of one thing that a line has; `part` where it has several."""

    samples: tuple[float, ...]
    unit: str
    kind: str | None
    part: str = ""
    better: str = "lower"


@dataclass(frozen=True)
class Kind:
    """`name`: parts, of which empty ones are left out; all of `shared` follow them."""

    name: Callable[[Any], tuple[str, ...]]
    times: Callable[[Any], Iterable[Timed]]
    shared: tuple[str, ...] = ("ranks", "threads")
    facts: tuple[Fact, ...] = ()


def case_name(kind: str, line: Any) -> str:
    """Name of a line's case; a kernel's is as in kernels_bench and `gate.py ab`."""
    has_conditions = kind not in ("kernel", "ceiling", "kernel_count", "simulation")
    shared = [f"{name.removesuffix('_per_step')}:{getattr(line, name)}" for name in KINDS[kind].shared if hasattr(line, name)]
    return "/".join(filter(None, [*KINDS[kind].name(line), *shared, *(_conditions(line.run, line.basis) if has_conditions else ())]))


def _conditions(run: Run, basis: str) -> list[str]:
    """Other conditions that times depend on: an emulated link, and a basis that is not a real machine."""
    link = [] if run.link is None else [f"link:{_known(run.link.latency_us)}us,{_known(run.link.gbps)}GBps"]
    return link if basis == "measured" else [*link, basis]


def _known(number: float | None) -> str:
    return "-" if number is None else f"{number:g}"


def _row(one: Row) -> tuple[str, ...]:
    return (one.collective, one.algorithm, one.executor, one.transport, one.run.rank_kind, f"ranks:{one.ranks}", one.dtype,
            one.op if one.op != "none" else "", f"root:{one.root}" if one.root >= 0 else "", f"{one.bytes}B",
            "in-place" if one.in_place else "out-of-place")


def _schedule(line: ScheduleLine) -> tuple[str, ...]:
    return (line.program, line.schedule, f"ranks:{line.ranks}", f"microbatches:{line.microbatches}", f"chunks:{line.chunks}",
            f"pipes:{line.pipes}", *_costs(line), *_filler(line), *_overlap(line))


def _costs(line: ScheduleLine) -> list[str]:
    limit = [] if line.memory_limit is None else [f"limit:{line.memory_limit:g}"]
    if line.w_memory not in (None, 1):
        limit.append(f"w_memory:{line.w_memory:g}")
    times = line.times_ms
    if times is None:
        return limit
    return [f"f{times.forward:g},i{times.input_gradient:g},w{times.weight_gradient:g},m{times.message:g}ms", *limit]


def _filler(line: ScheduleLine) -> list[str]:
    if line.filler is None:
        return []
    return [",".join(f"{name}:{ms:g}ms" for name, ms in line.filler.work_ms.items()), f"kernels:{line.filler.layers}"]


def _overlap(line: ScheduleLine) -> list[str]:
    overlap = line.overlap
    if overlap is None:
        return []
    compression = [overlap.reductions.compression] if overlap.reductions else []
    return [f"layers:{overlap.layers}", f"{overlap.bytes_per_layer}B", f"replicas:{overlap.replicas}", f"bucket:{overlap.bucket_cap_bytes}B",
            f"zero:{overlap.zero_stage}", f"prefetch:{overlap.prefetch}", overlap.algorithm, *compression]


def _sharding(line: Step) -> tuple[str, ...]:
    plus = [f"{name}:{value}" for name in ("secondary_ranks", "weight_compression", "compression", "near_ranks", "offload")
            if (value := getattr(line, name)) not in ("none", 0)]
    return (_model(line.model), f"zero:{line.zero_stage}", "prefetch" if line.prefetch else "",
            "updates:per_bucket" if line.update == "per_bucket" else "", f"shard_ranks:{line.shard_ranks}", *plus, line.dtype,
            line.gradient_dtype, f"microbatches:{line.microbatches}")


def _experts(line: Step) -> tuple[str, ...]:
    skew = f"load:{line.load:.3g}" if line.skew == "stated" else f"skew:{line.skew:g}"
    return (f"experts:{line.experts}", f"top:{line.top_k}", f"capacity:{line.capacity_factor:g}", skew, line.dtype, line.algorithm, _sizes(line))


_PARTS: dict[str, Callable[[Step], tuple[str, ...]]] = {
    "layer": lambda one: (one.layer, "sequence_parallel" if one.sequence_parallel else "", f"tiles:{one.tiles}", one.dtype, one.algorithm,
                          _sizes(one)),
    "context": lambda one: (one.way, "causal" if one.causal else "", one.dtype, _sizes(one)),
    "experts": _experts,
    "sharding": _sharding,
    "scaling": lambda one: (one.mode, _model(one.model), one.layout.text, one.dtype),
}


def _sizes(line: Any) -> str:
    return ",".join(f"{name}{value:g}" for name, value in line.sizes.items())


def _model(model: Any) -> str:
    """Name of the model; if that is "custom", with the numbers that identify it."""
    if model.name != "custom":
        return model.name
    return "custom(" + ",".join(f"{name}{value:g}" for name, value in model.numbers.items()) + ")"


def _step_times(line: Step) -> list[Timed]:
    """Samples of passes in all modes, and of whole steps that were measured."""
    return [Timed(time.samples_us, "us", "collective" if time.mode == "communication" else "compute",
                  "" if time.direction == "step" else f"{time.direction} {time.mode}")
            for time in line.times if time.direction != "step" or time.mode == "measured"]


KINDS: dict[str, Kind] = {
    "row": Kind(
        _row, lambda one: [Timed(one.samples_us or (one.time_us,), "us", "collective")] if one.ok and not simulated(one) else [], (),
        (Fact("plan.steps", "messages"), Fact("plan.wire_bytes_max", "bytes"), Fact("plan.wire_bytes_total", "bytes"),
         Fact("time_us", "us", simulated))),
    "kernel": Kind(
        lambda one: (one.kernel, one.dtype, one.shape, one.device, f"threads:{one.threads}", one.cache,
                     one.timing if one.timing != "host" else ""),
        lambda one: [Timed(one.samples_us or (one.time_us,), "us", one.bound if one.bound in ("memory", "compute") else None)]
        if one.ok else [], (),
        (Fact("flops", "FLOPs"), Fact("bytes", "bytes"))),
    "kernel_count": Kind(
        lambda one: (one.kernel, one.dtype, one.shape, one.choice, one.entry), lambda one: [], (),
        (Fact("instructions.*", "instructions"), Fact("warp_instructions", "instructions"), Fact("global_sectors", "sectors", in_order),
         Fact("shared_wavefronts", "wavefronts", in_order), Fact("multiply_adds", "multiply-adds"), Fact("registers", "registers"),
         Fact("spill_bytes", "bytes"), Fact("resident_blocks", "blocks", better="higher"))),
    # The best sample is the machine's speed; other programs slowed the others down.
    "ceiling": Kind(
        lambda one: ("ceiling", one.name, one.level or "", one.dtype or "", one.device),
        lambda one: [Timed((one.value,), one.unit, "compute" if one.level in _COMPUTE_LEVELS else "memory",
                           better="lower" if one.unit == "us" else "higher")], ("threads",)),
    "schedule": Kind(
        _schedule, lambda one: [] if simulated(one) else [Timed(one.samples_ms, "ms", None if stated(one) else "compute")], (),
        (Fact("sends", "messages"), Fact("weight_versions", "versions", of_list=max),
         Fact("peak_activations.until_w", "microbatches", stated, max), Fact("peak_activations.until_b", "microbatches", stated, max),
         Fact("makespan_ms", "ms", simulated), Fact("own_span_ms", "ms", simulated), Fact("exposed_ms", "ms", simulated, max),
         Fact("work_ms", "ms", simulated), Fact("simulated_ms", "ms", stated), Fact("closed_form_ms.cost", "ms", stated),
         Fact("filler.steps", "steps"), Fact("filler.filled", "of all"), Fact("filler.utilization", "of all"),
         Fact("overlap.collectives", "collectives"),
         Fact("overlap.reductions.sent_bytes", "bytes"), Fact("overlap.reductions.formula_bytes", "bytes"),
         Fact("overlap.reductions.wrong", WRONG))),
    "simulation": Kind(
        lambda one: ("simulate", one.model.name, one.layout.text, one.schedule, one.machine, f"batch:{one.global_batch}"), lambda one: [], (),
        (Fact("step_ms", "ms"), Fact("parts_ms.*", "ms"), Fact("memory_bytes.*", "bytes"), Fact("sent_bytes.*", "bytes"),
         Fact("sent_beyond_bytes.*", "bytes"), Fact("events", "events"))),
    # Without the first step, which touches all memory for the first time.
    "training": Kind(
        lambda one: (one.program, _model(one.model), one.layout.text, one.schedule, one.dtype, one.data),
        lambda one: [Timed(tuple(step.ms for step in one.steps[1:] or one.steps), "ms", "compute")],
        ("ranks", "threads", "tokens_per_step"), (Fact("memory_bytes.*", "bytes"),)),
    "step": Kind(lambda one: (one.program, *_PARTS[one.part](one)), _step_times, ("ranks", "threads", "tokens_per_step")),
}


def read_records(path: Path) -> list[Observation]:
    """Raises UsageError with the line that is wrong."""
    try:
        records = load([str(path)])
    except ReportError as error:
        raise UsageError(f"{error}; allowed: records as docs/record_format.md has them") from error
    return _all_observations(records, path)


def read_foreign(path: Path) -> list[Observation]:
    """nccl-tests' or OSU's output. Raises ReportError, which names what is allowed."""
    return _all_observations(load([str(path)]), path)


def _all_observations(records: Records, path: Path) -> list[Observation]:
    return [observed for kind in KINDS for line in getattr(records, plural(kind)) for observed in _observations(kind, line, path.name)]


def _observations(kind: str, line: Any, source: str) -> Iterator[Observation]:
    case, origin = case_name(kind, line), _origin(line.run, source)
    calibrates = kind == "ceiling" or line.run.program == CALIBRATION_PROGRAM
    for timed in KINDS[kind].times(line):
        samples = tuple(sample for sample in timed.samples if sample > 0)
        if samples:
            quantity = Quantity(_with(case, timed.part), Channel.STORED, timed.unit, timed.better, timed.kind, calibrates)
            yield Observation(quantity, origin, samples)
    if calibrates:
        return
    for name, unit, value, better in (*facts_of(KINDS[kind], line), *_failures(line)):
        yield Observation(Quantity(_with(case, name), Channel.EXACT, unit, better), origin, (value,))


def _failures(line: Any) -> Iterable[tuple[str, str, float, str]]:
    """A line that was wrong or failed has no times. The fault itself is an exact value, which must not get worse."""
    status = getattr(line, "status", None)
    return [] if status is None else [("failures", FAILURES, float(status not in ("ok", "left_out")), "lower")]


def _with(case: str, part: str) -> str:
    return f"{case}: {part}" if part else case


def _origin(run: Run, source: str) -> Origin:
    revision = run.build.revision + ("+" if run.build.dirty else "")
    return Origin(run.run, source, "" if run.started == UNKNOWN else run.started, revision, run.machine.fingerprint,
                  tuple(run.notes or ()))
