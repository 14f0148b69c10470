"""The page of pipeline schedules, and of collectives that overlap with computation."""
from typing import Any, Callable, Optional, Sequence

from reports.analysis.groups import cut, dotted, link_text
from reports.analysis.steps.overlap import (
    analyse_overlap, charts_of, exposed_ms, hidden_text, link_finding, OverlapResult, way_text)
from reports.analysis.steps.schedules import (
    analyse_schedules, bubble, Case, contest_text, Growth, growths_of, percent_off, Workload, WorkloadResult)
from reports.check import notes_on_schedules
from reports.page import (
    basis_badge, Cell, Column, Drawing, drawing, energy_columns, Fact, Figures, group, NONE, numbers, Page, ranks_text,
    Section, table, Table, words)
from reports.records import Records, ScheduleLine
from reports.units import bytes_text, counted, joined, share_text, short, time_text, unbroken

MOST_CHARTS = 60  # limit for all workloads together
MOST_OF_ONE = 8  # limit for a workload, if there are several

# ---- Tables: schedules against each other, and collectives that overlap with computation

_PERCENT = "idle time of the busiest rank over "


def _percents(name: str, of: Callable[[Any], float], meaning: str) -> Column:
    return numbers(name, lambda row: 100 * of(row[1].bubbles) if abs(of(row[1].bubbles)) > 5e-6 else 0.0, meaning, 3)


def _columns(result: WorkloadResult) -> tuple[Column, ...]:
    """Columns of (name of a schedule, its line)."""
    lines = [line for case in result.cases for line in case.lines]
    energy = (Column(column.name, column.meaning, lambda row, column=column: column.cell(row[1]), column.numeric) for column in energy_columns(lines))
    return (
        words("schedule", lambda row: row[0]), words("basis", lambda row: row[1].basis, "simulated, emulated or measured"),
        numbers("stages per rank", lambda row: row[1].chunks, "stages per rank in each pipe"),
        numbers("step ms", lambda row: row[1].makespan_ms, "makespan; of several runs the median"),
        numbers("own span ms", lambda row: row[1].own_span_ms, "longest time from a rank's own start to its own end"),
        numbers("bound ms", lambda row: row[1].bound_ms, "no schedule of one stage per rank in this one's memory has a shorter own span"),
        _percents("bubble of makespan %", lambda of: of.of_makespan, _PERCENT + "the makespan"),
        _percents("of ideal %", lambda of: of.of_ideal, _PERCENT + "its work"),
        _percents("of own span %", lambda of: of.of_own_span, "bubble of the longest own span: no wait at the optimizer"),
        _percents("own of ideal %", lambda of: of.own_of_ideal, "(own span - work) / work"),
        numbers("peak until W", lambda row: row[1].peak,
                "most activations that a rank holds: whole until B or I, then W's share (microbatches)"),
        numbers("peak until B", lambda row: max(row[1].peak_activations.until_b, default=None), "the same, freed at B or I"),
        numbers("weights", lambda row: max(row[1].weight_versions or (), default=None), "most versions of the weights that a rank keeps"),
        numbers("sends", lambda row: max(row[1].sends, default=None), "messages of the rank that sends most"),
        numbers("exposed ms", lambda row: max(row[1].exposed_ms, default=None), "waits for data in flight, the worst rank's", 3),
        words("formula", lambda row: _form_text(row[1]), "known closed form, where its assumptions hold"),
        Column("vs simulated", "makespan over the makespan in virtual time", lambda row: _against(row[1], _simulated_ms(row[1], result))),
        numbers("late µs", lambda row: row[1].late_us, "emulated: worst lateness of a task's start", 3),
        numbers("runs", lambda row: len(row[1].samples_ms), "makespans that were taken"),
        words("on which channels it hangs", lambda row: hangs_text(row[1]), "blocking: a send waits for its receive; batched: messages "
              "between two computations begin together; buffered: with this many buffers per pair"), *energy)


def schedules_table(result: WorkloadResult) -> Table:
    rows = sorted(((case.name, line) for case in result.cases for line in case.lines), key=lambda row: (bubble(row[1]), row[0]))
    return table("Every schedule, the smallest bubble first", _columns(result), rows)


def _form_text(line: ScheduleLine) -> str:
    """Text "met" if the makespan, or own span, equals the formula, else the difference in per cent (messages take time that formulas
    do not include); "–" without a formula."""
    if line.closed_form_ms is None:
        return "–"
    cost = line.makespan_ms if line.closed_form_ms.of == "makespan" else line.own_span_ms
    return "met" if abs(cost / line.closed_form_ms.cost - 1) < 1e-6 else percent_off(cost / line.closed_form_ms.cost)


def _simulated_ms(line: ScheduleLine, result: WorkloadResult) -> Optional[float]:
    return next((case.of_basis["simulated"].makespan_ms for case in result.cases
                 if line in case.lines and "simulated" in case.of_basis), line.simulated_ms)


def _against(line: ScheduleLine, simulated_ms: Optional[float]) -> Cell:
    if line.basis == "simulated" or not simulated_ms:
        return NONE
    return Cell(percent_off(line.makespan_ms / simulated_ms), line.makespan_ms / simulated_ms)


_OVERLAP = (
    words("link", lambda line: link_text(line.run.link), "bandwidth in each direction, latency"), words("case", way_text),
    numbers("collectives", lambda line: line.overlap.collectives, "number per rank"),
    numbers("computing ms", lambda line: line.overlap.compute_alone_ms, "kernels alone"),
    numbers("collectives ms", lambda line: line.overlap.communication_alone_ms, "collectives alone, sequentially"),
    numbers("step ms", lambda line: line.makespan_ms, "both overlapped"), numbers("exposed ms", exposed_ms, "step minus computing"),
    numbers("hidden %", lambda line: 100 * line.overlap.efficiency, "part of the collectives that computing hides", 3),
    Column("vs simulated", "step over the step in virtual time", lambda line: _against(line, line.simulated_ms)),
    numbers("runs", lambda line: len(line.samples_ms), "steps that were taken"),
)


def hangs_text(line: ScheduleLine) -> str:
    """Words such as "none of 4", or "blocking: rank 0 at ..."."""
    hanging = [f"{_channel(name)} ({cut(text, 90)})" for name, text in line.hangs.items() if text]
    if not line.hangs:
        return "not asked"
    if not hanging:
        return f"none of {len(line.hangs)}: {', '.join(_channel(name) for name in line.hangs)}"
    return "; ".join(hanging)


def _channel(name: str) -> str:
    return name.replace("_", " ")


# ---- The words on a figure: a title, a description of the run, a badge if it was not measured. The title names the quantities,
# or has a finding that no sentence of the page has: a finding appears once

def step_badge(bases: Sequence[str]) -> str:
    badge = basis_badge(bases, of="a time of a training run")
    return f"{badge}; each basis has its own chart" if badge and len(bases) > 1 else badge


def case_title(case: Case) -> str:
    """Title such as: 1f1b: a step takes 330 ms simulated, 334 ms emulated (+1.2 %); 27 % of it is bubble."""
    first, *rest = case.lines
    phrases = [f"{time_text(1e3 * first.makespan_ms)} {first.basis}"]
    phrases += [f"{time_text(1e3 * line.makespan_ms)} {line.basis} ({percent_off(line.makespan_ms / first.makespan_ms)})"
             for line in rest]
    return unbroken(f"{case.name}: a step takes {', '.join(phrases)}; {share_text(bubble(first))} of it is bubble, "
                    f"and a rank holds the activations of at most {short(first.peak)} "
                    f"microbatch{'' if first.peak == 1 else 'es'}")


def _case_subtitle(case: Case) -> str:
    ranks = [rank for line in case.lines for rank in line.timeline or ()]
    stages = max((len({task.stage for task in rank if task.stage >= 0}) for rank in ranks), default=1)
    pipes = f" in {case.first.pipes} pipes" if case.first.pipes > 1 else ""
    of_rank = f"{stages} stages per rank{pipes}, later ones lighter"
    return dotted(case.workload.text, of_rank if stages > 1 else "")


def _slices_text(slices: int) -> str:
    return f"sequences in {slices} slices" if slices > 1 else ""


def _growth_title(growth: Growth) -> str:
    most = max(points[-1][0] for points in growth.curves.values())
    at_most = sorted((points[-1][1], name) for name, points in growth.curves.items() if points[-1][0] == most)
    if len(at_most) == 1:
        value, name = at_most[0]
        return unbroken(f"{name}: {share_text(value)} bubble with {most} microbatches")
    (least, best), (largest, worst) = at_most[0], at_most[-1]
    return unbroken(f"With {most} microbatches the bubble is {share_text(least)} ({best}) to {share_text(largest)} "
                    f"({worst}) of the step")


# ---- The sections

def _charted(result: WorkloadResult) -> list[Case]:
    """Cases with a timeline: those run on most bases first, then by the smallest bubble."""
    order = {name: bubble(line) for contest in result.contests for name, line in contest.entries}
    cases = [case for case in result.cases if any(line.timeline for line in case.lines)]
    return sorted(cases, key=lambda case: (-len(case.lines), order[case.name]))


def _growth_drawing(number: int, growth: Growth) -> Drawing:
    subtitle = dotted(counted(growth.ranks, "rank"), Workload(growth.ranks, 0, growth.times).times_text, _slices_text(growth.slices))
    return drawing("growth", f"growth-{number}", "step_figures.growth_figure", growth, _growth_title(growth), subtitle,
                   step_badge([growth.basis]), "Bubble against the number of microbatches, one line per schedule")


def _workload_drawings(result: WorkloadResult, charts: Sequence[Case]) -> list[Drawing]:
    drawn = [drawing("tradeoff", f"{result.anchor}-tradeoff-{contest.basis}-{contest.slices}", "step_figures.tradeoff_figure",
                     contest, "Bubble of each schedule against the activations that a rank holds",
                     dotted(result.name, _slices_text(contest.slices)), step_badge([contest.basis]),
                     "Bubble against activations held, one point per schedule")
             for contest in result.contests if len(contest.entries) > 1 and any(line.peak for _, line in contest.entries)]
    return drawn + [drawing("gantt", f"{result.anchor}-gantt-{number}", "gantt.gantt_figure", charts_of(case.lines),
                            case_title(case), _case_subtitle(case), step_badge([line.basis for line in case.lines]),
                            "What each rank does over time, and the memory that it holds") for number, case in enumerate(charts, start=1)]


def step_drawings(lines: Sequence[ScheduleLine], anchor: str) -> list[Drawing]:
    """Charts of the step that hides most of its collectives and of the one that hides least."""
    drawn = sorted((line for line in lines if line.timeline), key=lambda line: -line.overlap.efficiency)
    return [_step_drawing(line, f"{anchor}-gantt-{number}")
            for number, line in enumerate(drawn if len(drawn) < 2 else [drawn[0], drawn[-1]], start=1)]


def _step_drawing(line: ScheduleLine, stem: str) -> Drawing:
    overlap = line.overlap
    title = unbroken(f"{way_text(line)}, {link_text(line.run.link)}: a step takes {time_text(1e3 * line.makespan_ms)}, {hidden_text(line)}")
    subtitle = dotted(f"{counted(overlap.layers, 'layer')} of {bytes_text(overlap.bytes_per_layer, 3)}", overlap.algorithm, "one row per replica")
    return drawing("gantt", stem, "gantt.gantt_figure", charts_of([line]), title, subtitle, step_badge([line.basis]),
                   "What each replica does over time")


def _workload(result: WorkloadResult, most_charts: int) -> Section:
    sentences = [f"{contest.name.capitalize()}: {contest_text(contest)}" for contest in result.contests]
    charts = _charted(result)
    return group(result, [*sentences, result.why] if result.why else sentences, _workload_drawings(result, charts[:max(most_charts, 0)]),
                 [schedules_table(result)], len(charts), link=result.workload.name)


def _overlap(result: OverlapResult) -> Section:
    sentences = [f"{link[:1].upper()}{link[1:]}: {link_finding(lines)}" for link, lines in result.by_link.items()]
    bars = drawing("parts", f"{result.anchor}-bars", "stacked_bars.overlap_figure", result,
                   "Computing, and hidden and exposed communication of a step",
                   dotted(result.name, "fastest links first, for each the shortest step first"), step_badge([result.first.basis]),
                   "One bar per case: computing, and the exposed part of the collectives")
    rows = table("Every case: fastest links first, for each the shortest step first", _OVERLAP, result.lines)
    return group(result, sentences, [bars, *step_drawings(result.lines, result.anchor)], [rows], link=result.name)


def _sections(results: Sequence[Any]) -> list[Section]:
    workloads = [result for result in results if isinstance(result, WorkloadResult)]
    growths = [_growth_drawing(number, workload) for number, workload in enumerate(growths_of(workloads), start=1)]
    sections = [Section("growth", "Bubble against microbatches", blocks=[Figures(growths)], link="Microbatches")] if growths else []
    left, most = MOST_CHARTS, MOST_CHARTS if len(workloads) == 1 else MOST_OF_ONE
    for result in workloads:
        sections.append(_workload(result, min(left, most)))
        left -= sum(line.kind == "gantt" for line in sections[-1].drawings)
    return sections + [_overlap(result) for result in results if isinstance(result, OverlapResult)]


def _facts(records: Records, _: Sequence[Any]) -> list[Fact]:
    lines = records.schedules
    microbatches = joined([str(n) for n in sorted({line.microbatches for line in lines})])
    bases = joined([f"{sum(line.basis == basis for line in lines)} {basis}" for basis in dict.fromkeys(line.basis for line in lines)])
    return [Fact("What was run", f"{counted(len({line.schedule for line in lines}), 'schedule')}, {ranks_text(lines)} ranks, "
                                 f"{microbatches} microbatches"),
            Fact("Steps", f"{counted(len(lines), 'step')}: {bases}")]


PAGE = Page(
    9, "schedules", "Pipeline schedules", "Which order of forward and backward wastes the least time, and how much memory does it need?",
    "Which order of forward and backward wastes the least time, and how much memory it needs.",
    records=lambda records: records.select(schedules=tuple(line for line in records.schedules if not line.has_buckets)),
    results=lambda records: (*analyse_schedules(records), *analyse_overlap(records)), sections=_sections, figure="tradeoff", facts=_facts,
    notes=lambda records, results: notes_on_schedules(records))
