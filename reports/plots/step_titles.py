"""The words on figures of steps: a title, what was run below, a badge on what was not measured. The title says what is drawn, or
what no sentence of the page says: a finding is said once."""
from typing import Sequence

from reports.analysis.steps.cases import Case, Workload
from reports.analysis.steps.layouts import LayoutResult
from reports.analysis.steps.overlap import OverlapResult, hidden_text, link_text, way_text
from reports.analysis.steps.schedules import Contest, Growth, bubble, percent_off
from reports.plots.layout_bars import MOST as MOST_LAYOUTS
from reports.records import ScheduleLine, Simulation
from reports.units import bytes_text, counted, joined, share_text, short, time_text, unbroken


def step_badge(bases: Sequence[str]) -> str:
    others = [basis for basis in bases if basis != "measured"]
    if not others:
        return ""
    measured = "; each basis has its own chart" if len(bases) > 1 else ""
    return f"{', '.join(others).upper()}: not a time of a training run{measured}"


def case_title(case: Case) -> str:
    """1f1b: a step takes 330 ms simulated, 334 ms emulated (+1.2 %); 27 % of it is bubble."""
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
    return workload_text(contest.workload)


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
    return _dotted([counted(growth.ranks, "rank"), Workload(growth.ranks, 0, growth.times).times_text])


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
    return _dotted([f"{counted(one.layers, 'layer')} of {bytes_text(one.bytes_a_layer, 3)}", one.algorithm,
                    "a row a replica"])


def layouts_subtitle(result: LayoutResult) -> str:
    shown = f"the first {MOST_LAYOUTS} of {len(result.layouts)}" if len(result.layouts) > MOST_LAYOUTS else ""
    return _dotted([result.name, "fastest first, those that do not fit below" if result.alike else
                    "least time of all devices first, those that do not fit below",
                    f"all with {', '.join(result.common)}" if result.common else "", shown])


def parts_title(_: LayoutResult) -> str:
    return "Parts of the step of each layout"


def memory_title(result: LayoutResult) -> str:
    """Names what fills the memory of the fastest layout."""
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
