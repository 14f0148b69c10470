"""One layer that ranks share (tensor-parallel layers, shared sequences, mixtures of experts), and buckets of gradients: parts of the
time, communication that is hidden or exposed, bytes, memory and load."""
from dataclasses import replace
from statistics import mean
from typing import Callable, Optional, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from reports.analysis.groups import by
from reports.analysis.training.data_parallel import (
    bucket_bytes, BucketCurve, BucketsResult, exposed_ms, hidden_share, ideal_ms, reductions)
from reports.analysis.training.layers import (
    Case, case_name, ContextResult, ExpertsResult, exposed_us, hidden, LayersResult, simulated_exposed_us, units_text)
from reports.plots.frame import (
    axes_within, Curve, curves_figure, draw_line, few_ticks, Heading, key, legend_below, new_figure, row_axes, ticks_at,
    value_axis)
from reports.plots.stacked_bars import BarRow, CHARACTER, Scale, stacked_figure
from reports.plots.style import GRID, INK, MUTED, numbered, PAPER, Style, styles_for
from reports.records import ScheduleLine, Step
from reports.units import bytes_text, counted, share_text, short, time_text

# ---- Tensor-parallel layers: parts of their time, time that communication adds in either form, and bytes that ranks send

WIDTH, ROW = 11.4, 0.27  # inches
MIB = 1 << 20
_PARTS = (("products", "matrix products", "#0072b2"), ("other_kernels", "other kernels", "#56b4e9"),
          ("communication", "exposed communication", "#d55e00"))
_SERIAL, _ASYNC = numbered(1), numbered(0)


def split_figure(result: LayersResult, heading: Heading) -> Figure:
    """Two bars per case: serial in one tile, and overlapped in the fastest number of tiles."""
    rows = []
    for case in result.cases:
        rows.append(_split_row(f"{case.name}: serial", case.one, "serial", True))
        rows.append(_split_row(f"overlapped, {counted(case.best.tiles, 'tile')}", case.best, "async", False))
    return stacked_figure(rows, Scale("forward and backward, slowest rank (ms)", 1e-3, _PARTS), heading)


def _split_row(name: str, line: Step, way: str, gap: bool) -> BarRow:
    return BarRow(name, line.parts_us(way), time_text(line.median_us(way)), gap)


def bytes_figure(result: LayersResult, heading: Heading) -> Figure:
    """A bar per case; a mark at the formula's value."""
    cases = sorted(result.cases, key=lambda case: (case.one.ranks, case.one.sequence_parallel))
    ranks = [case.one.ranks for case in cases]
    rows = [BarRow(case.name, {"sent": case.one.sent_bytes}, units_text(case.one), i > 0 and ranks[i - 1] != ranks[i],
                   mark=case.one.formula_bytes) for i, case in enumerate(cases)]
    return stacked_figure(rows, Scale("sent by a rank, forward and backward (MiB)", 1 / MIB, (("sent", "counted", "#0072b2"),), "the formula"),
                          heading)


def gain_figure(result: LayersResult, heading: Heading) -> Figure:
    """A row per case: time that communication adds when run serially, and overlapped with products in each number of tiles."""
    cases = result.cases
    figure, top = new_figure(heading, 1.5 + ROW * max(len(cases), 3), WIDTH)
    axes = axes_within(figure, top, 0.3 + CHARACTER * max(len(case.name) for case in cases), 1.1 + 0.015 * WIDTH, 0.85)
    row_axes(axes, [case.name for case in cases], edge=0.6)
    axes.grid(True, axis="y", color=GRID)
    for row, case in enumerate(cases):
        _draw_case(axes, row, case)
    axes.axvline(0, color=INK, linewidth=0.9, zorder=1.5)
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, 4)))
    axes.set_xlabel("longer than kernels alone in one tile, forward and backward (ms)")
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
        axes.annotate(str(form.tiles), (at, row), xytext=(0, 4), textcoords="offset points", size=7.2, ha="center",
                      color=INK if is_best else MUTED)
    text = "adds nothing" if case.hidden is None else f"hides {share_text(case.hidden)}"
    axes.text(1.012, row, text, transform=axes.get_yaxis_transform(), size=8, va="center", color=INK)


def _gain_legend(figure: Figure) -> None:
    serial = key("serial", _SERIAL, hollow=True, markeredgewidth=1.4)
    overlapped = key("overlapped with products; the number of tiles above, the fastest filled", _ASYNC, marker="o")
    legend_below(figure, [serial, overlapped], 2, handletextpad=0.3, columnspacing=1.6)


# Exposed communication over bucket size: a panel per number of ranks, a line per link.

PANEL = 3.5  # inches: height of a panel
MOST = 3  # most panels in a row


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
    ticks_at(axes, sizes, [f"one of\n{bytes_text(size, 3)}" if size in single else bytes_text(size, 3) for size in sizes])
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
                    label="ideal: if collectives took no time of the cores"),
             Line2D([], [], color=MUTED, marker="o", linestyle="", markersize=10, markerfacecolor="none",
                    markeredgewidth=1.5, label="least exposed, and % hidden of what can be")]
    for row, handles in enumerate((kinds, links)):
        figure.add_artist(figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.03, 0.005 + 0.055 * row),
                                        ncol=6, frameon=False, fontsize=8.5, handlelength=2.4, columnspacing=1.8,
                                        labelcolor=INK))


# ---- Attention over sequences that ranks share: time and memory by length, hidden communication, and each rank's load

CONTEXT_WIDTH = 7.4


def time_figure(result: ContextResult, heading: Heading) -> Figure:
    return _by_length(result, heading, lambda line: line.median_us("async"), "forward and backward, slowest rank", time_text)


def memory_figure(result: ContextResult, heading: Heading) -> Figure:
    return _by_length(result, heading, lambda line: line.peak_bytes, "most bytes of a rank, besides its input",
                      lambda size: bytes_text(round(size), 3))


def hidden_figure(result: ContextResult, heading: Heading) -> Figure:
    def scale(axes: Axes) -> None:
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    return _by_length(result, heading, hidden, "communication hidden by kernels", scale=scale)


def exposed_figure(result: ContextResult, heading: Heading) -> Figure:
    """Lines: measured; open circles: simulated."""
    def scale(axes: Axes) -> None:
        values = [value for line in result.lines for value in (exposed_us(line), simulated_exposed_us(line) or 0.0)]
        margin = 0.05 * (max(values) - min(values)) + 1
        axes.set_ylim(min(0.0, min(values)) - margin, max(values) + margin)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us / 1e3:g} ms"))
    figure = _by_length(result, heading, exposed_us, "exposed; open circles: simulated", scale=scale)
    for (way, lines), style in zip(result.by_way.items(), styles_for(list(result.by_way)).values()):
        figure.axes[0].plot([line.length for line in lines], [simulated_exposed_us(line) for line in lines], linestyle="none", marker="o",
                            markersize=7.5, markerfacecolor="none", markeredgecolor=style.colour, markeredgewidth=1.4, zorder=3.5)
    return figure


def _by_length(result: ContextResult, heading: Heading, value: Callable[[Step], float], label: str,
               text: Callable[[float], str] = str, scale: Optional[Callable[[Axes], None]] = None) -> Figure:
    """A line for each method; the values are on a log axis, unless `scale` makes another."""
    curves = [Curve(way, [line.length for line in lines], [value(line) for line in lines]) for way, lines in result.by_way.items()]
    values = [value for curve in curves for value in curve.y]

    def scaled(axes: Axes) -> None:
        few_ticks(axes, {line.length for line in result.lines}, "tokens of a sequence", _tokens)
        scale(axes) if scale else value_axis(axes, min(values), max(values), text)
        axes.set_ylabel(label)
    return curves_figure(heading, curves, scaled)[0]


def _tokens(length: int) -> str:
    return f"{length // 1024}k" if length % 1024 == 0 else short(length, 4)


def context_load_figure(result: ContextResult, heading: Heading) -> Figure:
    """A group of bars per method, a bar per rank: its pairs over the mean; marks show its kernels' time over the mean."""
    figure, top = new_figure(heading, 3.6, CONTEXT_WIDTH)
    axes = figure.add_axes([0.115, 0.16, 0.87, top - 0.18])
    axes.grid(False, axis="x")
    rows = result.at_longest
    ranks = rows[0].ranks
    width = 0.8 / ranks
    for group, row in enumerate(rows):
        for rank in range(ranks):
            at = group - 0.4 + width * (rank + 0.5)
            axes.bar(at, row.pairs_of_rank[rank] / mean(row.pairs_of_rank), width * 0.9, color=numbered(0).colour, zorder=2)
            axes.plot([at], [row.kernels_us[rank] / mean(row.kernels_us)], marker="_", markersize=max(4, 90 * width),
                      markeredgewidth=1.8, color=numbered(1).colour, zorder=3)
    axes.axhline(1, color=INK, linewidth=0.9, zorder=2.5)
    axes.set_xticks(range(len(rows)), [row.way for row in rows])
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("of a rank, over the mean")
    figure.text(0.985, 0.02, f"bars: pairs of a query and a key, ranks 0 to {ranks - 1}; lines: time of its kernels alone",
                size=8, color=MUTED, ha="right", va="bottom")
    return figure


# ---- Mixtures of experts: parts of the time, and time against the router's imbalance

_EXPERTS_PARTS = (("router", "router", "#999999"), ("permute", "permute", "#56b4e9"), ("dispatch", "dispatch, with waits", "#d55e00"),
          ("shared", "shared experts", "#009e73"), ("experts", "experts", "#0072b2"),
          ("combine", "combine, with waits", "#e69f00"), ("unpermute", "unpermute", "#cc79a7"))


def parts_figure(result: ExpertsResult, heading: Heading) -> Figure:
    """A bar per case: parts of forward and backward, run serially."""
    rows, before = [], None
    for line in result.lines:
        group = (line.experts, line.top_k, line.capacity_factor, line.skew)
        rows.append(BarRow(case_name(line), line.parts_us("serial"), time_text(line.median_us("serial")), group != before))
        before = group
    return stacked_figure(rows, Scale("forward and backward, slowest rank (ms)", 1e-3, _EXPERTS_PARTS), heading)


def experts_load_figure(result: ExpertsResult, heading: Heading) -> Figure:
    """A line per number of ranks: time over the load of the most loaded expert; dropless filled, with a capacity hollow."""
    figure, top = new_figure(heading, 4.6, WIDTH)
    axes = figure.add_axes([0.075, 0.13, 0.66, top - 0.16])
    axes.grid(True, color=GRID)
    series = by(result.lines, lambda line: (line.experts, line.top_k, line.capacity_factor, line.ranks))
    for number, ((experts, top_k, capacity, ranks), lines) in enumerate(series.items()):
        look = numbered(number)
        text = "dropless" if capacity == 0 else f"capacity {short(capacity, 3)}"
        lines.sort(key=lambda line: line.load)
        axes.plot([line.load for line in lines], [line.median_us("serial") / 1e3 for line in lines], color=look.colour,
                  marker=look.marker, markersize=6, linewidth=1.6, label=f"{experts} experts, top {top_k}, ep={ranks}, {text}")
    axes.set_xlabel("copies for the most loaded expert over an even share")
    axes.set_ylabel("forward and backward, slowest rank (ms)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, 4)))
    figure.legend(loc="upper left", bbox_to_anchor=(0.745, top - 0.02), fontsize=8)
    return figure
