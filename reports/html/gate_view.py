"""View of the gate's page, with all text ready."""
from pathlib import Path
from typing import Iterable, Optional, Sequence

from reports.analysis.findings import MOST
from reports.analysis.gate.results import GateResult, pairs_text, sentences
from reports.analysis.gate.words import counts_text, limit_text, NONE, value_text
from reports.check import machine_text, Note
from reports.records import GateCase, GateChange, GateSeries, Records
from reports.html.run_view import Fact, machine_views, run_facts, run_views
from reports.html.tables import Cell, Column, Line, Table, number, word
from reports.html.training_view import GroupPage, GroupView
from reports.plots import style
from reports.plots.figures import FigureFile, save
from reports.plots.frame import Heading
from reports.plots.gate_figures import forest_figure, history_figure, rows_of, shown_series
from reports.units import counted, joined, unbroken

TIMED = ("time", "stored")


def render_gates(results: Sequence[GateResult], folder: Path) -> list[list[FigureFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    return [[file for file in (_render_history(result, folder), _render_timed(result, folder), _render_counted(result, folder)) if file]
            for result in results]


def _render_history(result: GateResult, folder: Path) -> Optional[FigureFile]:
    shown = shown_series(result.series)
    if not shown:
        return None
    changed = sum(bool(one.changes) for one in result.series)
    title = f"{changed:,} of {counted(len(result.series), 'case')} changed over time" if changed else "No case changed over time"
    left_out = len(result.series) - len(shown)
    told = [result.name, "dashed: change points, with the commits to blame at the right",
            f"{counted(left_out, 'case')} more in the records" if left_out else ""]
    heading = Heading(title, unbroken("  ·  ".join(part for part in told if part)), "")
    stem = f"{result.anchor}-history"
    with style.context():
        save(history_figure(shown, heading), folder / stem)
    return FigureFile("parts", stem, title, f"A line a case over record files, with change points. {title}")


def _render_timed(result: GateResult, folder: Path) -> Optional[FigureFile]:
    if result.series:  # the steps are in its plot
        return None
    cases = [case for case in result.cases if case.channel in TIMED]
    return _render(result, cases, "times", result.compared.threshold, folder)


def _render_counted(result: GateResult, folder: Path) -> Optional[FigureFile]:
    """Figure of the counts that changed; rows at 0 % for unchanged ones would carry no information. None for a history."""
    if result.series:
        return None
    cases = [case for case in result.cases if case.channel not in TIMED and case.verdict != "same"]
    return _render(result, cases, "counts", 0.0, folder)


def _render(result: GateResult, cases: Sequence[GateCase], kind: str, threshold: float, folder: Path) -> Optional[FigureFile]:
    if not rows_of(cases).number:
        return None
    title = f"{'Counts that changed' if kind == 'counts' else 'Times'}: {counts_text([case.summary for case in cases])}"
    untold = sum(not case.ratio for case in cases)
    only = f"{counted(untold, 'case')} without a ratio: only in the table" if untold else ""
    told = [result.name, pairs_text(result), only, f"{result.compared.seconds:.0f} s"]
    heading = Heading(title, unbroken("  ·  ".join(part for part in told if part)), "")
    stem = f"{result.anchor}-{kind}"
    with style.context():
        save(forest_figure(cases, threshold, result.compared.confidence, heading), folder / stem)
    return FigureFile("parts", stem, title, f"A row a case: the change with its interval, worst first. {title}")


def gate_page_of(records: Records, results: Sequence[GateResult], figures: Sequence[Sequence[FigureFile]],
                 files: Sequence[str]) -> GroupPage:
    cases = [case for result in results for case in result.cases]
    seconds = sum(result.compared.seconds for result in results)
    limits = joined(list(dict.fromkeys(_limit(result) for result in results)))
    facts = [Fact("What was compared", joined([result.name for result in results])),
             Fact("Verdicts", f"{counts_text([case.summary for case in cases])}, in {seconds:.0f} s"),
             Fact("Threshold", limits)]
    views = [GroupView(result.anchor, result.name, "", [result.headline, *sentences(result)], drawn, [], 0,
                       [*([cases_table(result)] if result.cases else []),
                        *([changes_table(result)] if any(one.changes for one in result.series) else [])]) for result, drawn in zip(results, figures)]
    return GroupPage(facts=run_facts(records, facts),
                     findings=[finding for result in results for finding in result.findings][:MOST],
                     notes=list(_notes(results)), bad_rows=[], groups=views, traces=[], runs=run_views(records),
                     machines=machine_views(records), files=files)


def _limit(result: GateResult) -> str:
    limit = limit_text(result.compared.threshold)
    if result.cases and not any(case.channel in TIMED for case in result.cases):
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


_COLUMNS = (
    Column("case", "", False), Column("verdict", "", False),
    Column("change %", "head over base minus 1, inverted where more is better: above 0 is worse"),
    Column("from %", "lower bound of the change"), Column("to %", "upper bound of the change"),
    Column("base", "typical value"), Column("head", "typical value"), Column("why", "", False),
    Column("pairs", "independent comparisons"), Column("measured s", "time that the measurements of the case took"),
    Column("channel", "how it was compared", False),
)


def cases_table(result: GateResult) -> Table:
    rows = [_cells(case) for case in result.cases]
    said = [i for i in range(len(_COLUMNS)) if any(row[i].text not in ("", NONE) for row in rows)]
    return Table("Every case, worst first", tuple(_COLUMNS[i] for i in said), tuple(
        Line(tuple(row[i] for i in said), "wrong" if case.verdict == "slower" else "ok")
        for row, case in zip(rows, result.cases)))


def _cells(case: GateCase) -> tuple[Cell, ...]:
    values = (Cell(value_text(value, case.unit, case.channel), value) for value in (case.base, case.head))
    return (word(case.case), word(case.verdict),
            *(number(_percent(ratio), 3) for ratio in (case.ratio, case.low, case.high)), *values,
            word(case.why), number(case.pairs or None, 9), number(case.seconds or None, 2), word(case.channel))


def _percent(ratio: Optional[float]) -> Optional[float]:
    return None if ratio is None else 100 * (ratio - 1)


_CHANGES = (
    Column("case", "", False), Column("when", "time of the first record file after the change", False),
    Column("blame", "range of commits for git log", False),
    Column("change %", "after over before minus 1, inverted where more is better: above 0 is worse"),
    Column("from %", "lower bound of the change"), Column("to %", "upper bound of the change"),
    Column("before", "level before the change"), Column("after", "level after the change"), Column("recent", "", False),
)


def changes_table(result: GateResult) -> Table:
    return Table("Every change point", _CHANGES, tuple(
        Line(_change_cells(one, change), "wrong" if change.recent and change.worse else "ok")
        for one in result.series for change in one.changes))


def _change_cells(one: GateSeries, change: GateChange) -> tuple[Cell, ...]:
    values = (Cell(value_text(value, one.unit, one.channel), value) for value in (change.before, change.after))
    return (word(one.case), word(one.points[change.at].time), word(change.blame),
            *(number(_percent(ratio), 3) for ratio in (change.ratio, change.low, change.high)), *values,
            word("yes" if change.recent else ""))
