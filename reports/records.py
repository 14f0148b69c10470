"""The records of docs/record_format.md as objects, which the loader makes and everything else reads. Their fields are the
schema's; the properties here are computed from them."""
from collections import Counter
from dataclasses import make_dataclass
from typing import Any, Callable, Optional

from reports.schema import KINDS, class_of, fields_of, kind_schema, made
from reports.units import counted, joined

Link = class_of("LinkRecord")  # an emulated one
PlanCounts = class_of("PlanRecord")
Stats = class_of("StatsRecord")
Ceiling = class_of("CeilingRecord")
KernelCount = class_of("KernelCountRecord")
Task = class_of("TaskRecord")  # -1: of no stage, of no microbatch, of the whole stage. Times are ms from the step's start
Times = class_of("StageTimesRecord")
Memory = class_of("MemoryRecord")
Overlap = class_of("OverlapRecord")
Reductions = class_of("ReductionsRecord")
Compared = class_of("GateRecord")
GateChange = class_of("GateChangeRecord")
GateSeries = class_of("HistoryRecord")
Timeline = tuple[tuple[Task, ...], ...]  # a rank's tasks, in the order in which they were issued
Points = tuple[tuple[float, float], ...]  # ms, value: kept until the next

DIRECTIONS = ("forward", "backward")


@fields_of("Machine")
class Machine:
    @property
    def gpu_models(self) -> str:
        """Text such as "NVIDIA H200" or "2 × NVIDIA H200"; empty without one."""
        return joined([f"{number} × {gpu}" if number > 1 else gpu for gpu, number in Counter(self.gpus).items()])


@fields_of("Build", "Source")
class Build:
    """Build and source: lines of one plot come from one build."""

    @property
    def short_revision(self) -> str:
        return self.revision[:10] + (" with uncommitted changes" if self.dirty else "")


@fields_of("RunRecord", and_also=["partial", "file"])
class Run:
    """`partial`: its program was stopped, as its file's name shows. `file`: where it was read from."""

    @property
    def is_foreign(self) -> bool:
        """Read from another tool's output (reports/foreign.py), which states neither the machine's cores nor the build."""
        return self.machine.cpu is None and self.build.compiler is None


@fields_of("RowRecord")
class Row:
    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def oversubscribed(self) -> bool:
        """True if ranks of this row shared cores. A run may sweep several rank counts; its flag refers to the largest."""
        return self.run.oversubscribed and (self.ranks == self.run.ranks or self.ranks > self.run.machine.cores)


@fields_of("KernelRecord")
class Kernel:
    """One kernel, shape and dtype, timed one way. Shares and rates are computed by the program, at the median."""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def was_run(self) -> bool:
        """False if the time budget was over before it."""
        return self.status != "left_out"

    @property
    def median_us(self) -> Optional[float]:
        return self.stats.median if self.stats else self.time_us

    @property
    def intensity(self) -> float:
        """FLOPs per byte, as declared; 0 for a kernel without arithmetic."""
        return self.flops / self.bytes if self.bytes else 0.0


@fields_of("ScheduleRecord")
class ScheduleLine:
    @property
    def peak(self) -> float:
        return max(self.peak_activations.until_w, default=0)

    @property
    def has_buckets(self) -> bool:
        """True for a real step, whose gradients are sent in buckets."""
        return self.overlap is not None and self.overlap.reductions is not None


@fields_of("SimulationRecord")
class Simulation:
    """One step of a model in one layout on one machine."""

    @property
    def makespan_ms(self) -> float:
        return self.step_ms


@fields_of("EnergyRecord")
class Energy:
    @property
    def of(self) -> str:
        """Text such as "2 GPUs" or "1 CPU package"."""
        return counted(self.devices, "GPU" if self.source == "nvml" else "CPU package")


@fields_of("TrainingRecord")
class Training:
    """A run, with the time of one of its steps."""

    @property
    def sent_bytes(self) -> int:
        """Bytes sent to other data-parallel ranks by the rank that sent most in the whole run; 0 without other ranks."""
        return self.steps[-1].sent_bytes or 0

    @property
    def mean_ms(self) -> float:
        """Mean time of a step, without the first: where some steps agree and others do not, a median would be of one kind."""
        steps = self.steps[1:] or self.steps
        return sum(step.ms for step in steps) / len(steps)


@fields_of("StepTimeRecord")
class StepTime:
    """One direction of a step's part, or a whole step, in one mode."""

    @property
    def step_ms(self) -> float:
        return self.stats.median / 1e3

    @property
    def parts_ms(self) -> dict[str, float]:
        return {name: us / 1e3 for name, us in self.parts_us.items()}


@fields_of("StepRecord")
class Step:
    """A training step, or a part of one: `choices`, `sizes`, `counts`, `figures` and `series` by name are its attributes, too
    (`one.tiles`); "held_bytes.weights", "held_bytes.gradients", ... become a map (`one.held_bytes`)."""

    def __getattr__(self, name: str) -> Any:
        named = {key: value for group in (self.choices, self.sizes, self.counts, self.figures, self.series) for key, value in (group or {}).items()}
        if name in named:
            return _whole(named[name])
        parts = {key.removeprefix(f"{name}."): _whole(value) for key, value in named.items() if key.startswith(f"{name}.")}
        if not parts:
            raise AttributeError(f"a step of part '{self.part}' has no '{name}'")
        return parts

    def time(self, direction: str, mode: str) -> Any:
        return next((time for time in self.times if (time.direction, time.mode) == (direction, mode)), None)

    def step(self, mode: str) -> Optional[StepTime]:
        """The whole step in this mode."""
        return self.time("step", mode)

    @property
    def stats(self) -> Any:
        """Statistics of the measured step, in us."""
        return self.step("measured") and self.step("measured").stats

    def median_us(self, mode: str) -> float:
        """Median of forward plus median of backward, in us."""
        return sum(self.time(direction, mode).stats.median for direction in DIRECTIONS)

    def parts_us(self, mode: str) -> dict[str, float]:
        """Time of each part in us, forward plus backward."""
        times = [self.time(direction, mode) for direction in DIRECTIONS]
        return {name: sum(time.parts_us.get(name, 0.0) for time in times) for name in times[0].parts_us}

    def spread(self, mode: str) -> float:
        """Half of the range p5 to p95, relative to the median, of both directions together: 0.1 for 10 %."""
        stats = [self.time(direction, mode).stats for direction in DIRECTIONS]
        whole = sum(stat.median for stat in stats)
        return sum(stat.p95 - stat.p5 for stat in stats) / 2 / whole if whole else 0.0


def _whole(value: Any) -> Any:
    """Without a fraction, an integer: numbers of all kinds are written alike."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@fields_of("StudyRecord")
class StudyPoint:
    """One point of a curve, map or table that one command made."""


@fields_of("VerdictRecord")
class GateCase:
    """Ratios are head over base, inverted where more is better: above 1 is worse."""


def run_from(data: dict[str, Any], partial: bool = False, file: str = "") -> Run:
    fields = {**data["git"], **data["build"]}
    build = Build(**{name: fields[name] for name in fields if name in Build.__dataclass_fields__})
    return made(data, kind_schema("run"), build=build, partial=partial, file=file)


def line_from(data: dict[str, Any], run: Run) -> Any:
    """Any line but a run, checked."""
    if data["record"] == "training" and data["ranks"] == 1:
        data = {**data, "parts_ms": _possible(data["parts_ms"])}
    return made(data, kind_schema(data["record"]), run=run)


def _possible(parts_ms: dict[str, float]) -> dict[str, float]:
    """Parts of one rank's step: it has neither a bubble nor communication, though older records have them."""
    idle = [name for name in parts_ms if name == "bubble" or name.startswith("exposed_") and name != "exposed_copy"]
    between = parts_ms.get("between", 0.0) + sum(parts_ms[name] for name in idle)
    return {**{name: ms for name, ms in parts_ms.items() if name not in idle}, "between": between}


def plural(kind: str) -> str:
    """The name of a kind's lines in Records."""
    return {"history": "histories", "study": "studies"}.get(kind, f"{kind}s")


class _Records:
    """Runs, and lines of each kind of the schema: `rows`, `kernels`, ... (plural())."""

    @property
    def lines(self) -> tuple:
        """All lines except the runs."""
        return tuple(line for kind in KINDS[1:] for line in getattr(self, plural(kind)))

    def only(self, *kinds: str) -> "Records":
        """Lines of these kinds ("rows", "kernels", ...) and their runs. Runs without any lines are reported once, with the first kind of
        line present."""
        return self.select(**{kind: getattr(self, kind) for kind in kinds})

    def parts(self, part: str) -> "Records":
        """Steps of this part and their runs."""
        return self.select(steps=self.steps_of(part))

    def steps_of(self, part: str) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.part == part)

    def of_runs(self, wanted: Callable[[Run], bool]) -> "Records":
        """The selected runs, and their lines."""
        kept = {plural(kind): tuple(line for line in getattr(self, plural(kind)) if wanted(line.run)) for kind in KINDS[1:]}
        return Records(self.files, tuple(run for run in self.runs if wanted(run)), **kept)

    def select(self, **kept: tuple) -> "Records":
        mine = {line.run.run for lines in kept.values() for line in lines}
        used = {line.run.run for line in self.lines}
        is_first = bool(self.lines) and self.lines[0].run.run in mine
        runs = tuple(run for run in self.runs if run.run in mine or is_first and run.run not in used)
        return Records(self.files, runs, **kept)


Records = make_dataclass("Records", [("files", tuple[str, ...]), ("runs", tuple[Run, ...]),
                                     *((plural(kind), tuple[Any, ...], ()) for kind in KINDS[1:])],
                         bases=(_Records,), frozen=True, namespace={"__doc__": _Records.__doc__, "__module__": __name__})
