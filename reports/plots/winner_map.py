"""Sizes across, ranks upwards: each cell has the colour of its fastest algorithm, paler where the next is close."""
from pathlib import Path
from typing import Sequence

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from reports.analysis.crossover import TOLERANCE
from reports.analysis.findings import Cell, WinnerMap
from reports.plots import style
from reports.plots.figures import badge, FigureFile, in_parallel, save
from reports.plots.frame import Heading, new_figure
from reports.plots.style import MUTED, numbered, TEXT
from reports.units import bytes_text

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
            axes.text(x + 0.5, y + 0.5, _margin_text(cell.margin), ha="center", va="center", size=6, color=TEXT)
    axes.set_xlim(0, len(sizes))
    axes.set_ylim(0, len(ranks))
    step = -(-len(sizes) // 11)
    axes.set_xticks([i + 0.5 for i in range(0, len(sizes), step)], [bytes_text(size) for size in sizes[::step]], fontsize=7.5)
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
