"""View for the template of the claims' page, with all text ready."""
from collections import Counter
from dataclasses import dataclass
from typing import Mapping, Sequence

from reports.analysis.findings import Finding
from reports.check import Note, notes_on_runs
from reports.claims.data import BASES, Commands
from reports.claims.verdict import HOLDS, NOT, ONLY_IF, UNDECIDED, UNKNOWN, UNTESTED, Answer, Settled, axis_text, range_text, test_text, value_text
from reports.html.run_view import BadLine, Fact, MachineView, RunView, machine_views, run_facts, run_views
from reports.html.tables import Cell, Column, Line, Table, word
from reports.plots.figures import FigureFile
from reports.records import Records
from reports.units import joined

_CLASSES = {HOLDS: "holds", ONLY_IF: "only-if", NOT: "fails", UNTESTED: "untested", UNDECIDED: "untested", UNKNOWN: "untested"}
ORDER = (HOLDS, ONLY_IF, NOT, UNDECIDED, UNTESTED, UNKNOWN)


@dataclass(frozen=True)
class EvidenceView:
    basis: str
    shows: str
    value: str
    test: str
    verdict: str
    css: str
    commands: Sequence[str]


@dataclass(frozen=True)
class ClaimView:
    anchor: str
    claim: str
    source: str
    published: str
    cells: Sequence[Sequence[str]]  # result of each basis, a line per piece of evidence
    verdict: str
    condition: str
    css: str
    others: Sequence[str]
    remarks: str
    evidence: Sequence[EvidenceView]
    figures: Sequence[FigureFile]
    tables: Sequence[Table]


@dataclass(frozen=True)
class ClaimsPage:
    facts: Sequence[Fact]
    findings: Sequence[Finding]
    notes: Sequence[Note]
    bad_rows: Sequence[BadLine]
    claims: Sequence[ClaimView]
    bases: Sequence[str]
    summary: str
    runs: Sequence[RunView]
    machines: Sequence[MachineView]
    files: Sequence[str]


def claims_page_of(records: Records, settled: Sequence[Settled], figures: Mapping[str, Sequence[FigureFile]], commands: Commands,
                   files: Sequence[str]) -> ClaimsPage:
    facts = [Fact("What was settled", summary_text(settled))]
    return ClaimsPage(run_facts(records, facts), claim_findings(settled), list(notes_on_runs(records)), [],
                      [_view(one, figures[one.claim.name], commands) for one in settled], BASES, summary_text(settled),
                      run_views(records), machine_views(records), files)


def summary_text(settled: Sequence[Settled]) -> str:
    """Words such as "26 claims: 11 hold, 9 hold under conditions, ..."."""
    counts = Counter(one.verdict for one in settled)
    words = {HOLDS: ("holds", "hold"), ONLY_IF: ("holds only under a condition", "hold only under a condition"),
             NOT: ("does not hold", "do not hold"), UNTESTED: ("is not testable here", "are not testable here"),
             UNDECIDED: ("is undecided on this machine", "are undecided on this machine"),
             UNKNOWN: ("was not run", "were not run")}
    told = [f"{counts[verdict]} {words[verdict][counts[verdict] > 1]}" for verdict in ORDER if counts[verdict]]
    return f"{len(settled)} claims of surveys: {joined(told)}."


def claim_findings(settled: Sequence[Settled]) -> list[Finding]:
    """Findings of the claims: those that do not hold or have a condition first, as they are news to the reader."""
    first = sorted(settled, key=lambda one: (NOT, ONLY_IF, HOLDS, UNDECIDED, UNTESTED, UNKNOWN).index(one.verdict))
    return [Finding(one.claim.claim, f"{one.verdict} {one.condition}".strip().capitalize() + ".", "", "", _anchor(one))
            for one in first if one.verdict not in (UNTESTED, UNKNOWN)]


def _anchor(one: Settled) -> str:
    return f"claim-{one.claim.name}"


def _view(one: Settled, figures: Sequence[FigureFile], commands: Commands) -> ClaimView:
    cells = [[_cell(answer) for answer in one.answers if answer.evidence.basis == basis] for basis in BASES]
    return ClaimView(_anchor(one), one.claim.claim, one.claim.source, one.claim.published, cells, one.verdict, one.condition,
                     _CLASSES[one.verdict], one.others, one.claim.remarks, [_evidence(answer, commands) for answer in one.answers],
                     figures, [_points(answer) for answer in one.answers if answer.found])


def _cell(answer: Answer) -> str:
    if answer.found is None:
        return UNKNOWN
    name = f"{answer.evidence.short}: " if answer.evidence.short != answer.evidence.shows else ""
    return name + range_text(answer)


def _evidence(answer: Answer, commands: Commands) -> EvidenceView:
    evidence = answer.evidence
    mine = [" ".join(command) for name, command in commands.items() if any(one.takes(name) for one in evidence.selections)]
    return EvidenceView(evidence.basis, evidence.shows, range_text(answer) if answer.found else "–", test_text(evidence), answer.verdict,
                        _CLASSES[answer.verdict], mine)


def _points(answer: Answer) -> Table:
    evidence = answer.evidence
    columns = (Column(evidence.by_name or "curve", "", False), Column(evidence.axis or "at", ""), Column("value", evidence.shows),
               Column("holds", test_text(evidence), False))
    lines = tuple(Line((word("" if group is None else str(group)), Cell("" if point.x is None else axis_text(point.x, evidence), point.x),
                        Cell(value_text(point.value, evidence), point.value), word({True: "yes", False: "no", None: "undecided"}[point.holds])))
                  for group, points in answer.found.curves.items() for point in points)
    return Table(f"{evidence.basis.capitalize()}: {evidence.shows}", columns, lines)
