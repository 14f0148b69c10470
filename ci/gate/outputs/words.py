"""Numbers and sentences that all outputs share."""
from ..model import Report, Result, Verdict


def percent(ratio: float | None) -> str:
    """"+5.1 %" of 1.051: worse."""
    return "-" if ratio is None else f"{(ratio - 1) * 100:+.1f} %"


def interval(result: Result) -> str:
    if result.low is None or result.high is None:
        return "-"
    return f"{(result.low - 1) * 100:+.1f} .. {(result.high - 1) * 100:+.1f} %"


def closing_line(report: Report) -> str:
    """The answer in one line: "REGRESSION: 1 slower, 40 same, 2 undecided; 43 cases in 31 s"."""
    counts = {verdict: len(report.of(verdict)) for verdict in Verdict}
    word = "REGRESSION" if counts[Verdict.SLOWER] else "undecided" if counts[Verdict.UNDECIDED] else "pass"
    parts = ", ".join(f"{number} {verdict.value}" for verdict, number in counts.items() if number)
    return f"{word}: {parts or 'no cases'}; {len(report.results)} cases in {report.seconds:.0f} s"
