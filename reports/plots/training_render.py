"""The figures of training runs and of scaling, rendered to files in a folder."""
from pathlib import Path
from typing import Callable, NamedTuple, Sequence

from matplotlib.figure import Figure

from reports.analysis.training.replicas import by_bytes, equal_bytes_text, slowed, straggler_text
from reports.analysis.training.runs import (TrainingResult, loss_text, predicted_runs, predicted_text, run_name,
                                            speed_text)
from reports.analysis.training.scaling import (KINDS, ScalingResult, charted, efficiency_text, gaps_text, line_name,
                                               line_text, why_text)
from reports.analysis.training.words import parts_text, titled
from reports.plots import style
from reports.plots.figures import FigureFile, in_parallel, save
from reports.plots.frame import Heading
from reports.plots.gantt import Chart, gantt_figure
from reports.plots.replica_figures import bytes_figure, straggler_figure
from reports.plots.scaling_figures import efficiency_figure, gap_figure, three_times_figure
from reports.plots.part_bars import memory_figure, memory_title, parts_figure, predicted_figure
from reports.plots.training_lines import loss_figure, speed_figure
from reports.records import Scaling, Training
from reports.units import share_text, time_text, unbroken

MOST_CHARTS = 6  # of a group of runs


class _Figure(NamedTuple):
    kind: str
    draw: Callable[..., Figure]
    title: Callable[..., str]
    subtitle: Callable[..., str]
    alt: str


def render_training(results: Sequence[TrainingResult], folder: Path) -> list[list[FigureFile]]:
    """For each group of runs its figures; stem.svg lies in the folder."""
    return _rendered(results, _training_figures, _drawn_runs, folder)


def render_scaling(results: Sequence[ScalingResult], folder: Path) -> list[list[FigureFile]]:
    return _rendered(results, _scaling_figures, charted, folder)


def _drawn_runs(result: TrainingResult) -> list[Training]:
    return [one for one in result.runs if one.timeline][:MOST_CHARTS]


def _training_figures(result: TrainingResult) -> Sequence[str]:
    told = ("predicted",) if predicted_runs(result.runs) else ()
    sent = ("bytes",) if by_bytes(result.runs) else ()
    slow = ("straggler",) if slowed(result.runs) else ()
    return ("loss", *sent, *slow, "speed", *told, "parts", "memory")


def _scaling_figures(result: ScalingResult) -> Sequence[str]:
    """What was simulated beyond the machine has no measured step to be compared with."""
    return ("efficiency", "three", "gap") if any(one.step("measured") for one in result.lines) else ("efficiency", "three")


def _rendered(results: Sequence, names: Callable, cases: Callable, folder: Path) -> list[list[FigureFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    tasks = []
    for result in results:
        tasks += [(name, result, f"{result.anchor}-{name}", folder) for name in names(result)]
        tasks += [("gantt", one, f"{result.anchor}-gantt-{number}", folder)
                  for number, one in enumerate(cases(result), start=1)]
    files = in_parallel(_render, tasks)
    return [[file for file in files if file.stem.startswith(f"{result.anchor}-")] for result in results]


def _render(name: str, shown: object, stem: str, folder: Path) -> FigureFile:
    one = _FIGURES[name]
    heading = Heading(unbroken(one.title(shown).rstrip(".")), one.subtitle(shown), _badge(shown))
    with style.context():
        save(one.draw(shown, heading), folder / stem)
    return FigureFile(one.kind, stem, heading.title, f"{one.alt}. {heading.title}")


def _badge(shown: object) -> str:
    first = getattr(shown, "first", shown)
    return {"emulated": "EMULATED links: not a time of this machine's own" if first.run.link else
                        "EMULATED straggler: a replica is slowed on purpose",
            "simulated": "SIMULATED from the pieces of two replicas: not run"}.get(first.basis, "")


def _timelines(one: Training | Scaling) -> list[Chart]:
    """Measured ones stand below what was predicted, on one time axis."""
    if isinstance(one, Training):
        if not one.timeline:
            return []
        whole = sum(one.parts_ms.values())
        return [Chart("measured", one.timeline, whole, f"step {one.timed_step}", None)]
    steps = [one.step(kind) for kind in KINDS]
    return [Chart(_NAMES[step.kind], step.timeline, step.step_ms, _bubble(step.parts_ms), None)
            for step in steps if step and step.timeline]


_NAMES = {"isolated": "simulated from pieces alone", "contended": "simulated with measured contention",
          "measured": "measured"}


def _bubble(parts_ms: dict[str, float]) -> str:
    whole = sum(parts_ms.values())
    exposed = sum(value for name, value in parts_ms.items() if name.startswith("exposed"))
    return (f"waiting for bytes {share_text(exposed / whole)}, for other ranks "
            f"{share_text(parts_ms.get('bubble', 0) / whole)}")


def _gantt_title(one: Training | Scaling) -> str:
    if isinstance(one, Scaling):
        return line_text(one)
    return f"{run_name(one)}: a step takes {time_text(1e3 * sum(one.parts_ms.values()))}: {parts_text(one.parts_ms)}"


def _largest_gap(result: ScalingResult) -> str:
    line = max((one for one in result.lines if one.step("measured") and one.step("contended")),
               key=lambda one: abs(one.step("measured").step_ms - one.step("contended").step_ms), default=None)
    if line is None:
        return "Measured steps less predicted ones"
    because = why_text(line, "contended") or "no part by more than 1 % of the step"
    return f"What contention leaves unexplained is most in {line_name(line)}: {because}"


def _sentence(told: str) -> str:
    """Without what stands in brackets behind it."""
    return told.split(" (")[0]


def _stars(result: ScalingResult) -> str:
    return result.name + ("  ·  * more ranks than cores" if any(one.oversubscribed for one in result.lines) else "")


_FIGURES = {
    "loss": _Figure("loss", loss_figure, lambda result: loss_text(result.runs) or "Loss of training",
                    lambda result: result.name, "Loss against the step, with what counting tokens reaches"),
    "bytes": _Figure("bytes", bytes_figure, lambda result: equal_bytes_text(result.runs) or "Loss over bytes sent",
                     lambda result: result.name, "Loss against the bytes that the busiest rank has sent"),
    "straggler": _Figure("parts", straggler_figure, lambda result: straggler_text(result.runs),
                         lambda result: result.name, "A bar a run: the replicas' own steps, and what comes behind them"),
    "speed": _Figure("speed", speed_figure, lambda result: speed_text(result.fastest), lambda result: result.name,
                     "Tokens a second against the step"),
    "parts": _Figure("parts", parts_figure,
                     lambda result: f"{run_name(result.fastest)}: {parts_text(result.fastest.parts_ms)}",
                     lambda result: result.name, "A bar a run, of the parts of a step"),
    "predicted": _Figure("parts", predicted_figure, lambda result: _sentence(predicted_text(result.runs)),
                         lambda result: result.name, "Two bars a run: the parts of a step as predicted and as measured"),
    "memory": _Figure("memory", memory_figure, memory_title, lambda result: result.name,
                      "A bar a run, of the kinds of memory"),
    "efficiency": _Figure("efficiency", efficiency_figure,
                          lambda result: "; ".join(efficiency_text(result)[:2]) or "One rank only", _stars,
                          "Efficiency against the number of ranks, a point a layout"),
    "three": _Figure("parts", three_times_figure, gaps_text, _stars,
                     "Three bars a layout: from pieces alone, with contention, measured"),
    "gap": _Figure("parts", gap_figure, _largest_gap, _stars, "Measured less predicted time, a bar of parts a layout"),
    "gantt": _Figure("gantt", lambda one, heading: gantt_figure(_timelines(one), heading), _gantt_title,
                     lambda one: f"{titled(one.model)}, a row a rank", "What each rank does over time"),
}
