"""The figures of training runs and of scaling, rendered to files in a folder."""
from pathlib import Path
from typing import Callable, NamedTuple, Sequence

from matplotlib.figure import Figure

from reports.analysis.training.runs import (
    by_bytes, parts_text, predicted_runs, run_name, slowed, titled, TrainingResult)
from reports.analysis.training.scaling import KINDS, ScalingResult, charted, line_name, why_text
from reports.plots import style
from reports.plots.figures import FigureFile, in_parallel, save
from reports.plots.frame import Heading
from reports.plots.gantt import Chart, gantt_figure
from reports.plots.training_figures import (
    bytes_figure, efficiency_figure, gap_figure, loss_figure, speed_figure, straggler_figure, three_times_figure)
from reports.plots.stacked_bars import memory_figure, parts_figure, predicted_figure
from reports.records import Scaling, Training
from reports.units import share_text, time_text, unbroken

MOST_CHARTS = 6  # limit for a group of runs


class _Figure(NamedTuple):
    kind: str
    draw: Callable[..., Figure]
    title: str | Callable[..., str]  # a function of the drawn data, if no sentence of the page has the finding
    subtitle: Callable[..., str] = lambda shown: shown.name


def render_training(results: Sequence[TrainingResult], folder: Path) -> list[list[FigureFile]]:
    """Renders the figures of each group of runs into `folder`, as stem.svg, and returns them in the order of the groups."""
    return _rendered(results, _training_figures, _drawn_runs, folder)


def render_scaling(results: Sequence[ScalingResult], folder: Path) -> list[list[FigureFile]]:
    return _rendered(results, _scaling_figures, charted, folder)


def _drawn_runs(result: TrainingResult) -> list[Training]:
    return [one for one in result.runs if one.timeline][:MOST_CHARTS]


def _training_figures(result: TrainingResult) -> Sequence[str]:
    told = ("predicted",) if predicted_runs(result.runs) else ()
    sent = ("bytes",) if by_bytes(result.runs) else ()
    slow = ("straggler",) if slowed(result.runs) else ()
    if all(one.profile for one in result.runs):  # PyTorch's profiler tells neither loss nor memory
        return ("speed", *told, "parts")
    return ("loss", *sent, *slow, "speed", *told, "parts", "memory")


def _scaling_figures(result: ScalingResult) -> Sequence[str]:
    """Steps that were simulated beyond the machine have no measured step to be compared with."""
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
    title = one.title if isinstance(one.title, str) else unbroken(one.title(shown).rstrip("."))
    heading = Heading(title, one.subtitle(shown), _badge(shown))
    with style.context():
        save(one.draw(shown, heading), folder / stem)
    return FigureFile(one.kind, stem, title, f"{title}: {heading.subtitle}")


def _badge(shown: object) -> str:
    first = getattr(shown, "first", shown)
    return {"emulated": "EMULATED links: not a time of this machine's own" if first.run.link else
                        "EMULATED straggler: a replica is slowed on purpose",
            "simulated": "SIMULATED from the pieces of two replicas: not run"}.get(first.basis, "")


def _timelines(one: Training | Scaling) -> list[Chart]:
    """Measured timelines are below the predicted ones, on one time axis."""
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
        return f"{line_name(one)}: each rank's tasks over time"
    return f"{run_name(one)}: a step takes {time_text(1e3 * sum(one.parts_ms.values()))}: {parts_text(one.parts_ms)}"


def _largest_gap(result: ScalingResult) -> str:
    line = max((one for one in result.lines if one.step("measured") and one.step("contended")),
               key=lambda one: abs(one.step("measured").step_ms - one.step("contended").step_ms), default=None)
    if line is None:
        return "Measured minus predicted steps"
    because = why_text(line, "contended") or "no part by more than 1 % of the step"
    return f"What contention leaves unexplained is most in {line_name(line)}: {because}"


def _stars(result: ScalingResult) -> str:
    return result.name + ("  ·  * more ranks than cores" if any(one.oversubscribed for one in result.lines) else "")


_FIGURES = {
    "loss": _Figure("loss", loss_figure, "Loss by step, with what counting tokens reaches"),
    "bytes": _Figure("bytes", bytes_figure, "Loss by bytes that the busiest rank has sent"),
    "straggler": _Figure("parts", straggler_figure, "The replicas' own steps, and what comes behind them, for each run"),
    "speed": _Figure("speed", speed_figure, "Tokens per second by step"),
    "parts": _Figure("parts", parts_figure, "Parts of a step of each run"),
    "predicted": _Figure("parts", predicted_figure, "Parts of a step of each run as predicted and as measured"),
    "memory": _Figure("memory", memory_figure, "Memory of the fullest rank of each run by kind"),
    "efficiency": _Figure("efficiency", efficiency_figure, "Efficiency of each layout by number of ranks", _stars),
    "three": _Figure("parts", three_times_figure, "Time of each layout from its pieces alone, with contention, and measured", _stars),
    "gap": _Figure("parts", gap_figure, _largest_gap, _stars),
    "gantt": _Figure("gantt", lambda one, heading: gantt_figure(_timelines(one), heading), _gantt_title,
                     lambda one: f"{titled(one.model)}, a row per rank"),
}
