"""The gate's page."""
from typing import Iterable, Optional, Sequence

from reports.analysis.gate.results import analyse_gates, GateResult, pairs_text, sentences
from reports.analysis.groups import dotted
from reports.analysis.gate.words import counts_text, limit_text, NONE, value_text
from reports.check import machine_text, Note
from reports.page import Cell, Column, counts, Drawing, drawing, each, Fact, group, numbers, Page, Section, Table, table, words
from reports.records import GateCase, GateSeries, Records
from reports.units import counted, joined, unbroken

TIMED = ("time", "stored")
MOST_SERIES = 12  # panels of a history


# ---- Figures

def shown_series(series: Sequence[GateSeries]) -> list[GateSeries]:
    """At most MOST_SERIES: those with changes first (recent ones before others, slowdowns before speedups, large changes before small
    ones), then times without a change. An exact value that never changed is not plotted."""
    def key(series: GateSeries) -> tuple[bool, bool, bool, float]:
        if not series.changes:
            return True, True, True, 0.0
        last = series.changes[-1]
        return False, not last.recent, not last.worse, -abs((last.ratio or 1) - 1)
    return sorted((line for line in series if line.changes or line.points and line.channel == "stored"), key=key)[:MOST_SERIES]


def _history(result: GateResult) -> list[Drawing]:
    shown = shown_series(result.series)
    if not shown:
        return []
    changed = sum(bool(series.changes) for series in result.series)
    title = f"{changed:,} of {counted(len(result.series), 'case')} changed over time" if changed else "No case changed over time"
    left_out = len(result.series) - len(shown)
    subtitle = dotted(result.name, "dashed: change points, with the commits to blame at the right",
                       f"{counted(left_out, 'case')} more in the records" if left_out else "")
    return [drawing("parts", f"{result.anchor}-history", "gate_figures.history_figure", shown, title, unbroken(subtitle),
                    what="One line per case over record files, with change points")]


def _forest(result: GateResult, cases: Sequence[GateCase], kind: str, threshold: float) -> list[Drawing]:
    if not any(case.ratio for case in cases):
        return []
    title = f"{'Counts that changed' if kind == 'counts' else 'Times'}: {counts_text(cases)}"
    unplotted = sum(not case.ratio for case in cases)
    only = f"{counted(unplotted, 'case')} without a ratio: only in the table" if unplotted else ""
    return [drawing("parts", f"{result.anchor}-{kind}", "gate_figures.forest_figure",
                    (cases, threshold, result.compared.confidence), title,
                    unbroken(dotted(result.name, pairs_text(result), only, f"{result.compared.seconds:.0f} s")),
                    what="One row per case: the change with its interval, worst first")]


def _drawings(result: GateResult) -> list[Drawing]:
    """A history's steps are in its own figure. Of counts those that changed: rows at 0 % for unchanged ones would carry no information."""
    if result.series:
        return _history(result)
    timed = [case for case in result.lines if case.channel in TIMED]
    changed = [case for case in result.lines if case.channel not in TIMED and case.verdict != "same"]
    return [*_forest(result, timed, "times", result.compared.threshold), *_forest(result, changed, "counts", 0.0)]


# ---- Tables

def _percent(ratio: Optional[float]) -> Optional[float]:
    return None if ratio is None else 100 * (ratio - 1)


def _values(name: str, field: str, meaning: str) -> Column:
    """A column of (case or series, the object with the field: the case itself, or a change)."""
    return Column(name, meaning, lambda row: Cell(value_text(value := getattr(row[1], field), row[0].unit, row[0].channel), value))


def _ratios(first: str) -> tuple[Column, ...]:
    return (numbers("change %", lambda row: _percent(row[1].ratio), f"{first} minus 1, inverted where more is better: above 0 is worse", 3),
            numbers("from %", lambda row: _percent(row[1].low), "lower bound of the change", 3),
            numbers("to %", lambda row: _percent(row[1].high), "upper bound of the change", 3))


_CASES = (
    words("case", lambda row: row[0].case), words("verdict", lambda row: row[0].verdict), *_ratios("head over base"),
    _values("base", "base", "typical value"), _values("head", "head", "typical value"), words("why", lambda row: row[0].why),
    counts("pairs", lambda row: row[0].pairs or None, "independent comparisons"),
    numbers("measured s", lambda row: row[0].seconds or None, "time that the measurements of the case took", 2),
    words("channel", lambda row: row[0].channel, "how it was compared"),
)
_CHANGES = (
    words("case", lambda row: row[0].case),
    words("when", lambda row: row[0].points[row[1].at].time, "time of the first record file after the change"),
    words("blame", lambda row: row[1].blame, "range of commits for git log"), *_ratios("after over before"),
    _values("before", "before", "level before the change"), _values("after", "after", "level after the change"),
    words("recent", lambda row: "yes" if row[1].recent else ""),
)


def cases_table(result: GateResult) -> Table:
    rows = [(case, case) for case in result.lines]
    shown = [column for column in _CASES if any(column.cell(row).text not in ("", NONE) for row in rows)]
    return table("Every case, worst first", shown, rows, lambda row: "wrong" if row[0].verdict == "slower" else "ok")


def _tables(result: GateResult) -> list[Table]:
    changes = [(series, change) for series in result.series for change in series.changes]
    return [cases_table(result), table("Every change point", _CHANGES, changes,
                                       lambda row: "wrong" if row[1].recent and row[1].worse else "ok")]


# ---- The page

def _facts(_: Records, results: Sequence[GateResult]) -> list[Fact]:
    cases = [case for result in results for case in result.lines]
    return [Fact("What was compared", joined([result.name for result in results])),
            Fact("Verdicts", f"{counts_text(cases)}, in {sum(result.compared.seconds for result in results):.0f} s"),
            Fact("Threshold", joined(list(dict.fromkeys(_limit(result) for result in results))))]


def _limit(result: GateResult) -> str:
    limit = limit_text(result.compared.threshold)
    if result.lines and not any(case.channel in TIMED for case in result.lines):
        return f"{limit} of instructions, none of what is exact"
    return f"{limit}: smaller changes do not matter"


def _notes(results: Sequence[GateResult]) -> Iterable[Note]:
    for result in results:
        for note in result.compared.notes:
            yield Note("warning", f"{result.name}: {note}" if len(results) > 1 else f"{note[:1].upper()}{note[1:]}")
    machines = {result.run.machine.fingerprint: result.run.machine for result in results}
    if len(machines) > 1:
        yield Note("info", f"These verdicts come from {len(machines)} machines: "
                           f"{joined([machine_text(machine) for machine in machines.values()])}.")


def _section(result: GateResult) -> Section:
    return group(result, [result.answer, *sentences(result)], _drawings(result), _tables(result))


PAGE = Page(
    14, "gate", "Gate", "Did the change make anything slower?", "Did the change make anything slower?",
    records=lambda records: records.only("verdicts", "histories"), results=analyse_gates, sections=each(_section), figure="times",
    facts=_facts, notes=lambda records, results: list(_notes(results)))
