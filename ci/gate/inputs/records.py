"""Our record files (docs/record_format.md), and what reports/ reads as such (nccl-tests, OSU), as observations."""
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.schema import ReportError
from reports.load import load
from reports.records import Ceiling, Kernel, Records, Row, Run, ScheduleLine, Training, plural

from gate.model import Channel, UsageError
from gate.inputs import names
from gate.inputs.names import facts_of
from gate.inputs.observation import FAILURES, Observation, Origin, Quantity, UNKNOWN

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


def _of_row(row: Row) -> Iterator[Timed]:
    if row.ok and row.basis != "simulated":
        yield Timed(row.samples_us or (row.time_us,), "us", "collective")


def _of_kernel(line: Kernel) -> Iterator[Timed]:
    if line.ok:
        yield Timed(line.samples_us or (line.time_us,), "us", line.bound if line.bound in ("memory", "compute") else None)


def _of_ceiling(line: Ceiling) -> Iterator[Timed]:
    """The best sample is the machine's speed; other programs slowed the others down."""
    kind = "compute" if line.level in _COMPUTE_LEVELS else "memory"
    yield Timed((line.value,), line.unit, kind, better="lower" if line.unit == "us" else "higher")


def _of_schedule(line: ScheduleLine) -> Iterator[Timed]:
    if line.basis != "simulated":
        yield Timed(line.samples_ms, "ms", "compute" if line.basis == "measured" else None)


def _of_training(line: Training) -> Iterator[Timed]:
    """Without the first step, which touches all memory for the first time."""
    yield Timed(tuple(step.ms for step in line.steps[1:] or line.steps), "ms", "compute")


def _of_scaling(line: Any) -> Iterator[Timed]:
    yield from (Timed(step.samples_ms, "ms", "compute") for step in line.steps if step.kind == "measured")


def _of_sharding(line: Any) -> Iterator[Timed]:
    yield Timed(line.samples_ms, "ms", "compute")


def _of_layer(line: Any) -> Iterator[Timed]:
    yield from (Timed(time.samples_us, "us", "collective" if time.way == "communication" else "compute",
                      f"{time.direction} {time.way}") for time in line.times)


def _of_experts(line: Any) -> Iterator[Timed]:
    yield from (Timed(time.samples_us, "us", "compute", f"{time.direction} {time.way}") for time in line.times)


@dataclass(frozen=True)
class Kind:
    name: Callable[[Any], str]
    times: Callable[[Any], Iterator[Timed]]


KINDS: dict[str, Kind] = {
    "row": Kind(names.row_name, _of_row),
    "kernel": Kind(names.kernel_name, _of_kernel),
    "ceiling": Kind(names.ceiling_name, _of_ceiling),
    "schedule": Kind(names.schedule_name, _of_schedule),
    "simulation": Kind(names.simulation_name, lambda _: iter(())),
    "training": Kind(names.training_name, _of_training),
    "scaling": Kind(names.scaling_name, _of_scaling),
    "sharding": Kind(names.sharding_name, _of_sharding),
    "layer": Kind(names.layer_name, _of_layer),
    "context": Kind(names.context_name, _of_layer),
    "experts": Kind(names.experts_name, _of_experts),
}


def read_records(path: Path) -> list[Observation]:
    """Raises UsageError with the line that is wrong."""
    try:
        records = load([str(path)])
    except ReportError as error:
        raise UsageError(f"{error}; allowed: records as docs/record_format.md has them") from error
    return _all_observations(records, path)


def read_foreign(path: Path) -> list[Observation]:
    """nccl-tests' or OSU's output. Raises ReportError, which says what is allowed."""
    return _all_observations(load([str(path)]), path)


def _all_observations(records: Records, path: Path) -> list[Observation]:
    return [one for kind in KINDS for line in getattr(records, plural(kind)) for one in _observations(kind, line, path.name)]


def _observations(kind: str, line: Any, source: str) -> Iterator[Observation]:
    case, origin = KINDS[kind].name(line), _origin(line.run, source)
    calibrates = kind == "ceiling" or line.run.program == CALIBRATION_PROGRAM
    for timed in KINDS[kind].times(line):
        samples = tuple(sample for sample in timed.samples if sample > 0)
        if samples:
            quantity = Quantity(_with(case, timed.part), Channel.STORED, timed.unit, timed.better, timed.kind, calibrates)
            yield Observation(quantity, origin, samples)
    if calibrates:
        return
    for name, unit, value in (*facts_of(kind, line), *_failures(line)):
        yield Observation(Quantity(_with(case, name), Channel.EXACT, unit), origin, (value,))


def _failures(line: Any) -> Iterable[tuple[str, str, float]]:
    """A line that was wrong or failed has no times. The fault itself is an exact value, which must not get worse."""
    status = getattr(line, "status", None)
    return [] if status is None else [("failures", FAILURES, float(status != "ok"))]


def _with(case: str, part: str) -> str:
    return f"{case}: {part}" if part else case


def _origin(run: Run, source: str) -> Origin:
    revision = run.build.revision + ("+" if run.build.dirty else "")
    return Origin(run.run, source, "" if run.started == UNKNOWN else run.started, revision, run.machine.fingerprint)
