"""Results of the gate's runs: each run's cases worst first, and its verdict as a finding."""
from collections import Counter
from dataclasses import dataclass
from typing import Optional, Sequence

from reports.analysis.groups import by, Group
from reports.analysis.gate.words import OPEN, answer, counts_text, headline, side_text, worst_first
from reports.records import Compared, GateCase, GateSeries, Records, Run
from reports.units import counted, joined


@dataclass(frozen=True)
class GateResult(Group):
    """One run of the gate; `lines`: its cases, worst first."""

    run: Optional[Run] = None
    series: tuple[GateSeries, ...] = ()  # series of a history, one per case
    basis = ""

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
        """The most important sentence."""
        return headline(self.lines, self.compared.threshold)

    @property
    def statements(self) -> list[tuple[str, ...]]:
        verdict = answer(self.lines)
        return [(f"{verdict[:1].upper()}{verdict[1:]}: {self.answer}", " ".join(sentences(self)))]


def analyse_gates(records: Records) -> tuple[GateResult, ...]:
    """A result for each run that compared two sides, even if they had no cases."""
    cases, series = (by(lines, lambda line: line.run.run) for lines in (records.verdicts, records.histories))
    return tuple(GateResult(f"gate-{number}", tuple(worst_first(cases.get(run.run, ()))), run=run,
                            series=tuple(series.get(run.run, ())))
                 for number, run in enumerate((run for run in records.runs if run.gate), start=1))


def sentences(result: GateResult) -> list[str]:
    """Sentences on details: the number of each kind, why some are undecided, the underlying measurements."""
    verdicts = {case.verdict for case in result.lines}
    in_headline = len(verdicts) == 1 or not verdicts & {"slower", *OPEN}
    phrases = [] if in_headline else [f"In all: {counts_text(result.lines)}."]
    phrases += _why_undecided(result.lines)
    pairs = pairs_text(result)
    if pairs:
        phrases.append(f"{pairs} in {result.compared.seconds:.0f} s.")
    return phrases + _changes_text(result.series)


def pairs_text(result: GateResult) -> str:
    """Text such as "36 pairs of fresh processes"; empty where times were stored."""
    pairs = sum(case.pairs for case in result.lines if case.channel == "time")
    return f"{counted(pairs, 'pair')} of fresh processes" if pairs else ""


def _changes_text(series: Sequence[GateSeries]) -> list[str]:
    """Summary of a history, and the range to blame for recent changes."""
    if not series:
        return []
    changes = sum(len(line.changes) for line in series)
    files = len({point.source for line in series for point in line.points})
    recent = Counter(line.changes[-1].blame for line in series if line.changes and line.changes[-1].recent and line.changes[-1].worse)
    blamed = [f"{blame} for {counted(number, 'case')}" for blame, number in recent.most_common(3)]
    phrases = [f"{counted(files, 'record file')}, {counted(len(series), 'case')}, {counted(changes, 'change point')}."]
    return phrases + ([f"To blame: {joined(blamed)}."] if blamed else [])


def _why_undecided(cases: Sequence[GateCase]) -> list[str]:
    reasons = Counter(case.why for case in cases if case.verdict == "undecided" and case.why)
    return [f"Undecided: {joined([f'{number} × {why}' for why, number in reasons.most_common(3)])}."] if reasons else []
