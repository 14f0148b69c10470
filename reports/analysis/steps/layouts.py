"""Simulated layouts of one model on one machine against each other, and studies of `simulate`."""
import math
from functools import cached_property
from typing import Callable, Optional

from reports.analysis.groups import by, Group, latest
from reports.records import Records, Simulation, StudyPoint
from reports.units import bytes_text, counted, joined, share_text, short, time_text, times_text

SLIGHT = 0.005  # smaller parts of a step are not named
ALIKE = 1.05  # ratio to the best below which layouts are not ranked, as predictions are not that exact


class LayoutResult(Group):
    """Layouts that train alike: model, machine, sequences per step. Those that fit first; least time of all devices first."""

    @property
    def fitting(self) -> tuple[Simulation, ...]:
        return tuple(line for line in self.lines if line.fits)

    @property
    def alike(self) -> bool:
        """True if all have the same number of devices, so that the time of a step can be compared."""
        return len({line.ranks for line in self.lines}) == 1

    @property
    def name(self) -> str:
        best, ranks = self.first, [line.ranks for line in self.lines]
        devices = counted(best.ranks, "device") if self.alike else f"{min(ranks):,} to {max(ranks):,} devices"
        return (f"{best.model.name} on {devices} of {best.machine}, "
                f"{counted(best.global_batch, 'sequence')} per step")

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(layouts_text(self), parts_text(self.first))]

    @cached_property
    def common(self) -> list[str]:
        """Fields that all layouts share, where there are several: sp=yes."""
        fields = [line.layout.text.split(",") for line in self.lines]
        shared = set.intersection(*map(set, fields))
        return [word for word in fields[0] if word in shared] if len(fields) > 1 else []

    @cached_property
    def _several_schedules(self) -> bool:
        return len({line.schedule for line in self.lines}) > 1

    def name_of(self, line: Simulation) -> str:
        """Name such as "tp=4 pp=8 dp=16 interleaved chunks=6": the fields that not all layouts share, and the schedule."""
        words = [word for word in line.layout.text.split(",") if word not in self.common]
        words = [word.removeprefix("schedule=") for word in words]
        if line.schedule not in words and self._several_schedules:
            words.append(line.schedule)
        return " ".join(words) or line.layout.text


def analyse_layouts(records: Records) -> tuple[LayoutResult, ...]:
    groups = latest(records.simulations, lambda simulation: (simulation.model.name, simulation.model.parameters, simulation.machine, simulation.global_batch),
                    lambda simulation: (simulation.layout.text, simulation.schedule))
    return LayoutResult.all_of("layouts", (sorted(of.values(), key=lambda line: (not line.fits, device_ms(line))) for of in groups.values()))


def device_ms(line: Simulation) -> float:
    """Time of a step times the number of devices."""
    return line.step_ms * line.ranks


def layouts_text(result: LayoutResult) -> str:
    best, fitting = result.first, result.fitting
    shared = [word for word in result.common if not word.startswith("batch=")]  # the name has the batch
    together = f", all with {joined(shared)}," if shared else ""
    if not fitting:
        least = min(result.lines, key=lambda line: line.memory_bytes["total"])
        return (f"None of {counted(len(result.lines), 'layout')}{together} fits: {result.name_of(least)} needs least, "
                f"{bytes_text(least.memory_bytes['total'], 3)} of {bytes_text(least.capacity_bytes, 3)}.")
    name = result.name_of(best)
    schedule = "" if best.schedule in name else f" ({best.schedule})"
    text = f"{name}{schedule}: {_speed_text(best)}, {_memory_text(best)}"
    if len(result.lines) == 1:
        return f"{text}."
    word, long = ("fastest", "as long") if result.alike else ("best", "as much time of devices")
    parts = [f"The {word} of {counted(len(result.lines), 'layout')}{together} is {text}"]
    if len(fitting) > 1:
        worst = fitting[-1]
        ratio = device_ms(worst) / device_ms(best)
        if ratio < ALIKE:
            parts.append(f"no other that fits takes more than {100 * (ratio - 1):.1f} % more, too little for a "
                         "prediction to rank them")
        else:
            parts.append(f"the {'slowest' if result.alike else 'worst'} that fits, {result.name_of(worst)}, takes "
                         f"{times_text(ratio)} {long}")
    if len(fitting) < len(result.lines):
        parts.append(f"{len(result.lines) - len(fitting)} do not fit in the memory")
    return "; ".join(parts) + "."


def _speed_text(line: Simulation) -> str:
    return f"{time_text(1e3 * line.step_ms)} per step, MFU {share_text(line.mfu)}"


def _memory_text(line: Simulation) -> str:
    return f"{bytes_text(line.memory_bytes['total'], 3)} of {bytes_text(line.capacity_bytes, 3)} per device"


def parts_text(line: Simulation) -> str:
    """Sentence on the parts of a step, such as "Its time: computing 80 %, bubble 12 % and ..."."""
    shares = {"computing": sum(line.parts_ms.get(name, 0) for name in COMPUTING),
              **{PARTS.get(name, name): value for name, value in line.parts_ms.items() if name not in COMPUTING}}
    phrases = [f"{name} {share_text(value / line.step_ms)}" for name, value in
            sorted(shares.items(), key=lambda part: -part[1]) if value > SLIGHT * line.step_ms]
    return f"Its time: {joined(phrases)}."


def zero_cta_saves(line: Simulation) -> Optional[float]:
    """Part of the step that NCCL's zero-CTA policy saves; None for a layout without it."""
    return 1 - line.step_ms / line.zero_cta.step_ms_without if line.zero_cta else None


def zero_cta_text(result: LayoutResult) -> str:
    """Sentence on the layout that gains most by NCCL's zero-CTA policy; empty if none has it."""
    saves = {zero_cta_saves(line): line for line in result.lines if line.zero_cta}
    if not saves:
        return ""
    most = max(saves)
    line = saves[most]
    return (f"With NCCL's zero-CTA policy the step of {result.name_of(line)} takes {time_text(1e3 * line.step_ms)} in place of "
            f"{time_text(1e3 * line.zero_cta.step_ms_without)}, {abs(100 * most):.1f} % {'less' if most >= 0 else 'more'}: "
            f"{line.zero_cta.collectives:,} of {counted(line.zero_cta.of, 'collective')} run on copy engines, which take no "
            "multiprocessors from kernels.")


COMPUTING = ("forward", "backward", "recompute", "optimizer")
# Words in sentences and legends, in the order of the bars.
PARTS = {
    "forward": "forward", "backward": "backward", "recompute": "recomputation", "optimizer": "optimizer",
    "exposed_tensor": "waiting for collectives in layers", "exposed_pipeline": "waiting for messages of the pipeline",
    "exposed_gather": "waiting for gathered weights", "exposed_reduce": "waiting for reduced gradients",
    "exposed_copy": "waiting for copies to and from the host", "bubble": "bubble",
    "between": "between kernels",
}
KINDS = ("weights", "gradients", "optimizer", "activations", "buffers")


# ---- Studies of `simulate`: the points of one figure, and the sentence that answers its question

class StudyResult(Group):
    @property
    def study(self) -> str:
        return self.first.study

    @property
    def setting(self) -> str:
        return self.first.setting

    @property
    def name(self) -> str:
        return f"{STUDIES[self.study][0]} {self.setting}"

    @property
    def drawn(self) -> tuple[StudyPoint, ...]:
        """Points with values; impossible ones have a note instead."""
        return tuple(line for line in self.lines if line.values)

    @property
    def simulated(self) -> tuple[StudyPoint, ...]:
        return tuple(line for line in self.drawn if line.basis != "published")

    @property
    def published(self) -> tuple[StudyPoint, ...]:
        return tuple(line for line in self.drawn if line.basis == "published")

    @property
    def series(self) -> dict[str, list[StudyPoint]]:
        return by(self.simulated, series_of)

    @property
    def basis(self) -> str:
        return self.simulated[0].basis if self.simulated else "simulated"

    @property
    def answer(self) -> str:
        return STUDIES[self.study][1](self) if self.simulated else f"No point is possible: {self.lines[0].note}."

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(self.answer, "")]


def analyse_studies(records: Records) -> tuple[StudyResult, ...]:
    def place(point: StudyPoint) -> tuple:
        return point.series if point.study != "map" else "", point.basis, tuple(point.at.items()), point.note if point.study != "map" else ""
    groups = latest(records.studies, lambda study: (study.study, study.setting), place)
    return StudyResult.all_of("study", (groups[key].values() for key in sorted(groups, key=lambda key: list(STUDIES).index(key[0]))))


def series_of(point: StudyPoint) -> str:
    return point.series


def grown_part(first: StudyPoint, last: StudyPoint) -> Optional[tuple[str, float, float]]:
    """Part whose share grows most from the first step to the last: its name and both shares. None without parts."""
    shares = [{name: ms / line.values["step_ms"] for name, ms in line.parts_ms.items()} for line in (first, last)]
    if not shares[0]:
        return None
    most = max(shares[0], key=lambda name: shares[1].get(name, 0) - shares[0][name])
    return PARTS.get(most, most), shares[0][most], shares[1].get(most, 0.0)


def mean_error(result: StudyResult) -> float:
    errors = [abs(ours.values["tflops_per_gpu"] / theirs.values["tflops_per_gpu"] - 1) for ours, theirs in published_pairs(result)]
    return sum(errors) / len(errors)


def published_pairs(result: StudyResult) -> list[tuple[StudyPoint, StudyPoint]]:
    """Simulated points with the published one of the same layout."""
    published = {(point.layout, point.series): point for point in result.published}
    return [(point, published[point.layout, point.series]) for point in result.simulated if (point.layout, point.series) in published]


def _scaling_answer(result: StudyResult) -> str:
    if result.published:
        return (f"Predicted and published TFLOP/s per GPU of {counted(len(published_pairs(result)), 'run')} differ by "
                f"{100 * mean_error(result):.0f} % in the mean.")
    phrases = []
    for series, points in result.series.items():
        first, last = points[0], points[-1]
        grown = grown_part(first, last)
        why = f"; {grown[0]} grows from {100 * grown[1]:.1f} to {100 * grown[2]:.1f} % of the step" if grown and len(points) > 1 else ""
        phrases.append(f"{series.capitalize()} scaling keeps {100 * last.values['efficiency']:.0f} % of the throughput per GPU from "
                    f"{first.at['gpus']:,.0f} to {last.at['gpus']:,.0f} GPUs{why}.")
    return " ".join(phrases)


def _map_answer(result: StudyResult) -> str:
    cells = [line for line in result.lines if line.best]
    wins = {name: len(points) for name, points in by(cells, series_of).items()}
    text = joined([f"{name} in {number}" for name, number in sorted(wins.items(), key=lambda pair: -pair[1])])
    none = len(result.lines) - len(cells)
    close = sum(cell.values.get("margin_percent", math.inf) < 5 for cell in cells)
    return (f"Of {counted(len(result.lines), 'cell')} the winner is {text}" + (f"; in {none} nothing fits" if none else "") +
            f". In {close} the second best is less than 5 % slower.")


def _memory_answer(result: StudyResult) -> str:
    capacity = result.simulated[0].values["capacity_gb"]
    starts = {name: next((point.at["ranks"] for point in points if point.fits), None) for name, points in result.series.items()}
    fitting = [f"{name} from {ranks:,.0f} ranks on" for name, ranks in starts.items() if ranks is not None]
    never = [name for name, ranks in starts.items() if ranks is None]
    whole = f"Model states fit in {short(capacity)} GB per rank with {joined(fitting)}" if fitting else \
        f"Model states fit in {short(capacity)} GB per rank on none of these numbers of ranks"
    return whole + (f"; never with {joined(never)}." if never and fitting else ".")


def _recompute_answer(result: StudyResult) -> str:
    points = result.simulated
    none = points[0]
    fitting = [point for point in points if point.fits]
    least = min(points, key=lambda point: point.values["memory_gb"])
    text = (f"Against {none.series}, {least.series} needs {short(least.values['memory_gb'])} instead of "
            f"{short(none.values['memory_gb'])} GB and {_more(least, none)}")
    if not fitting:
        return f"{text}; none of them fits."
    best = min(fitting, key=lambda line: line.values["step_ms"])
    return f"{text}; the fastest that fits is {best.series}, {_more(best, none)}."


def _more(point: StudyPoint, base: StudyPoint) -> str:
    change = 100 * (point.values["step_ms"] / base.values["step_ms"] - 1)
    return "no more time" if abs(change) < 0.05 else f"{short(abs(change), 3)} % {'more' if change > 0 else 'less'} time"


def _boundary_answer(result: StudyResult) -> str:
    node = result.simulated[0].at["node"]
    inside = [point for point in result.simulated if point.at["tp"] <= node]
    beyond = [point for point in result.simulated if point.at["tp"] > node]
    error = f" Published runs differ by {100 * mean_error(result):.0f} % in the mean." if result.published else ""
    if not inside or not beyond:
        return f"No point on both sides of a node of {node:.0f} ranks.{error}"
    line, other = inside[-1], beyond[0]
    left = other.values["tflops_per_gpu"] / line.values["tflops_per_gpu"]
    waits = other.parts_ms.get("exposed_tensor", 0) / other.values["step_ms"]
    return (f"From {line.at['tp']:.0f} to {other.at['tp']:.0f} tensor ranks, beyond a node of {node:.0f}, {100 * left:.0f} % of the "
            f"TFLOP/s per GPU are left: {100 * waits:.0f} % of the step is waiting for collectives in layers.{error}")


def _order_answer(result: StudyResult) -> str:
    points = sorted(result.simulated, key=lambda point: point.values["step_ms"])
    if len(points) == 1:
        return "There is only one order: only one kind of parallelism has more than one rank."
    best, worst = points[0], points[-1]
    return (f"{best.series} is best, {time_text(1e3 * best.values['step_ms'])} per step; {worst.series} takes "
            f"{worst.values['step_ms'] / best.values['step_ms']:.2f} times as long.")


def moved(point: StudyPoint) -> float:
    """Largest change of the step's time, in per cent, when a number of the machine is raised or lowered."""
    return max(abs(point.values.get("more_percent", 0)), abs(point.values.get("less_percent", 0)))


def _sensitivity_answer(result: StudyResult) -> str:
    points = sorted(result.simulated, key=lambda point: -moved(point))
    percent = points[0].at["percent"]
    phrases = [f"{point.series} ({moved(point):.1f} %)" for point in points[:3] if moved(point) >= 0.05]
    idle = sum(moved(point) < 0.05 for point in points)
    return (f"A change of {short(percent)} % affects the step time most for {joined(phrases)}" if phrases else "No parameter changes the step time") + \
        f"; {idle} of {len(points)} parameters change it by less than 0.05 %."


def _bubbles_answer(result: StudyResult) -> str:
    chosen = [f"with {point.series} ranks compute {point.values['utilization_percent']:.1f} instead of "
            f"{point.values['utilization_without_percent']:.1f} % of the time, in {counted(round(point.values['refresh_steps']), 'step')} per refresh"
            for point in result.simulated]
    return f"{'; '.join(chosen)}.".replace("with", "With", 1)


def _clocks_answer(result: StudyResult) -> str:
    phrases = []
    for name, points in result.series.items():
        first, last = points[0], points[-1]
        text = f"with a clock for each {name} {first.values['saved_percent']:.1f} %"
        if last.at["slower_percent"] > first.at["slower_percent"]:
            text += f", and {last.values['saved_percent']:.1f} % where the step may take {short(last.at['slower_percent'])} % longer"
        phrases.append(text)
    slower = result.simulated[0].at["slower_percent"]
    return f"Energy saved compared with the top clock{'' if slower else ' without a longer step'}: {'; '.join(phrases)}."


STUDIES: dict[str, tuple[str, Callable[[StudyResult], str]]] = {  # the question, and its answer
    "scaling": ("How far does it scale, and what limits it?", _scaling_answer),
    "map": ("Which layout is fastest, by size of the model and bandwidth of a link?", _map_answer),
    "memory": ("How much memory per rank does each ZeRO stage need on N ranks?", _memory_answer),
    "recompute": ("How much memory does recomputation save, and at what cost in time?", _recompute_answer),
    "tp_boundary": ("What does tensor parallelism cost beyond a node?", _boundary_answer),
    "order": ("Which kind of parallelism belongs inside a node, and how much slower are other orders?", _order_answer),
    "sensitivity": ("Which parameter of the machine affects the step time most?", _sensitivity_answer),
    "bubbles": ("How much of a pipeline's bubbles can a second-order optimizer fill?", _bubbles_answer),
    "clocks": ("How much energy do lower clocks save where a pipeline waits anyway, and at what cost in time?", _clocks_answer)}
