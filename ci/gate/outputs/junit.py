"""A report as JUnit's XML, as GitLab and Jenkins read it: a test case a case."""
import re
from xml.etree import ElementTree

from gate.model import Report, Result, Verdict
from gate.outputs.words import change, closing_line, heading, headline_of, interval, sorted_results, value

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2
SKIPPED = (Verdict.UNDECIDED, Verdict.GONE)


def junit(report: Report, started: str, undecided_fails: bool = False) -> str:
    """Slower is a failure; undecided, and what only the base has, is skipped, or a failure where it fails the job."""
    results = sorted_results(report)
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
    out.text = _clean("\n".join([heading(report), headline_of(report), *report.notes, closing_line(report)]))
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
    """slower: +5.2 % (+3.1 to +7.0 %), base 12.31 us, head 12.95 us; confirmed by 12 fresh pairs."""
    parts = [change(result) + (f" ({interval(result)})" if result.low is not None else "")] if result.ratio is not None else []
    parts += [f"{side} {value(result, number)}" for side, number in (("base", result.base), ("head", result.head))
              if number is not None]
    return ": ".join([result.verdict.value, *([", ".join(parts)] if parts else [])]) + (f"; {result.why}" if result.why else "")


def _clean(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)
