"""Finds which series is faster at which sizes: compares size by size, then reports ranges of sizes.

One is faster than another where their samples decide it (estimate.py): their intervals are apart, and so are their least disturbed
samples. Otherwise they are level, or, where their samples do not even exclude a factor that matters, undecided.
"""

from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from math import exp, inf, log
from typing import Optional, Sequence

from reports.analysis.estimate import alike, certain_factor, TOLERANCE, undecided
from reports.analysis.groups import by
from reports.analysis.panels import Point, Series
from reports.units import bytes_text, joined, times_text


class Verdict(Enum):
    FIRST = "first"
    SECOND = "second"
    LEVEL = "level"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Span:
    """A run of neighbouring tested sizes that share an answer."""

    answer: object  # Verdict, or the label of the fastest series; UNDECIDED if no series is known to be
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
    crossing_bytes: Optional[float]  # size at which the ratio passes 1, if it does so once, between sizes that are decided
    factors: tuple[float, ...]  # by which one is faster for certain
    spread: float  # largest where undecided: half of an interval over its median


def verdict_of(first: Point, second: Point) -> Verdict:
    line, other = first.estimate, second.estimate
    if certain_factor(other, line) > 1:
        return Verdict.FIRST
    if certain_factor(line, other) > 1:
        return Verdict.SECOND
    return Verdict.LEVEL if alike(line, other) else Verdict.UNDECIDED


def compare(first: Series, second: Series) -> Comparison:
    pairs = [(point, other) for point in first.points if (other := second.at(point.bytes))]
    sizes = tuple(point.bytes for point, _ in pairs)
    ratios = tuple(b.time_us / a.time_us for a, b in pairs)
    verdicts = tuple(verdict_of(a, b) for a, b in pairs)
    noisy = any(v is Verdict.LEVEL and not _close(r) for v, r in zip(verdicts, ratios))
    factors = tuple(max(certain_factor(a.estimate, b.estimate), certain_factor(b.estimate, a.estimate)) for a, b in pairs)
    spread = _largest([point.estimate.spread for pair, v in zip(pairs, verdicts) if v is Verdict.UNDECIDED for point in pair])
    return Comparison(sizes, ratios, verdicts, noisy, spans_of(sizes, verdicts), _crossing(sizes, ratios, verdicts), factors, spread)


def _largest(spreads: Sequence[float]) -> float:
    """A single sample has no spread; the spreads of other series are more informative."""
    return max([spread for spread in spreads if spread < inf], default=max(spreads, default=0.0))


def spans_of(sizes: Sequence[int], answers: Sequence[object]) -> tuple[Span, ...]:
    runs = groupby(zip(sizes, answers), key=lambda pair: pair[1])
    return tuple(Span(answer, found[0][0], found[-1][0]) for answer, (*found,) in runs)


def best_point(series: Sequence[Series], size: int) -> Point:
    return min((point for line in series if (point := line.at(size))), key=lambda point: point.time_us)


def best_time(series: Sequence[Series], size: int) -> float:
    return best_point(series, size).time_us


def fastest_spans(series: Sequence[Series]) -> tuple[Span, ...]:
    """The fewest ranges such that one series is the fastest, or level with it, over each range; UNDECIDED where none is known to be.

    Goes up the sizes and always takes the series that stays level with the best for longest, which gives the fewest
    ranges; of equals the one with the least summed log time. So noise does not change the winner at every size.
    """
    sizes = sorted({size for line in series for size in line.sizes})
    level = {size: _level_with_best(series, size) for size in sizes}
    answers: list[object] = []
    while len(answers) < len(sizes):
        rest = sizes[len(answers):]
        lasts = {line.label: _lasts(level, rest, line.label) for line in series}
        longest = max(lasts.values())
        if longest == 0:
            answers.append(Verdict.UNDECIDED)
            continue
        covered = rest[:longest]
        candidates = [line for line in series if lasts[line.label] == longest]
        chosen = min(candidates, key=lambda candidate: _log_time(candidate, covered))
        answers += [chosen.label] * longest
    return spans_of(sizes, answers)


def spread_of(series: Sequence[Series], spans: Sequence[Span]) -> float:
    """The largest spread that leaves some size undecided: of the fastest series there, or of one that may be faster."""
    spreads: list[float] = []
    for size in {size for line in series for size in line.sizes}:
        if any(span.answer is Verdict.UNDECIDED and span.first <= size <= span.last for span in spans):
            best = best_point(series, size)
            spreads += [point.estimate.spread for line in series if (point := line.at(size))
                        and (point is best or verdict_of(best, point) is Verdict.UNDECIDED)]
    return _largest(spreads)


def _close(ratio: float) -> bool:
    return 1 / (1 + TOLERANCE) <= ratio <= 1 + TOLERANCE


def _crossing(sizes: Sequence[int], ratios: Sequence[float], verdicts: Sequence[Verdict]) -> Optional[float]:
    """Straight lines between the tested sizes in log-log; None unless the ratio passes 1 exactly once and both sides are decided."""
    sides = [span.answer for span in spans_of(sizes, [verdict for verdict in verdicts if verdict is not Verdict.LEVEL])]
    crossed = [i for i, (here, there) in enumerate(zip(ratios, ratios[1:])) if log(here) * log(there) < 0]
    if len(crossed) != 1 or len(sides) != 2 or Verdict.UNDECIDED in sides:
        return None
    i, = crossed
    part = log(ratios[i]) / (log(ratios[i]) - log(ratios[i + 1]))
    return exp(log(sizes[i]) + part * (log(sizes[i + 1]) - log(sizes[i])))


def _level_with_best(series: Sequence[Series], size: int) -> set[str]:
    """Series that no other is known to beat, or may beat by a factor that matters."""
    points = {line.label: point for line in series if (point := line.at(size))}
    good = (Verdict.FIRST, Verdict.LEVEL)
    return {label for label, point in points.items()
            if all(verdict_of(point, other) in good for other in points.values() if other is not point)}


def _lasts(level: dict[int, set[str]], sizes: Sequence[int], label: str) -> int:
    """Number of sizes, from the first on, at which the label stays level with the best."""
    return next((i for i, size in enumerate(sizes) if label not in level[size]), len(sizes))


def _log_time(series: Series, sizes: Sequence[int]) -> float:
    return sum(log(point.time_us) for size in sizes if (point := series.at(size)))


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


def comparison_text(first: str, second: str, comparison: Comparison, place: str = "",
                    oversubscribed: Optional[bool] = None) -> str:
    """Sentence on which of two is faster at which sizes. `place`, such as "at 8 ranks", is inserted once."""
    sizes, spans = comparison.sizes, by(comparison.spans, lambda span: span.answer)
    if not sizes:
        return f"{first} and {second} have no size in common"
    level, open_ = spans.pop(Verdict.LEVEL, []), spans.pop(Verdict.UNDECIDED, [])
    noise = ", or within their noise" if comparison.noisy else ""
    suffix = f" {place}" if place else ""
    doubt = f"{_where(open_, sizes)} it is {undecided(comparison.spread, oversubscribed)}" if open_ else ""
    if not spans:
        where = f"{WITHIN} of each other{f'{noise},' if noise else ''} {_where(level, sizes)}{suffix}"
        text = f"{first} and {second} are {where}" if level else ""
        return "; ".join(part for part in (text, doubt and f"{first} or {second}{suffix}: {doubt}") if part)
    names = {Verdict.FIRST: (first, second), Verdict.SECOND: (second, first)}
    (answer, found), *others = spans.items()
    name, other = names[answer]
    everywhere = "at every size " if len(comparison.spans) == 1 else ""
    text = f"{name} is faster {'' if others else f'than {other} '}{everywhere}{_where(found, sizes)}{suffix}"
    text += "".join(f", {names[answer][0]} {_where(found, sizes)}" for answer, found in others)
    if level:
        text += f"; {_level_where(level, [span for won in spans.values() for span in won], sizes)} the two are {WITHIN}{noise}"
    return f"{text}; {doubt}" if doubt else text


def _level_where(level: Sequence[Span], won: Sequence[Span], sizes: Sequence[int]) -> str:
    if len(level) > 1:
        return "elsewhere"
    between = len(won) == 2 and min(span.last for span in won) < level[0].first < max(span.first for span in won)
    return "between them" if between else span_text(level[0], sizes[0], sizes[-1])


def margin_text(first: str, second: str, comparison: Comparison) -> str:
    """Ratios at the two ends: "tree 3.2 times at 8 B, ring 1.4 times at 64 MiB"; empty where level, or where no size was measured
    for both."""
    names = {Verdict.FIRST: first, Verdict.SECOND: second}
    sizes, verdicts = comparison.sizes, comparison.verdicts
    return ", ".join(f"{names[verdicts[i]]} by {times_text(comparison.factors[i])} at {bytes_text(sizes[i])}"
                     for i in sorted({0, len(sizes) - 1}) if sizes and verdicts[i] in names)


def fastest_text(spans: Sequence[Span], spread: float = 0.0, oversubscribed: Optional[bool] = None) -> str:
    """Sentence over all series: "one_shot is fastest up to 16 KiB, ring from 32 KiB on"; `spread` is of sizes that are undecided."""
    first, last = spans[0].first, spans[-1].last
    if len(spans) == 1 and spans[0].answer is not Verdict.UNDECIDED:
        return f"{spans[0].answer} is fastest, or {WITHIN} of it, at every size {span_text(spans[0], first, last)}"
    parts, doubt = [], ""
    for name in dict.fromkeys(span.answer for span in spans):
        where = joined([span_text(span, first, last) for span in spans if span.answer == name])
        if name is Verdict.UNDECIDED:
            doubt = f"{where} the fastest is {undecided(spread, oversubscribed)}"
        else:
            parts.append(f"{name}{'' if parts else ' is fastest'} {where}")
    return "; ".join(part for part in (", ".join(parts), doubt) if part)


def sentence(text: str) -> str:
    """Makes a sentence: adds a full stop and capitalises a leading article; a name of an algorithm stays unchanged."""
    text = "The" + text[3:] if text.startswith("the ") else text
    return text if not text or text.endswith(".") else text + "."
