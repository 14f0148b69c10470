"""View of the schedules' page, with all text ready."""

from dataclasses import dataclass
from typing import Optional, Sequence

from reports.analysis.caveats import findings_of
from reports.analysis.findings import Finding, MOST
from reports.analysis.steps.overlap import exposed_ms, link_finding, link_text, OverlapResult, way_text
from reports.analysis.steps.schedules import basis_badge, bubble, contest_text, percent_off, WorkloadResult
from reports.check import Note, notes_on_schedules
from reports.html.tables import Cell, Column, energy_cells, energy_columns, Line, number, Table, word
from reports.html.run_view import BadLine, Fact, machine_views, MachineView, run_facts, run_views, RunView, TraceLink
from reports.plots.figures import FigureFile
from reports.plots.step_figures import workload_text
from reports.records import Records, ScheduleLine
from reports.units import counted, joined


# ---- Tables: schedules against each other, and collectives beside the computation

_PERCENT = "idle time of the busiest rank over "
_SCHEDULES = (
    Column("schedule", "", False), Column("basis", "simulated, emulated or measured", False),
    Column("stages per rank", "stages per rank in each pipe"), Column("step ms", "makespan; of several runs the median"),
    Column("own span ms", "longest time from a rank's own start to its own end"),
    Column("bound ms", "no schedule of one stage per rank in this one's memory has a shorter own span"),
    Column("bubble of makespan %", _PERCENT + "the makespan"), Column("of ideal %", _PERCENT + "its work"),
    Column("of own span %", "bubble of the longest own span: no wait at the optimizer"),
    Column("own of ideal %", "(own span - work) / work"),
    Column("peak until W", "most activations that a rank holds: whole until B or I, then W's share (microbatches)"),
    Column("peak until B", "the same, freed at B or I"), Column("weights", "most versions of the weights that a rank keeps"),
    Column("sends", "messages of the rank that sends most"), Column("exposed ms", "waits for data in flight, the worst rank's"),
    Column("formula", "known closed form, where its assumptions hold", False),
    Column("vs simulated", "makespan over that in virtual time"),
    Column("late µs", "emulated: worst lateness of a task's start"), Column("runs", "makespans that were taken"),
    Column("on which channels it hangs", "blocking: a send waits for its receive; batched: what stands between two "
           "computations begins together; buffered: so many messages a pair", False),
)


def schedules_table(result: WorkloadResult) -> Table:
    lines = [(case.name, line) for case in result.cases for line in case.lines]
    lines.sort(key=lambda one: (bubble(one[1]), one[0]))
    counted = [line for _, line in lines]
    return Table("Every schedule, the smallest bubble first", (*_SCHEDULES, *energy_columns(counted)),
                 tuple(Line((*_schedule_cells(name, line, result), *energy_cells(counted, line)))
                       for name, line in lines))


def _schedule_cells(name: str, line: ScheduleLine, result: WorkloadResult) -> tuple[Cell, ...]:
    b = line.bubbles
    percents = [number(100 * value if abs(value) > 5e-6 else 0.0, 3)
                for value in (b.of_makespan, b.of_ideal, b.of_own_span, b.own_of_ideal)]
    return (
        word(name), word(line.basis), number(line.chunks), number(line.makespan_ms), number(line.own_span_ms),
        number(line.bound_ms),
        *percents, number(line.peak), number(max(line.peak_activations.until_b, default=None)),
        number(max(line.weight_versions, default=None) if line.weight_versions else None),
        number(max(line.sends, default=None)), number(max(line.exposed_ms, default=None), 3), word(_form_text(line)),
        _against_simulated(line, result), number(line.late_us, 3), number(len(line.samples_ms)), word(hangs_text(line)),
    )


def _form_text(line: ScheduleLine) -> str:
    """Text "met" if the makespan, or own span, equals the formula, else the difference in per cent (messages take time that formulas
    do not include); "–" without a formula."""
    if line.closed_form_ms is None:
        return "–"
    cost = line.makespan_ms if line.closed_form_ms.of == "makespan" else line.own_span_ms
    return "met" if abs(cost / line.closed_form_ms.cost - 1) < 1e-6 else percent_off(cost / line.closed_form_ms.cost)


def _against_simulated(line: ScheduleLine, result: WorkloadResult) -> Cell:
    if line.basis == "simulated":
        return Cell("–", None)
    simulated: Optional[float] = next((case.of_basis["simulated"].makespan_ms for case in result.cases
                                       if line in case.lines and "simulated" in case.of_basis), line.simulated_ms)
    if not simulated:
        return Cell("–", None)
    return Cell(percent_off(line.makespan_ms / simulated), line.makespan_ms / simulated)


_OVERLAP = (
    Column("link", "bandwidth in each direction, latency", False), Column("case", "", False), Column("collectives", "number per rank"),
    Column("computing ms", "kernels alone"), Column("collectives ms", "collectives alone, one after another"),
    Column("step ms", "both side by side"), Column("exposed ms", "step minus computing"),
    Column("hidden %", "part of the collectives that computing hides"),
    Column("vs simulated", "step over that in virtual time"), Column("runs", "steps that were taken"),
)


def overlap_table(result: OverlapResult) -> Table:
    return Table("Every case: fastest links first, for each the shortest step first", _OVERLAP,
                 tuple(_overlap_line(line) for line in result.lines))


def _overlap_line(line: ScheduleLine) -> Line:
    one = line.overlap
    ratio = line.makespan_ms / line.simulated_ms if line.simulated_ms and line.basis != "simulated" else None
    return Line((word(link_text(line.run.link)), word(way_text(line)), number(one.collectives),
                 number(one.compute_alone_ms), number(one.communication_alone_ms), number(line.makespan_ms),
                 number(exposed_ms(line)), number(100 * one.efficiency, 3),
                 Cell("–", None) if ratio is None else Cell(percent_off(ratio), ratio), number(len(line.samples_ms))))


def hangs_text(line: ScheduleLine) -> str:
    """Words such as "none of 4", or "blocking: rank 0 at ..."."""
    hanging = [f"{_channel(name)} ({_cut(text)})" for name, text in line.hangs.items() if text]
    if not line.hangs:
        return "not asked"
    if not hanging:
        return f"none of {len(line.hangs)}: {', '.join(_channel(name) for name in line.hangs)}"
    return "; ".join(hanging)


def _channel(name: str) -> str:
    return name.replace("_", " ")


def _cut(text: str, most: int = 90) -> str:
    return text if len(text) <= most else text[:most - 1] + "…"


# View for the template of the schedules' page, with all text ready.

@dataclass(frozen=True)
class WorkloadView:
    anchor: str
    name: str
    badge: str
    sentences: Sequence[str]
    figures: Sequence[FigureFile]
    charts: Sequence[FigureFile]
    left_out: int  # number of charts that were not drawn
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
    found = findings_of(result for result, _ in (*workloads, *overlaps))
    return SchedulePage(
        facts=_facts(records), findings=found[:MOST],
        notes=notes_on_schedules(records), bad_rows=[], growths=growths,
        workloads=[_workload(*one) for one in workloads], overlaps=[_overlap(*one) for one in overlaps], traces=traces,
        runs=run_views(records), machines=machine_views(records), files=files)


def _workload(result: WorkloadResult, figures: Sequence[FigureFile]) -> WorkloadView:
    told = [f"{contest.name.capitalize()}: {contest_text(contest)}" for contest in result.contests]
    charts = [file for file in figures if file.kind == "gantt"]
    drawable = sum(any(line.timeline for line in case.lines) for case in result.cases)
    return WorkloadView(result.anchor, workload_text(result.workload),
                        basis_badge(list(dict.fromkeys(contest.basis for contest in result.contests))),
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
