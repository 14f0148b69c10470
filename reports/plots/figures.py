"""The figures of collectives: their words, the series that get a colour, their files, and the map of the fastest."""
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Callable, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from reports.analysis.crossover import best_time, sentence, TOLERANCE, Verdict
from reports.analysis.findings import Cell, WinnerMap
from reports.analysis.panels import Series, Setting
from reports.analysis.results import headline as headline_of, link_text, PanelResult
from reports.plots import curves, style
from reports.plots.curves import percentiles, predicted
from reports.plots.frame import Heading, new_figure, SIZE, svg_of
from reports.plots.style import MUTED, numbered, Style, TEXT
from reports.units import bytes_text, collective_name, counted, joined, rate_text, short, time_text, times_text, unbroken


# ---- The words on a figure: a title, a line that describes the run, a badge if it was not measured. The title names the quantities,
# or has a finding that no sentence of the page has: a finding is said once

_SHOWS = {
    "relative": "grey strip: within 5 % of the fastest",
    "latency": "median, band p5 to p95",
    "busbw": "at the median, band p5 to p95",
    "predicted": "grey strip: within 25 %",
    "percentiles": "over the median",
}


def badge(setting: Setting) -> str:
    if setting.basis == "measured":
        return ""
    where = f" on {setting.devices_of}" if setting.devices_of else link_text(setting.link)
    return f"{setting.basis.upper()}{where}: not a time of this machine's own"


def subtitle(kind: str, result: PanelResult) -> str:
    panel, setting = result.panel, result.panel.setting
    transports = joined(sorted({series.variant.transport for series in panel.series}))
    op = "" if setting.op in ("none", "") else f" {setting.op}"
    parts = [collective_name(setting.collective), counted(setting.ranks, "rank"), f"{setting.dtype}{op}", transports,
             *filter(None, [panel.gpus]), "in place" if panel.in_place else "out of place", _SHOWS[kind]]
    return "  ·  ".join(parts)


def title_of(kind: str, result: PanelResult) -> str:
    return unbroken(sentence(_TITLES[kind](result)).rstrip("."))


def _relative(result: PanelResult) -> str:
    return "Time of each algorithm over the fastest one's, by message size"


def _latency(result: PanelResult) -> str:
    if result.duels:
        return "Time of a call by message size"
    size = result.panel.sizes[0]
    best = min((point.time_us, one.label) for one in result.panel.series if (point := one.at(size)))
    return f"{best[1]} takes {time_text(best[0])} at {bytes_text(size)}" + _of_all(result, "the least")


def _busbw(result: PanelResult) -> str:
    rate, label, size = max((point.busbw_gbps(point.time_us), one.label, point.bytes)
                            for one in result.panel.series for point in one.points)
    return f"{label} reaches {rate_text(rate)} at {bytes_text(size)}" + _of_all(result, "the most")


def _of_all(result: PanelResult, rank: str) -> str:
    number = len(result.panel.series)
    return f", {rank} of {number} algorithms" if number > 1 else ""


def _predicted(result: PanelResult) -> str:
    known = result.predictions.by_label
    ratios = [ratio for prediction in known.values() for ratio in prediction.ratios]
    within = 100 * sum(0.8 <= ratio <= 1.25 for ratio in ratios) // len(ratios)
    off = median(abs(ratio - 1) for ratio in ratios)
    side = "" if off < 0.05 else "; most are longer" if median(ratios) > 1 else "; most are shorter"
    return (f"Half of the measured times lie within {short(100 * off, 2)} % of the prediction, "
            f"{'all' if within == 100 else f'{within} %'} within 25 %{side}")


def _percentiles(result: PanelResult) -> str:
    worst = max((point.p99 / point.time_us, one.label, point.bytes) for one in result.panel.series
                for point in one.points)
    return f"p99 is up to {times_text(worst[0])} the median ({worst[1]} at {bytes_text(worst[2])})"


_TITLES = {"relative": _relative, "latency": _latency, "busbw": _busbw, "predicted": _predicted,
           "percentiles": _percentiles}


# ---- Selection of the series that get a colour if there are too many to distinguish; the others are drawn in grey

MOST = 6
_FIRST = ["ring", "double_tree", "tree"]


def shown_labels(result: PanelResult) -> list[str]:
    """At most MOST labels: the best of ring and tree, the plain ring, series that are fastest at some sizes, libraries, then the others,
    those closest to the fastest first."""
    series = result.panel.series
    if len(series) <= MOST:
        return [one.label for one in series]
    duellists = [family.representative.label for duel in result.duels for family in (duel.ring, duel.tree)]
    libraries = [one.label for one in series if one.variant.executor == "library"]
    plain = [one.label for one in series if one.algorithm in _FIRST[:1]]
    winners = sorted(result.fastest, key=lambda span: span.first / span.last)
    wanted = [*duellists, *plain, *(str(span.answer) for span in winners if span.answer is not Verdict.UNDECIDED), *libraries, *_by_distance(result)]
    return list(dict.fromkeys(wanted))[:MOST]


def ordered(results: Sequence[PanelResult]) -> list[str]:
    """All labels that are shown anywhere, in the order in which they get styles: ring and tree first."""
    labels = list(dict.fromkeys(label for result in results for label in shown_labels(result)))
    names = {label: label.split(" (")[0] for label in labels}  # without the transport
    return sorted(labels, key=lambda label: _FIRST.index(names[label]) if names[label] in _FIRST else len(_FIRST))


def _by_distance(result: PanelResult) -> list[str]:
    """Labels by the median, over the sizes, of the time over the fastest's; the smallest ratio first."""
    panel = result.panel
    best = {size: best_time(panel.series, size) for size in panel.sizes}

    def distance(series: Series) -> float:
        ratios = [point.time_us / best[point.bytes] for point in series.points]
        return sorted(ratios)[len(ratios) // 2]
    return [series.label for series in sorted(panel.series, key=distance)]


# ---- The figures of all panels, rendered to files in a folder, on all cores

@dataclass(frozen=True)
class FigureFile:
    kind: str  # "relative", "latency", ...; "roofline", "shares", ... of kernels
    stem: str  # file name without its ending
    title: str
    alt: str


def render_all(results: Sequence[PanelResult], folder: Path) -> list[list[FigureFile]]:
    """Renders the figures of each result into `folder`, as stem.svg, and returns them in the order of the results."""
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


# ---- Sizes across, ranks upwards: each cell has the colour of its fastest algorithm, paler where the next is close

def render_maps(maps: Sequence[WinnerMap], folder: Path) -> list[FigureFile]:
    """Renders each map into `folder`, as stem.svg."""
    return in_parallel(_render, [(one, folder) for one in maps])


def _render(winners: WinnerMap, folder: Path) -> FigureFile:
    setting = winners.setting
    title = "The fastest algorithm by message size and number of ranks"
    subtitle = f"{winners.name}  ·  colour: the fastest  ·  number: time of the next over it, where it is more than 5 %"
    stem = f"{winners.anchor}-{setting.collective}-{setting.basis}-winners"
    with style.context():
        save(winner_map(winners, Heading(title, subtitle, badge(setting))), folder / stem)
    return FigureFile("winners", stem, title, title)


_FULL = 2.0  # margin from which on a cell has its full colour
_ROW = 0.27  # inches


def winner_map(winners: WinnerMap, heading: Heading) -> Figure:
    ranks = [result.panel.setting.ranks for result in winners.results]
    sizes = sorted({cell.bytes for cell in winners.cells})
    legend_rows = -(-len(winners.labels) // 3)
    figure, top = new_figure(heading, 0.95 + _ROW * len(ranks) + 0.2 * legend_rows)
    bottom = (0.62 + 0.2 * legend_rows) / figure.get_figheight()
    axes = figure.add_axes([0.085, bottom, 0.9, top - bottom])
    colours = {label: numbered(i).colour for i, label in enumerate(winners.labels)}
    for cell in winners.cells:
        x, y = sizes.index(cell.bytes), ranks.index(cell.ranks)
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=_shade(colours[cell.label], cell), edgecolor="white", linewidth=0.8))
        if cell.margin > 1 + TOLERANCE and len(sizes) <= 24:
            axes.text(x + 0.5, y + 0.5, _margin_text(cell.margin), ha="center", va="center", size=SIZE, color=TEXT)
    axes.set_xlim(0, len(sizes))
    axes.set_ylim(0, len(ranks))
    step = -(-len(sizes) // 11)
    axes.set_xticks([i + 0.5 for i in range(0, len(sizes), step)], [bytes_text(size) for size in sizes[::step]], fontsize=7.8)
    axes.set_yticks([i + 0.5 for i in range(len(ranks))], [f"{n:,}" for n in ranks], fontsize=8)
    axes.set_xlabel("message size")
    axes.set_ylabel("ranks")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    handles = [Patch(facecolor=colours[label], label=label) for label in winners.labels]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.075, 0.0), ncols=3, frameon=False, fontsize=8,
                  labelcolor=MUTED)
    return figure


def _shade(colour: str, cell: Cell) -> tuple[float, ...]:
    """Colour of a cell: halfway to white where both are level."""
    part = 0.35 + 0.45 * min(max(cell.margin - 1, 0) / (_FULL - 1), 1)
    return tuple(1 - part * (1 - value) for value in to_rgb(colour))


def _margin_text(margin: float) -> str:
    return f"{margin:.1f}" if margin < 9.95 else f"{margin:.0f}"
