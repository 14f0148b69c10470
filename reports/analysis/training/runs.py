"""Results of the pages of training and scaling: runs over their steps, replicas, and steps of several layouts."""
from functools import cached_property
from statistics import mean, median
from typing import Any, Optional, Sequence

from reports.analysis.groups import by, Group, latest, listed, on_links
from reports.analysis.steps.layouts import COMPUTING, PARTS, SLIGHT
from reports.analysis.training.curves import Curve, curves_of, machine_of
from reports.records import Records, Step, StepTime, Training
from reports.units import bytes_text, counted, joined, share_text, short, time_text


# ---- Words that both pages share

NAMES = {**PARTS, "around": "around the tasks"}


def titled(model: Any) -> str:
    """Name such as "GPT nano"; a model that is no GPT has its name alone."""
    is_gpt = "llama" not in model.name and "learned_positions=no" not in model.name
    return f"GPT {model.name}" if is_gpt else model.name


def model_text(model: Any) -> str:
    """Name with size, such as "GPT nano (0.842 million parameters)"."""
    return f"{titled(model)} ({short(model.parameters / 1e6)} million parameters)"


def parts_text(parts_ms: dict[str, float]) -> str:
    """Words such as "forward 28 %, backward 63 % and bubble 3 %": all but slight parts, the largest first."""
    whole = sum(parts_ms.values())
    largest = sorted(((value, name) for name, value in parts_ms.items() if value > SLIGHT * whole), reverse=True)
    return joined([f"{NAMES.get(name, name)} {share_text(value / whole)}" for value, name in largest])


def computing_ms(parts_ms: dict[str, float]) -> float:
    return sum(parts_ms.get(name, 0) for name in COMPUTING)


# Training runs of one model on one text: the loss over steps, speed, parts of the time, kinds of memory.

WARM_UP = 3  # number of first steps that speeds exclude: they choose kernels and touch memory


class TrainingResult(Group):
    @property
    def name(self) -> str:
        run = self.first
        gpus = f", on {run.run.machine.gpu_models}" if is_on_gpus(run) else ""
        return f"{model_text(run.model)} on {run.data}, {run.model.numbers['length']:g} tokens per sequence{gpus}"

    @property
    def fastest(self) -> Training:
        return max(self.lines, key=tokens_per_s)

    @property
    def statements(self) -> list[tuple[str, ...]]:
        fastest = self.fastest
        loss = loss_text(self.lines)
        speed = joined_sentences(speed_text(fastest), energy_text(fastest), loss)
        return [(speed, f"Its time: {parts_text(fastest.parts_ms)}.", loss),
                *((text(self.lines), "") for text in (predicted_text, equal_bytes_text, straggler_text))]


def analyse_training(records: Records) -> tuple[TrainingResult, ...]:
    groups = latest(records.trainings, lambda run: (run.model.name, run.model.parameters, run.model.numbers["length"], run.data,
                                                    run.run.machine.fingerprint, run.run.build, run.basis),
                    lambda run: (run_name(run), len(run.steps)))
    return TrainingResult.all_of("training", (of.values() for of in groups.values()))


def is_on_gpus(run: Training) -> bool:
    return bool(run.run.machine.gpus) and run.run.transport in ("cuda", "nccl")


def run_name(run: Training) -> str:
    """Words such as "dp=2,zero=1, f32, 1 thread per rank, 2,048 tokens per step"; on GPUs, whether ranks share one."""
    shared = run.run.gpu.label if run.run.gpu and run.run.gpu.ranks_per_gpu > 1 else ""
    return listed(run.layout.text, run.dtype, shared if is_on_gpus(run) else f"{counted(run.threads, 'thread')} per rank",
                  f"{counted(run.tokens_per_step, 'token')} per step", "as a CUDA graph" if run.graph else "",
                  way_name(run) if run.sync or run.compression else "", on_links(run))


def warm_steps(run: Training) -> list:
    return [step for step in run.steps if step.step > WARM_UP] or list(run.steps)


def tokens_per_s(run: Training) -> float:
    return median(step.tokens_per_s for step in warm_steps(run))


def step_ms(run: Training) -> float:
    return median(step.ms for step in warm_steps(run))


def mfu(run: Training) -> float:
    return median(step.mfu for step in warm_steps(run))


def energy_text(run: Training) -> str:
    """Words such as "541 tokens per joule at 620 W of 1 GPU"; empty without an energy counter."""
    if run.energy is None:
        return ""
    return f"{run.energy.tokens_per_joule:.3g} tokens per joule at {run.energy.watts:.3g} W of {run.energy.of}."


def joined_sentences(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def speed_text(run: Training) -> str:
    memory = f", {bytes_text(run.memory_bytes['total'], 3)} on the fullest rank" if run.memory_bytes else ""
    share = f"MFU {share_text(mfu(run))}" if mfu(run) <= 1 else "MFU undecided, as its peak is below what was reached"
    return f"{run_name(run)}: {time_text(1e3 * step_ms(run))}, {tokens_per_s(run):,.0f} tokens/s, {share}{memory}."


def loss_text(runs: tuple[Training, ...]) -> str:
    """Sentence such as: After 300 steps the validation loss is 2.41 nats per token, below the 2.78 that counting pairs of tokens
    reaches."""
    chosen = [run for run in runs if run.validation and run.validation.loss is not None]
    if not chosen:
        return ""
    best = min(chosen, key=lambda run: run.validation.loss)
    than = "below" if best.validation.loss < best.validation.bigram else "not yet below"
    return (f"After {counted(best.steps[-1].step, 'step')} the validation loss is {short(best.validation.loss)} nats per "
            f"token, {than} the {short(best.validation.bigram)} that counting pairs of tokens reaches.")


def predicted_runs(runs: tuple[Training, ...]) -> tuple[Training, ...]:
    return tuple(run for run in runs if run.predicted)


def predicted_text(runs: tuple[Training, ...]) -> str:
    """Sentence such as: Predicted before they ran: 10 steps, off by 4 % in the median and 12 % at worst (dp=4, f32, too short; ...)."""
    chosen = predicted_runs(runs)
    if not chosen:
        return ""
    errors = [abs(run.predicted.error) for run in chosen]
    worst = max(chosen, key=lambda run: abs(run.predicted.error))
    side = "too short" if worst.predicted.error < 0 else "too long"
    when = "Predicted" if any(run.profile for run in chosen) else f"Predicted before {'they' if len(chosen) > 1 else 'it'} ran"
    return (f"{when}: {counted(len(chosen), 'step')}, off by "
            f"{share_text(median(errors))} in the median and {share_text(max(errors))} at worst "
            f"({worst.layout.text}, {worst.dtype}, {side}; its largest gap: {worst.predicted.gap}).")


def memory_text(run: Training) -> str:
    kinds = sorted(((value, kind) for kind, value in run.memory_bytes.items() if kind != "total"), reverse=True)
    return joined([f"{kind} {bytes_text(value, 3)}" for value, kind in kinds[:3]])


# Training runs by how data-parallel ranks synchronise: the loss at equal bytes, and the cost of a slow replica.

SMOOTH = 10  # number of steps over which a loss is averaged
NONE_SLOW = "no replica is slow"
WITHIN = "allreduce"  # gradients are reduced within the step


def way(run: Training) -> str:
    """Name such as "diloco:every=8", for compressed gradients such as "as int4", else "allreduce"."""
    if run.compression:
        return f"as {run.compression}"
    return run.sync.way if run.sync else WITHIN


def straggler_name(text: str) -> str:
    """Words for replica=3,factor=3,step_ms=50: "replica 3 takes 3 times as long"."""
    fields = dict(item.split("=") for item in text.split(","))
    if fields.get("factor", "1") == "1":
        return NONE_SLOW
    who = "another replica in each step" if fields.get("replica", "any") == "any" else f"replica {fields['replica']}"
    return f"{who} takes {fields['factor']} times as long"


def way_name(run: Training) -> str:
    """Name such as "diloco:every=8; replica 3 takes 3 times as long"."""
    return way(run) + (f"; {straggler_name(run.sync.straggler)}" if run.sync and run.sync.straggler else "")


def compared(runs: Sequence[Training]) -> tuple[Training, ...]:
    """Runs whose replicas sent anything, if one run synchronises in another way than by plain gradients within the step."""
    chosen = tuple(run for run in runs if run.sent_bytes)
    return chosen if any(run.sync or run.compression for run in chosen) else ()


def slowed(runs: Sequence[Training]) -> tuple[Training, ...]:
    """Runs with a --straggler setting, ordered by it; those in which no replica is slow come first."""
    chosen = (run for run in runs if run.sync and run.sync.straggler)
    return tuple(sorted(chosen, key=lambda run: (straggler_name(run.sync.straggler) != NONE_SLOW, run.sync.straggler)))


def by_bytes(runs: Sequence[Training]) -> tuple[Training, ...]:
    """Runs whose losses are compared: none has a replica that is slowed down."""
    return compared(tuple(run for run in runs if not (run.sync and run.sync.straggler)))


def budget(runs: Sequence[Training]) -> int:
    """Bytes that each of the runs has sent."""
    return min(run.sent_bytes for run in runs)


def loss_at(run: Training, most_bytes: float = float("inf")) -> float | None:
    """Mean loss, in nats per token, of the last SMOOTH steps until which at most `most_bytes` were sent; None without such steps."""
    known = [step.loss for step in run.steps if step.loss is not None and (step.sent_bytes or 0) <= most_bytes]
    return mean(known[-SMOOTH:]) if known else None


def loss_by_bytes(run: Training) -> list[tuple[int, float]]:
    """A point for each number of bytes sent so far: the mean loss of the steps since."""
    losses = by((step for step in run.steps if step.loss is not None and step.sent_bytes), lambda step: step.sent_bytes, lambda step: step.loss)
    return [(sent, mean(some)) for sent, some in losses.items()]


def behind_ms(run: Training) -> float:
    """Part of a step after the replicas' own work, in ms: mean, without the first step."""
    return mean(step.sync_ms or 0.0 for step in run.steps[1:] or run.steps)


def equal_bytes_text(runs: Sequence[Training]) -> str:
    """Sentence such as: At equal bytes, 3.5 MiB from the rank that sends most, the loss is 2.6 nats per token with diloco:every=32, ..."""
    chosen = by_bytes(runs)
    if len(chosen) < 2:
        return ""
    most = budget(chosen)
    losses = sorted((loss, way(run)) for run in chosen if (loss := loss_at(run, most)) is not None)
    if not losses:
        return ""
    at_end = sorted((loss_at(run), way(run)) for run in chosen)
    return (f"At equal bytes, {bytes_text(most, 3)} from the rank that sends most, the loss is "
            f"{_best_and_worst(losses, ' nats per token')}; at equal tokens {_best_and_worst(at_end)}.")


def _best_and_worst(losses: Sequence[tuple[float, str]], unit: str = "") -> str:
    """Words such as "2.6 nats per token with int4, 5.1 with allreduce"."""
    (best, best_way), (worst, worst_way) = losses[0], losses[-1]
    return f"{short(best)}{unit} with {best_way.removeprefix('as ')}, {short(worst)} with {worst_way.removeprefix('as ')}"


def straggler_text(runs: Sequence[Training]) -> str:
    """Sentence such as: A step takes, where replica 3 takes 3 times as long, from 62.6 ms (async:staleness=100) to 158 ms (server:..."""
    chosen = slowed(runs)
    sentences = []
    for straggler in dict.fromkeys(run.sync.straggler for run in chosen):
        steps = sorted((run.mean_ms, way(run)) for run in chosen if run.sync.straggler == straggler)
        sentences.append(f"where {straggler_name(straggler)}, from {time_text(1e3 * steps[0][0])} ({steps[0][1]}) to "
                         f"{time_text(1e3 * steps[-1][0])} ({steps[-1][1]})")
    return f"A step takes, {'; '.join(sentences)}." if sentences else ""


def missed_text(run: Training) -> str:
    if run.sync is None or run.sync.missed_mean is None:
        return ""
    return f"{short(run.sync.missed_mean)}, {counted(run.sync.missed_most, 'update')} at most"


# ---- Steps of several layouts: how well they scale, and how well their pieces explain the measured time

KINDS = {"isolated": "pieces alone, simulated", "contended": "with contention, simulated", "measured": "measured"}
_FROM = {"isolated": "what their pieces alone give", "contended": "what these give with their measured contention"}
NAMED = 0.01  # share of the step: smaller differences are not named
MOST_NAMED = 3
MOST_CHARTS = 8  # number of charts of a group


class ScalingResult(Group):
    """Weak before strong, each in the order of ranks."""

    @cached_property
    def run(self) -> tuple[Step, ...]:
        """Those that were run; if none was, those that were simulated."""
        return tuple(line for line in self.lines if line.basis != "simulated") or self.lines

    @cached_property
    def beyond(self) -> tuple[Step, ...]:
        """Simulated ones, where others were run."""
        return tuple(line for line in self.lines if line.basis == "simulated") if self.run != self.lines else ()

    @property
    def first(self) -> Step:
        return self.run[0]

    @property
    def name(self) -> str:
        run = self.first
        return listed(model_text(run.model), run.dtype, f"{counted(run.threads, 'thread')} per rank", on_links(run))

    @property
    def headline(self) -> str:
        return f"Scaling of {self.name}"

    @property
    def pieces(self) -> tuple[Step, ...]:
        """Lines with a time predicted from their pieces."""
        return tuple(line for line in self.run if line.step("isolated"))

    @property
    def curves(self) -> list[Curve]:
        return curves_of((*self.run, *self.beyond))

    @property
    def texts(self) -> list[str]:
        return [text for text in (*(curve.text for curve in self.curves), gaps_text(self)) if text]

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(text, "") for text in self.texts]


def analyse_scaling(records: Records) -> tuple[ScalingResult, ...]:
    """Simulated layouts continue those that were run with the same setting."""
    groups = latest(records.steps_of("scaling"), lambda run: (run.model.name, run.model.parameters, run.model.numbers["length"], run.dtype, run.threads,
                                                   run.run.link, run.run.machine.fingerprint, run.run.build),
                    lambda run: (run.basis, machine_of(run), tuple(time.mode for time in run.times), run.mode, run.layout.text, run.sequences_per_step))
    return ScalingResult.all_of("scaling", (sorted(of.values(), key=lambda run: (run.mode != "weak", run.ranks)) for of in groups.values()))


def line_name(step: Step) -> str:
    """Name such as "dp=2, weak"; " *" at its end marks more ranks than cores."""
    where = f", simulated on {machine_of(step)}" if machine_of(step) else ", simulated" if step.basis == "simulated" else ""
    return f"{step.layout.text}, {step.mode}{where}" + (" *" if step.oversubscribed else "")


def off(line: Step, kind: str) -> Optional[float]:
    """Share by which the measured step is longer than a predicted one; None without either."""
    predicted, measured = line.step(kind), line.step("measured")
    return measured.step_ms / predicted.step_ms - 1 if predicted and measured and predicted.step_ms else None


def gaps_text(result: ScalingResult) -> str:
    """Sentence on the errors of the predictions, over all layouts."""
    if not result.pieces:
        return ""
    phrases = []
    for kind in ("isolated", "contended"):
        values = [abs(value) for line in result.run if (value := off(line, kind)) is not None]
        if values:
            phrases.append(f"{share_text(median(values))} in the median ({share_text(max(values))} at most) from "
                        f"{_FROM[kind]}")
    if phrases:
        return f"Steps of {counted(len(result.pieces), 'layout')} differ by {', and by '.join(phrases)}."
    return f"{counted(len(result.run), 'layout')}, simulated from the pieces of two replicas; none was run."


def differences(line: Step, kind: str) -> dict[str, float]:
    """Measured minus predicted time of each part, in ms; empty without either step."""
    predicted, measured = line.step(kind), line.step("measured")
    if not predicted or not measured:
        return {}
    names = dict.fromkeys([*measured.parts_ms, *predicted.parts_ms])
    return {name: measured.parts_ms.get(name, 0) - predicted.parts_ms.get(name, 0) for name in names}


def why_text(line: Step, kind: str) -> str:
    """Words for the largest differences, such as "backward +3.1 ms and bubble −0.6 ms"."""
    measured = line.step("measured")
    whole = measured.step_ms if measured else 0.0
    largest = sorted(((abs(value), name, value) for name, value in differences(line, kind).items()
                   if abs(value) > NAMED * whole), reverse=True)[:MOST_NAMED]
    return joined([f"{NAMES.get(name, name)} {signed(value)} ms" for _, name, value in largest])


def signed(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{short(abs(value))}"


def line_text(line: Step) -> str:
    """The three times of one layout in a sentence."""
    isolated, contended, measured = (line.step(kind) for kind in KINDS)
    if not (isolated and contended and measured):
        return ""
    because = why_text(line, "contended")
    return (f"{line_name(line)}: pieces timed alone give {_ms(isolated)}, with their measured contention "
            f"{_ms(contended)}, and the step takes {_ms(measured)}"
            f"{f'; the rest is {because}' if because else ''}.")


def _ms(step: StepTime) -> str:
    return time_text(1e3 * step.step_ms)


def line_to_explain(results: tuple[ScalingResult, ...], layout: str = "") -> Optional[Step]:
    """Layout whose step is explained in detail: the one that was trained; else, among those that have cores of
    their own, the one with most ranks."""
    lines = [line for result in results for line in result.run if line.step("measured") and line.step("isolated")]
    own = [line for line in lines if not line.oversubscribed] or lines
    return max(own, key=lambda line: (line.layout.text == layout, line.ranks), default=None)


def charted(result: ScalingResult) -> list[Step]:
    """Lines whose timelines are drawn, in this order."""
    return [line for line in result.run if line.ranks > 1 and any(time.timeline for time in line.times)][:MOST_CHARTS]


def chart_stem(results: tuple[ScalingResult, ...], line: Step) -> str:
    """The name of a layout's chart; empty if it has none."""
    for result in results:
        for number, run in enumerate(charted(result), start=1):
            if run is line:
                return f"{result.anchor}-gantt-{number}"
    return ""
