"""The words on figures of steps: the finding as title, what was run below, a badge on what was not measured."""
from typing import Sequence

from reports.analysis.steps.cases import Case, Workload
from reports.analysis.steps.schedules import Contest, Growth, bubble, contest_text, percent_off
from reports.units import counted, share_text, short, time_text, unbroken


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
    chunks = f"{counted(case.first.chunks, 'stage')} a rank" if case.first.chunks > 1 else ""
    pipes = f"{case.first.pipes} pipes" if case.first.pipes > 1 else ""
    return _dotted([workload_text(case.workload), chunks, pipes, "numbers: microbatches"])


def workload_text(workload: Workload) -> str:
    return _dotted([workload.name, workload.times_text])


def contest_title(contest: Contest) -> str:
    return unbroken(contest_text(contest).rstrip("."))


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
