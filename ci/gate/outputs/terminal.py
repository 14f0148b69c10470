"""The table on the terminal."""
from ..model import Report, Result, Verdict
from .words import closing_line, interval, percent

NOTABLE = (Verdict.SLOWER, Verdict.FASTER, Verdict.UNDECIDED, Verdict.NEW, Verdict.GONE)


def table(report: Report, show_all: bool) -> str:
    shown = [result for result in report.results if show_all or result.verdict in NOTABLE]
    rows = [("case", "verdict", "base", "head", "change", "interval", "why")] + [_row(result) for result in shown]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = {0, 1, 6}
    lines = ["  ".join(cell.ljust(width) if i in left else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
    head = [f"{report.base.name} ({report.base.revision[:12]}) -> {report.head.name} ({report.head.revision[:12]}), "
            f"threshold {report.threshold:.3g}"] + [f"note: {note}" for note in report.notes]
    return "\n".join([*head, *(lines if shown else []), closing_line(report)])


def _row(result: Result) -> tuple[str, ...]:
    def value(number: float | None) -> str:
        return "-" if number is None else f"{number:.4g} {result.unit}"
    return (result.case, result.verdict.value, value(result.base), value(result.head), percent(result.ratio), interval(result),
            result.why)
