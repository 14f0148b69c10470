"""The page of studies of `simulate`."""
from typing import Iterable, Sequence

from reports.analysis.steps.layouts import analyse_studies, StudyResult
from reports.page import Drawing, drawing, each, Fact, group, numbers, Page, Section, Table, table, words
from reports.records import Records
from reports.units import counted, joined

# Figures: the function, and the title; then the figures of each study.
DRAWN = {
    "efficiency": ("efficiency_figure", "Throughput per GPU by number of GPUs"),
    "boundary": ("published_figure", "TFLOP/s per GPU by number of tensor-parallel ranks"),
    "parts": ("parts_figure", "Parts of the step at each point"),
    "map": ("map_figure", "The fastest layout, by model and link"),
    "memory": ("memory_figure", "Memory of model states per rank by number of data-parallel ranks, for each ZeRO stage"),
    "pareto": ("pareto_figure", "Time of a step against memory, for each kind of recomputation"),
    "order": ("order_figure", "Parts of the step for each order of the ranks"),
    "bubbles": ("bubbles_figure", "Share of the time in which ranks compute, without and with work in bubbles, for each schedule"),
    "clocks": ("clocks_figure", "Energy of a step against its time, for each part that has a clock of its own"),
    "tornado": ("tornado_figure", "Change of the step's time when a parameter of the machine changes either way"),
}
_FIGURES = {"scaling": ("efficiency", "parts"), "map": ("map",), "memory": ("memory",), "recompute": ("pareto",),
            "tp_boundary": ("boundary", "parts"), "order": ("order",), "sensitivity": ("tornado",),
            "bubbles": ("bubbles",), "clocks": ("clocks",)}


def badge(result: StudyResult) -> str:
    if result.basis == "counted":
        return "COUNTED by formula: not allocated"
    if result.published:
        return "SIMULATED: lines; hollow points were measured by others and published"
    return "SIMULATED: not a time of a training run"


def _drawings(result: StudyResult) -> list[Drawing]:
    return [drawing(kind, f"{result.anchor}-{kind}", f"study_figures.{DRAWN[kind][0]}", result, DRAWN[kind][1], result.setting, badge(result))
            for kind in _FIGURES[result.study] if result.simulated]


def points_table(result: StudyResult) -> Table:
    """A column for each coordinate, value and part that any point has."""
    return table("Every point", [
        words("series", lambda point: point.series, "line or class"), words("basis", lambda point: point.basis),
        *(numbers(name, lambda point, name=name: point.at.get(name)) for name in _names(line.at for line in result.lines)),
        *(numbers(_shown(name), lambda point, name=name: point.values.get(name)) for name in _names(line.values for line in result.lines)),
        *(numbers(f"{name} ms", lambda point, name=name: point.parts_ms.get(name), "of the step")
          for name in _names(line.parts_ms for line in result.lines)),
        words("fits", lambda point: "yes" if point.fits else "no", "in a device's memory"), words("layout", lambda point: point.layout),
        words("note", lambda point: point.note)], result.lines)


def _names(of: Iterable[dict[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for point in of for name in point))


def _shown(name: str) -> str:
    """Heading "step ms" for "step_ms"."""
    return name.replace("tflops_per_gpu", "TFLOP/s per GPU").replace("_percent", " %").replace("_", " ")


def _section(result: StudyResult) -> Section:
    sources = sorted({line.source for line in result.lines if line.source})
    published = [f"Published: {joined(sources)}. Published values are never part of simulated ones."] if sources else []
    return group(result, [result.answer, *published], _drawings(result), [points_table(result)])


def _facts(records: Records, results: Sequence[StudyResult]) -> list[Fact]:
    lines = records.studies
    bases = joined([f"{counted(sum(line.basis == basis for line in lines), 'point')} {basis}"
                    for basis in dict.fromkeys(line.basis for line in lines)])
    return [Fact("Studies", joined(list(dict.fromkeys(result.study for result in results)))), Fact("Points", bases)]


PAGE = Page(
    11, "studies", "Studies", "How far does it scale, which layout wins, and which hardware matters?",
    "How far a layout scales, which layout is fastest, what memory and rank order cost, and which parameter of a machine matters.",
    records=lambda records: records.only("studies"), results=analyse_studies, sections=each(_section), figure="map", facts=_facts)
