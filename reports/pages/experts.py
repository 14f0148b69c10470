"""The page of mixtures of experts."""
from reports.analysis.training.layers import (
    analyse_experts, case_name, experts_bytes_text, EXPERTS_PARTS, experts_split_text, ExpertsResult, skew_text, slowdown_of)
from reports.page import (
    bad_lines, Cell, Column, each, EMULATED, Fact, figures_of, group, number, numbers, Page, passes_fact, ranks_text, Section, sizes,
    STATUS, status_of, table, words)

_FIGURES = (
    ("parts", "layer_figures.parts_figure", "Parts of the time of each case"),
    ("load", "layer_figures.experts_load_figure", "Time over the load of the most loaded expert"),
)


def _columns(result: ExpertsResult) -> list[Column]:
    return [
        words("case", case_name),
        *(numbers(f"{part} ms", lambda line, part=part: line.parts_us("serial")[part] / 1e3,
                  "forward and backward, slowest rank, run serially") for part in EXPERTS_PARTS),
        numbers("serial ms", lambda line: line.median_us("serial") / 1e3, "parts run serially: median"),
        numbers("async ms", lambda line: line.median_us("async") / 1e3, "exchanges overlapped with kernels: median"),
        Column("slower", "ratio to the time with the most even router",
               lambda line: Cell("", "") if (ratio := slowdown_of(line, result)) is None else number(ratio, 3)),
        numbers("slowest rank", lambda line: line.experts_slowest_us / line.experts_mean_us, "its experts' time over the mean", 3),
        numbers("rows", lambda line: line.most_rows / line.mean_rows, "rows of the busiest rank over the mean", 3),
        numbers("dropped %", lambda line: 100 * line.dropped / line.copies, "part of the copies that are dropped", 3),
        sizes("sent", lambda line: line.sent_bytes, "bytes per rank, mean"),
        sizes("formula", lambda line: line.formula_bytes, "bytes by the formula of docs/metrics.md"), STATUS,
    ]


def _section(result: ExpertsResult) -> Section:
    return group(result, [experts_split_text(result), skew_text(result), experts_bytes_text(result)],
                 figures_of(result, "parts", _FIGURES, EMULATED if result.basis else ""),
                 [table("Every row of the records", _columns(result), result.lines, status_of)])


PAGE = Page(
    8, "experts", "Mixtures of experts", "Where does their time go, and what does an uneven router cost?",
    "Where does the time of a mixture of experts go, what does an uneven router cost, and what is dropped?",
    records=lambda records: records.parts("experts"), results=analyse_experts, sections=each(_section), figure="parts",
    facts=lambda records, results: [Fact("What was timed", f"mixtures of experts on {ranks_text(records.steps)} expert-parallel ranks, forward and backward"),
                           passes_fact(records.steps)],
    bad=lambda records: bad_lines(records.steps, lambda step: f"{case_name(step)}, {step.dtype}"))
