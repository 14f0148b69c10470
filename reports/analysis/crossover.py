"""Finds which series is faster at which sizes: compares size by size, then reports ranges of sizes.

Two times are level when they differ by at most the tolerance, or when the 95 % intervals of their medians overlap.
"""

from dataclasses import dataclass
from enum import Enum
from math import exp, log
from typing import Optional, Sequence

from reports.analysis.panels import Point, Series
from reports.units import bytes_text, joined, times_text


TOLERANCE = 0.05


class Verdict(Enum):
    FIRST = "first"
    SECOND = "second"
    LEVEL = "level"


@dataclass(frozen=True)
class Span:
    """A run of neighbouring tested sizes that share an answer."""

    answer: object  # Verdict, or the label of the fastest series
    first: int
    last: int


@dataclass(frozen=True)
class Comparison:
    """Compares two series at the sizes that both have; ratio is second over first: above 1, the first is faster."""

    sizes: tuple[int, ...]
    ratios: tuple[float, ...]
    verdicts: tuple[Verdict, ...]
    noisy: bool  # some size is level only because of its noise
    spans: tuple[Span, ...]
    crossing_bytes: Optional[float]  # size at which the ratio passes 1, if it does so once


def verdict_of(first: Point, second: Point) -> Verdict:
    ratio = second.time_us / first.time_us
    if _close(ratio) or _intervals_overlap(first, second):
        return Verdict.LEVEL
    return Verdict.FIRST if ratio > 1 else Verdict.SECOND


def compare(first: Series, second: Series) -> Comparison:
    pairs = [(point, other) for point in first.points if (other := second.at(point.bytes))]
    sizes = tuple(point.bytes for point, _ in pairs)
    ratios = tuple(b.time_us / a.time_us for a, b in pairs)
    verdicts = tuple(verdict_of(a, b) for a, b in pairs)
    noisy = any(v is Verdict.LEVEL and not _close(r) for v, r in zip(verdicts, ratios))
    return Comparison(sizes, ratios, verdicts, noisy, spans_of(sizes, verdicts), _crossing(sizes, ratios))


def spans_of(sizes: Sequence[int], answers: Sequence[object]) -> tuple[Span, ...]:
    spans: list[Span] = []
    for size, answer in zip(sizes, answers):
        if spans and spans[-1].answer == answer:
            spans[-1] = Span(answer, spans[-1].first, size)
        else:
            spans.append(Span(answer, size, size))
    return tuple(spans)


def best_time(series: Sequence[Series], size: int) -> float:
    return min(point.time_us for one in series if (point := one.at(size)))


def fastest_spans(series: Sequence[Series]) -> tuple[Span, ...]:
    """The fewest ranges such that one series is the fastest, or level with it, over each range.

    Goes up the sizes and always takes the series that stays level with the best for longest, which gives the fewest
    ranges; of equals the one with the least summed log time. So noise does not change the winner at every size.
    """
    sizes = sorted({size for one in series for size in one.sizes})
    level = {size: _level_with_best(series, size) for size in sizes}
    answers: list[str] = []
    while len(answers) < len(sizes):
        rest = sizes[len(answers):]
        lasts = {one.label: _lasts(level, rest, one.label) for one in series}
        longest = max(lasts.values())
        covered = rest[:longest]
        candidates = [one for one in series if lasts[one.label] == longest]
        chosen = min(candidates, key=lambda one: _log_time(one, covered))
        answers += [chosen.label] * longest
    return spans_of(sizes, answers)


def _close(ratio: float) -> bool:
    return 1 / (1 + TOLERANCE) <= ratio <= 1 + TOLERANCE


def _intervals_overlap(a: Point, b: Point) -> bool:
    if a.ci_low is None or a.ci_high is None or b.ci_low is None or b.ci_high is None:
        return False
    return a.ci_low <= b.ci_high and b.ci_low <= a.ci_high


def _crossing(sizes: Sequence[int], ratios: Sequence[float]) -> Optional[float]:
    """Straight lines between the tested sizes in log-log; None unless the ratio passes 1 exactly once."""
    found = []
    for i in range(len(sizes) - 1):
        here, there = log(ratios[i]), log(ratios[i + 1])
        if here * there < 0:
            part = here / (here - there)
            found.append(exp(log(sizes[i]) + part * (log(sizes[i + 1]) - log(sizes[i]))))
    return found[0] if len(found) == 1 else None


def _level_with_best(series: Sequence[Series], size: int) -> set[str]:
    points = {one.label: point for one in series if (point := one.at(size))}
    best = min(points.values(), key=lambda point: point.time_us)
    return {label for label, point in points.items() if verdict_of(best, point) is Verdict.LEVEL}


def _lasts(level: dict[int, set[str]], sizes: Sequence[int], label: str) -> int:
    """Number of sizes, from the first on, at which the label stays level with the best."""
    return next((i for i, size in enumerate(sizes) if label not in level[size]), len(sizes))


def _log_time(one: Series, sizes: Sequence[int]) -> float:
    return sum(log(point.time_us) for size in sizes if (point := one.at(size)))


# Crossovers in words: spans of sizes to sentences.

WITHIN = f"within {TOLERANCE:.0%}".replace("%", " %")


def span_text(span: Span, first: int, last: int) -> str:
    """Words for the position of a span among all sizes: up to 32 KiB; from 1 KiB to 4 KiB; at 1 KiB; from 64 KiB on."""
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
    """Sentence on which of two is faster at which sizes. `place`, such as "at 8 ranks", is inserted once."""
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
    """Ratios at the two ends: "tree 3.2 times at 8 B, ring 1.4 times at 64 MiB"; empty where level, or where no size was measured
    for both."""
    if not comparison.sizes:
        return ""
    parts = []
    for i in sorted({0, len(comparison.sizes) - 1}):
        verdict = comparison.verdicts[i]
        if verdict is not Verdict.LEVEL:
            name, _ = _names(verdict, first, second)
            ratio = max(comparison.ratios[i], 1 / comparison.ratios[i])
            parts.append(f"{name} by {times_text(ratio)} at {bytes_text(comparison.sizes[i])}")
    return ", ".join(parts)


def fastest_text(spans: Sequence[Span]) -> str:
    """Sentence over all series: "one_shot is fastest up to 16 KiB, ring from 32 KiB on"."""
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
    """Makes a sentence: adds a full stop and capitalises a leading article; a name of an algorithm stays unchanged."""
    text = "The" + text[3:] if text.startswith("the ") else text
    return text if not text or text.endswith(".") else text + "."
