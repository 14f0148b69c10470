"""The page of ZeRO's stages."""
from reports.analysis.training.data_parallel import agreement_text, analyse_sharding, saved_text, ShardingResult, stage_text
from reports.analysis.training.runs import titled
from reports.page import (
    bad_lines, each, energy_columns, Fact, figures_of, group, numbers, Page, rows_fact, Section, sizes, STATUS, status_of, Table, table, words)
from reports.units import counted, joined

_FIGURES = (("memory", "stacked_bars.sharding_figure", "Memory per rank between steps, by ZeRO stage"),)
_COLUMNS = (
    words("stage", stage_text),
    *(sizes(kind, lambda line, kind=kind: line.held_bytes[kind], "bytes per rank between steps") for kind in ("weights", "gradients", "optimizer")),
    sizes("weights at most", lambda line: line.peak_bytes["weights"], "peak bytes per rank in a step"),
    sizes("gradients at most", lambda line: line.peak_bytes["gradients"], "peak bytes per rank in a step"),
    sizes("all at most", lambda line: line.peak_bytes["total"], "peak bytes per rank in a step, with activations and buffers"),
    sizes("weights sent", lambda line: line.sent_bytes["weights"], "bytes per rank and step: gathers"),
    sizes("gradients sent", lambda line: line.sent_bytes["gradients"], "bytes per rank and step: reductions in its set of shards"),
    sizes("over replicas", lambda line: line.sent_bytes.get("over_replicas", 0),
          "bytes sent per rank and step: sums of shards over replicas of the set"),
    numbers("step ms", lambda line: line.stats and line.stats.median / 1e3, "median"), STATUS,
)
_OFFLOAD = (sizes("offloaded", lambda line: sum(line.offloaded_bytes.values()), "bytes per rank and step, to the device and from it"),
            numbers("update ms", lambda line: line.step("measured").parts_ms["update"], "the optimizer's part of the median step, on the slowest rank"))
_PLUS = {name: sizes(title, lambda line, name=name: line.sent_bytes.get(name, 0), meaning) for name, title, meaning in (
    ("secondary", "from a secondary copy", "weights sent per rank and step to those that share the copy (hpZ), in bytes"),
    ("near", "among neighbours", "gradients sent per rank and step in the first of two hops (qgZ), in bytes"))}


def sharding_table(result: ShardingResult) -> Table:
    """Columns of the table: columns for offloading only if a row offloads, for ZeRO++ only if a row uses it."""
    plus = [column for name, column in _PLUS.items() if any(line.sent_bytes.get(name) for line in result.lines)]
    offload = _OFFLOAD if any(sum(line.offloaded_bytes.values()) for line in result.lines) else ()
    return table("Every row of the records", (*_COLUMNS, *plus, *offload, *energy_columns(result.lines)), result.lines, status_of)


def _section(result: ShardingResult) -> Section:
    return group(result, [saved_text(result), agreement_text(result)], figures_of(result, "bars", _FIGURES),
                 [sharding_table(result)])


PAGE = Page(
    5, "sharding", "ZeRO", "How much of a rank's memory does each stage save?",
    "How much memory does sharding parameters, gradients and optimizer state save, and how many bytes does it send?",
    records=lambda records: records.parts("sharding"), results=analyse_sharding, sections=each(_section), figure="bars",
    facts=lambda records, results: [Fact("What was timed", joined(sorted({titled(step.model) for step in records.steps}))), rows_fact(records.steps)],
    bad=lambda records: bad_lines(records.steps, lambda step: f"{stage_text(step)}, {step.dtype}, {counted(step.ranks, 'rank')}"))
