"""The page of training runs."""
from typing import Any, Optional, Sequence

from reports.analysis.steps.overlap import Chart
from reports.analysis.training.runs import (
    analyse_training, behind_ms, budget, by_bytes, compared, energy_text, equal_bytes_text, joined_sentences, loss_at, loss_text, memory_text,
    mfu, missed_text, parts_text, predicted_runs, predicted_text, run_name, slowed, SMOOTH, speed_text, step_ms, straggler_text, titled,
    tokens_per_s, TrainingResult, way_name)
from reports.page import (
    Column, counts, Drawing, drawing, each, EMULATED, energy_columns, Fact, group, numbers, Page, Section, sizes, Table, table, words)
from reports.records import Records, Training
from reports.units import counted, joined, time_text, unbroken

MOST_TOLD = 4  # runs with a sentence of their own
MOST_CHARTS = 6  # limit for a group of runs


# ---- Tables

_WARM = "the first three left out"


def _total_memory(one: Training) -> Optional[int]:
    return int(one.memory_bytes["total"]) if one.memory_bytes else None


def _short_name(one: Training) -> str:
    return f"{one.layout.text}, {one.dtype}"


_RUNS = (
    words("run", run_name, "layout, dtype, threads or GPUs"), counts("steps", lambda one: one.steps[-1].step),
    counts("tokens per step", lambda one: one.tokens_per_step), numbers("step ms", step_ms, f"median, {_WARM}"),
    numbers("tokens/s", tokens_per_s, "of all ranks: median, the first three steps left out", 5),
    numbers("MFU %", lambda one: 100 * mfu(one), "model FLOPs divided by the peak: median, the first three steps left out", 3),
    sizes("memory", _total_memory, "bytes at the peak of the rank that holds most"), words("most of it", memory_text),
    numbers("validation loss", lambda one: one.validation and one.validation.loss, "nats per token"),
    numbers("bigram", lambda one: one.validation and one.validation.bigram, "nats per token"),
    words("where the time goes", lambda one: parts_text(one.parts_ms), "parts of the step, mean over ranks"),
)


def _replicas(runs: Sequence[Training]) -> tuple[Column, ...]:
    return (
        words("replicas agree by", way_name, "--sync, and the replica that is slowed down; or the format of gradients, --compression"),
        counts("steps", lambda one: one.steps[-1].step), numbers("loss", loss_at, f"mean of the last {SMOOTH} steps, nats per token"),
        numbers("at equal bytes", lambda one: loss_at(one, budget(runs)),
                f"mean of the last {SMOOTH} steps until as much was sent as by the run that sends least"),
        sizes("sent", lambda one: one.sent_bytes, "bytes of the rank that sends most"), numbers("step ms", lambda one: one.mean_ms, "mean"),
        numbers("predicted ms", lambda one: one.sync and one.sync.predicted_ms,
                "by the times of the slow replica alone, where they are stated"),
        numbers("behind ms", behind_ms, "part of the step after the replicas' own work: waits and messages, mean over replicas"),
        words("missed", missed_text, "updates of other replicas between a replica's weights and its gradient, mean"))


_ACTIVATIONS = (
    words("run", _short_name, "layout, dtype"), words("kept", lambda one: _kept_text(one), "activations kept between forward and backward"),
    numbers("ahead", lambda one: one.activations and one.activations.ahead, "number of layers whose time a copy has"),
    sizes("copied per step", lambda one: one.activations.copied_bytes if one.activations else 0,
          "bytes off the device and back, by the rank that copied most"),
    sizes("away", lambda one: one.activations.away_bytes if one.activations else 0, "most bytes off the device at once"),
    sizes("memory", _total_memory, "bytes at the peak of the rank that holds most"), numbers("step ms", step_ms, f"median, {_WARM}"),
)


def _kept_text(one: Training) -> str:
    if not one.activations:
        return "on the device"
    where = {"none": "on the device", "host": "in the host's memory", "file": "in files"}[one.activations.place]
    return where + (", in parts" if one.activations.partitioned else "")


_PREDICTED = (
    words("run", _short_name, "layout, dtype"), numbers("predicted ms", lambda one: one.predicted.step_ms, "simulated"),
    numbers("measured ms", lambda one: one.predicted.measured_step_ms, "the step in the median"),
    numbers("error %", lambda one: 100 * one.predicted.error, "predicted over measured, minus 1", 3),
    words("kernels", lambda one: f"{one.predicted.measured_kernels} of {one.predicted.kernels}" if one.predicted.kernels else "–",
          "kernel shapes with a measured time, of all"),
    words("the largest gap", lambda one: one.predicted.gap, "largest difference of a part, and its origin"),
)


# Columns of (run, collective, its record or, for a sum, the bytes sent).
_PROFILED = (
    words("run", lambda row: row[0], "layout, dtype"), words("collective", lambda row: row[1]),
    numbers("ranks", lambda row: _of_calls(row, "ranks") or None, "number of ranks of the group"),
    sizes("bytes", lambda row: _of_calls(row, "bytes"), "per call, of the larger of input and output"),
    numbers("calls", lambda row: _of_calls(row, "calls"), "per rank and step"),
    numbers("ms", lambda row: _of_calls(row, "ms"), "per rank and step, waits for other ranks included"),
    sizes("sent", lambda row: getattr(row[2], "sent_bytes", row[2]), "per rank and step, by formula"),
)


def _of_calls(row: tuple[str, str, Any], name: str) -> Optional[float]:
    return getattr(row[2], name, None)


def _profiled(runs: Sequence[Training]) -> list[tuple[str, str, Any]]:
    """Collectives of steps that PyTorch's profiler timed; their sum beside that of the simulated step."""
    return [(_short_name(one), *row) for one in runs if one.profile for row in (
        *((each.collective, each) for each in one.profile.collectives),
        ("all, measured", one.profile.sent_bytes), ("all, simulated", one.profile.predicted_sent_bytes))]


def tables_of(runs: Sequence[Training]) -> dict[str, Table]:
    parted = runs if any(one.activations for one in runs) else ()
    found = {"Every run of the records": ((*_RUNS, *energy_columns(runs)), runs),
             "How replicas agree": (_replicas(compared(runs)), compared(runs)),
             "Activations in parts, or off the device": (_ACTIVATIONS, parted),
             "Steps as they were predicted, and as they ran": (_PREDICTED, predicted_runs(runs)),
             "Collectives of profiled steps": (_PROFILED, _profiled(runs))}
    return {caption: table(caption, columns, lines) for caption, (columns, lines) in found.items()}


# ---- Figures: the function, the title, and the condition under which there is one

_FIGURES = {
    "loss": ("training_figures.loss_figure", "Loss by step, with what counting tokens reaches", lambda runs: not _are_profiles(runs)),
    "bytes": ("training_figures.bytes_figure", "Loss by bytes that the busiest rank has sent", lambda runs: by_bytes(runs) and not _are_profiles(runs)),
    "straggler": ("training_figures.straggler_figure", "The replicas' own steps, and what comes behind them, for each run",
                  lambda runs: slowed(runs) and not _are_profiles(runs)),
    "speed": ("training_figures.speed_figure", "Tokens per second by step", lambda runs: True),
    "predicted": ("stacked_bars.predicted_figure", "Parts of a step of each run as predicted and as measured", predicted_runs),
    "parts": ("stacked_bars.parts_figure", "Parts of a step of each run", lambda runs: True),
    "memory": ("stacked_bars.memory_figure", "Memory of the fullest rank of each run by kind", lambda runs: not _are_profiles(runs)),
}
_KINDS = {"straggler": "parts", "predicted": "parts"}  # others are named as their figure


def _are_profiles(runs: Sequence[Training]) -> bool:
    """PyTorch's profiler tells neither loss nor memory."""
    return all(one.profile for one in runs)


def step_badge(first: Any) -> str:
    return {"emulated": EMULATED if first.run.link else "EMULATED straggler: a replica is slowed on purpose",
            "simulated": "SIMULATED from the pieces of two replicas: not run"}.get(first.basis, "")


def _chart(one: Training, stem: str) -> Drawing:
    whole = sum(one.parts_ms.values())
    title = unbroken(f"{run_name(one)}: a step takes {time_text(1e3 * whole)}: {parts_text(one.parts_ms)}".rstrip("."))
    return drawing("gantt", stem, "gantt.gantt_figure", [Chart("measured", one.timeline, whole, f"step {one.timed_step}", None)],
                   title, f"{titled(one.model)}, a row per rank", step_badge(one))


def _drawings(result: TrainingResult) -> list[Drawing]:
    drawn = [drawing(_KINDS.get(name, name), f"{result.anchor}-{name}", draw, result, title, result.name, step_badge(result.first))
             for name, (draw, title, there) in _FIGURES.items() if there(result.lines)]
    timed = [one for one in result.lines if one.timeline][:MOST_CHARTS]
    return drawn + [_chart(one, f"{result.anchor}-gantt-{at}") for at, one in enumerate(timed, start=1)]


def _section(result: TrainingResult) -> Section:
    """If there are many runs, only the fastest has a sentence; the table has all."""
    runs = result.lines if len(result.lines) <= MOST_TOLD else (result.fastest,)
    told = [loss_text(result.lines), predicted_text(result.lines), equal_bytes_text(result.lines), straggler_text(result.lines),
            *(joined_sentences(speed_text(one), energy_text(one)) for one in runs),
            f"FLOPs per token are counted as {result.first.flop_convention}; MFU is over what a product of matrices reaches on all cores or "
            "GPUs together, or as was stated."]
    return group(result, [text for text in told if text], _drawings(result), list(tables_of(result.lines).values()),
                 drawable=sum(one.timeline is not None for one in result.lines))


def _facts(records: Records, _: Sequence[Any]) -> list[Fact]:
    lines = records.trainings
    return [Fact("What was trained", joined(sorted({f"{titled(one.model)} on {one.data}" for one in lines}))),
            Fact("Runs", f"{counted(len(lines), 'run')}, {counted(sum(one.steps[-1].step for one in lines), 'step')}")]


PAGE = Page(
    12, "training", "Training", "Does it learn, how fast, and where does the time of a step go?",
    "Does it learn, how fast, where does the time of a step go, and what fills the memory?",
    records=lambda records: records.only("trainings"), results=analyse_training, sections=each(_section), figure="parts", facts=_facts)
