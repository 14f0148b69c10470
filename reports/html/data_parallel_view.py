"""Views of the pages of data-parallel steps (gradient buckets, sharding), with all text ready."""

from pathlib import Path
from typing import Sequence

from reports.analysis.caveats import findings_of
from reports.analysis.findings import MOST
from reports.analysis.steps.overlap import link_text
from reports.analysis.training.data_parallel import (
    agreement_text, best_text, bucket_text, BucketsResult, bytes_sentence, curve_text, exposed_ms, ideal_ms,
    reductions, saved_text, ShardingResult, stage_text)
from reports.analysis.training.runs import titled
from reports.check import notes_on_runs
from reports.html.tables import Cell, Column, energy_cells, energy_columns, Line, number, size, Table, word
from reports.html.run_view import BadLine, Fact, machine_views, run_facts, run_views, TraceLink
from reports.html.training_view import GroupPage, GroupView
from reports.plots import style
from reports.plots.layer_figures import bucket_figure
from reports.plots.figures import FigureFile, save
from reports.plots.frame import Heading
from reports.plots.stacked_bars import sharding_figure
from reports.plots.step_figures import render_steps
from reports.records import Records, ScheduleLine, Sharding
from reports.units import counted, joined


# ---- View of the page of gradient buckets

BADGE = "EMULATED links: not a time of this machine's own"


def render_buckets(results: Sequence[BucketsResult], folder: Path) -> list[list[FigureFile]]:
    """Draws for each result exposed communication over bucket size, and charts of the rows that hide most and least."""
    folder.mkdir(parents=True, exist_ok=True)
    return [[_lines_of(result, folder), *render_steps(result.lines, result.anchor, folder)] for result in results]


def _lines_of(result: BucketsResult, folder: Path) -> FigureFile:
    heading = Heading("Exposed communication by bucket size", result.name, BADGE if result.emulates else "")
    with style.context():
        save(bucket_figure(result, heading), folder / f"{result.anchor}-exposed")
    return FigureFile("lines", f"{result.anchor}-exposed", heading.title,
                      f"{heading.title}, a panel per number of ranks, a line per link: {result.name}")


def buckets_page_of(records: Records, results: Sequence[BucketsResult], figures: Sequence[Sequence[FigureFile]],
                    traces: Sequence[TraceLink], files: Sequence[str]) -> GroupPage:
    lines = records.schedules
    ranks = joined([str(n) for n in sorted({line.ranks for line in lines})])
    facts = [Fact("What was timed", f"data-parallel training steps on {ranks} ranks, each in four alternating ways"),
             Fact("Rows", f"{counted(len(lines), 'row')}, {sum(reductions(one).status != 'ok' for one in lines)} wrong, "
                          f"{sum(one.run.oversubscribed for one in lines)} with more ranks than cores")]
    views = [_view(result, drawn) for result, drawn in zip(results, figures)]
    return GroupPage(facts=run_facts(records, facts), findings=findings_of(results)[:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=_bad_lines(lines), groups=views, traces=traces,
                     runs=run_views(records), machines=machine_views(records), files=files)


def _view(result: BucketsResult, drawn: Sequence[FigureFile]) -> GroupView:
    told = [best_text(result), *map(curve_text, result.curves), bytes_sentence(result)]
    return GroupView(result.anchor, result.name, "emulated" if result.emulates else "", told,
                     [file for file in drawn if file.kind != "gantt"], [file for file in drawn if file.kind == "gantt"],
                     0, [buckets_table(result)])


_COLUMNS = (
    Column("ranks", "*: more ranks than cores", False), Column("links", "emulated: bandwidth in each direction, latency", False),
    Column("buckets of", "largest size of a bucket", False), Column("buckets", "number per step"),
    Column("sent", "bytes per rank, counted"),
    Column("computing ms", "kernels alone"), Column("backward ms", "part of computing beside which buckets can be sent"),
    Column("communication ms", "alone, one bucket after the other"), Column("step ms", "buckets beside the backward"),
    Column("exposed ms", "step minus computing alone: median over rounds"),
    Column("hidden %", "hidden part of the communication that can be hidden"),
    Column("after ms", "a step whose buckets are reduced after its backward"),
    Column("ideal ms", "exposed time by the buckets' recurrence"), Column("turns", "rounds, in each of which every way is timed once"),
    Column("wrong", "number of wrong elements"), Column("status", "", False),
)


def buckets_table(result: BucketsResult) -> Table:
    return Table("Every row of the records: fewest ranks first, then the fastest links",
                 (*_COLUMNS, *energy_columns(result.lines)),
                 tuple(Line((*_cells(line), *energy_cells(result.lines, line)), reductions(line).status)
                       for line in result.lines))


def _cells(line: ScheduleLine) -> tuple[Cell, ...]:
    one, real = line.overlap, reductions(line)
    times = (one.compute_alone_ms, real.backward_ms, one.communication_alone_ms, line.makespan_ms, exposed_ms(line))
    return (word(f"{one.replicas}{'*' if line.run.oversubscribed else ''}"), word(link_text(line.run.link)),
            word(bucket_text(line).removeprefix("buckets of ")), number(one.collectives),
            size(round(real.sent_bytes)), *map(number, times), number(100 * one.efficiency, 3),
            number(real.one_by_one_ms), number(ideal_ms(line)), number(len(line.samples_ms)),
            number(real.wrong, 9), word(real.status))


def _bad_lines(lines: Sequence[ScheduleLine]) -> list[BadLine]:
    return [BadLine(reductions(one).status, f"{counted(one.ranks, 'rank')}, {link_text(one.run.link)}, {bucket_text(one)}, "
                    f"{reductions(one).compression}", _why(one)) for one in lines if reductions(one).status != "ok"]


def _why(line: ScheduleLine) -> str:
    real = reductions(line)
    if real.wrong:
        return f"{counted(real.wrong, 'element')} of gradients or weights differ"
    return f"{real.sent_bytes:,.0f} B were sent, and the formula says {real.formula_bytes:,.0f}"


# View of the page of sharding, with all text ready.

def render_sharding(results: Sequence[ShardingResult], folder: Path) -> list[FigureFile]:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for result in results:
        heading = Heading("Memory per rank between steps, by ZeRO stage", result.name, "")
        with style.context():
            save(sharding_figure(result, heading), folder / f"{result.anchor}-memory")
        files.append(FigureFile("bars", f"{result.anchor}-memory", heading.title, f"{heading.title}: {result.name}"))
    return files


def sharding_page_of(records: Records, results: Sequence[ShardingResult], figures: Sequence[FigureFile],
                     files: Sequence[str]) -> GroupPage:
    lines = records.shardings
    facts = [Fact("What was timed", joined(sorted({titled(one.model) for one in lines}))),
             Fact("Rows", f"{counted(len(lines), 'row')}, {sum(one.status != 'ok' for one in lines)} wrong")]
    views = [GroupView(result.anchor, result.name, "", [saved_text(result), agreement_text(result)], [figure], [], 0,
                       [sharding_table(result)]) for result, figure in zip(results, figures)]
    return GroupPage(facts=run_facts(records, facts), findings=findings_of(results)[:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=_bad_shardings(lines), groups=views, traces=[],
                     runs=run_views(records), machines=machine_views(records), files=files)


_SHARDING_COLUMNS = (
    Column("stage", "", False), Column("weights", "bytes per rank between steps"), Column("gradients", "bytes per rank between steps"),
    Column("optimizer", "bytes per rank between steps"), Column("weights at most", "peak bytes per rank in a step"),
    Column("gradients at most", "peak bytes per rank in a step"),
    Column("all at most", "peak bytes per rank in a step, with activations and buffers"),
    Column("weights sent", "bytes per rank and step: gathers"),
    Column("gradients sent", "bytes per rank and step: reductions in its set of shards"),
    Column("over replicas", "bytes sent per rank and step: sums of shards over replicas of the set"), Column("step ms", "median"),
    Column("status", "", False),
)


_OFFLOAD = (Column("offloaded", "bytes per rank and step, to the device and from it"),
            Column("update ms", "the optimizer's part of the step, on the slowest rank: median"))


_PLUS = {"secondary": Column("from a secondary copy", "weights sent per rank and step to those that share the copy (hpZ), in bytes"),
         "near": Column("among neighbours", "gradients sent per rank and step in the first of two hops (qgZ), in bytes")}


def sharding_table(result: ShardingResult) -> Table:
    """Columns of the table: those of offloading only if a row offloads, those of ZeRO++ only if a row uses it."""
    offloads = any(one.offloaded_bytes for one in result.lines)
    plus = [name for name in _PLUS if any(one.sent_bytes.get(name) for one in result.lines)]
    lines = (Line((*_sharding_cells(one), *(size(round(one.sent_bytes.get(name, 0))) for name in plus),
                   *(_offload_cells(one) if offloads else ()), *energy_cells(result.lines, one)), one.status)
             for one in result.lines)
    columns = (*_SHARDING_COLUMNS, *(_PLUS[name] for name in plus), *(_OFFLOAD if offloads else ()), *energy_columns(result.lines))
    return Table("Every row of the records", columns, tuple(lines))


def _offload_cells(one: Sharding) -> tuple[Cell, ...]:
    return size(round(one.offloaded_bytes or 0)), number(one.update_ms)


def _sharding_cells(one: Sharding) -> tuple[Cell, ...]:
    held, peak, sent = one.held_bytes, one.peak_bytes, one.sent_bytes
    sizes = [held["weights"], held["gradients"], held["optimizer"], peak["weights"], peak["gradients"], peak["total"],
             sent["weights"], sent["gradients"], sent.get("over_replicas", 0)]
    status = one.status if not one.error else f"{one.status}: {one.error}"
    return (word(stage_text(one)), *(size(round(value)) for value in sizes),
            number(one.stats and one.stats.median), word(status))


def _bad_shardings(lines: Sequence[Sharding]) -> list[BadLine]:
    return [BadLine(one.status, f"{stage_text(one)}, {one.dtype}, {counted(one.ranks, 'rank')}", one.error or
                    "no reason recorded") for one in lines if one.status != "ok"]
