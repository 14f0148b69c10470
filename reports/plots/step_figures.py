"""The figures of schedules and layouts, rendered to files in a folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, NamedTuple, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from reports.analysis.steps.cases import Case
from reports.analysis.steps.layouts import LayoutResult
from reports.analysis.steps.overlap import OverlapResult
from reports.analysis.steps.schedules import Contest, Growth, WorkloadResult
from reports.plots import style
from reports.plots.figures import FigureFile, in_parallel, save
from reports.plots.frame import draw_line, End, Heading, label_ends, line_axes, value_axis
from reports.plots.gantt import charts_of, gantt_figure
from reports.plots.layout_bars import memory_figure, parts_figure
from reports.plots.overlap_bars import overlap_figure
from reports.plots.step_titles import (
    case_subtitle, case_title, contest_subtitle, contest_title, growth_subtitle, growth_title, layout_subtitle,
    layout_title, layouts_subtitle, memory_title, overlap_subtitle, overlap_title, parts_title, step_badge,
    step_subtitle, step_title)
from reports.plots.style import styles_for
from reports.plots.tradeoff import tradeoff_figure
from reports.records import ScheduleLine, Simulation
from reports.units import short

# ---- Bubble against the number of microbatches: a line a schedule

LEAST = 1e-3  # on the logarithmic axis; none is drawn so
MOST = 8  # lines with a colour
KNOWN = ("1f1b", "gpipe")  # what readers compare with


def growth_figure(growth: Growth, heading: Heading) -> Figure:
    order = sorted(growth.curves, key=lambda name: growth.curves[name][-1][1])
    styles = styles_for(_shown(order))
    figure, axes = line_axes(heading, list(styles))
    counts = sorted({m for points in growth.curves.values() for m, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xlim(counts[0] / 1.15, counts[-1] * 1.15)
    values = [max(value, LEAST) for points in growth.curves.values() for _, value in points]
    value_axis(axes, min(values), max(values), lambda value: f"{short(100 * value)} %")
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_major_formatter(FixedFormatter([str(m) for m in counts]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("microbatches")
    axes.set_ylabel("bubble, share of the makespan")
    for name in reversed(order):
        draw_line(axes, [m for m, _ in growth.curves[name]], [max(b, LEAST) for _, b in growth.curves[name]],
                  styles.get(name))
    ends = [End(name, m, max(b, LEAST), styles[name]) for name in styles for m, b in growth.curves[name][-1:]]
    label_ends(axes, ends)
    if len(order) > len(styles):
        figure.text(0.985, 0.015, f"grey: {len(order) - len(styles)} other schedules", size=8, ha="right", va="bottom")
    return figure


def _shown(order: Sequence[str]) -> list[str]:
    """The least bubbles at most microbatches, and those that everybody knows."""
    known = [name for name in order if name in KNOWN]
    best = [name for name in order if name not in known][:MOST - len(known)]
    return [name for name in order if name in best or name in known]


MOST_CHARTS = 60  # limit for all workloads together
MOST_OF_ONE = 8  # limit for a workload, if there are several
MOST_TIMELINES = 3  # limit for a model's layouts


@dataclass(frozen=True)
class Bars:
    """One of the figures that show all layouts."""

    kind: str  # key of BARS
    result: LayoutResult


def render_workloads(results: Sequence[WorkloadResult], folder: Path) -> list[list[FigureFile]]:
    """For each workload its figures; stem.svg lies in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks, left = [], MOST_CHARTS
    most = MOST_CHARTS if len(results) == 1 else MOST_OF_ONE
    for result in results:
        tasks += [(contest, f"{result.anchor}-tradeoff-{contest.basis}", folder) for contest in result.contests
                  if len(contest.entries) > 1 and any(line.peak for _, line in contest.entries)]
        charts = charted(result)[:max(min(left, most), 0)]
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


def render_layouts(results: Sequence[LayoutResult], folder: Path) -> list[list[FigureFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    tasks = []
    for result in results:
        tasks += [(Bars(kind, result), f"{result.anchor}-{kind}", folder) for kind in BARS]
        drawn = [one for one in result.layouts if one.timeline][:MOST_TIMELINES]
        tasks += [(one, f"{result.anchor}-gantt-{number}", folder) for number, one in enumerate(drawn, start=1)]
    files = in_parallel(_render, tasks)
    return [[file for file in files if file.stem.startswith(f"{result.anchor}-")] for result in results]


def render_overlaps(results: Sequence[OverlapResult], folder: Path) -> list[list[FigureFile]]:
    """Draws for each result the bars, and charts of the cases that hide most and least."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = []
    for result in results:
        tasks += [(result, f"{result.anchor}-bars", folder), *_end_tasks(result.lines, result.anchor, folder)]
    files = in_parallel(_render, tasks)
    return [[file for file in files if file.stem.startswith(f"{result.anchor}-")] for result in results]


def render_steps(lines: Sequence[ScheduleLine], anchor: str, folder: Path) -> list[FigureFile]:
    """Charts of the step that hides most of its collectives and of the one that hides least."""
    return in_parallel(_render, _end_tasks(lines, anchor, folder))


def _end_tasks(lines: Sequence[ScheduleLine], anchor: str, folder: Path) -> list[tuple]:
    drawn = sorted((line for line in lines if line.timeline), key=lambda line: -line.overlap.efficiency)
    ends = drawn if len(drawn) < 2 else [drawn[0], drawn[-1]]
    return [(line, f"{anchor}-gantt-{number}", folder) for number, line in enumerate(ends, start=1)]


def _render(shown: object, stem: str, folder: Path) -> FigureFile:
    one = _FIGURES[type(shown)]
    heading = Heading(one.title(shown), one.subtitle(shown), step_badge(one.bases(shown)))
    with style.context():
        save(one.draw(shown, heading), folder / stem)
    kind = shown.kind if isinstance(shown, Bars) else one.kind
    return FigureFile(kind, stem, heading.title, f"{one.alt}. {heading.title}")


class _Figure(NamedTuple):
    kind: str
    draw: Callable[..., Figure]
    title: Callable[..., str]
    subtitle: Callable[..., str]
    bases: Callable[..., Sequence[str]]
    alt: str


BARS = {"parts": (parts_figure, parts_title), "memory": (memory_figure, memory_title)}
_FIGURES = {
    Case: _Figure("gantt", lambda case, heading: gantt_figure(charts_of(case.lines), heading), case_title,
                  case_subtitle, lambda case: [line.basis for line in case.lines],
                  "What each rank does over time, and the memory that it holds"),
    Contest: _Figure("tradeoff", tradeoff_figure, contest_title, contest_subtitle, lambda contest: [contest.basis],
                     "Bubble against activations held, a point a schedule"),
    Growth: _Figure("growth", growth_figure, growth_title, growth_subtitle, lambda growth: [growth.basis],
                    "Bubble against the number of microbatches, a line a schedule"),
    Bars: _Figure("bars", lambda bars, heading: BARS[bars.kind][0](bars.result, heading),
                  lambda bars: BARS[bars.kind][1](bars.result), lambda bars: layouts_subtitle(bars.result),
                  lambda bars: [bars.result.best.basis], "A bar a layout, of stacked parts"),
    OverlapResult: _Figure("parts", overlap_figure, overlap_title, overlap_subtitle, lambda result: [result.basis],
                           "A bar a case: computing, and what of the collectives is exposed"),
    ScheduleLine: _Figure("gantt", lambda line, heading: gantt_figure(charts_of([line]), heading), step_title,
                          step_subtitle, lambda line: [line.basis], "What each replica does over time"),
    Simulation: _Figure("gantt", lambda one, heading: gantt_figure(charts_of([one]), heading), layout_title,
                        layout_subtitle, lambda one: [one.basis], "What each rank does over time"),
}
