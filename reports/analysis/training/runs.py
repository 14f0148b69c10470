"""Training runs of one model on one text: how the loss falls, how fast, where the time goes, what fills the memory."""
from dataclasses import dataclass
from statistics import median

from reports.analysis.findings import Finding
from reports.analysis.training.replicas import equal_bytes_text, straggler_text, way_name
from reports.analysis.training.words import link_text, model_text, parts_text
from reports.records import Records, Training
from reports.units import bytes_text, counted, joined, share_text, short, time_text

WARM_UP = 3  # steps that are left out of speeds: they choose kernels and touch memory


@dataclass(frozen=True)
class TrainingResult:
    anchor: str
    runs: tuple[Training, ...]

    @property
    def first(self) -> Training:
        return self.runs[0]

    @property
    def name(self) -> str:
        one = self.first
        gpus = f", on {one.run.machine.gpu_models}" if is_on_gpus(one) else ""
        return f"{model_text(one.model)} on {one.data}, {one.model.numbers['length']:g} tokens per sequence{gpus}"

    @property
    def fastest(self) -> Training:
        return max(self.runs, key=tokens_per_s)

    @property
    def findings(self) -> list[Finding]:
        fastest = self.fastest
        badge = "" if fastest.basis == "measured" else fastest.basis
        told = joined_sentences(speed_text(fastest), energy_text(fastest), loss_text(self.runs))
        found = [Finding(self.name, told, f"Its time: {parts_text(fastest.parts_ms)}.", badge, self.anchor)]
        if predicted := predicted_text(self.runs):
            found.append(Finding(self.name, predicted, "", badge, self.anchor))
        found += [Finding(self.name, text, "", badge, self.anchor)
                  for text in (equal_bytes_text(self.runs), straggler_text(self.runs)) if text]
        return found


def analyse_training(records: Records) -> tuple[TrainingResult, ...]:
    """Keeps the latest of equal runs."""
    grouped: dict[tuple, dict[tuple, Training]] = {}
    for one in records.trainings:
        key = (one.model.name, one.model.parameters, one.model.numbers["length"], one.data,
               one.run.machine.fingerprint, one.run.build, one.basis)
        grouped.setdefault(key, {})[run_name(one), len(one.steps)] = one
    return tuple(TrainingResult(f"training-{number}", tuple(of.values()))
                 for number, of in enumerate(grouped.values(), start=1))


def is_on_gpus(one: Training) -> bool:
    return bool(one.run.machine.gpus) and one.run.transport in ("cuda", "nccl")


def run_name(one: Training) -> str:
    """dp=2,zero=1, f32, 1 thread per rank, 2,048 tokens per step; of GPUs, which the heading names, whether ranks share one."""
    shared = one.run.gpu.label if one.run.gpu and one.run.gpu.ranks_per_gpu > 1 else ""
    parts = [one.layout.text, one.dtype, shared if is_on_gpus(one) else f"{counted(one.threads, 'thread')} per rank",
             f"{counted(one.tokens_a_step, 'token')} per step", "as a CUDA graph" if one.graph else "",
             way_name(one) if one.sync or one.compression else "", link_text(one.run.link)]
    return ", ".join(part for part in parts if part)


def warm_steps(one: Training) -> list:
    return [step for step in one.steps if step.step > WARM_UP] or list(one.steps)


def tokens_per_s(one: Training) -> float:
    return median(step.tokens_per_s for step in warm_steps(one))


def step_ms(one: Training) -> float:
    return median(step.ms for step in warm_steps(one))


def mfu(one: Training) -> float:
    return median(step.mfu for step in warm_steps(one))


def energy_text(one: Training) -> str:
    """541 tokens a joule at 620 W of 1 GPU; nothing where nothing counted."""
    if one.energy is None:
        return ""
    return f"{one.energy.tokens_per_joule:.3g} tokens a joule at {one.energy.watts:.3g} W of {one.energy.of}."


def joined_sentences(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def speed_text(one: Training) -> str:
    return (f"{run_name(one)}: {time_text(1e3 * step_ms(one))}, {tokens_per_s(one):,.0f} tokens/s, "
            f"MFU {share_text(mfu(one))}, {bytes_text(one.memory_bytes['total'], 3)} on the fullest rank.")


def loss_text(runs: tuple[Training, ...]) -> str:
    """After 300 steps the validation loss is 2.41 nats per token; counting pairs of tokens reaches 2.78."""
    told = [one for one in runs if one.validation and one.validation.loss is not None]
    if not told:
        return ""
    best = min(told, key=lambda one: one.validation.loss)
    than = "below" if best.validation.loss < best.validation.bigram else "not yet below"
    return (f"After {counted(best.steps[-1].step, 'step')} the validation loss is {short(best.validation.loss)} nats per "
            f"token, {than} the {short(best.validation.bigram)} that counting pairs of tokens reaches.")


def predicted_runs(runs: tuple[Training, ...]) -> tuple[Training, ...]:
    return tuple(one for one in runs if one.predicted)


def predicted_text(runs: tuple[Training, ...]) -> str:
    """Predicted before they ran: 10 steps, off by 4 % in the median and 12 % at worst (dp=4, f32, too short; ...)."""
    told = predicted_runs(runs)
    if not told:
        return ""
    errors = [abs(one.predicted.error) for one in told]
    worst = max(told, key=lambda one: abs(one.predicted.error))
    side = "too short" if worst.predicted.error < 0 else "too long"
    return (f"Predicted before {'they' if len(told) > 1 else 'it'} ran: {counted(len(told), 'step')}, off by "
            f"{share_text(median(errors))} in the median and {share_text(max(errors))} at worst "
            f"({worst.layout.text}, {worst.dtype}, {side}; its largest gap: {worst.predicted.gap}).")


def memory_text(one: Training) -> str:
    kinds = sorted(((value, kind) for kind, value in one.memory_bytes.items() if kind != "total"), reverse=True)
    return joined([f"{kind} {bytes_text(value, 3)}" for value, kind in kinds[:3]])
