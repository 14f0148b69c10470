"""View for the template of the schedules' page, all text made."""
from dataclasses import dataclass
from typing import Sequence

from reports.analysis.findings import MOST, Finding
from reports.analysis.steps.overlap import OverlapResult, link_finding
from reports.analysis.steps.schedules import WorkloadResult, basis_badge, contest_text
from reports.check.runs import Note
from reports.check.steps import notes_on_schedules
from reports.html.run_view import BadLine, Fact, MachineView, RunView, machine_views, run_facts, run_views
from reports.html.step_tables import overlap_table, schedules_table
from reports.html.tables import Table
from reports.html.traces import TraceLink
from reports.plots.figures import FigureFile
from reports.plots.step_titles import workload_text
from reports.records import Records
from reports.units import counted, joined


@dataclass(frozen=True)
class WorkloadView:
    anchor: str
    name: str
    badge: str
    sentences: Sequence[str]
    figures: Sequence[FigureFile]
    charts: Sequence[FigureFile]
    left_out: int  # charts that were not drawn
    tables: Sequence[Table]


@dataclass(frozen=True)
class SchedulePage:
    facts: Sequence[Fact]
    findings: Sequence[Finding]
    notes: Sequence[Note]
    bad_rows: Sequence[BadLine]
    growths: Sequence[FigureFile]
    workloads: Sequence[WorkloadView]
    overlaps: Sequence[WorkloadView]
    traces: Sequence[TraceLink]
    runs: Sequence[RunView]
    machines: Sequence[MachineView]
    files: Sequence[str]


def schedule_page_of(records: Records, workloads: Sequence[tuple[WorkloadResult, Sequence[FigureFile]]],
                     growths: Sequence[FigureFile], overlaps: Sequence[tuple[OverlapResult, Sequence[FigureFile]]],
                     traces: Sequence[TraceLink], files: Sequence[str]) -> SchedulePage:
    found = [finding for result, _ in (*workloads, *overlaps) for finding in result.findings]
    return SchedulePage(
        facts=_facts(records), findings=found[:MOST],
        notes=notes_on_schedules(records), bad_rows=[], growths=growths,
        workloads=[_workload(*one) for one in workloads], overlaps=[_overlap(*one) for one in overlaps], traces=traces,
        runs=run_views(records), machines=machine_views(records), files=files)


def _workload(result: WorkloadResult, figures: Sequence[FigureFile]) -> WorkloadView:
    told = [f"{contest.basis.capitalize()}: {contest_text(contest)}" for contest in result.contests]
    charts = [file for file in figures if file.kind == "gantt"]
    drawable = sum(any(line.timeline for line in case.lines) for case in result.cases)
    return WorkloadView(result.anchor, workload_text(result.workload),
                        basis_badge([contest.basis for contest in result.contests]),
                        [*told, result.why] if result.why else told,
                        [file for file in figures if file.kind != "gantt"], charts, drawable - len(charts),
                        [schedules_table(result)])


def _overlap(result: OverlapResult, figures: Sequence[FigureFile]) -> WorkloadView:
    told = [f"{link[:1].upper()}{link[1:]}: {link_finding(lines)}" for link, lines in result.by_link.items()]
    return WorkloadView(result.anchor, result.name, basis_badge([result.basis]), told,
                        [file for file in figures if file.kind != "gantt"],
                        [file for file in figures if file.kind == "gantt"], 0, [overlap_table(result)])


def _facts(records: Records) -> list[Fact]:
    lines = records.schedules
    names = sorted({line.schedule for line in lines})
    ranks = joined([str(n) for n in sorted({line.ranks for line in lines})])
    microbatches = joined([str(n) for n in sorted({line.microbatches for line in lines})])
    bases = joined([f"{sum(line.basis == basis for line in lines)} {basis}" for basis in
                    dict.fromkeys(line.basis for line in lines)])
    return run_facts(records, [
        Fact("What was run", f"{counted(len(names), 'schedule')}, {ranks} ranks, {microbatches} microbatches"),
        Fact("Steps", f"{counted(len(lines), 'step')}: {bases}"),
    ])
