"""Results of the gate's runs: each run's cases worst first, and its verdict as a finding."""
from collections import Counter
from dataclasses import dataclass
from typing import Sequence

from reports.analysis.groups import Finding
from reports.analysis.gate.words import OPEN, answer, counts_text, headline, side_text, worst_first
from reports.records import Compared, GateCase, GateSeries, Records, Run
from reports.units import counted, joined


@dataclass(frozen=True)
class GateResult:
    """One run of the gate."""

    anchor: str
    run: Run
    cases: tuple[GateCase, ...]  # worst first
    series: tuple[GateSeries, ...] = ()  # series of a history, one per case

    @property
    def compared(self) -> Compared:
        return self.run.gate

    @property
    def name(self) -> str:
        if self.compared.mode == "history":
            return f"history of {self.compared.head.name}"
        base, head = (side_text(side.name, side.revision) for side in (self.compared.base, self.compared.head))
        return f"{head} against {base}"

    @property
    def answer(self) -> str:
        return answer(self.cases)

    @property
    def headline(self) -> str:
        return headline(self.cases, self.compared.threshold)

    @property
    def findings(self) -> list[Finding]:
        text = f"{self.answer[:1].upper()}{self.answer[1:]}: {self.headline}"
        return [Finding(self.name, text, " ".join(sentences(self)), "", self.anchor)]


def analyse_gates(records: Records) -> tuple[GateResult, ...]:
    """A result for each run that compared two sides, even if they had no cases."""
    runs = [run for run in records.runs if run.gate]
    return tuple(GateResult(f"gate-{number}", run, tuple(worst_first(
        case for case in records.verdicts if case.run.run == run.run)),
        tuple(one for one in records.histories if one.run.run == run.run))
        for number, run in enumerate(runs, start=1))


def sentences(result: GateResult) -> list[str]:
    """Sentences on details: the number of each kind, why some are undecided, the underlying measurements."""
    verdicts = {case.verdict for case in result.cases}
    in_headline = len(verdicts) == 1 or not verdicts & {"slower", *OPEN}
    told = [] if in_headline else [f"In all: {counts_text(result.cases)}."]
    told += _why_undecided(result.cases)
    pairs = pairs_text(result)
    if pairs:
        told.append(f"{pairs} in {result.compared.seconds:.0f} s.")
    return told + _changes_text(result.series)


def pairs_text(result: GateResult) -> str:
    """Text such as "36 pairs of fresh processes"; empty where times were stored."""
    pairs = sum(case.pairs for case in result.cases if case.channel == "time")
    return f"{counted(pairs, 'pair')} of fresh processes" if pairs else ""


def _changes_text(series: Sequence[GateSeries]) -> list[str]:
    """Summary of a history, and the range to blame for recent changes."""
    if not series:
        return []
    changes = sum(len(one.changes) for one in series)
    files = len({point.source for one in series for point in one.points})
    recent = Counter(one.changes[-1].blame for one in series if one.changes and one.changes[-1].recent and one.changes[-1].worse)
    blamed = [f"{blame} for {counted(number, 'case')}" for blame, number in recent.most_common(3)]
    told = [f"{counted(files, 'record file')}, {counted(len(series), 'case')}, {counted(changes, 'change point')}."]
    return told + ([f"To blame: {joined(blamed)}."] if blamed else [])


def _why_undecided(cases: Sequence[GateCase]) -> list[str]:
    reasons = Counter(case.why for case in cases if case.verdict == "undecided" and case.why)
    return [f"Undecided: {joined([f'{number} × {why}' for why, number in reasons.most_common(3)])}."] if reasons else []
