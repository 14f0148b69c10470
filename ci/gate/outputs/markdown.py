"""A report for a pull request, as Markdown, and for GitLab and Jenkins, as JUnit's XML."""

import re
from xml.etree import ElementTree

from gate.model import Report, Result, Verdict
from gate.outputs.terminal import change, closing_line, heading, interval, NOTABLE, value
from reports.analysis.gate.words import headline, limit_text, worst_first


# ---- JUnit's XML, with one test case per case

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2
SKIPPED = (Verdict.UNDECIDED, Verdict.GONE)


def junit(report: Report, started: str, undecided_fails: bool = False) -> str:
    """Text of the XML. Slower is a failure; undecided and gone cases are skipped, or failures where they fail the job."""
    results = worst_first(report.results)
    failing = [result for result in results if _fails(result, undecided_fails)]
    skipped = [result for result in results if result.verdict in SKIPPED and result not in failing]
    numbers = {"tests": str(len(results)), "failures": str(len(failing)), "errors": "0", "skipped": str(len(skipped)),
               "time": f"{report.seconds:.3f}"}
    root = ElementTree.Element("testsuites", {"name": "gate", **numbers})
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"gate {report.mode}", **numbers, "timestamp": started.rstrip("Z")})
    properties = ElementTree.SubElement(suite, "properties")
    for name, text in (("base", report.base.revision), ("head", report.head.revision), ("threshold", f"{report.threshold:g}")):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(text)})
    for result in results:
        _add_case(suite, result, failed=result in failing)
    out = ElementTree.SubElement(suite, "system-out")
    out.text = _clean("\n".join([heading(report), headline(report.results, report.threshold), *report.notes, closing_line(report)]))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _fails(result: Result, undecided_fails: bool) -> bool:
    return result.verdict is Verdict.SLOWER or undecided_fails and result.verdict in SKIPPED


def _add_case(suite: ElementTree.Element, result: Result, failed: bool) -> None:
    line, _, rest = result.case.partition(": ")
    group, name = (line, rest) if rest else (result.channel.value, line)
    case = ElementTree.SubElement(suite, "testcase", {"classname": _clean(f"gate.{group}"), "name": _clean(name),
                                                      "time": f"{result.seconds:.3f}"})
    message = _clean(_message(result))
    if failed:
        ElementTree.SubElement(case, "failure", {"type": result.verdict.value, "message": message}).text = message
    elif result.verdict in SKIPPED:
        ElementTree.SubElement(case, "skipped", {"message": message})
    ElementTree.SubElement(case, "system-out").text = message


def _message(result: Result) -> str:
    """Text of a test case, such as "slower: +5.2 % (+3.1 to +7.0 %), base 12.31 us, head 12.95 us; confirmed by 12 fresh pairs"."""
    parts = [change(result) + (f" ({interval(result)})" if result.low is not None else "")] if result.ratio is not None else []
    parts += [f"{side} {value(result, number)}" for side, number in (("base", result.base), ("head", result.head))
              if number is not None]
    return ": ".join([result.verdict.value, *([", ".join(parts)] if parts else [])]) + (f"; {result.why}" if result.why else "")


def _clean(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)


# A report for a pull request: the verdict first, a short table of the changes, everything else folded.

MOST = 25  # rows that are not folded
LONGEST = 60_000  # characters: GitHub takes a comment of 65,536
MARKS = {"slower": "🔴", "undecided": "🟡", "faster": "🟢", "same": "⚪", "new": "🆕", "gone": "➖"}
HEAD = ("| | case | change | interval | base | head | why |", "| :-: | :-- | --: | :-: | --: | --: | :-- |")


def markdown(report: Report, command: str) -> str:
    results = worst_first(report.results)
    notable = [result for result in results if result.verdict in NOTABLE]
    answer, counts = closing_line(report).split(": ", 1)
    lines = [f"### Performance gate: {answer}", "", f"**{_text(headline(report.results, report.threshold))}**", "",
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
    """Text as code in a cell of a table: GitHub ends a cell at each '|' that has no backslash, even in code."""
    text = _one_line(text).replace("|", "\\|")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _text(text: str) -> str:
    """Text as plain text, with all marks escaped."""
    text = re.sub(r"([\\`*_\[\]|~#])", r"\\\1", _one_line(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@&#8203;")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _fenced(text: str) -> list[str]:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return [fence, text, fence]
