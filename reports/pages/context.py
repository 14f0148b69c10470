"""The page of attention over sequences that ranks share."""
from reports.analysis.training.layers import (
    analyse_context, context_bytes_sentence, ContextResult, exposed_sentence, exposed_us, hidden, hidden_sentence, load_of, load_sentence,
    memory_sentence, simulated_exposed_us, simulated_hidden, time_sentence)
from reports.page import (
    bad_lines, Column, counts, each, EMULATED, Fact, figures_of, group, number, numbers, Page, passes_fact, ranks_text, Section, sizes,
    STATUS, status_of, table, words, Cell)
from reports.records import Step
from reports.units import counted

_FIGURES = (
    ("time", "layer_figures.time_figure", "Time by length of the sequence"),
    ("memory", "layer_figures.memory_figure", "Memory per rank by length of the sequence"),
    ("hidden", "layer_figures.hidden_figure", "Share of communication that kernels hide, by length of the sequence"),
    ("load", "layer_figures.context_load_figure", "Computation on each rank"),
)
_EXPOSED = ("exposed", "layer_figures.exposed_figure", "Exposed communication by length of the sequence; open circles: simulated")
_FORMS = (("kernels", "all kernels alone"), ("communication", "all exchanges alone"),
          ("serial", "kernels and exchanges run serially: median"), ("async", "communication overlapped with blocks: median"))


def _simulated(step: Step) -> Cell:
    return Cell("-", "-") if (share := simulated_hidden(step)) is None else number(100 * share, 3)


_COLUMNS = (
    words("way", lambda line: line.way), counts("length", lambda line: line.length, "tokens per sequence"),
    *(numbers(f"{form} ms", lambda line, form=form: line.median_us(form) / 1e3, meaning) for form, meaning in _FORMS),
    numbers("exposed ms", lambda line: exposed_us(line) / 1e3, "async minus kernels: median over rounds"),
    numbers("hidden %", lambda line: 100 * hidden(line), "part of communication alone that kernels hide", 3),
    Column("simulated %", "hidden part that the simulator predicts, for emulated links", _simulated),
    numbers("load", load_of, "pairs of the busiest rank over the mean"),
    sizes("sent forward", lambda line: line.sent_bytes["forward"], "bytes of the rank that sends most"),
    sizes("sent backward", lambda line: line.sent_bytes["backward"], "bytes of the rank that sends most"),
    sizes("peak", lambda line: line.peak_bytes, "bytes besides the input and the output's gradient, on the rank that holds most"),
    numbers("difference", lambda line: line.difference * 1e6, "from one rank's result, relative to the largest element, in 1e-6"), STATUS,
)


def _section(result: ContextResult) -> Section:
    simulated = all(simulated_exposed_us(line) is not None for line in result.lines)
    sentences = [time_sentence(result), memory_sentence(result), hidden_sentence(result), load_sentence(result), context_bytes_sentence(result),
            *([exposed_sentence(result)] if simulated else [])]
    drawn = figures_of(result, "lines", _FIGURES + (_EXPOSED,) * simulated, EMULATED if result.basis else "", untimed=("memory", "load"))
    return group(result, sentences, drawn, [table("Every row of the records, forward and backward together", _COLUMNS, result.lines, status_of)])


PAGE = Page(
    7, "context", "Long sequences", "How do ranks share a sequence, at what cost in time and memory?",
    "How do ranks share the attention of a long sequence: time and memory by length, bytes, load, and what kernels hide.",
    records=lambda records: records.parts("context"), results=analyse_context, sections=each(_section), figure="lines",
    facts=lambda records, results: [Fact("What was timed", f"attention of one layer on {ranks_text(records.steps)} ranks that share its sequence, "
                                                  "forward and backward"), passes_fact(records.steps)],
    bad=lambda records: bad_lines(records.steps, lambda step: f"{step.way}, {counted(step.ranks, 'rank')}, {step.length:,} tokens, {step.dtype}"))
