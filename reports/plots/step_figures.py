"""The figures of schedules and layouts: their words, bubbles against memory and microbatches, and their files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, NamedTuple, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from reports.analysis.steps.schedules import bubble, Case, Contest, Growth, percent_off, Workload, WorkloadResult
from reports.analysis.steps.layouts import LayoutResult
from reports.analysis.steps.overlap import hidden_text, link_text, OverlapResult, way_text
from reports.plots import style
from reports.plots.figures import FigureFile, in_parallel, save
from reports.plots.frame import (
    draw_line, End, Heading, label_ends, line_axes, new_figure, place_labels, point_box, SIZE, tidy, value_axis,
    Wanted)
from reports.plots.gantt import charts_of, gantt_figure
from reports.plots.layout_bars import memory_figure, MOST as MOST_LAYOUTS, parts_figure
from reports.plots.stacked_bars import overlap_figure
from reports.plots.style import GRID, INK, numbered, PAPER, styles_for
from reports.records import ScheduleLine, Simulation
from reports.units import bytes_text, counted, joined, share_text, short, time_text, unbroken


# ---- The words on a figure: a title, a description of the run, a badge if it was not measured. The title names the quantities,
# or has a finding that no sentence of the page has: a finding is said once

def step_badge(bases: Sequence[str]) -> str:
    others = [basis for basis in bases if basis != "measured"]
    if not others:
        return ""
    measured = "; each basis has its own chart" if len(bases) > 1 else ""
    return f"{', '.join(others).upper()}: not a time of a training run{measured}"


def case_title(case: Case) -> str:
    """Title such as: 1f1b: a step takes 330 ms simulated, 334 ms emulated (+1.2 %); 27 % of it is bubble."""
    first, *rest = case.lines
    told = [f"{time_text(1e3 * first.makespan_ms)} {first.basis}"]
    told += [f"{time_text(1e3 * line.makespan_ms)} {line.basis} ({percent_off(line.makespan_ms / first.makespan_ms)})"
             for line in rest]
    return unbroken(f"{case.name}: a step takes {', '.join(told)}; {share_text(bubble(first))} of it is bubble, "
                    f"and a rank holds the activations of at most {short(first.peak)} "
                    f"microbatch{'' if first.peak == 1 else 'es'}")


def case_subtitle(case: Case) -> str:
    ranks = [rank for line in case.lines for rank in line.timeline or ()]
    stages = max((len({task.stage for task in rank if task.stage >= 0}) for rank in ranks), default=1)
    pipes = f" in {case.first.pipes} pipes" if case.first.pipes > 1 else ""
    of_rank = f"{stages} stages per rank{pipes}, later ones lighter"
    return _dotted([workload_text(case.workload), of_rank if stages > 1 else ""])


def workload_text(workload: Workload) -> str:
    return _dotted([workload.name, workload.times_text])


def contest_title(_: Contest) -> str:
    return "Bubble of each schedule against the activations that a rank holds"


def contest_subtitle(contest: Contest) -> str:
    return _dotted([workload_text(contest.workload), _slices_text(contest.slices)])


def _slices_text(slices: int) -> str:
    return f"sequences in {slices} slices" if slices > 1 else ""


def growth_title(growth: Growth) -> str:
    most = max(points[-1][0] for points in growth.curves.values())
    at_most = sorted((points[-1][1], name) for name, points in growth.curves.items() if points[-1][0] == most)
    if len(at_most) == 1:
        value, name = at_most[0]
        return unbroken(f"{name}: {share_text(value)} bubble with {most} microbatches")
    (least, best), (largest, worst) = at_most[0], at_most[-1]
    return unbroken(f"With {most} microbatches the bubble is {share_text(least)} ({best}) to {share_text(largest)} "
                    f"({worst}) of the step")


def growth_subtitle(growth: Growth) -> str:
    times = Workload(growth.ranks, 0, growth.times).times_text
    return _dotted([counted(growth.ranks, "rank"), times, _slices_text(growth.slices)])


def _dotted(parts: Sequence[str]) -> str:
    return "  ·  ".join(part for part in parts if part)


def overlap_title(_: OverlapResult) -> str:
    return "Computing, and hidden and exposed communication of a step"


def overlap_subtitle(result: OverlapResult) -> str:
    return _dotted([result.name, "fastest links first, for each the shortest step first"])


def step_title(line: ScheduleLine) -> str:
    return unbroken(f"{way_text(line)}, {link_text(line.run.link)}: a step takes {time_text(1e3 * line.makespan_ms)}, "
                    f"{hidden_text(line)}")


def step_subtitle(line: ScheduleLine) -> str:
    one = line.overlap
    return _dotted([f"{counted(one.layers, 'layer')} of {bytes_text(one.bytes_per_layer, 3)}", one.algorithm,
                    "a row a replica"])


def layouts_subtitle(result: LayoutResult) -> str:
    shown = f"the first {MOST_LAYOUTS} of {len(result.layouts)}" if len(result.layouts) > MOST_LAYOUTS else ""
    return _dotted([result.name, "fastest first, those that do not fit below" if result.alike else
                    "least time of all devices first, those that do not fit below",
                    f"all with {', '.join(result.common)}" if result.common else "", shown])


def parts_title(_: LayoutResult) -> str:
    return "Parts of the step of each layout"


def memory_title(result: LayoutResult) -> str:
    """Names the kinds that fill the memory of the fastest layout."""
    best = result.best
    kinds = sorted(((value, kind) for kind, value in best.memory_bytes.items() if kind != "total"), reverse=True)
    told = joined([f"{kind} {bytes_text(value, 3)}" for value, kind in kinds[:2]])
    return unbroken(f"{result.name_of(best)} needs {bytes_text(best.memory_bytes['total'], 3)} of "
                    f"{bytes_text(best.capacity_bytes, 3)} per device, most of it {told}; "
                    f"{len(result.fitting)} of {counted(len(result.layouts), 'layout')} "
                    f"{'fits' if len(result.fitting) == 1 else 'fit'}")


def layout_title(one: Simulation) -> str:
    return unbroken(f"{one.layout.text}, {one.schedule}: a step takes {time_text(1e3 * one.step_ms)}; "
                    f"{share_text(one.bubbles.of_makespan)} of it is bubble, MFU {share_text(one.mfu)}")


def layout_subtitle(one: Simulation) -> str:
    return _dotted([f"{one.model.name} on {counted(one.ranks, 'device')} of {one.machine}",
                    "a row per stage of the pipeline, which stands for all ranks that do alike" if
                    one.ranks > len(one.timeline or ()) else ""])


# Bubble against activations held: a point per schedule, and the line of those that no other beats in both.

HEIGHT, WIDTH = 4.9, 7.4
_MAKESPAN, _OWN = numbered(0), numbered(1)


class Point(NamedTuple):
    peak: float
    bubble: float
    own: float  # bubble of the own span
    name: str


def tradeoff_figure(contest: Contest, heading: Heading) -> Figure:
    figure, top = new_figure(heading, HEIGHT, WIDTH)
    axes = figure.add_axes([0.1, 0.2, 0.86, top - 0.2])
    tidy(axes)
    points = [Point(line.peak, bubble(line), max(line.bubbles.of_own_span, 0), _name(name, line))
              for name, line in contest.entries]
    highest = _highest(points)
    axes.set_xlim(0, 1.12 * max(point.peak for point in points))
    axes.set_ylim(-0.03 * highest, 1.12 * highest)
    frontier = [(line.peak, bubble(line)) for _, line in contest.frontier]
    ends = (frontier[0][0], max(1.2 * highest, frontier[0][1])), (axes.get_xlim()[1], frontier[-1][1])
    axes.step(*zip(ends[0], *frontier, ends[1]), where="post", color=_MAKESPAN.colour, linewidth=1.2, alpha=0.5,
              zorder=1.5)
    for point in points:
        axes.plot([point.peak] * 2, [point.own, point.bubble], color=GRID, linewidth=1.4, zorder=1)
        axes.plot([point.peak], [point.own], marker="o", markersize=5, color=_OWN.colour, markerfacecolor=PAPER,
                  zorder=2)
        axes.plot([point.peak], [point.bubble], marker="o", markersize=6.5, color=_MAKESPAN.colour, markeredgewidth=0,
                  zorder=3)
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{short(100 * value)} %"))
    axes.set_xlabel("activations held by the rank that holds most (microbatches)")
    axes.set_ylabel("bubble: idle share of the time")
    _names(axes, [point for point in points if point.bubble <= highest], frontier)
    _above(axes, [point for point in points if point.bubble > highest])
    _legend(figure)
    return figure


def _name(name: str, line: ScheduleLine) -> str:
    """Weights that a rank keeps more than once cost memory too, which the axis does not show."""
    kept = line.pipes * max(line.weight_versions or (1,))
    return name if kept == 1 else f"{name} ({kept}× weights)"


def _highest(points: Sequence[Point]) -> float:
    """Largest value that is drawn; a single schedule far above all others would press them together."""
    values = sorted(max(point.bubble, point.own) for point in points)
    highest = values[-2] if len(values) > 3 and values[-1] > 1.7 * values[-2] else values[-1]
    return max(highest, 0.01)


def _names(axes: Axes, points: Sequence[Point], frontier: Sequence[tuple[float, float]]) -> None:
    """Schedules that lie on one point share a name."""
    at: dict[tuple[float, float], list[str]] = {}
    for point in points:
        at.setdefault((round(point.peak, 3), round(point.bubble, 4)), []).append(point.name)
    taken = [point_box(axes, point.peak, y, 4) for point in points for y in (point.bubble, point.own)]
    ends = [*frontier[1:], (axes.get_xlim()[1], frontier[-1][1])]
    lines = [point_box(axes, x + (end[0] - x) * i / 25, y, 1) for (x, y), end in zip(frontier, ends) for i in range(25)]
    place_labels(axes, [Wanted(", ".join(names), x, y) for (x, y), names in at.items()], taken, lines)


def _above(axes: Axes, points: Sequence[Point]) -> None:
    top = axes.get_ylim()[1]
    for point in points:
        axes.annotate(f"{point.name}: {share_text(point.bubble)}, above", (point.peak, top), xytext=(6, -4),
                      textcoords="offset points", size=SIZE, color=INK, va="top")
        axes.plot([point.peak], [top], marker="^", markersize=7, color=_MAKESPAN.colour, markeredgewidth=0,
                  clip_on=False, zorder=4)


def _legend(figure: Figure) -> None:
    handles = [Line2D([], [], linestyle="none", marker="o", markersize=6.5, color=_MAKESPAN.colour, markeredgewidth=0,
                      label="of the makespan (all ranks wait at the optimizer)"),
               Line2D([], [], linestyle="none", marker="o", markersize=5, color=_OWN.colour, markerfacecolor=PAPER,
                      label="of a rank's own span (no rank waits there)"),
               Line2D([], [], color=_MAKESPAN.colour, alpha=0.5, linewidth=1.2, label="least bubble for the memory")]
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.0), ncol=2, frameon=False, fontsize=8.2,
                  handletextpad=0.4, columnspacing=1.4, labelcolor=INK)


# ---- Bubble against the number of microbatches: a line per schedule

LEAST = 1e-3  # on the logarithmic axis; none is drawn so
MOST = 8  # lines with a colour
KNOWN = ("1f1b", "gpipe")  # schedules that readers compare with


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
    """At most MOST schedules of `order`, which has the smallest bubble at the largest number of microbatches first; KNOWN are always
    among them."""
    known = [name for name in order if name in KNOWN]
    best = [name for name in order if name not in known][:MOST - len(known)]
    return [name for name in order if name in best or name in known]


# ---- The figures, rendered to files in a folder

MOST_CHARTS = 60  # limit for all workloads together
MOST_OF_ONE = 8  # limit for a workload, if there are several
MOST_TIMELINES = 3  # limit for a model's layouts


@dataclass(frozen=True)
class Bars:
    """One of the figures that show all layouts."""

    kind: str  # key of BARS
    result: LayoutResult


def render_workloads(results: Sequence[WorkloadResult], folder: Path) -> list[list[FigureFile]]:
    """Renders the figures of each workload into `folder`, as stem.svg, and returns them in the order of the workloads."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks, left = [], MOST_CHARTS
    most = MOST_CHARTS if len(results) == 1 else MOST_OF_ONE
    for result in results:
        tasks += [(contest, f"{result.anchor}-tradeoff-{contest.basis}-{contest.slices}", folder) for contest in result.contests
                  if len(contest.entries) > 1 and any(line.peak for _, line in contest.entries)]
        charts = charted(result)[:max(min(left, most), 0)]
        left -= len(charts)
        tasks += [(case, f"{result.anchor}-gantt-{number}", folder) for number, case in enumerate(charts, start=1)]
    files = in_parallel(_render, tasks)
    return [[file for file in files if file.stem.startswith(f"{result.anchor}-")] for result in results]


def render_growths(growths: Sequence[Growth], folder: Path) -> list[FigureFile]:
    return in_parallel(_render, [(one, f"growth-{number}", folder) for number, one in enumerate(growths, start=1)])


def charted(result: WorkloadResult) -> list[Case]:
    """Cases with a timeline: those run on most bases first, then by the smallest bubble."""
    order = {name: bubble(line) for contest in result.contests for name, line in contest.entries}
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
