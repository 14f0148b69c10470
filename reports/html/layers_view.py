"""View of the page of tensor-parallel layers, with all text ready."""
from pathlib import Path
from typing import Callable, Sequence

from matplotlib.figure import Figure

from reports.analysis.findings import MOST
from reports.analysis.training.layers import LayersResult, bytes_sentence, gain_text, split_text
from reports.check.runs import notes_on_runs
from reports.html.run_view import BadLine, Fact, machine_views, run_facts, run_views
from reports.html.tables import Cell, Column, Line, Table, number, size, word
from reports.html.training_view import GroupPage, GroupView
from reports.records import Layer, Records
from reports.plots import style
from reports.plots.figures import FigureFile, save
from reports.plots.frame import Heading
from reports.plots.layer_figures import bytes_figure, gain_figure, split_figure
from reports.units import counted, joined

_FIGURES: tuple[tuple[str, Callable[..., Figure], str], ...] = (  # name, function, title
    ("split", split_figure, "Parts of the time of each layer, one after the other and beside each other"),
    ("gain", gain_figure, "Time that communication adds to each layer, in either form"),
    ("bytes", bytes_figure, "Bytes sent in each layer; the mark is the formula's value"),
)


def render_layers(results: Sequence[LayersResult], folder: Path) -> list[list[FigureFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    return [[_render(result, *figure, folder) for figure in _FIGURES] for result in results]


def _render(result: LayersResult, name: str, draw: Callable[..., Figure], title: str, folder: Path) -> FigureFile:
    emulated = result.first.basis != "measured" and name != "bytes"
    heading = Heading(title, result.name,
                      "EMULATED links: not a time of this machine's own" if emulated else "")
    with style.context():
        save(draw(result, heading), folder / f"{result.anchor}-{name}")
    return FigureFile("parts", f"{result.anchor}-{name}", title, f"{title}: {result.name}")


def layers_page_of(records: Records, results: Sequence[LayersResult], figures: Sequence[Sequence[FigureFile]],
                   files: Sequence[str]) -> GroupPage:
    lines = records.layers
    ranks = joined([str(n) for n in sorted({one.ranks for one in lines})])
    facts = [Fact("What was timed", f"tensor-parallel layers on {ranks} ranks, forward and backward"),
             Fact("Rows", f"{counted(len(lines), 'row')}, {sum(one.status != 'ok' for one in lines)} wrong; "
                          f"{sum(one.checked_passes for one in lines):,} passes checked")]
    views = [GroupView(result.anchor, result.name, "" if result.first.basis == "measured" else result.first.basis,
                       [gain_text(result), split_text(result), bytes_sentence(result)], drawn, [], 0,
                       [layers_table(result)]) for result, drawn in zip(results, figures)]
    return GroupPage(facts=run_facts(records, facts), findings=[one for r in results for one in r.findings][:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=_bad_lines(lines), groups=views, traces=[],
                     runs=run_views(records), machines=machine_views(records), files=files)


_COLUMNS = (
    Column("layer", "", False), Column("tiles", "groups of rows"), Column("products ms", "matrix products alone"),
    Column("kernels ms", "all kernels alone"), Column("communication ms", "all exchanges alone"),
    Column("serial ms", "kernels and exchanges one after the other: median"), Column("async ms", "communication beside products: median"),
    Column("+- %", "half of the range p5 to p95 of async's forward and backward, relative to their medians"),
    Column("exposed serial ms", "serial minus kernels: median over rounds"),
    Column("exposed async ms", "async minus kernels: median over rounds"),
    Column("sent", "bytes per rank, mean"), Column("formula", "bytes by the formula of docs/metrics.md"),
    Column("memory", "bytes held for the layer by the rank with the most"),
    Column("unlike", "elements whose bits differ from those of a serial run in one tile"), Column("status", "", False),
)


def layers_table(result: LayersResult) -> Table:
    return Table("Every row of the records, forward and backward together", _COLUMNS,
                 tuple(Line(_cells(case.name, form, case.exposed_us), form.status)
                       for case in result.cases for form in case.forms))


def _cells(name: str, one: Layer, exposed_us: Callable[[Layer, str], float]) -> tuple[Cell, ...]:
    status = one.status if not one.error else f"{one.status}: {one.error}"
    times = (one.parts_us("kernels")["products"],
             *(one.median_us(way) for way in ("kernels", "communication", "serial", "async")))
    return (word(name), number(one.tiles, 9), *(number(us / 1e3) for us in times), number(100 * one.spread("async"), 2),
            *(number(exposed_us(one, way) / 1e3) for way in ("serial", "async")), size(round(one.sent_bytes)),
            size(round(one.formula_bytes)), size(round(one.memory_bytes)), number(one.unlike, 9), word(status))


def _bad_lines(lines: Sequence[Layer]) -> list[BadLine]:
    return [BadLine(one.status, f"{one.layer}, {counted(one.ranks, 'rank')}, {counted(one.tiles, 'tile')}, {one.dtype}",
                    one.error or "no reason recorded") for one in lines if one.status != "ok"]
