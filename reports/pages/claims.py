"""The page of claims of surveys, and of the evidence for and against each."""
from collections import Counter
from typing import Sequence

from reports.analysis.groups import Finding
from reports.claims.data import BASES, load_claims, load_suite
from reports.claims.verdict import (
    HOLDS, NOT, ONLY_IF, UNDECIDED, UNKNOWN, UNTESTED, Answer, Settled, axis_text, range_text, settle, test_text, value_text)
from reports.page import Cell, Column, Drawing, drawing, Fact, Figures, Page, Section, Table, table, Tables, words
from reports.records import Records
from reports.units import joined

_VERDICTS = {  # the class on the page, words for one claim and for several
    HOLDS: ("holds", "holds", "hold"), ONLY_IF: ("only-if", "holds only under a condition", "hold only under a condition"),
    NOT: ("fails", "does not hold", "do not hold"),
    UNDECIDED: ("untested", "is undecided on this machine", "are undecided on this machine"),
    UNTESTED: ("untested", "is not testable here", "are not testable here"), UNKNOWN: ("untested", "was not run", "were not run")}
FEWEST = 3  # fewest points of the longest curve of an answer that gets a figure
_BADGES = {"simulated": "SIMULATED: computed in virtual time", "emulated": "EMULATED links or devices: not a time of this machine's own"}


def summary_text(settled: Sequence[Settled]) -> str:
    """Words such as "26 claims: 11 hold, 9 hold under conditions, ..."."""
    counts = Counter(claim.verdict for claim in settled)
    phrases = [f"{counts[verdict]} {words[counts[verdict] > 1]}" for verdict, (_, *words) in _VERDICTS.items() if counts[verdict]]
    return f"{len(settled)} claims of surveys: {joined(phrases)}."


def _findings(settled: Sequence[Settled]) -> list[Finding]:
    """Findings of the claims: those that do not hold or have a condition first, as they are news to the reader."""
    first = sorted(settled, key=lambda claim: (NOT, ONLY_IF, HOLDS, UNDECIDED, UNTESTED, UNKNOWN).index(claim.verdict))
    return [Finding(claim.claim.claim, f"{claim.verdict} {claim.condition}".strip().capitalize() + ".", "", "", _anchor(claim))
            for claim in first if claim.verdict not in (UNTESTED, UNKNOWN)]


def _anchor(settled_claim: Settled) -> str:
    return f"claim-{settled_claim.claim.name}"


def _section(settled_claim: Settled) -> Section:
    drawn = [_drawing(settled_claim, number, answer) for number, answer in enumerate(settled_claim.answers) if is_drawn(answer)]
    tables = [_points(answer) for answer in settled_claim.answers if answer.found]
    return Section(_anchor(settled_claim), settled_claim.claim.claim, blocks=[Figures(drawn), Tables(tables, opened=False)], fields=settled_claim)


def _cell(answer: Answer) -> str:
    """Result of a piece of evidence in the table of claims."""
    has_name = answer.found and answer.evidence.short != answer.evidence.shows
    return (f"{answer.evidence.short}: " if has_name else "") + _found(answer, UNKNOWN)


def _found(answer: Answer, without: str = "–") -> str:
    return range_text(answer) if answer.found else without


def _commands(answer: Answer) -> list[str]:
    return [" ".join(command) for name, command in load_suite().items()
            if any(selection.takes(name) for selection in answer.evidence.selections)]


def is_drawn(answer: Answer) -> bool:
    """True if some curve has at least FEWEST points, and the values differ in their first three digits."""
    if answer.found is None or max(map(len, answer.found.curves.values())) < FEWEST:
        return False
    return len({f"{point.value:.3g}" for points in answer.found.curves.values() for point in points}) > 1


def _drawing(settled_claim: Settled, number: int, answer: Answer) -> Drawing:
    evidence = answer.evidence
    title = evidence.shows[:1].upper() + evidence.shows[1:]
    return drawing("lines", f"claim-{settled_claim.claim.name}-{number}", "claim_figures.claim_figure", answer, title,
                   f"{evidence.basis}  ·  the claim holds where it is {test_text(evidence)}", _BADGES.get(evidence.basis, ""),
                   f"Along {evidence.axis}")


def _points(answer: Answer) -> Table:
    """A row for each point of each curve."""
    evidence = answer.evidence
    return table(f"{evidence.basis.capitalize()}: {evidence.shows}", [
        words(evidence.by_name or "curve", lambda row: "" if row[0] is None else str(row[0])),
        Column(evidence.axis or "at", "", lambda row: Cell("" if row[1].x is None else axis_text(row[1].x, evidence), row[1].x)),
        Column("value", evidence.shows, lambda row: Cell(value_text(row[1].value, evidence), row[1].value)),
        words("holds", lambda row: {True: "yes", False: "no", None: "undecided"}[row[1].holds], test_text(evidence)),
    ], [(group, point) for group, points in answer.found.curves.items() for point in points])


def _settled(records: Records) -> Sequence[Settled]:
    return settle(load_claims(), records, load_suite())


PAGE = Page(
    1, "claims", "Claims", "Which claims of surveys hold, and under which condition?",
    "What surveys of distributed training claim, and what counting, simulation, emulation and measurement show. Bases are never mixed.",
    records=lambda records: records, results=_settled, sections=lambda settled: [_section(claim) for claim in settled], figure="lines",
    facts=lambda records, settled: [Fact("What was settled", summary_text(settled))], findings=_findings, of_claims=True,
    template="claims.html",
    calls={"bases": BASES, "classes": {verdict: css for verdict, (css, *_) in _VERDICTS.items()}, "cell": _cell, "found": _found,
           "test_text": test_text, "commands": _commands})
