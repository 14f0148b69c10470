"""View of the page of studies, all text made."""
from typing import Sequence

from reports.analysis.findings import MOST
from reports.analysis.studies import StudyResult
from reports.check.runs import notes_on_runs
from reports.html.run_view import Fact, machine_views, run_facts, run_views
from reports.html.tables import Column, Line, Table, number, word
from reports.html.training_view import GroupPage, GroupView
from reports.plots.figures import FigureFile
from reports.records import Records, StudyPoint
from reports.units import counted, joined


def studies_page_of(records: Records, results: Sequence[StudyResult], figures: Sequence[Sequence[FigureFile]],
                    files: Sequence[str]) -> GroupPage:
    lines = records.studies
    bases = joined([f"{counted(sum(one.basis == basis for one in lines), 'point')} {basis}"
                    for basis in dict.fromkeys(one.basis for one in lines)])
    facts = [Fact("Studies", joined(list(dict.fromkeys(result.study for result in results)))), Fact("Points", bases)]
    return GroupPage(facts=run_facts(records, facts), findings=[one for r in results for one in r.findings][:MOST],
                     notes=list(notes_on_runs(records)), bad_rows=[],
                     groups=[_study_view(result, files_of) for result, files_of in zip(results, figures)], traces=[],
                     runs=run_views(records), machines=machine_views(records), files=files)


def _study_view(result: StudyResult, figures: Sequence[FigureFile]) -> GroupView:
    sources = sorted({one.source for one in result.points if one.source})
    published = [f"Published: {joined(sources)}. What was published is never part of what is simulated."] if sources else []
    name = f"{result.question} {result.setting}"
    return GroupView(result.anchor, name, result.basis, [result.answer, *published], figures, [], 0, [points_table(result)])


def points_table(result: StudyResult) -> Table:
    """A column for each place, value and part that any point has."""
    at = _names(one.at for one in result.points)
    values = _names(one.values for one in result.points)
    parts = _names(one.parts_ms for one in result.points)
    columns = (Column("series", "the line or class", False), Column("basis", "", False), *(Column(name, "") for name in at),
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
    """step_ms: step ms."""
    return name.replace("tflops_a_gpu", "TFLOP/s per GPU").replace("_percent", " %").replace("_", " ")
