"""A report for a pull request: the verdict first, a short table of what changed, everything else folded."""
import re

from gate.model import Report, Result
from gate.outputs.words import NOTABLE, change, closing_line, heading, headline_of, interval, limit_text, sorted_results, value

MOST = 25  # rows that are not folded
LONGEST = 60_000  # characters: GitHub takes a comment of 65,536
MARKS = {"slower": "🔴", "undecided": "🟡", "faster": "🟢", "same": "⚪", "new": "🆕", "gone": "➖"}
HEAD = ("| | case | change | interval | base | head | why |", "| :-: | :-- | --: | :-: | --: | --: | :-- |")


def markdown(report: Report, command: str) -> str:
    results = sorted_results(report)
    notable = [result for result in results if result.verdict in NOTABLE]
    answer, counts = closing_line(report).split(": ", 1)
    lines = [f"### Performance gate: {answer}", "", f"**{_text(headline_of(report))}**", "",
             f"{_text(heading(report))}, threshold {limit_text(report.threshold)}: {counts}", ""]
    lines += [f"> {_text(note)}  " for note in report.notes] + [""] * bool(report.notes)
    lines += [*_table(notable[:MOST]), *_more(len(notable) - MOST), ""] if notable else []
    ending = ["<details><summary>How to repeat this</summary>", "", *_fenced(command), "",
              "What the verdicts mean, and when not to believe them: `docs/gate.md`.", "", "</details>", ""]
    room = LONGEST - len("\n".join(lines + ending))
    return "\n".join(lines + (_folded(results, room) if results else []) + ending)


def _table(results: list[Result]) -> list[str]:
    return [*HEAD, *(_row(result) for result in results)]


def _row(result: Result) -> str:
    cells = [f"{MARKS[result.verdict.value]} {result.verdict.value}", _code(result.case), change(result), interval(result),
             value(result, result.base), value(result, result.head), _text(result.why)]
    return f"| {' | '.join(cells)} |"


def _more(number: int) -> list[str]:
    return ["", f"{number} more are in the list of all cases."] if number > 0 else []


def _folded(results: list[Result], room: int) -> list[str]:
    head = [f"<details><summary>All cases ({len(results)})</summary>", "", *HEAD]
    rows, left = [], room - len("\n".join(head)) - 200
    for result in results:
        row = _row(result)
        left -= len(row) + 1
        if left < 0:
            break
        rows.append(row)
    cut = ["", f"{len(results) - len(rows)} more do not fit here; records and the page have them."]
    return [*head, *rows, *(cut if len(rows) < len(results) else []), "", "</details>", ""]


def _code(text: str) -> str:
    """As code in a cell of a table: GitHub ends a cell at each '|' that has no backslash, even in code."""
    text = _one_line(text).replace("|", "\\|")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _text(text: str) -> str:
    """As plain text, whatever marks are in it."""
    text = re.sub(r"([\\`*_\[\]|~#])", r"\\\1", _one_line(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@&#8203;")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _fenced(text: str) -> list[str]:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return [fence, text, fence]
