"""The page of real data-parallel steps, whose gradients are reduced in buckets."""
from typing import Any, Sequence

from reports.analysis.groups import link_text
from reports.analysis.training.data_parallel import (
    analyse_buckets, best_text, bucket_text, BucketsResult, bytes_sentence, curve_text, exposed_ms, ideal_ms, reductions)
from reports.page import (
    BadLine, counts, drawing, each, EMULATED, energy_columns, Fact, group, numbers, Page, ranks_text, Section, sizes, table, words)
from reports.pages.schedules import step_drawings
from reports.records import Records, ScheduleLine
from reports.units import counted

_COLUMNS = (
    words("ranks", lambda line: f"{line.overlap.replicas}{'*' if line.run.oversubscribed else ''}", "*: more ranks than cores"),
    words("links", lambda line: link_text(line.run.link), "emulated: bandwidth in each direction, latency"),
    words("buckets of", lambda line: bucket_text(line).removeprefix("buckets of "), "largest size of a bucket"),
    numbers("buckets", lambda line: line.overlap.collectives, "number per step"),
    sizes("sent", lambda line: reductions(line).sent_bytes, "bytes per rank, counted"),
    numbers("computing ms", lambda line: line.overlap.compute_alone_ms, "kernels alone"),
    numbers("backward ms", lambda line: reductions(line).backward_ms, "part of computing during which buckets can be sent"),
    numbers("communication ms", lambda line: line.overlap.communication_alone_ms, "alone, buckets sequentially"),
    numbers("step ms", lambda line: line.makespan_ms, "buckets overlapped with the backward"),
    numbers("exposed ms", exposed_ms, "step minus computing alone: median over rounds"),
    numbers("hidden %", lambda line: 100 * line.overlap.efficiency, "hidden part of the communication that can be hidden", 3),
    numbers("after ms", lambda line: reductions(line).one_by_one_ms, "a step whose buckets are reduced after its backward"),
    numbers("ideal ms", ideal_ms, "exposed time by the buckets' recurrence"),
    numbers("turns", lambda line: len(line.samples_ms), "rounds, in each of which every way is timed once"),
    counts("wrong", lambda line: reductions(line).wrong, "number of wrong elements"), words("status", lambda line: reductions(line).status),
)


def _section(result: BucketsResult) -> Section:
    """Exposed communication over bucket size, and charts of the rows that hide most and least."""
    title = "Exposed communication by bucket size"
    lines = drawing("lines", f"{result.anchor}-exposed", "layer_figures.bucket_figure", result, title, result.name,
                    EMULATED if result.basis else "", f"A panel per number of ranks, a line per link: {result.name}")
    rows = table("Every row of the records: fewest ranks first, then the fastest links", (*_COLUMNS, *energy_columns(result.lines)), result.lines,
                 lambda line: reductions(line).status)
    return group(result, [best_text(result), *map(curve_text, result.curves), bytes_sentence(result)],
                 [lines, *step_drawings(result.lines, result.anchor)], [rows])


def _facts(records: Records, _: Sequence[Any]) -> list[Fact]:
    lines = records.schedules
    return [Fact("What was timed", f"data-parallel training steps on {ranks_text(lines)} ranks, each in four alternating ways"),
            Fact("Rows", f"{counted(len(lines), 'row')}, {sum(reductions(line).status != 'ok' for line in lines)} wrong, "
                         f"{sum(line.run.oversubscribed for line in lines)} with more ranks than cores")]


def _why(line: ScheduleLine) -> str:
    real = reductions(line)
    if real.wrong:
        return f"{counted(real.wrong, 'element')} of gradients or weights differ"
    return f"{real.sent_bytes:,.0f} B were sent; by the formula {real.formula_bytes:,.0f}"


def _bad(records: Records) -> list[BadLine]:
    return [BadLine(reductions(schedule).status, f"{counted(schedule.ranks, 'rank')}, {link_text(schedule.run.link)}, {bucket_text(schedule)}, "
                    f"{reductions(schedule).compression}", _why(schedule)) for schedule in records.schedules if reductions(schedule).status != "ok"]


PAGE = Page(
    4, "buckets", "Gradient buckets", "How large should buckets be, so that the backward hides their reduction?",
    "How large should buckets of gradients be, so that the backward hides their reduction?",
    records=lambda records: records.select(schedules=tuple(line for line in records.schedules if line.has_buckets)),
    results=analyse_buckets, sections=each(_section), figure="lines", facts=_facts, bad=_bad)
