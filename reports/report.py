"""Records with the results of each page. Records of the claims' suite are evidence, and on no other page."""
from dataclasses import dataclass
from typing import Any, Sequence

from reports.analysis.groups import Finding
from reports.check import Note, worst_first
from reports.claims.data import load_suite
from reports.claims.verdict import line_of
from reports.page import Page
from reports.pages import pages
from reports.records import Records


@dataclass(frozen=True)
class Part:
    """Records and results of one page."""

    page: Page
    records: Records
    results: tuple[Any, ...]

    @property
    def findings(self) -> Sequence[Finding]:
        return self.page.findings(self.results)

    @property
    def notes(self) -> Sequence[Note]:
        """Worst first."""
        return worst_first(self.page.notes(self.records, self.results))


@dataclass(frozen=True)
class Report:
    records: Records
    parts: dict[str, Part]  # by subject; those with results

    def results(self, subject: str) -> tuple[Any, ...]:
        return self.parts[subject].results if subject in self.parts else ()

    @property
    def findings(self) -> list[Finding]:
        return [finding for subject, part in self.parts.items() if subject != "claims" for finding in part.findings]

    @property
    def notes(self) -> list[Note]:
        return list(dict.fromkeys(note for part in self.parts.values() for note in part.notes))


def report_of(records: Records) -> Report:
    commands = load_suite()
    evidence, others = (records.of_runs(lambda run: (line_of(run, commands) is not None) == wanted) for wanted in (True, False))
    parts = {}
    for page in pages():
        mine = page.records(evidence if page.of_claims else others)
        if results := tuple(page.results(mine)):
            parts[page.subject] = Part(page, mine, results)
    return Report(others, parts)
