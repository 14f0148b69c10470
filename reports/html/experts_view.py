"""View of the page of mixtures of experts, with all text ready."""
from pathlib import Path
from typing import Callable, Sequence

from matplotlib.figure import Figure

from reports.analysis.findings import MOST
from reports.analysis.training.experts import (PARTS, ExpertsResult, bytes_text_of, case_name, skew_text, slowdown_of,
                                               split_text)
from reports.check.runs import notes_on_runs
from reports.html.run_view import BadLine, Fact, machine_views, run_facts, run_views
from reports.html.tables import Cell, Column, Line, Table, number, size, word
from reports.html.training_view import GroupPage, GroupView
from reports.records import ExpertsLine, Records
from reports.plots import style
from reports.plots.experts_figures import load_figure, parts_figure
from reports.plots.figures import FigureFile, save
from reports.plots.frame import Heading
from reports.units import counted, joined

_FIGURES: tuple[tuple[str, Callable[..., Figure], str], ...] = (  # name, function, title
    ("parts", parts_figure, "Parts of the time of each case"),
    ("load", load_figure, "Time over the load of the most loaded expert"),
)


def render_experts(results: Sequence[ExpertsResult], folder: Path) -> list[list[FigureFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    return [[_render(result, *figure, folder) for figure in _FIGURES] for result in results]


def _render(result: ExpertsResult, name: str, draw: Callable[..., Figure], title: str, folder: Path) -> FigureFile:
    heading = Heading(title, result.name,
                      "EMULATED links: not a time of this machine's own" if result.first.basis != "measured" else "")
    with style.context():
        save(draw(result, heading), folder / f"{result.anchor}-{name}")
    return FigureFile("parts", f"{result.anchor}-{name}", title, f"{title}: {result.name}")


def experts_page_of(records: Records, results: Sequence[ExpertsResult], figures: Sequence[Sequence[FigureFile]],
                    files: Sequence[str]) -> GroupPage:
    lines = records.experts
    ranks = joined([str(n) for n in sorted({one.ranks for one in lines})])
    facts = [Fact("What was timed", f"mixtures of experts on {ranks} expert-parallel ranks, forward and backward"),
             Fact("Rows", f"{counted(len(lines), 'row')}, {sum(one.status != 'ok' for one in lines)} wrong; "
                          f"{sum(one.checked_passes for one in lines):,} passes checked")]
    views = [GroupView(result.anchor, result.name, "" if result.first.basis == "measured" else result.first.basis,
                       [split_text(result), skew_text(result), bytes_text_of(result)], drawn, [], 0,
                       [experts_table(result)]) for result, drawn in zip(results, figures)]
    return GroupPage(facts=run_facts(records, facts), findings=[one for r in results for one in r.findings][:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=_bad_lines(lines), groups=views, traces=[],
                     runs=run_views(records), machines=machine_views(records), files=files)


_COLUMNS = (
    Column("case", "", False),
    *(Column(f"{part} ms", "forward and backward, slowest rank, one after the other") for part in PARTS),
    Column("serial ms", "parts one after the other: median"), Column("async ms", "exchanges beside kernels: median"),
    Column("slower", "ratio to the time with the most even router"), Column("slowest rank", "its experts' time over the mean"),
    Column("rows", "rows of the busiest rank over the mean"), Column("dropped %", "part of the copies that are dropped"),
    Column("sent", "bytes per rank, mean"), Column("formula", "bytes by the formula of docs/metrics.md"), Column("status", "", False),
)


def experts_table(result: ExpertsResult) -> Table:
    return Table("Every row of the records", _COLUMNS, tuple(Line(_cells(one, result), one.status) for one in result.lines))


def _cells(one: ExpertsLine, result: ExpertsResult) -> tuple[Cell, ...]:
    parts, ratio = one.parts_us("serial"), slowdown_of(one, result)
    return (word(case_name(one)), *(number(parts[part] / 1e3) for part in PARTS), number(one.median_us("serial") / 1e3),
            number(one.median_us("async") / 1e3), word("") if ratio is None else number(ratio, 3),
            number(one.experts_slowest_us / one.experts_mean_us, 3), number(one.most_rows / one.mean_rows, 3),
            number(100 * one.dropped / one.copies, 3), size(round(one.sent_bytes)), size(round(one.formula_bytes)),
            word(one.status if not one.error else f"{one.status}: {one.error}"))


def _bad_lines(lines: Sequence[ExpertsLine]) -> list[BadLine]:
    return [BadLine(one.status, f"{case_name(one)}, {one.dtype}", one.error or "no reason recorded")
            for one in lines if one.status != "ok"]
