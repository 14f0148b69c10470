"""A report's results as the sentences of reports/ need them: what all outputs say is said there."""
from reports.analysis.gate.words import (NONE, Told, answer, change_text, counts_text, headline, interval_text, limit_text, side_text,
                                         value_text, worst_first)

from gate.model import Report, Result, Verdict

__all__ = ["NONE", "change", "closing_line", "heading", "headline_of", "interval", "limit_text", "sorted_results", "told", "value"]

NOTABLE = (Verdict.SLOWER, Verdict.UNDECIDED, Verdict.FASTER, Verdict.GONE, Verdict.NEW)


def told(result: Result) -> Told:
    return Told(result.case, result.channel.value, result.verdict.value, result.ratio, result.low, result.high)


def sorted_results(report: Report) -> list[Result]:
    return worst_first(report.results, told)


def change(result: Result) -> str:
    return change_text(result.ratio, result.channel.value)


def interval(result: Result) -> str:
    return interval_text(result.low, result.high)


def value(result: Result, number: float | None) -> str:
    return value_text(number, result.unit, result.channel.value)


def heading(report: Report) -> str:
    """Which is compared with which."""
    if report.mode == "history":
        return f"history of {side_text(report.head.name, report.head.revision)}"
    return f"{side_text(report.base.name, report.base.revision)} -> {side_text(report.head.name, report.head.revision)}"


def headline_of(report: Report) -> str:
    return headline([told(result) for result in report.results], report.threshold)


def closing_line(report: Report) -> str:
    """The answer in one line: "REGRESSION: 1 slower, 2 undecided, 40 same; 43 cases in 31 s"."""
    cases = [told(result) for result in report.results]
    word = "case" if len(cases) == 1 else "cases"
    return f"{answer(cases)}: {counts_text(cases)}; {len(cases)} {word} in {report.seconds:.0f} s"
