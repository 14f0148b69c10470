"""A report's table on the terminal, and the results in the form of reports/' sentences, which all outputs share."""

from collections.abc import Mapping
from typing import TextIO

from gate.model import Report, Result, Verdict
from reports.analysis.gate.words import (
    answer, change_text, counts_text, interval_text, limit_text, NONE, side_text, value_text, worst_first)

NOTABLE = (Verdict.SLOWER, Verdict.UNDECIDED, Verdict.FASTER, Verdict.GONE, Verdict.NEW)


def change(result: Result) -> str:
    return change_text(result.ratio, result.channel)


def interval(result: Result) -> str:
    return interval_text(result.low, result.high)


def value(result: Result, number: float | None) -> str:
    return value_text(number, result.unit, result.channel)


def heading(report: Report) -> str:
    """Line that names the two sides."""
    if report.mode == "history":
        return f"history of {side_text(report.head.name, report.head.revision)}"
    return f"{side_text(report.base.name, report.base.revision)} -> {side_text(report.head.name, report.head.revision)}"


def closing_line(report: Report) -> str:
    """Summary in one line: "REGRESSION: 1 slower, 2 undecided, 40 same; 43 cases in 31 s"."""
    word = "case" if len(report.results) == 1 else "cases"
    return f"{answer(report.results)}: {counts_text(report.results)}; {len(report.results)} {word} in {report.seconds:.0f} s"


# The table on the terminal: worst first, the long columns last, so that the others stay aligned where lines wrap.

COLUMNS = ("verdict", "change", "interval", "base", "head", "case", "why")
RIGHT = {1, 2, 3, 4}  # columns of numbers
COLOURS = {Verdict.SLOWER: "1;31", Verdict.UNDECIDED: "33", Verdict.FASTER: "32", Verdict.GONE: "35", Verdict.NEW: "36",
           Verdict.SAME: "2"}  # of ANSI: bold red, yellow, green, ...


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """True on a terminal, unless NO_COLOR is set and not empty (no-color.org)."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def table(report: Report, show_all: bool, colour: bool = False) -> str:
    results = [result for result in worst_first(report.results) if show_all or result.verdict in NOTABLE]
    head = [f"{heading(report)}, threshold {limit_text(report.threshold)}"] + [f"note: {note}" for note in report.notes]
    return "\n".join([*head, *_lines(results, colour), _closing(report, colour)])


def _lines(results: list[Result], colour: bool) -> list[str]:
    if not results:
        return []
    rows = [COLUMNS, *(_row(result) for result in results)]
    filled = [i for i in range(len(COLUMNS)) if any(row[i] not in ("", NONE) for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in filled}
    lines = ["  ".join(row[i].rjust(widths[i]) if i in RIGHT else row[i].ljust(widths[i]) for i in filled).rstrip() for row in rows]
    if not colour:
        return lines
    return [_painted(lines[0], "4"), *(line.replace(row[0], _painted(row[0], COLOURS[result.verdict]), 1)
                                       for line, row, result in zip(lines[1:], rows[1:], results, strict=True))]


def _row(result: Result) -> tuple[str, ...]:
    return (result.verdict.value, change(result), interval(result), value(result, result.base), value(result, result.head),
            _printable(result.case), _printable(result.why))


def _printable(text: str) -> str:
    """Replaces unprintable characters: a name must not control the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _closing(report: Report, colour: bool) -> str:
    line = closing_line(report)
    if not colour:
        return line
    answer, rest = line.split(":", 1)
    word = {"REGRESSION": Verdict.SLOWER, "undecided": Verdict.UNDECIDED, "pass": Verdict.FASTER}[answer]
    return f"{_painted(answer, '1;' + COLOURS[word].removeprefix('1;'))}:{rest}"


def _painted(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m"
