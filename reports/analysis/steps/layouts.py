"""Simulated layouts of one model on one machine against each other."""
from dataclasses import dataclass
from functools import cached_property

from reports.analysis.findings import Finding
from reports.records import Records, Simulation
from reports.units import bytes_text, counted, joined, share_text, time_text, times_text

SLIGHT = 0.005  # smaller parts of a step are not named
ALIKE = 1.05  # ratio to the best below which layouts are not ranked, as predictions are not that exact


@dataclass(frozen=True)
class LayoutResult:
    """Layouts that train alike: model, machine, sequences per step. Those that fit first; least time of all devices first."""

    anchor: str
    layouts: tuple[Simulation, ...]

    @property
    def best(self) -> Simulation:
        return self.layouts[0]

    @property
    def fitting(self) -> tuple[Simulation, ...]:
        return tuple(one for one in self.layouts if one.fits)

    @property
    def alike(self) -> bool:
        """True if all have the same number of devices, so that the time of a step can be compared."""
        return len({one.ranks for one in self.layouts}) == 1

    @property
    def name(self) -> str:
        best, ranks = self.best, [one.ranks for one in self.layouts]
        devices = counted(best.ranks, "device") if self.alike else f"{min(ranks):,} to {max(ranks):,} devices"
        return (f"{best.model.name} on {devices} of {best.machine}, "
                f"{counted(best.global_batch, 'sequence')} per step")

    @property
    def findings(self) -> list[Finding]:
        return [Finding(self.name, layouts_text(self), parts_text(self.best), "simulated", self.anchor)]

    @cached_property
    def common(self) -> list[str]:
        """Fields that all layouts share, where there are several: sp=yes."""
        said = [one.layout.text.split(",") for one in self.layouts]
        shared = set.intersection(*map(set, said))
        return [word for word in said[0] if word in shared] if len(said) > 1 else []

    @cached_property
    def _several_schedules(self) -> bool:
        return len({one.schedule for one in self.layouts}) > 1

    def name_of(self, one: Simulation) -> str:
        """Name such as "tp=4 pp=8 dp=16 interleaved chunks=6": the fields that not all layouts share, and the schedule."""
        words = [word for word in one.layout.text.split(",") if word not in self.common]
        words = [word.removeprefix("schedule=") for word in words]
        if one.schedule not in words and self._several_schedules:
            words.append(one.schedule)
        return " ".join(words) or one.layout.text


def analyse_layouts(records: Records) -> tuple[LayoutResult, ...]:
    """Keeps the latest of equal layouts of several runs."""
    grouped: dict[tuple, dict[tuple, Simulation]] = {}
    for one in records.simulations:
        key = (one.model.name, one.model.parameters, one.machine, one.global_batch)
        grouped.setdefault(key, {})[one.layout.text, one.schedule] = one
    ordered = [sorted(of.values(), key=lambda one: (not one.fits, device_ms(one))) for of in grouped.values()]
    return tuple(LayoutResult(f"layouts-{number}", tuple(one)) for number, one in enumerate(ordered, start=1))


def device_ms(one: Simulation) -> float:
    """Time of a step times the number of devices."""
    return one.step_ms * one.ranks


def layouts_text(result: LayoutResult) -> str:
    best, fitting = result.best, result.fitting
    shared = [word for word in result.common if not word.startswith("batch=")]  # the name says the batch
    together = f", all with {joined(shared)}," if shared else ""
    if not fitting:
        least = min(result.layouts, key=lambda one: one.memory_bytes["total"])
        return (f"None of {counted(len(result.layouts), 'layout')}{together} fits: {result.name_of(least)} needs least, "
                f"{bytes_text(least.memory_bytes['total'], 3)} of {bytes_text(least.capacity_bytes, 3)}.")
    name = result.name_of(best)
    schedule = "" if best.schedule in name else f" ({best.schedule})"
    told = f"{name}{schedule}: {_speed_text(best)}, {_memory_text(best)}"
    if len(result.layouts) == 1:
        return f"{told}."
    word, long = ("fastest", "as long") if result.alike else ("best", "as much time of devices")
    parts = [f"The {word} of {counted(len(result.layouts), 'layout')}{together} is {told}"]
    if len(fitting) > 1:
        worst = fitting[-1]
        ratio = device_ms(worst) / device_ms(best)
        if ratio < ALIKE:
            parts.append(f"no other that fits takes more than {100 * (ratio - 1):.1f} % more, too little for a "
                         "prediction to rank them")
        else:
            parts.append(f"the {'slowest' if result.alike else 'worst'} that fits, {result.name_of(worst)}, takes "
                         f"{times_text(ratio)} {long}")
    if len(fitting) < len(result.layouts):
        parts.append(f"{len(result.layouts) - len(fitting)} do not fit in the memory")
    return "; ".join(parts) + "."


def _speed_text(one: Simulation) -> str:
    return f"{time_text(1e3 * one.step_ms)} per step, MFU {share_text(one.mfu)}"


def _memory_text(one: Simulation) -> str:
    return f"{bytes_text(one.memory_bytes['total'], 3)} of {bytes_text(one.capacity_bytes, 3)} per device"


def parts_text(one: Simulation) -> str:
    """Sentence on the parts of a step, such as "Its time: computing 80 %, bubble 12 % and ..."."""
    shares = {"computing": sum(one.parts_ms.get(name, 0) for name in COMPUTING),
              **{PARTS.get(name, name): value for name, value in one.parts_ms.items() if name not in COMPUTING}}
    told = [f"{name} {share_text(value / one.step_ms)}" for name, value in
            sorted(shares.items(), key=lambda part: -part[1]) if value > SLIGHT * one.step_ms]
    return f"Its time: {joined(told)}."


COMPUTING = ("forward", "backward", "recompute", "optimizer")
# Words in sentences and legends, in the order of the bars.
PARTS = {
    "forward": "forward", "backward": "backward", "recompute": "recomputation", "optimizer": "optimizer",
    "exposed_tensor": "waiting for collectives in layers", "exposed_pipeline": "waiting for messages of the pipeline",
    "exposed_gather": "waiting for gathered weights", "exposed_reduce": "waiting for reduced gradients",
    "exposed_copy": "waiting for copies to and from the host", "bubble": "bubble",
}
KINDS = ("weights", "gradients", "optimizer", "activations", "buffers")
