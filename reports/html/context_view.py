"""View of the page of long sequences, with all text ready."""
from pathlib import Path
from typing import Callable, Sequence

from matplotlib.figure import Figure

from reports.analysis.findings import MOST
from reports.analysis.training.context import (ContextResult, bytes_sentence, exposed_sentence, exposed_us, hidden,
                                               hidden_sentence, load_sentence, memory_sentence, simulated_hidden,
                                               time_sentence)
from reports.check.runs import notes_on_runs
from reports.html.run_view import BadLine, Fact, machine_views, run_facts, run_views
from reports.html.tables import Cell, Column, Line, Table, number, size, word
from reports.html.training_view import GroupPage, GroupView
from reports.plots import style
from reports.plots.context_figures import exposed_figure, hidden_figure, load_figure, memory_figure, time_figure
from reports.plots.figures import FigureFile, save
from reports.plots.frame import Heading
from reports.records import Context, Records
from reports.units import counted, joined

_FIGURES: tuple[tuple[str, Callable[..., Figure], str], ...] = (  # name, function, title
    ("time", time_figure, "Time by length of the sequence"),
    ("memory", memory_figure, "Memory per rank by length of the sequence"),
    ("hidden", hidden_figure, "Share of communication that kernels hide, by length of the sequence"),
    ("load", load_figure, "Computation on each rank"),
)
_EXPOSED = ("exposed", exposed_figure, "Exposed communication by length of the sequence; open circles: simulated")


def render_context(results: Sequence[ContextResult], folder: Path) -> list[list[FigureFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    return [[_render(result, *figure, folder) for figure in _figures_of(result)] for result in results]


def _figures_of(result: ContextResult) -> Sequence[tuple[str, Callable[..., Figure], str]]:
    return _FIGURES + (_EXPOSED,) if all(one.simulated_exposed_us for one in result.all) else _FIGURES


def _render(result: ContextResult, name: str, draw: Callable[..., Figure], title: str, folder: Path) -> FigureFile:
    emulated = result.first.basis != "measured" and name in ("time", "hidden", "exposed")
    heading = Heading(title, result.name,
                      "EMULATED links: not a time of this machine's own" if emulated else "")
    with style.context():
        save(draw(result, heading), folder / f"{result.anchor}-{name}")
    return FigureFile("lines", f"{result.anchor}-{name}", title, f"{title}: {result.name}")


def context_page_of(records: Records, results: Sequence[ContextResult], figures: Sequence[Sequence[FigureFile]],
                    files: Sequence[str]) -> GroupPage:
    lines = records.contexts
    ranks = joined([str(n) for n in sorted({one.ranks for one in lines})])
    facts = [Fact("What was timed", f"attention of one layer on {ranks} ranks that share its sequence, forward and backward"),
             Fact("Rows", f"{counted(len(lines), 'row')}, {sum(one.status != 'ok' for one in lines)} wrong; "
                          f"{sum(one.checked_passes for one in lines):,} passes checked")]
    views = [GroupView(result.anchor, result.name, "" if result.first.basis == "measured" else result.first.basis,
                       [time_sentence(result), memory_sentence(result), hidden_sentence(result), load_sentence(result),
                        bytes_sentence(result), *([exposed_sentence(result)] if _EXPOSED in _figures_of(result) else [])], drawn, [], 0, [context_table(result)])
             for result, drawn in zip(results, figures)]
    return GroupPage(facts=run_facts(records, facts), findings=[one for r in results for one in r.findings][:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=_bad_lines(lines), groups=views, traces=[],
                     runs=run_views(records), machines=machine_views(records), files=files)


_COLUMNS = (
    Column("way", "", False), Column("length", "tokens per sequence"), Column("kernels ms", "all kernels alone"),
    Column("communication ms", "all exchanges alone"), Column("serial ms", "kernels and exchanges one after the other: median"),
    Column("async ms", "communication beside blocks: median"), Column("exposed ms", "async minus kernels: median over rounds"),
    Column("hidden %", "part of communication alone that kernels hide"),
    Column("simulated %", "hidden part that the simulator predicts, for emulated links"),
    Column("load", "pairs of the busiest rank over the mean"),
    Column("sent forward", "bytes of the rank that sends most"), Column("sent backward", "bytes of the rank that sends most"),
    Column("peak", "bytes besides the input and the output's gradient, on the rank that holds most"),
    Column("difference", "from one rank's result, relative to the largest element, in 1e-6"), Column("status", "", False),
)


def context_table(result: ContextResult) -> Table:
    return Table("Every row of the records, forward and backward together", _COLUMNS,
                 tuple(Line(_cells(one), one.status) for one in result.all))


def _cells(one: Context) -> tuple[Cell, ...]:
    status = one.status if not one.error else f"{one.status}: {one.error}"
    return (word(one.way), number(one.length, 9),
            *(number(one.median_us(form) / 1e3) for form in ("kernels", "communication", "serial", "async")),
            number(exposed_us(one) / 1e3), number(100 * hidden(one), 3),
            word("-") if (share := simulated_hidden(one)) is None else number(100 * share, 3), number(one.load),
            size(round(one.sent_bytes["forward"])), size(round(one.sent_bytes["backward"])), size(one.peak_bytes),
            number(one.difference * 1e6), word(status))


def _bad_lines(lines: Sequence[Context]) -> list[BadLine]:
    return [BadLine(one.status, f"{one.way}, {counted(one.ranks, 'rank')}, {one.length:,} tokens, {one.dtype}",
                    one.error or "no reason recorded") for one in lines if one.status != "ok"]
