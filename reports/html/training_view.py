"""Views of the pages of training and scaling, with all text ready."""
from dataclasses import dataclass
from typing import Optional, Sequence

from reports.analysis.caveats import findings_of
from reports.analysis.findings import MOST, Finding
from reports.analysis.training.curves import efficiency_text, losses_text
from reports.analysis.training.runs import (
    behind_ms, budget, compared, computing_ms, energy_text, equal_bytes_text, joined_sentences,
    KINDS, line_name, loss_at, loss_text, memory_text, mfu, missed_text, off, parts_text, predicted_runs, predicted_text,
    run_name, ScalingResult, SMOOTH, speed_text, step_ms, straggler_text, titled, tokens_per_s, TrainingResult, way_name,
    why_text)
from reports.check import Note, notes_on_runs
from reports.html.tables import Cell, Column, energy_cells, energy_columns, Line, number, size, Table, word
from reports.html.run_view import BadLine, Fact, machine_views, MachineView, run_facts, run_views, RunView, TraceLink
from reports.plots.figures import FigureFile
from reports.records import Records, Scaling, Training
from reports.units import counted, joined


MOST_TOLD = 4  # runs with a sentence of their own


@dataclass(frozen=True)
class GroupView:
    """View for the `workload` macro."""

    anchor: str
    name: str
    badge: str
    sentences: Sequence[str]
    figures: Sequence[FigureFile]
    charts: Sequence[FigureFile]
    left_out: int
    tables: Sequence[Table]


@dataclass(frozen=True)
class GroupPage:
    facts: Sequence[Fact]
    findings: Sequence[Finding]
    notes: Sequence[Note]
    bad_rows: Sequence[BadLine]
    groups: Sequence[GroupView]
    traces: Sequence[TraceLink]
    runs: Sequence[RunView]
    machines: Sequence[MachineView]
    files: Sequence[str]


def training_page_of(records: Records, results: Sequence[TrainingResult], figures: Sequence[Sequence[FigureFile]],
                     traces: Sequence[TraceLink], files: Sequence[str]) -> GroupPage:
    lines = records.trainings
    facts = [Fact("What was trained", joined(sorted({f"{titled(one.model)} on {one.data}" for one in lines}))),
             Fact("Runs", f"{counted(len(lines), 'run')}, {counted(sum(one.steps[-1].step for one in lines), 'step')}")]
    views = [_view(result, drawn, [loss_text(result.runs), predicted_text(result.runs),
                                   equal_bytes_text(result.runs), straggler_text(result.runs),
                                   *(joined_sentences(speed_text(one), energy_text(one)) for one in _told_runs(result)),
                                   f"FLOPs per token are counted as {result.first.flop_convention}; MFU is over what a "
                                   "product of matrices reaches on all cores or GPUs together, or as was stated."],
                   [runs_table(result), *replica_tables(result), *activation_tables(result), *predicted_tables(result),
                    *profile_tables(result)], sum(one.timeline is not None for one in result.runs))
             for result, drawn in zip(results, figures)]
    return _page(records, results, views, facts, traces, files)


def scaling_page_of(records: Records, results: Sequence[ScalingResult], figures: Sequence[Sequence[FigureFile]],
                    traces: Sequence[TraceLink], files: Sequence[str]) -> GroupPage:
    lines = records.scalings
    cores = joined(sorted({str(one.run.machine.cores) for one in lines}))
    facts = [Fact("What was timed", joined(sorted({titled(one.model) for one in lines}))),
             Fact("Layouts", f"{counted(len(lines), 'layout')} on {cores} cores, "
                             f"{sum(one.oversubscribed for one in lines)} with more ranks than cores")]
    views = [_view(result, drawn, result.texts,
                   [scaling_table(result), slowdowns_table(result)], 0) for result, drawn in zip(results, figures)]
    return _page(records, results, views, facts, traces, files)


def _told_runs(result: TrainingResult) -> Sequence[Training]:
    """Selects the fastest of many runs; the table has all."""
    return result.runs if len(result.runs) <= MOST_TOLD else (result.fastest,)


def _view(result: TrainingResult | ScalingResult, figures: Sequence[FigureFile], told: Sequence[str],
          tables: Sequence[Table], drawable: int) -> GroupView:
    basis = result.first.basis
    charts = [file for file in figures if file.kind == "gantt"]
    return GroupView(result.anchor, result.name, "" if basis == "measured" else basis, [text for text in told if text],
                     [file for file in figures if file.kind != "gantt"], charts, max(drawable - len(charts), 0), tables)


def _page(records: Records, results: Sequence, views: Sequence[GroupView], facts: Sequence[Fact],
          traces: Sequence[TraceLink], files: Sequence[str]) -> GroupPage:
    return GroupPage(facts=run_facts(records, facts),
                     findings=findings_of(results)[:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=[], groups=views, traces=traces,
                     runs=run_views(records), machines=machine_views(records), files=files)


_RUNS = (
    Column("run", "layout, dtype, threads or GPUs", False), Column("steps", ""), Column("tokens per step", ""),
    Column("step ms", "median, the first three left out"), Column("tokens/s", "of all ranks: median, the first three steps left out"),
    Column("MFU %", "model FLOPs divided by the peak: median, the first three steps left out"),
    Column("memory", "bytes at the peak of the rank that holds most"),
    Column("most of it", "", False), Column("validation loss", "nats per token"), Column("bigram", "nats per token"),
    Column("where the time goes", "parts of the step, mean over ranks", False),
)


def runs_table(result: TrainingResult) -> Table:
    lines = (Line((*_run_cells(one), *energy_cells(result.runs, one))) for one in result.runs)
    return Table("Every run of the records", (*_RUNS, *energy_columns(result.runs)), tuple(lines))


_REPLICAS = (
    Column("replicas agree by", "--sync, and the replica that is slowed down; or the format of gradients, --compression", False),
    Column("steps", ""),
    Column("loss", f"mean of the last {SMOOTH} steps, nats per token"),
    Column("at equal bytes", f"mean of the last {SMOOTH} steps until as much was sent as by the run that sends least"),
    Column("sent", "bytes of the rank that sends most"), Column("step ms", "mean"),
    Column("predicted ms", "by the times of the slow replica alone, where they are stated"),
    Column("behind ms", "part of the step after the replicas' own work: waits and messages, mean over replicas"),
    Column("missed", "updates of other replicas between a replica's weights and its gradient, mean", False),
)


def replica_tables(result: TrainingResult) -> list[Table]:
    runs = compared(result.runs)
    lines = [Line((word(way_name(one)), number(one.steps[-1].step, 9), number(loss_at(one)),
                   number(loss_at(one, budget(runs))), size(one.sent_bytes), number(one.mean_ms),
                   number(one.sync and one.sync.predicted_ms), number(behind_ms(one)),
                   word(missed_text(one)))) for one in runs]
    return [Table("How replicas agree", _REPLICAS, tuple(lines))] if lines else []


_ACTIVATIONS = (
    Column("run", "layout, dtype", False), Column("kept", "activations kept between forward and backward", False),
    Column("ahead", "number of layers whose time a copy has"),
    Column("copied per step", "bytes off the device and back, by the rank that copied most"),
    Column("away", "most bytes off the device at once"), Column("memory", "bytes at the peak of the rank that holds most"),
    Column("step ms", "median, the first three left out"),
)


def activation_tables(result: TrainingResult) -> list[Table]:
    """All runs, if any of them keeps activations in parts or off the device."""
    if not any(one.activations for one in result.runs):
        return []
    lines = [Line((word(f"{one.layout.text}, {one.dtype}"), word(_kept_text(one)), number(one.activations and one.activations.ahead),
                   *(size(bytes_) for bytes_ in _copied_and_away(one)), _total_memory(one), number(step_ms(one))))
             for one in result.runs]
    return [Table("Activations in parts, or off the device", _ACTIVATIONS, tuple(lines))]


def _total_memory(one: Training) -> Cell:
    return size(int(one.memory_bytes["total"])) if one.memory_bytes else number(None)


def _kept_text(one: Training) -> str:
    if not one.activations:
        return "on the device"
    where = {"none": "on the device", "host": "in the host's memory", "file": "in files"}[one.activations.place]
    return where + (", in parts" if one.activations.partitioned else "")


def _copied_and_away(one: Training) -> tuple[int, int]:
    return (one.activations.copied_bytes, one.activations.away_bytes) if one.activations else (0, 0)


_PREDICTED = (
    Column("run", "layout, dtype", False), Column("predicted ms", "simulated"), Column("measured ms", "the step in the median"),
    Column("error %", "predicted over measured, minus 1"), Column("kernels", "kernel shapes with a measured time, of all"),
    Column("the largest gap", "largest difference of a part, and its origin", False),
)


def predicted_tables(result: TrainingResult) -> list[Table]:
    lines = [Line((word(f"{one.layout.text}, {one.dtype}"), number(one.predicted.step_ms),
                   number(one.predicted.measured_step_ms), number(100 * one.predicted.error, 3),
                   word(f"{one.predicted.measured_kernels} of {one.predicted.kernels}" if one.predicted.kernels else "–"),
                   word(one.predicted.gap)))
             for one in predicted_runs(result.runs)]
    return [Table("Steps as they were predicted, and as they ran", _PREDICTED, tuple(lines))] if lines else []


_PROFILED = (
    Column("run", "layout, dtype", False), Column("collective", "", False), Column("ranks", "number of ranks of the group"),
    Column("bytes", "per call, of the larger of input and output"), Column("calls", "per rank and step"),
    Column("ms", "per rank and step, waits for other ranks included"), Column("sent", "per rank and step, by formula"),
)


def profile_tables(result: TrainingResult) -> list[Table]:
    """Collectives of steps that PyTorch's profiler timed; their sum beside that of the simulated step."""
    lines = []
    for one in (run for run in result.runs if run.profile):
        run = word(f"{one.layout.text}, {one.dtype}")
        lines += [Line((run, word(row.collective), number(row.ranks or None), number(None) if row.bytes is None else size(row.bytes),
                        number(row.calls, 4), number(row.ms, 4), size(round(row.sent_bytes)))) for row in one.profile.collectives]
        blanks = [number(None)] * 4
        lines += [Line((run, word(text), *blanks, size(round(sent)))) for text, sent in
                  (("all, measured", one.profile.sent_bytes), ("all, simulated", one.profile.predicted_sent_bytes))]
    return [Table("Collectives of profiled steps", _PROFILED, tuple(lines))] if lines else []


def _run_cells(one: Training) -> tuple[Cell, ...]:
    told = one.validation
    return (word(run_name(one)), number(one.steps[-1].step, 9), number(one.tokens_per_step, 9), number(step_ms(one)),
            number(tokens_per_s(one), 5), number(100 * mfu(one), 3), _total_memory(one), word(memory_text(one)),
            number(told and told.loss), number(told and told.bigram),
            word(parts_text(one.parts_ms)))


_SCALING = (
    Column("layout", "* more ranks than cores", False), Column("ranks", ""), Column("sequences per step", ""),
    Column("alone ms", "from pieces timed alone, simulated"),
    Column("contended ms", "with the slowdowns measured while pieces run concurrently, simulated"),
    Column("measured ms", "median"), Column("95 % interval ms", "bootstrap interval of the median", False),
    Column("off alone %", "measured over alone, minus 1"), Column("off contended %", "measured over contended, minus 1"),
    Column("computing ms", "part of the measured step, mean over ranks"), Column("tokens/s", "tokens per second of all ranks"),
    Column("efficiency %", "tokens/s over the ideal: one rank's times the ranks that have cores; 95 % interval", False),
    Column("what takes the rest", "shares of the step that their intervals decide", False),
    Column("what contention leaves", "measured minus contended, by part", False),
)


def scaling_table(result: ScalingResult) -> Table:
    return Table("Every layout of the records", _SCALING, tuple(Line(_scaling_cells(one)) for one in (*result.lines, *result.beyond)))


def _scaling_cells(one: Scaling) -> tuple[Cell, ...]:
    times = [one.step(kind) for kind in KINDS]
    stats = times[2] and times[2].stats
    interval = f"{stats.ci_low:.4g} to {stats.ci_high:.4g}" if stats and stats.ci_low is not None else "–"
    return (word(line_name(one)), number(one.ranks, 9), number(one.sequences_per_step, 9),
            *(number(step and step.step_ms) for step in times), word(interval),
            *(number(_percent(off(one, kind)), 3) for kind in ("isolated", "contended")),
            number(times[2] and computing_ms(times[2].parts_ms)), number(one.tokens_per_s, 5),
            word(efficiency_text(one)), word(one.undecided or losses_text(one) or "–"), word(why_text(one, "contended") or "–"))


def _percent(share: Optional[float]) -> Optional[float]:
    return None if share is None else 100 * share


_SLOWDOWNS = (
    Column("layout", "", False), Column("what", "F forward, B backward, STEP the optimizer", False),
    Column("beside", "", False), Column("ranks", "that compute"), Column("times as long", "weighted median"),
    Column("samples", ""),
)


def slowdowns_table(result: ScalingResult) -> Table:
    lines = (Line((word(line_name(one)), word(slow.of), word(slow.beside), number(slow.ranks, 9),
                   number(slow.factor, 3), number(slow.samples, 9))) for one in result.lines for slow in one.slowdowns)
    return Table("Measured slowdowns: how many times as long as alone", _SLOWDOWNS, tuple(lines))
