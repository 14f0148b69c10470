"""The figures of all panels, rendered to files in a folder, on all cores."""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Callable, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reports.analysis.crossover import best_time
from reports.analysis.panels import Series
from reports.analysis.results import headline as headline_of, PanelResult
from reports.plots import curves, style
from reports.plots.curves import percentiles, predicted
from reports.plots.frame import Heading
from reports.plots.style import Style
from reports.plots.svg import svg_of
from reports.plots.titles import badge, subtitle, title_of

# ---- Which series get colour where there are too many to tell apart; the others are drawn in grey

MOST = 6
_FIRST = ["ring", "double_tree", "tree"]


def shown_labels(result: PanelResult) -> list[str]:
    """At most MOST: those that win somewhere, ring and tree, libraries, then the best of the rest."""
    series = result.panel.series
    if len(series) <= MOST:
        return [one.label for one in series]
    duellists = [family.representative.label for duel in result.duels for family in (duel.ring, duel.tree)]
    libraries = [one.label for one in series if one.variant.executor == "library"]
    plain = [one.label for one in series if one.algorithm in _FIRST[:1]]
    winners = sorted(result.fastest, key=lambda span: span.first / span.last)
    wanted = [*duellists, *plain, *(str(span.answer) for span in winners), *libraries, *_by_distance(result)]
    return list(dict.fromkeys(wanted))[:MOST]


def ordered(results: Sequence[PanelResult]) -> list[str]:
    """All labels that are shown anywhere, in the order in which styles are given out: ring and tree first."""
    labels = list(dict.fromkeys(label for result in results for label in shown_labels(result)))
    names = {label: label.split(" (")[0] for label in labels}  # without the transport
    return sorted(labels, key=lambda label: _FIRST.index(names[label]) if names[label] in _FIRST else len(_FIRST))


def _by_distance(result: PanelResult) -> list[str]:
    """Closest to the fastest first, over the sizes."""
    panel = result.panel
    best = {size: best_time(panel.series, size) for size in panel.sizes}

    def distance(series: Series) -> float:
        ratios = [point.time_us / best[point.bytes] for point in series.points]
        return sorted(ratios)[len(ratios) // 2]
    return [series.label for series in sorted(panel.series, key=distance)]


@dataclass(frozen=True)
class FigureFile:
    kind: str  # "relative", "latency", ...; "roofline", "shares", ... of kernels
    stem: str  # file name without its ending
    title: str
    alt: str


def render_all(results: Sequence[PanelResult], folder: Path) -> list[list[FigureFile]]:
    """For each result its figures; stem.svg lies in the folder."""
    styles = style.styles_for(ordered(results))
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [(result, styles, folder, number) for number, result in enumerate(results, start=1)]
    return in_parallel(render_panel, tasks)


def in_parallel(render: Callable, tasks: Sequence[tuple]) -> list:
    """Results of `render` for each task's arguments, on all cores."""
    workers = min(os.cpu_count() or 1, len(tasks))
    if workers <= 1:
        return [render(*task) for task in tasks]
    # A forked child starts at once: the parent has no threads.
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        return list(pool.map(render, *zip(*tasks)))


def render_panel(result: PanelResult, styles: dict[str, Style], folder: Path, number: int) -> list[FigureFile]:
    if not result.panel.series:
        return []
    shown = {label: styles[label] for label in shown_labels(result)}
    setting = result.panel.setting
    files = []
    for kind, draw in _DRAW.items():
        if not _wanted(kind, result):
            continue
        title = title_of(kind, result)
        stem = f"{number:02d}-{setting.collective}-{setting.ranks}-ranks-{setting.basis}-{kind}"
        with style.context():
            save(draw(result, shown, Heading(title, subtitle(kind, result), badge(setting))), folder / stem)
        alt = f"{_ALT[kind]}; {headline_of(result)}"
        files.append(FigureFile(kind, stem, title, alt))
    return files


def save(figure: Figure, stem: Path) -> None:
    FigureCanvasAgg(figure)
    stem.with_name(stem.name + ".svg").write_text(svg_of(figure, style.DARK), encoding="utf-8")


def _wanted(kind: str, result: PanelResult) -> bool:
    series = result.panel.series
    if kind == "relative":
        return len(series) > 1
    if kind == "predicted":
        return bool(result.predictions.by_label)
    if kind == "percentiles":
        return any(point.samples > 1 for one in series for point in one.points)
    return True


_DRAW: dict[str, Callable[[PanelResult, dict[str, Style], Heading], Figure]] = {
    "relative": lambda result, shown, heading: curves.relative(result.panel, shown, heading),
    "latency": lambda result, shown, heading: curves.latency(result.panel, shown, heading),
    "busbw": lambda result, shown, heading: curves.busbw(result.panel, shown, heading),
    "predicted": lambda result, shown, heading: predicted(result.predictions, shown, heading),
    "percentiles": lambda result, shown, heading: percentiles(result.panel, shown, heading),
}

_ALT = {
    "relative": "Time over the fastest algorithm's time against message size",
    "latency": "Time of a call against message size",
    "busbw": "Bus bandwidth against message size",
    "predicted": "Measured over predicted time against message size",
    "percentiles": "Percentiles of the time of a call against message size",
}
