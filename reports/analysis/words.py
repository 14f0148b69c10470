"""Crossovers in words: spans of sizes to sentences."""
from typing import Sequence

from reports.analysis.crossover import TOLERANCE, Comparison, Span, Verdict
from reports.units import bytes_text, joined, times_text

WITHIN = f"within {TOLERANCE:.0%}".replace("%", " %")


def span_text(span: Span, first: int, last: int) -> str:
    """Where a span lies among all sizes: up to 32 KiB; from 1 KiB to 4 KiB; at 1 KiB; from 64 KiB on."""
    if span.first == first and span.last == last:
        return f"from {bytes_text(first)} to {bytes_text(last)}"
    if span.first == first:
        return f"up to {bytes_text(span.last)}"
    if span.last == last:
        return f"from {bytes_text(span.first)} on"
    if span.first == span.last:
        return f"at {bytes_text(span.first)}"
    return f"from {bytes_text(span.first)} to {bytes_text(span.last)}"


def _where(spans: Sequence[Span], sizes: Sequence[int]) -> str:
    return joined([span_text(span, sizes[0], sizes[-1]) for span in spans])


def comparison_text(first: str, second: str, comparison: Comparison, place: str = "") -> str:
    """Says which of two is faster at which sizes. `place`, as "at 8 ranks", is put in once."""
    sizes, spans = comparison.sizes, comparison.spans
    if not sizes:
        return f"{first} and {second} have no size in common"
    level = [span for span in spans if span.answer is Verdict.LEVEL]
    won = [span for span in spans if span.answer is not Verdict.LEVEL]
    noise = ", or within their noise," if comparison.noisy else ""
    suffix = f" {place}" if place else ""
    if not won:
        return f"{first} and {second} are {WITHIN} of each other{noise} {_where(spans, sizes)}{suffix}"
    if len(spans) == 1:
        name, other = _names(won[0].answer, first, second)
        return f"{name} is faster than {other} at every size {_where(spans, sizes)}{suffix}"
    text = _winners_text(won, first, second, sizes, suffix)
    return text + (f"; {_level_where(level, won, sizes)} the two are {WITHIN}{noise.rstrip(',')}" if level else "")


def _names(answer: object, first: str, second: str) -> tuple[str, str]:
    return (first, second) if answer is Verdict.FIRST else (second, first)


def _winners_text(won: Sequence[Span], first: str, second: str, sizes: Sequence[int], suffix: str) -> str:
    answers = list(dict.fromkeys(span.answer for span in won))
    parts = []
    for answer in answers:
        where = _where([span for span in won if span.answer is answer], sizes)
        name, other = _names(answer, first, second)
        verb = (" is faster" if len(answers) > 1 else f" is faster than {other}") if not parts else ""
        parts.append(f"{name}{verb} {where}{suffix if not parts else ''}")
    return ", ".join(parts)


def _level_where(level: Sequence[Span], won: Sequence[Span], sizes: Sequence[int]) -> str:
    if len(level) == 1 and len(won) == 2 and won[0].last < level[0].first < won[1].first:
        return "between them"
    if len(level) == 1:
        return span_text(level[0], sizes[0], sizes[-1])
    return "elsewhere"


def margin_text(first: str, second: str, comparison: Comparison) -> str:
    """How much it matters at the two ends: "tree 3.2 times at 8 B, ring 1.4 times at 64 MiB"; empty where level."""
    parts = []
    for i in sorted({0, len(comparison.sizes) - 1}):
        verdict = comparison.verdicts[i]
        if verdict is not Verdict.LEVEL:
            name, _ = _names(verdict, first, second)
            ratio = max(comparison.ratios[i], 1 / comparison.ratios[i])
            parts.append(f"{name} by {times_text(ratio)} at {bytes_text(comparison.sizes[i])}")
    return ", ".join(parts)


def fastest_text(spans: Sequence[Span]) -> str:
    """Over all series: "one_shot is fastest up to 16 KiB, ring from 32 KiB on"."""
    first, last = spans[0].first, spans[-1].last
    if len(spans) == 1:
        return f"{spans[0].answer} is fastest, or {WITHIN} of it, at every size {span_text(spans[0], first, last)}"
    names = list(dict.fromkeys(span.answer for span in spans))
    parts = []
    for name in names:
        where = joined([span_text(span, first, last) for span in spans if span.answer == name])
        parts.append(f"{name}{'' if parts else ' is fastest'} {where}")
    return ", ".join(parts)


def sentence(text: str) -> str:
    """Ends in a full stop; a leading article gets its capital, a name of an algorithm stays as it is."""
    text = "The" + text[3:] if text.startswith("the ") else text
    return text if not text or text.endswith(".") else text + "."
