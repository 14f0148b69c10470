"""The page of tensor-parallel layers."""
from reports.analysis.training.layers import analyse_layers, bytes_sentence, gain_text, LayersResult, split_text
from reports.page import (
    bad_lines, counts, each, EMULATED, Fact, figures_of, group, numbers, Page, passes_fact, ranks_text, Section, sizes, STATUS, table,
    words)
from reports.units import counted

_FIGURES = (
    ("split", "layer_figures.split_figure", "Parts of the time of each layer, run serially and overlapped"),
    ("gain", "layer_figures.gain_figure", "Time that communication adds to each layer, in either form"),
    ("bytes", "layer_figures.bytes_figure", "Bytes sent in each layer; the mark is the formula's value"),
)
_WAYS = (("kernels", "all kernels alone"), ("communication", "all exchanges alone"),
         ("serial", "kernels and exchanges run serially: median"), ("async", "communication overlapped with products: median"))
# Columns of (case, one of its forms, each in its own number of tiles).
_COLUMNS = (
    words("layer", lambda row: row[0].name), counts("tiles", lambda row: row[1].tiles, "groups of rows"),
    numbers("products ms", lambda row: row[1].parts_us("kernels")["products"] / 1e3, "matrix products alone"),
    *(numbers(f"{way} ms", lambda row, way=way: row[1].median_us(way) / 1e3, meaning) for way, meaning in _WAYS),
    numbers("+- %", lambda row: 100 * row[1].spread("async"), "half of the range p5 to p95 of async's forward and backward, relative to their medians", 2),
    *(numbers(f"exposed {way} ms", lambda row, way=way: row[0].exposed_us(row[1], way) / 1e3, f"{way} minus kernels: median over rounds")
      for way in ("serial", "async")),
    sizes("sent", lambda row: row[1].sent_bytes, "bytes per rank, mean"),
    sizes("formula", lambda row: row[1].formula_bytes, "bytes by the formula of docs/metrics.md"),
    sizes("memory", lambda row: row[1].memory_bytes, "bytes held for the layer by the rank with the most"),
    counts("unlike", lambda row: row[1].unlike, "elements whose bits differ from a serial run in one tile"),
    words("status", lambda row: STATUS.cell(row[1]).text),
)


def _section(result: LayersResult) -> Section:
    badge = EMULATED if result.basis else ""
    rows = [(case, form) for case in result.cases for form in case.forms]
    return group(result, [gain_text(result), split_text(result), bytes_sentence(result)],
                 figures_of(result, "parts", _FIGURES, badge, untimed=("bytes",)),
                 [table("Every row of the records, forward and backward together", _COLUMNS, rows, lambda row: row[1].status)])


PAGE = Page(
    6, "layers", "Tensor-parallel layers", "How much time does their communication cost, and how much do products hide?",
    "What do tensor-parallel layers cost, and how much of their communication can overlap with products?",
    records=lambda records: records.parts("layer"), results=analyse_layers, sections=each(_section), figure="parts",
    facts=lambda records, results: [Fact("What was timed", f"tensor-parallel layers on {ranks_text(records.steps)} ranks, forward and backward"),
                           passes_fact(records.steps)],
    bad=lambda records: bad_lines(records.steps, lambda step: f"{step.layer}, {counted(step.ranks, 'rank')}, {counted(step.tiles, 'tile')}, {step.dtype}"))
