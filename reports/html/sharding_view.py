"""View of the page of sharding, all text made."""
from pathlib import Path
from typing import Sequence

from reports.analysis.findings import MOST
from reports.analysis.training.sharding import ShardingResult, agreement_text, saved_text, stage_text
from reports.analysis.training.words import titled
from reports.check.runs import notes_on_runs
from reports.html.energy_columns import energy_cells, energy_columns
from reports.html.run_view import BadLine, Fact, machine_views, run_facts, run_views
from reports.html.tables import Cell, Column, Line, Table, number, size, word
from reports.html.training_view import GroupPage, GroupView
from reports.plots import style
from reports.plots.figures import FigureFile, save
from reports.plots.frame import Heading
from reports.plots.part_bars import sharding_figure
from reports.records import Records, Sharding
from reports.units import counted, joined


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
    return GroupPage(facts=run_facts(records, facts), findings=[one for r in results for one in r.findings][:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=_bad_shardings(lines), groups=views, traces=[],
                     runs=run_views(records), machines=machine_views(records), files=files)


_SHARDING_COLUMNS = (
    Column("stage", "", False), Column("weights", "held by a rank between steps"), Column("gradients", "likewise"),
    Column("optimizer", "likewise"), Column("weights at most", "at once in a step"), Column("gradients at most", "likewise"),
    Column("all at most", "with activations and buffers"), Column("weights sent", "by a rank in a step: gathers"),
    Column("gradients sent", "by a rank in a step: reductions in its set of shards"),
    Column("over replicas", "sent by a rank in a step: sums of shards over replicas of the set"), Column("step ms", "median"), Column("status", "", False),
)


_OFFLOAD = (Column("offloaded", "of all kinds that are away, to the device and from it, by a rank in a step"),
            Column("update ms", "the optimizer's part of the step, of the slowest rank; median"))


_PLUS = {"secondary": Column("from a secondary copy", "weights sent by a rank in a step to those that share the copy (hpZ)"),
         "near": Column("among neighbours", "gradients sent by a rank in a step in the first of two hops (qgZ)")}


def sharding_table(result: ShardingResult) -> Table:
    """Columns of offloading only where a row offloads, and of ZeRO++ where one uses any of it."""
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
