"""Numbers and sentences of verdicts, for every output of the gate: the page, the terminal, Markdown, JUnit.

Pure functions of plain text and numbers. The imports are few, as the gate imports this for every output.
"""
import math
from collections import Counter
from typing import Iterable, Optional, Protocol, Sequence, TypeVar

from reports.units import counted, short

WORST_FIRST = ("slower", "undecided", "gone", "new", "faster", "same")
OPEN = ("undecided", "gone")  # no pass: a case that is gone may have another name and be slower
COUNTED = ("exact", "instructions")  # channels whose values are counts: shown whole
MANY_TIMES = 11  # from here on a ratio is written as such: +1,000 % is hard to read
NONE = "–"


class Case(Protocol):
    """A case, with the values that sentences need: the gate's own results and those of records have them."""

    case: str
    channel: str
    verdict: str
    ratio: Optional[float]  # above 1 is worse
    low: Optional[float]
    high: Optional[float]


AnyCase = TypeVar("AnyCase", bound=Case)


def worst_first(cases: Iterable[AnyCase]) -> list[AnyCase]:
    """The cases sorted by verdict, then by ratio: the largest slowdown first, the largest speedup last."""
    return sorted(cases, key=lambda case: (WORST_FIRST.index(case.verdict), -(case.ratio if case.ratio is not None else 1.0)))


def change_text(ratio: Optional[float], channel: str = "time") -> str:
    """Text "+5.1 %" for 1.051, "×12" from MANY_TIMES on. A count that changed a little shows its first digits: +0.0061 %."""
    if ratio is None or not math.isfinite(ratio):
        return NONE
    change = 100 * (ratio - 1)
    if channel in COUNTED and abs(change) < 0.05:
        return f"{'+' if change > 0 else '-'}{short(abs(change), 2)} %" if change else "0 %"
    if abs(change) < 0.05:
        return "0.0 %"
    if ratio >= MANY_TIMES:
        return f"×{short(ratio)}"
    return f"{change:+.1f} %" if abs(change) < 100 else f"{change:+,.0f} %"


def interval_text(low: Optional[float], high: Optional[float]) -> str:
    """Text such as "+3.1 to +7.0 %"."""
    if low is None or high is None:
        return NONE
    return f"{change_text(low).removesuffix(' %')} to {change_text(high)}"


def value_text(value: Optional[float], unit: str, channel: str = "time") -> str:
    """Text such as "12.35 us" or "1,048,576 bytes". Counts are whole, times have four digits, or all those before the point."""
    if value is None:
        return NONE
    if abs(value) >= 1e4 or channel in COUNTED and float(value).is_integer():
        return f"{value:,.0f} {unit}"
    return f"{short(value, 6 if channel in COUNTED else 4)} {unit}"


def answer(cases: Sequence[Case]) -> str:
    """Verdict on all cases in one word: REGRESSION, undecided or pass."""
    verdicts = {case.verdict for case in cases}
    return "REGRESSION" if "slower" in verdicts else "undecided" if verdicts.intersection(OPEN) else "pass"


def counts_text(cases: Sequence[Case]) -> str:
    """Text such as "1 slower, 2 undecided, 40 same"."""
    counts = Counter(case.verdict for case in cases)
    return ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in WORST_FIRST if counts[verdict]) or "no cases"


def headline(cases: Sequence[Case], threshold: float) -> str:
    """The most important sentence for the reader."""
    if not cases:
        return "No cases were compared."
    slower = [case for case in worst_first(cases) if case.verdict == "slower"]
    undecided = sum(case.verdict in OPEN for case in cases)
    if slower:
        return _slower_sentence(slower, len(cases))
    if undecided:
        verb = "is" if undecided == 1 else "are"
        what = " or ".join(verdict for verdict in OPEN if any(case.verdict == verdict for case in cases))
        return f"Nothing is known to be slower; {undecided:,} of {counted(len(cases), 'case')} {verb} {what}."
    if all(case.verdict == "same" for case in cases):
        equal = "equal" if all(case.channel == "exact" for case in cases) else f"the same within {limit_text(threshold)}"
        return f"All {len(cases):,} cases are {equal}." if len(cases) > 1 else f"The only case is {equal}."
    verb = "costs more" if all(case.channel in COUNTED for case in cases) else "is slower"
    return f"Nothing {verb}: {counts_text(cases)}."


def _slower_sentence(slower: Sequence[Case], number: int) -> str:
    worst = slower[0]
    verb = "costs more" if worst.channel in COUNTED else "is slower"
    verbs = {"costs more": "cost more", "is slower": "are slower"}
    interval = interval_text(worst.low, worst.high)
    by = change_text(worst.ratio, worst.channel) + ("" if interval == NONE else f" ({interval})")
    by = "" if worst.ratio is None else f" by {by}"
    if number == 1:
        return f"The only case {verb}: {worst.case}{by}."
    if len(slower) == 1:
        return f"1 of {counted(number, 'case')} {verb}: {worst.case}{by}."
    most = f"{worst.case} most{',' if by else ''}"
    return f"{len(slower):,} of {counted(number, 'case')} {verbs[verb]}, {most}{by}."


def limit_text(threshold: float) -> str:
    """Text "2 %" for 0.02."""
    return f"{short(100 * threshold)} %"


def side_text(name: str, revision: str) -> str:
    """Text such as "main (0123456789ab)"; a name that is the revision is written once."""
    short_revision = revision[:12]
    return name if revision == "unknown" or name.startswith(short_revision) else f"{name} ({short_revision})"
