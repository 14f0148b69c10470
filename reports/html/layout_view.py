"""Views of the pages of simulated layouts and of studies, with all text ready."""

from typing import Sequence

from reports.analysis.caveats import findings_of
from reports.analysis.findings import MOST
from reports.analysis.steps.layouts import COMPUTING, KINDS, LayoutResult, layouts_text, parts_text, StudyResult
from reports.check import notes_on_runs, notes_on_simulations
from reports.html.run_view import Fact, machine_views, run_facts, run_views, TraceLink
from reports.html.tables import Cell, Column, Line, number, Table, word
from reports.html.training_view import GroupPage, GroupView
from reports.plots.figures import FigureFile
from reports.records import Records, Simulation, StudyPoint
from reports.units import counted, joined, short


# ---- View of the simulations' page

MOST_LINES = 1000  # most lines of a table; a page with more is slow


def simulation_page_of(records: Records, results: Sequence[LayoutResult], figures: Sequence[Sequence[FigureFile]],
                       traces: Sequence[TraceLink], files: Sequence[str]) -> GroupPage:
    return GroupPage(
        facts=_facts(records), findings=findings_of(results)[:MOST],
        notes=notes_on_simulations(records), bad_rows=[],
        groups=[_view(result, files_of) for result, files_of in zip(results, figures)], traces=traces,
        runs=run_views(records), machines=machine_views(records), files=files)


def _view(result: LayoutResult, figures: Sequence[FigureFile]) -> GroupView:
    best = result.best
    alike = [f"In all of them: {', '.join(result.common)}."] if result.common else []
    counts = f"FLOPs are counted as: {best.flop_convention}. All times and sizes are predictions."
    return GroupView(result.anchor, result.name, best.basis, [layouts_text(result), parts_text(best), *alike, counts],
                      [file for file in figures if file.kind != "gantt"],
                      [file for file in figures if file.kind == "gantt"], 0, [layouts_table(result)])


def _facts(records: Records) -> list[Fact]:
    lines = records.simulations
    models = joined(sorted({line.model.name for line in lines}))
    machines = joined(sorted({line.machine for line in lines}))
    return run_facts(records, [
        Fact("What was simulated", f"{models} on {machines}"),
        Fact("Layouts", f"{counted(len(lines), 'layout')}, {sum(line.events for line in lines):,} events in "
                        f"{short(sum(line.wall_s for line in lines))} s"),
    ])


_LAYOUTS = (
    Column("layout", "tp tensor, cp context, ep expert, pp pipeline, dp data parallel", False),
    Column("schedule", "pipeline schedule", False), Column("devices", ""),
    Column("step ms", ""), Column("MFU %", "model FLOPs divided by the peak"),
    Column("HFU %", "the same, including recomputed FLOPs"), Column("TFLOP/s per device", "model FLOPs"),
    Column("tokens/s", "tokens per second of all devices"), Column("computing %", "part of the step, on the rank that computes longest"),
    Column("exposed %", "part of the step in which that rank waits for bytes in flight"),
    Column("bubble %", "part of the step in which that rank waits for other ranks"),
    Column("memory GiB", "memory of the device that needs most"), *(Column(f"{kind} GiB", "") for kind in KINDS),
    Column("of a device GiB", "memory of a device"), Column("fits", "", False), Column("events", "events of the simulation"),
)


def layouts_table(result: LayoutResult) -> Table:
    lines = tuple(_line(result.name_of(one), one) for one in result.layouts[:MOST_LINES])
    cut = f" (the first {MOST_LINES:,} of {len(result.layouts):,})" if len(lines) < len(result.layouts) else ""
    return Table(f"Every layout, the best that fits first{cut}", _LAYOUTS, lines)


def _line(name: str, one: Simulation) -> Line:
    computing = sum(one.parts_ms.get(part, 0) for part in COMPUTING)
    bubble = one.parts_ms.get("bubble", 0.0)
    shares = [number(100 * value / one.step_ms, 3) for value in (computing, one.step_ms - computing - bubble, bubble)]
    kinds = [_gib(one.memory_bytes.get(kind)) for kind in KINDS]
    return Line((word(name), word(one.schedule), number(one.ranks), number(one.step_ms), number(100 * one.mfu, 3),
                 number(100 * one.hfu, 3), number(one.model_tflops_per_gpu), number(one.tokens_per_s), *shares,
                 _gib(one.memory_bytes["total"]), *kinds, _gib(one.capacity_bytes), word("yes" if one.fits else "no"),
                 number(one.events)))


def _gib(value: float | None) -> Cell:
    return number(None if value is None else value / 2 ** 30, 3)


# View of the page of studies, with all text ready.

def studies_page_of(records: Records, results: Sequence[StudyResult], figures: Sequence[Sequence[FigureFile]],
                    files: Sequence[str]) -> GroupPage:
    lines = records.studies
    bases = joined([f"{counted(sum(one.basis == basis for one in lines), 'point')} {basis}"
                    for basis in dict.fromkeys(one.basis for one in lines)])
    facts = [Fact("Studies", joined(list(dict.fromkeys(result.study for result in results)))), Fact("Points", bases)]
    return GroupPage(facts=run_facts(records, facts), findings=findings_of(results)[:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=[],
                     groups=[_study_view(result, files_of) for result, files_of in zip(results, figures)], traces=[],
                     runs=run_views(records), machines=machine_views(records), files=files)


def _study_view(result: StudyResult, figures: Sequence[FigureFile]) -> GroupView:
    sources = sorted({one.source for one in result.points if one.source})
    published = [f"Published: {joined(sources)}. What was published is never part of what is simulated."] if sources else []
    name = f"{result.question} {result.setting}"
    return GroupView(result.anchor, name, result.basis, [result.answer, *published], figures, [], 0, [points_table(result)])


def points_table(result: StudyResult) -> Table:
    """A column for each coordinate, value and part that any point has."""
    at = _names(one.at for one in result.points)
    values = _names(one.values for one in result.points)
    parts = _names(one.parts_ms for one in result.points)
    columns = (Column("series", "line or class", False), Column("basis", "", False), *(Column(name, "") for name in at),
               *(Column(_shown(name), "") for name in values), *(Column(f"{name} ms", "of the step") for name in parts),
               Column("fits", "in a device's memory", False), Column("layout", "", False), Column("note", "", False))
    return Table("Every point", columns, tuple(_study_line(one, at, values, parts) for one in result.points))


def _study_line(one: StudyPoint, at: list[str], values: list[str], parts: list[str]) -> Line:
    return Line((word(one.series), word(one.basis), *(number(one.at.get(name)) for name in at),
                 *(number(one.values.get(name)) for name in values), *(number(one.parts_ms.get(name)) for name in parts),
                 word("yes" if one.fits else "no"), word(one.layout), word(one.note)))


def _names(of) -> list[str]:
    return list(dict.fromkeys(name for one in of for name in one))


def _shown(name: str) -> str:
    """Heading "step ms" for "step_ms"."""
    return name.replace("tflops_per_gpu", "TFLOP/s per GPU").replace("_percent", " %").replace("_", " ")
