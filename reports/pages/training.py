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

MOST_LISTED = 4  # runs with a sentence of their own
MOST_CHARTS = 6  # limit for a group of runs


# ---- Tables

_WARM = "without the first three"


def _total_memory(run: Training) -> Optional[int]:
    return int(run.memory_bytes["total"]) if run.memory_bytes else None


def _short_name(run: Training) -> str:
    return f"{run.layout.text}, {run.dtype}"


_RUNS = (
    words("run", run_name, "layout, dtype, threads or GPUs"), counts("steps", lambda run: run.steps[-1].step),
    counts("tokens per step", lambda run: run.tokens_per_step), numbers("step ms", step_ms, f"median, {_WARM}"),
    numbers("tokens/s", tokens_per_s, "of all ranks: median, without the first three steps", 5),
    numbers("MFU %", lambda run: 100 * mfu(run), "model FLOPs divided by the peak: median, without the first three steps", 3),
    sizes("memory", _total_memory, "bytes at the peak of the rank that holds most"), words("most of it", memory_text),
    numbers("validation loss", lambda run: run.validation and run.validation.loss, "nats per token"),
    numbers("bigram", lambda run: run.validation and run.validation.bigram, "nats per token"),
    words("where the time goes", lambda run: parts_text(run.parts_ms), "parts of the step, mean over ranks"),
)


def _replicas(runs: Sequence[Training]) -> tuple[Column, ...]:
    return (
        words("replicas agree by", way_name, "--sync, and the replica that is slowed down; or the format of gradients, --compression"),
        counts("steps", lambda run: run.steps[-1].step), numbers("loss", loss_at, f"mean of the last {SMOOTH} steps, nats per token"),
        numbers("at equal bytes", lambda run: loss_at(run, budget(runs)),
                f"mean of the last {SMOOTH} steps until as much was sent as by the run that sends least"),
        sizes("sent", lambda run: run.sent_bytes, "bytes of the rank that sends most"), numbers("step ms", lambda run: run.mean_ms, "mean"),
        numbers("predicted ms", lambda run: run.sync and run.sync.predicted_ms,
                "by the times of the slow replica alone, where they are stated"),
        numbers("after ms", behind_ms, "part of the step after the replicas' own work: waits and messages, mean over replicas"),
        words("missed", missed_text, "updates of other replicas between a replica's weights and its gradient, mean"))


_ACTIVATIONS = (
    words("run", _short_name, "layout, dtype"), words("kept", lambda run: _kept_text(run), "activations kept between forward and backward"),
    numbers("ahead", lambda run: run.activations and run.activations.ahead, "number of layers whose time a copy has"),
    sizes("copied per step", lambda run: run.activations.copied_bytes if run.activations else 0,
          "bytes off the device and back, by the rank that copied most"),
    sizes("away", lambda run: run.activations.away_bytes if run.activations else 0, "most bytes off the device at once"),
    sizes("memory", _total_memory, "bytes at the peak of the rank that holds most"), numbers("step ms", step_ms, f"median, {_WARM}"),
)


def _kept_text(run: Training) -> str:
    if not run.activations:
        return "on the device"
    where = {"none": "on the device", "host": "in the host's memory", "file": "in files"}[run.activations.place]
    return where + (", in parts" if run.activations.partitioned else "")


_PREDICTED = (
    words("run", _short_name, "layout, dtype"), numbers("predicted ms", lambda run: run.predicted.step_ms, "simulated"),
    numbers("measured ms", lambda run: run.predicted.measured_step_ms, "the median step"),
    numbers("error %", lambda run: 100 * run.predicted.error, "predicted over measured, minus 1", 3),
    words("kernels", lambda run: f"{run.predicted.measured_kernels} of {run.predicted.kernels}" if run.predicted.kernels else "–",
          "kernel shapes with a measured time, out of all"),
    words("the largest gap", lambda run: run.predicted.gap, "largest difference of a part, and its origin"),
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
    """Collectives of steps that PyTorch's profiler timed; their sum, and the simulated step's."""
    return [(_short_name(run), *row) for run in runs if run.profile for row in (
        *((each.collective, each) for each in run.profile.collectives),
        ("all, measured", run.profile.sent_bytes), ("all, simulated", run.profile.predicted_sent_bytes))]


def tables_of(runs: Sequence[Training]) -> dict[str, Table]:
    parted = runs if any(run.activations for run in runs) else ()
    found = {"Every run of the records": ((*_RUNS, *energy_columns(runs)), runs),
             "How replicas agree": (_replicas(compared(runs)), compared(runs)),
             "Activations in parts, or off the device": (_ACTIVATIONS, parted),
             "Predicted and measured steps": (_PREDICTED, predicted_runs(runs)),
             "Collectives of profiled steps": (_PROFILED, _profiled(runs))}
    return {caption: table(caption, columns, lines) for caption, (columns, lines) in found.items()}


# ---- Figures: the function, the title, and the condition under which there is one

_FIGURES = {
    "loss": ("training_figures.loss_figure", "Loss by step, with what counting tokens reaches", lambda runs: not _are_profiles(runs)),
    "bytes": ("training_figures.bytes_figure", "Loss by bytes that the busiest rank has sent", lambda runs: by_bytes(runs) and not _are_profiles(runs)),
    "straggler": ("training_figures.straggler_figure", "The replicas' own steps, and what follows them, for each run",
                  lambda runs: slowed(runs) and not _are_profiles(runs)),
    "speed": ("training_figures.speed_figure", "Tokens per second by step", lambda runs: True),
    "predicted": ("stacked_bars.predicted_figure", "Parts of a step of each run as predicted and as measured", predicted_runs),
    "parts": ("stacked_bars.parts_figure", "Parts of a step of each run", lambda runs: True),
    "memory": ("stacked_bars.memory_figure", "Memory of the fullest rank of each run by kind", lambda runs: not _are_profiles(runs)),
}
_KINDS = {"straggler": "parts", "predicted": "parts"}  # others are named as their figure


def _are_profiles(runs: Sequence[Training]) -> bool:
    """PyTorch's profiler records neither loss nor memory."""
    return all(run.profile for run in runs)


def step_badge(first: Any) -> str:
    return {"emulated": EMULATED if first.run.link else "EMULATED straggler: a replica is slowed on purpose",
            "simulated": "SIMULATED from the pieces of two replicas: not run"}.get(first.basis, "")


def _chart(run: Training, stem: str) -> Drawing:
    whole = sum(run.parts_ms.values())
    title = unbroken(f"{run_name(run)}: a step takes {time_text(1e3 * whole)}: {parts_text(run.parts_ms)}".rstrip("."))
    return drawing("gantt", stem, "gantt.gantt_figure", [Chart("measured", run.timeline, whole, f"step {run.timed_step}", None)],
                   title, f"{titled(run.model)}, a row per rank", step_badge(run))


def _drawings(result: TrainingResult) -> list[Drawing]:
    drawn = [drawing(_KINDS.get(name, name), f"{result.anchor}-{name}", draw, result, title, result.name, step_badge(result.first))
             for name, (draw, title, there) in _FIGURES.items() if there(result.lines)]
    timed = [line for line in result.lines if line.timeline][:MOST_CHARTS]
    return drawn + [_chart(line, f"{result.anchor}-gantt-{at}") for at, line in enumerate(timed, start=1)]


def _section(result: TrainingResult) -> Section:
    """If there are many runs, only the fastest has a sentence; the table has all."""
    runs = result.lines if len(result.lines) <= MOST_LISTED else (result.fastest,)
    sentences = [loss_text(result.lines), predicted_text(result.lines), equal_bytes_text(result.lines), straggler_text(result.lines),
            *(joined_sentences(speed_text(run), energy_text(run)) for run in runs),
            f"FLOPs per token are counted as {result.first.flop_convention}; MFU is relative to what a matrix product reaches on all cores or "
            "GPUs together, or to the stated peak."]
    return group(result, [text for text in sentences if text], _drawings(result), list(tables_of(result.lines).values()),
                 drawable=sum(line.timeline is not None for line in result.lines))


def _facts(records: Records, _: Sequence[Any]) -> list[Fact]:
    lines = records.trainings
    return [Fact("What was trained", joined(sorted({f"{titled(line.model)} on {line.data}" for line in lines}))),
            Fact("Runs", f"{counted(len(lines), 'run')}, {counted(sum(line.steps[-1].step for line in lines), 'step')}")]


PAGE = Page(
    12, "training", "Training", "Does it learn, how fast, and where does the time of a step go?",
    "Does it learn, how fast, where does the time of a step go, and what fills the memory?",
    records=lambda records: records.only("trainings"), results=analyse_training, sections=each(_section), figure="parts", facts=_facts)
