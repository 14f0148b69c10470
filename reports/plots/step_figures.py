"""The figures of schedules, rendered to files in a folder."""
from pathlib import Path
from typing import Sequence

from reports.analysis.steps.cases import Case
from reports.analysis.steps.schedules import Contest, Growth, WorkloadResult
from reports.plots import style
from reports.plots.figures import FigureFile, in_parallel, save
from reports.plots.frame import Heading
from reports.plots.gantt import gantt_figure
from reports.plots.growth import growth_figure
from reports.plots.step_titles import (case_subtitle, case_title, contest_subtitle, contest_title, growth_subtitle,
                                       growth_title, step_badge)
from reports.plots.tradeoff import tradeoff_figure

MOST_CHARTS = 60  # of all workloads together


def render_workloads(results: Sequence[WorkloadResult], folder: Path) -> list[list[FigureFile]]:
    """For each workload its figures; stem.svg, stem-dark.svg and stem.png lie in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks, left = [], MOST_CHARTS
    for result in results:
        tasks += [(contest, f"{result.anchor}-tradeoff-{contest.basis}", folder) for contest in result.contests
                  if len(contest.entries) > 1]
        charts = charted(result)[:max(left, 0)]
        left -= len(charts)
        tasks += [(case, f"{result.anchor}-gantt-{number}", folder) for number, case in enumerate(charts, start=1)]
    files = in_parallel(_render, tasks)
    return [[file for file in files if file.stem.startswith(f"{result.anchor}-")] for result in results]


def render_growths(growths: Sequence[Growth], folder: Path) -> list[FigureFile]:
    return in_parallel(_render, [(one, f"growth-{number}", folder) for number, one in enumerate(growths, start=1)])


def charted(result: WorkloadResult) -> list[Case]:
    """Those with a timeline; run on several bases first, then the smallest bubble."""
    order = {name: i for contest in result.contests for i, (name, _) in enumerate(contest.entries)}
    cases = [case for case in result.cases if any(line.timeline for line in case.lines)]
    return sorted(cases, key=lambda case: (-len(case.lines), order[case.name]))


def _render(shown: Case | Contest | Growth, stem: str, folder: Path) -> FigureFile:
    kind, draw, title, subtitle, bases, alt = _PARTS[type(shown)]
    heading = Heading(title(shown), subtitle(shown), step_badge(bases(shown)))
    with style.context():
        save(draw(shown, heading), folder / stem)
    return FigureFile(kind, stem, heading.title, f"{alt}. {heading.title}")


_PARTS = {
    Case: ("gantt", gantt_figure, case_title, case_subtitle, lambda case: [line.basis for line in case.lines],
           "What each rank does over time, and the memory that it holds"),
    Contest: ("tradeoff", tradeoff_figure, contest_title, contest_subtitle, lambda contest: [contest.basis],
              "Bubble against activations held, a point a schedule"),
    Growth: ("growth", growth_figure, growth_title, growth_subtitle, lambda growth: [growth.basis],
             "Bubble against the number of microbatches, a line a schedule"),
}
