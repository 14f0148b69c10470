"""Exposed communication over bucket size: a panel a number of ranks, a line per link."""
from dataclasses import replace
from typing import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from reports.analysis.training.buckets import (BucketCurve, BucketsResult, bucket_bytes, exposed_ms, hidden_share,
                                               ideal_ms, reductions)
from reports.plots.frame import Heading, draw_line, new_figure, tidy
from reports.plots.style import INK, MUTED, PAPER, Style, styles_for
from reports.records import ScheduleLine
from reports.units import bytes_text, share_text, short

WIDTH, PANEL = 11.4, 3.5  # inches: of the figure, the height of a panel
MOST = 3  # panels side by side


def bucket_figure(result: BucketsResult, heading: Heading) -> Figure:
    panels = list(result.by_ranks.items())[:MOST]
    styles = styles_for(list(dict.fromkeys(curve.name for _, curves in panels for curve in curves)))
    figure, top = new_figure(heading, PANEL + 1.75, WIDTH)
    height = figure.get_figheight()
    bottom, left, gap = 1.25 / height, 0.7 / WIDTH, 0.75 / WIDTH
    width = (1 - left - 0.2 / WIDTH - gap * (len(panels) - 1)) / len(panels)
    for i, (_, curves) in enumerate(panels):
        axes = figure.add_axes([left + i * (width + gap), bottom, width, top - bottom - 0.3 / height])
        _panel(axes, curves, styles)
    figure.axes[0].set_ylabel("exposed communication (ms)")
    _legend(figure, styles)
    return figure


def _panel(axes: Axes, curves: Sequence[BucketCurve], styles: dict[str, Style]) -> None:
    tidy(axes)
    lines = [line for curve in curves for line in curve.lines]
    crowded = any(line.run.oversubscribed for line in lines)
    axes.set_title(f"{curves[0].ranks} ranks" + (", more than cores" if crowded else ""), loc="left", size=10)
    _size_axis(axes, lines)
    for curve in curves:
        _curve(axes, curve, styles[curve.name])
    axes.axhline(0, color=INK, linewidth=1.0, zorder=1.8)
    low = min(0.0, *(exposed_ms(line) for line in lines))
    high = max(max(exposed_ms(line), line.overlap.communication_alone_ms) for line in lines)
    axes.set_ylim(low - 0.06 * (high - low), high + 0.08 * (high - low))
    axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def _size_axis(axes: Axes, lines: Sequence[ScheduleLine]) -> None:
    sizes = sorted({bucket_bytes(line) for line in lines})
    single = {bucket_bytes(line) for line in lines if line.overlap.collectives == 1}
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_major_formatter(FixedFormatter(
        [f"one of\n{bytes_text(size, 3)}" if size in single else bytes_text(size, 3) for size in sizes]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("size of a bucket of gradients")


def _curve(axes: Axes, curve: BucketCurve, style: Style) -> None:
    sizes = [bucket_bytes(line) for line in curve.lines]
    draw_line(axes, sizes, [exposed_ms(line) for line in curve.lines], replace(style, dash="-"))
    quarters = np.array([np.percentile(reductions(line).exposed_samples_ms, (25, 75)) for line in curve.lines])
    axes.vlines(sizes, quarters[:, 0], quarters[:, 1], color=style.colour, linewidth=1.1, alpha=0.7, zorder=2.5)
    axes.plot(sizes, [line.overlap.communication_alone_ms for line in curve.lines], color=style.colour,
              linestyle=(0, (5, 2)), linewidth=1.0, alpha=0.75, zorder=2)
    axes.plot(sizes, [ideal_ms(line) for line in curve.lines], color=style.colour, linestyle=(0, (1, 1.6)),
              linewidth=1.3, zorder=2)
    best = curve.best
    axes.plot([bucket_bytes(best)], [exposed_ms(best)], marker="o", markersize=12, markerfacecolor="none",
              markeredgecolor=style.colour, markeredgewidth=1.5, zorder=4)
    axes.annotate(share_text(max(hidden_share(best), 0)), (bucket_bytes(best), exposed_ms(best)), xytext=(0, 11),
                  textcoords="offset points", size=8, color=INK, ha="center", zorder=5,
                  bbox={"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.8})


def _legend(figure: Figure, styles: dict[str, Style]) -> None:
    links = [Line2D([], [], color=style.colour, marker=style.marker, markersize=5, linewidth=1.7, label=name)
             for name, style in styles.items()]
    kinds = [Line2D([], [], color=MUTED, linestyle=(0, (5, 2)), linewidth=1.2, label="all of the communication, alone"),
             Line2D([], [], color=MUTED, linestyle=(0, (1, 1.6)), linewidth=1.4,
                    label="ideal: if collectives took nothing of the cores"),
             Line2D([], [], color=MUTED, marker="o", linestyle="", markersize=10, markerfacecolor="none",
                    markeredgewidth=1.5, label="least exposed, and % hidden of what can be")]
    for row, handles in enumerate((kinds, links)):
        figure.add_artist(figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.03, 0.005 + 0.055 * row),
                                        ncol=6, frameon=False, fontsize=8.5, handlelength=2.4, columnspacing=1.8,
                                        labelcolor=INK))
