"""View of the pages of one layer that ranks share, with all text ready: tensor-parallel layers, long sequences, mixtures of experts."""
from pathlib import Path
from typing import Any, Callable, Sequence

from matplotlib.figure import Figure

from reports.analysis.caveats import findings_of
from reports.analysis.findings import MOST
from reports.analysis.training.layers import (
    bytes_sentence, case_name, context_bytes_sentence, ContextResult, experts_bytes_text, EXPERTS_PARTS, experts_split_text,
    ExpertsResult, exposed_sentence, exposed_us, gain_text, hidden, hidden_sentence, LayersResult, load_sentence,
    memory_sentence, simulated_hidden, skew_text, slowdown_of, split_text, time_sentence)
from reports.check import notes_on_runs
from reports.html.run_view import BadLine, Fact, machine_views, run_facts, run_views
from reports.html.tables import Cell, Column, Line, number, size, Table, word
from reports.html.training_view import GroupPage, GroupView
from reports.plots import style
from reports.plots.figures import FigureFile, save
from reports.plots.frame import Heading
from reports.plots.layer_figures import (
    bytes_figure, context_load_figure, experts_load_figure, exposed_figure, gain_figure, hidden_figure, memory_figure,
    parts_figure, split_figure, time_figure)
from reports.records import Context, ExpertsLine, Layer, Records
from reports.units import counted, joined

_Figures = tuple[tuple[str, Callable[..., Figure], str], ...]  # name, function, title


def _render(result: Any, kind: str, figures: _Figures, untimed: Sequence[str], folder: Path) -> list[FigureFile]:
    """Figures of a result. Over emulated links those that show times say so; the `untimed` ones show bytes or loads."""
    files = []
    for name, draw, title in figures:
        emulated = result.first.basis != "measured" and name not in untimed
        heading = Heading(title, result.name, "EMULATED links: not a time of this machine's own" if emulated else "")
        with style.context():
            save(draw(result, heading), folder / f"{result.anchor}-{name}")
        files.append(FigureFile(kind, f"{result.anchor}-{name}", title, f"{title}: {result.name}"))
    return files


def _view(result: Any, sentences: Sequence[str], drawn: Sequence[FigureFile], table: Table) -> GroupView:
    basis = "" if result.first.basis == "measured" else result.first.basis
    return GroupView(result.anchor, result.name, basis, list(sentences), drawn, [], 0, [table])


def _page(records: Records, lines: Sequence[Any], what: str, results: Sequence[Any], views: list[GroupView],
          case_of: Callable[[Any], str], files: Sequence[str]) -> GroupPage:
    """The page of these lines; `what` was timed on their ranks, and `case_of` names a line that is wrong."""
    ranks = joined([str(n) for n in sorted({one.ranks for one in lines})])
    facts = [Fact("What was timed", what.format(ranks=ranks)),
             Fact("Rows", f"{counted(len(lines), 'row')}, {sum(one.status != 'ok' for one in lines)} wrong; "
                          f"{sum(one.checked_passes for one in lines):,} passes checked")]
    bad = [BadLine(one.status, case_of(one), one.error or "no reason recorded") for one in lines if one.status != "ok"]
    return GroupPage(facts=run_facts(records, facts), findings=findings_of(results)[:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=bad, groups=views, traces=[],
                     runs=run_views(records), machines=machine_views(records), files=files)


# ---- Tensor-parallel layers

_LAYERS_FIGURES: _Figures = (
    ("split", split_figure, "Parts of the time of each layer, one after the other and beside each other"),
    ("gain", gain_figure, "Time that communication adds to each layer, in either form"),
    ("bytes", bytes_figure, "Bytes sent in each layer; the mark is the formula's value"),
)


def render_layers(results: Sequence[LayersResult], folder: Path) -> list[list[FigureFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    return [_render(result, "parts", _LAYERS_FIGURES, ("bytes",), folder) for result in results]


def layers_page_of(records: Records, results: Sequence[LayersResult], figures: Sequence[Sequence[FigureFile]],
                   files: Sequence[str]) -> GroupPage:
    views = [_view(result, [gain_text(result), split_text(result), bytes_sentence(result)], drawn, layers_table(result))
             for result, drawn in zip(results, figures)]
    return _page(records, records.layers, "tensor-parallel layers on {ranks} ranks, forward and backward", results, views,
                 lambda one: f"{one.layer}, {counted(one.ranks, 'rank')}, {counted(one.tiles, 'tile')}, {one.dtype}", files)


_LAYERS_COLUMNS = (
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
    return Table("Every row of the records, forward and backward together", _LAYERS_COLUMNS,
                 tuple(Line(_layers_cells(case.name, form, case.exposed_us), form.status)
                       for case in result.cases for form in case.forms))


def _layers_cells(name: str, one: Layer, exposed_us: Callable[[Layer, str], float]) -> tuple[Cell, ...]:
    status = one.status if not one.error else f"{one.status}: {one.error}"
    times = (one.parts_us("kernels")["products"],
             *(one.median_us(way) for way in ("kernels", "communication", "serial", "async")))
    return (word(name), number(one.tiles, 9), *(number(us / 1e3) for us in times), number(100 * one.spread("async"), 2),
            *(number(exposed_us(one, way) / 1e3) for way in ("serial", "async")), size(round(one.sent_bytes)),
            size(round(one.formula_bytes)), size(round(one.memory_bytes)), number(one.unlike, 9), word(status))


# ---- Long sequences

_CONTEXT_FIGURES: _Figures = (
    ("time", time_figure, "Time by length of the sequence"),
    ("memory", memory_figure, "Memory per rank by length of the sequence"),
    ("hidden", hidden_figure, "Share of communication that kernels hide, by length of the sequence"),
    ("load", context_load_figure, "Computation on each rank"),
)
_EXPOSED = ("exposed", exposed_figure, "Exposed communication by length of the sequence; open circles: simulated")


def render_context(results: Sequence[ContextResult], folder: Path) -> list[list[FigureFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    return [_render(result, "lines", _figures_of(result), ("memory", "load"), folder) for result in results]


def _figures_of(result: ContextResult) -> _Figures:
    return _CONTEXT_FIGURES + (_EXPOSED,) if all(one.simulated_exposed_us for one in result.all) else _CONTEXT_FIGURES


def context_page_of(records: Records, results: Sequence[ContextResult], figures: Sequence[Sequence[FigureFile]],
                    files: Sequence[str]) -> GroupPage:
    views = [_view(result, _context_sentences(result), drawn, context_table(result)) for result, drawn in zip(results, figures)]
    return _page(records, records.contexts, "attention of one layer on {ranks} ranks that share its sequence, forward and backward",
                 results, views, lambda one: f"{one.way}, {counted(one.ranks, 'rank')}, {one.length:,} tokens, {one.dtype}", files)


def _context_sentences(result: ContextResult) -> list[str]:
    return [time_sentence(result), memory_sentence(result), hidden_sentence(result), load_sentence(result),
            context_bytes_sentence(result), *([exposed_sentence(result)] if _EXPOSED in _figures_of(result) else [])]


_CONTEXT_COLUMNS = (
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
    return Table("Every row of the records, forward and backward together", _CONTEXT_COLUMNS,
                 tuple(Line(_context_cells(one), one.status) for one in result.all))


def _context_cells(one: Context) -> tuple[Cell, ...]:
    status = one.status if not one.error else f"{one.status}: {one.error}"
    return (word(one.way), number(one.length, 9),
            *(number(one.median_us(form) / 1e3) for form in ("kernels", "communication", "serial", "async")),
            number(exposed_us(one) / 1e3), number(100 * hidden(one), 3),
            word("-") if (share := simulated_hidden(one)) is None else number(100 * share, 3), number(one.load),
            size(round(one.sent_bytes["forward"])), size(round(one.sent_bytes["backward"])), size(one.peak_bytes),
            number(one.difference * 1e6), word(status))


# ---- Mixtures of experts

_EXPERTS_FIGURES: _Figures = (
    ("parts", parts_figure, "Parts of the time of each case"),
    ("load", experts_load_figure, "Time over the load of the most loaded expert"),
)


def render_experts(results: Sequence[ExpertsResult], folder: Path) -> list[list[FigureFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    return [_render(result, "parts", _EXPERTS_FIGURES, (), folder) for result in results]


def experts_page_of(records: Records, results: Sequence[ExpertsResult], figures: Sequence[Sequence[FigureFile]],
                    files: Sequence[str]) -> GroupPage:
    views = [_view(result, [experts_split_text(result), skew_text(result), experts_bytes_text(result)], drawn, experts_table(result))
             for result, drawn in zip(results, figures)]
    return _page(records, records.experts, "mixtures of experts on {ranks} expert-parallel ranks, forward and backward", results,
                 views, lambda one: f"{case_name(one)}, {one.dtype}", files)


_EXPERTS_COLUMNS = (
    Column("case", "", False),
    *(Column(f"{part} ms", "forward and backward, slowest rank, one after the other") for part in EXPERTS_PARTS),
    Column("serial ms", "parts one after the other: median"), Column("async ms", "exchanges beside kernels: median"),
    Column("slower", "ratio to the time with the most even router"), Column("slowest rank", "its experts' time over the mean"),
    Column("rows", "rows of the busiest rank over the mean"), Column("dropped %", "part of the copies that are dropped"),
    Column("sent", "bytes per rank, mean"), Column("formula", "bytes by the formula of docs/metrics.md"), Column("status", "", False),
)


def experts_table(result: ExpertsResult) -> Table:
    return Table("Every row of the records", _EXPERTS_COLUMNS, tuple(Line(_experts_cells(one, result), one.status) for one in result.lines))


def _experts_cells(one: ExpertsLine, result: ExpertsResult) -> tuple[Cell, ...]:
    parts, ratio = one.parts_us("serial"), slowdown_of(one, result)
    return (word(case_name(one)), *(number(parts[part] / 1e3) for part in EXPERTS_PARTS), number(one.median_us("serial") / 1e3),
            number(one.median_us("async") / 1e3), word("") if ratio is None else number(ratio, 3),
            number(one.experts_slowest_us / one.experts_mean_us, 3), number(one.most_rows / one.mean_rows, 3),
            number(100 * one.dropped / one.copies, 3), size(round(one.sent_bytes)), size(round(one.formula_bytes)),
            word(one.status if not one.error else f"{one.status}: {one.error}"))
