"""Tensor-parallel layers: parts of their time, time that communication adds in either form, and bytes that ranks send."""

from dataclasses import replace
from typing import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from reports.analysis.training.data_parallel import (
    bucket_bytes, BucketCurve, BucketsResult, exposed_ms, hidden_share, ideal_ms, reductions)
from reports.analysis.training.layers import Case, LayersResult, units_text
from reports.plots.frame import draw_line, Heading, new_figure, tidy
from reports.plots.stacked_bars import BarRow, CHARACTER, Scale, stacked_figure
from reports.plots.style import GRID, INK, MUTED, numbered, PAPER, Style, styles_for
from reports.records import Layer, ScheduleLine
from reports.units import bytes_text, counted, share_text, short, time_text


WIDTH, ROW = 11.4, 0.27  # inches
MIB = 1 << 20
_PARTS = (("products", "matrix products", "#0072b2"), ("other_kernels", "other kernels", "#56b4e9"),
          ("communication", "exposed communication", "#d55e00"))
_SERIAL, _ASYNC = numbered(1), numbered(0)


def split_figure(result: LayersResult, heading: Heading) -> Figure:
    """Two bars per case: one after the other in one tile, and overlapped in the fastest number of tiles."""
    rows = []
    for case in result.cases:
        rows.append(_split_row(f"{case.name}: one after the other", case.one, "serial", True))
        rows.append(_split_row(f"beside, {counted(case.best.tiles, 'tile')}", case.best, "async", False))
    return stacked_figure(rows, Scale("forward and backward, slowest rank (ms)", 1e-3, _PARTS), heading)


def _split_row(name: str, line: Layer, way: str, gap: bool) -> BarRow:
    return BarRow(name, line.parts_us(way), time_text(line.median_us(way)), gap)


def bytes_figure(result: LayersResult, heading: Heading) -> Figure:
    """A bar per case; a mark at the formula's value."""
    cases = sorted(result.cases, key=lambda case: (case.one.ranks, case.one.sequence_parallel))
    ranks = [case.one.ranks for case in cases]
    rows = [BarRow(case.name, {"sent": case.one.sent_bytes}, units_text(case.one), gap=i > 0 and ranks[i - 1] != ranks[i])
            for i, case in enumerate(cases)]
    scale = Scale("sent by a rank, forward and backward (MiB)", 1 / MIB, (("sent", "counted", "#0072b2"),))
    figure = stacked_figure(rows, scale, heading)
    axes = figure.axes[0]
    axes.plot([case.one.formula_bytes / MIB for case in cases], axes.get_yticks(), linestyle="", marker="|",
              markersize=15, markeredgewidth=2, color=INK, zorder=4, clip_on=False)
    handle = Line2D([], [], linestyle="", marker="|", markersize=9, markeredgewidth=2, color=INK)
    figure.legend([handle], ["the formula"], loc="lower right", bbox_to_anchor=(0.985, 0.0), frameon=False, fontsize=8.5,
                  labelcolor=INK)
    return figure


def gain_figure(result: LayersResult, heading: Heading) -> Figure:
    """A row per case: time that communication adds one after the other, and beside products in each number of tiles."""
    cases = result.cases
    figure, top = new_figure(heading, 1.5 + ROW * max(len(cases), 3), WIDTH)
    height = figure.get_figheight()
    left = (0.3 + CHARACTER * max(len(case.name) for case in cases)) / WIDTH
    bottom = 0.85 / height
    axes = figure.add_axes([left, bottom, 0.985 - 1.1 / WIDTH - left, top - bottom - 0.1 / height])
    tidy(axes)
    axes.grid(True, axis="y", color=GRID)
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.set_yticks(range(len(cases)), [case.name for case in cases], size=8.2)
    axes.tick_params(axis="y", length=0)
    for row, case in enumerate(cases):
        _draw_case(axes, row, case)
    axes.axvline(0, color=INK, linewidth=0.9, zorder=1.5)
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, 4)))
    axes.set_xlabel("longer than kernels alone in one tile, forward and backward (ms)", size=9.5)
    _gain_legend(figure)
    return figure


def _draw_case(axes: Axes, row: int, case: Case) -> None:
    serial, best = case.serial_us / 1e3, case.async_us / 1e3
    axes.plot([serial, best], [row, row], color=MUTED, linewidth=2, zorder=2, solid_capstyle="butt")
    axes.plot([serial], [row], marker=_SERIAL.marker, color=_SERIAL.colour, markersize=6, markerfacecolor=PAPER,
              markeredgewidth=1.4, zorder=3)
    for form in case.forms:
        at, is_best = case.added_us(form, "async") / 1e3, form is case.best
        axes.plot([at], [row], marker="o", color=_ASYNC.colour, markersize=6 if is_best else 4,
                  markerfacecolor=_ASYNC.colour if is_best else PAPER, zorder=4)
        axes.annotate(str(form.tiles), (at, row), xytext=(0, 4), textcoords="offset points", size=6.5, ha="center",
                      color=INK if is_best else MUTED)
    told = "adds nothing" if case.hidden is None else f"hides {share_text(case.hidden)}"
    axes.text(1.012, row, told, transform=axes.get_yaxis_transform(), size=8, va="center", color=INK)


def _gain_legend(figure: Figure) -> None:
    serial = Line2D([], [], linestyle="none", marker=_SERIAL.marker, color=_SERIAL.colour, markerfacecolor=PAPER,
                    markeredgewidth=1.4, label="one after the other")
    beside = Line2D([], [], linestyle="none", marker="o", color=_ASYNC.colour,
                    label="beside products; the number of tiles above, the fastest filled")
    figure.legend(handles=[serial, beside], loc="lower center", bbox_to_anchor=(0.5, 0.0), ncol=2, frameon=False,
                  fontsize=8.5, handletextpad=0.3, columnspacing=1.6, labelcolor=INK)


# Exposed communication over bucket size: a panel per number of ranks, a line per link.

WIDTH, PANEL = 11.4, 3.5  # inches: of the figure, the height of a panel
MOST = 3  # most panels side by side


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
