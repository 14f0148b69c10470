"""Attention over sequences that ranks share: time and memory by length, hidden communication, and each rank's load."""
from typing import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from reports.analysis.training.context import ContextResult, exposed_us, hidden, simulated_exposed_us
from reports.plots.frame import End, Heading, draw_line, label_ends, line_axes, new_figure, tidy, value_axis
from reports.plots.style import INK, MUTED, numbered, styles_for
from reports.records import Context
from reports.units import bytes_text, short, time_text

WIDTH = 7.4


def time_figure(result: ContextResult, heading: Heading) -> Figure:
    return _by_length(result, heading, lambda one: one.median_us("async"), time_text,
                      "forward and backward, slowest rank")


def memory_figure(result: ContextResult, heading: Heading) -> Figure:
    return _by_length(result, heading, lambda one: one.peak_bytes, lambda size: bytes_text(round(size), 3),
                      "most bytes of a rank, beside its input")


def hidden_figure(result: ContextResult, heading: Heading) -> Figure:
    figure, axes = line_axes(heading, [line.way for line in result.lines])
    _length_axis(axes, result)
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylabel("communication hidden beside kernels")
    _draw(axes, result, hidden)
    return figure


def exposed_figure(result: ContextResult, heading: Heading) -> Figure:
    """Lines: measured; open circles: simulated."""
    figure, axes = line_axes(heading, [line.way for line in result.lines])
    _length_axis(axes, result)
    values = [exposed_us(one) for one in result.all] + [simulated_exposed_us(one) or 0.0 for one in result.all]
    margin = 0.05 * (max(values) - min(values)) + 1
    axes.set_ylim(min(0.0, min(values)) - margin, max(values) + margin)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us / 1e3:g} ms"))
    axes.set_ylabel("exposed; open circles: simulated")
    _draw(axes, result, exposed_us)
    styles = styles_for([line.way for line in result.lines])
    for line in result.lines:
        axes.plot(line.lengths, [simulated_exposed_us(one) for one in line.points], linestyle="none", marker="o",
                  markersize=7.5, markerfacecolor="none", markeredgecolor=styles[line.way].colour, markeredgewidth=1.4,
                  zorder=3.5)
    return figure


def load_figure(result: ContextResult, heading: Heading) -> Figure:
    """A group of bars per method, a bar per rank: its pairs over the mean; marks show its kernels' time over the mean."""
    figure, top = new_figure(heading, 3.6, WIDTH)
    axes = figure.add_axes([0.115, 0.16, 0.87, top - 0.18])
    tidy(axes)
    axes.grid(False, axis="x")
    rows = result.at_longest
    ranks = rows[0].ranks
    width = 0.8 / ranks
    for group, one in enumerate(rows):
        for rank in range(ranks):
            at = group - 0.4 + width * (rank + 0.5)
            axes.bar(at, one.pairs[rank] / one.mean_pairs, width * 0.9, color=numbered(0).colour, zorder=2)
            axes.plot([at], [one.kernels_us[rank] / one.mean_kernels_us], marker="_", markersize=max(4, 90 * width),
                      markeredgewidth=1.8, color=numbered(1).colour, zorder=3)
    axes.axhline(1, color=INK, linewidth=0.9, zorder=2.5)
    axes.set_xticks(range(len(rows)), [one.way for one in rows])
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("of a rank, over the mean")
    figure.text(0.985, 0.02, f"bars: pairs of a query and a key, ranks 0 to {ranks - 1}; lines: time of its kernels alone",
                size=8, color=MUTED, ha="right", va="bottom")
    return figure


def _by_length(result: ContextResult, heading: Heading, value: Callable[[Context], float],
               text: Callable[[float], str], label: str) -> Figure:
    figure, axes = line_axes(heading, [line.way for line in result.lines])
    values = [value(one) for one in result.all]
    _length_axis(axes, result)
    value_axis(axes, min(values), max(values), text)
    axes.set_ylabel(label)
    _draw(axes, result, value)
    return figure


def _draw(axes: Axes, result: ContextResult, value: Callable[[Context], float]) -> None:
    styles = styles_for([line.way for line in result.lines])
    ends = []
    for line in result.lines:
        values = [value(one) for one in line.points]
        draw_line(axes, line.lengths, values, styles[line.way])
        ends.append(End(line.way, line.lengths[-1], values[-1], styles[line.way]))
    label_ends(axes, ends)


def _length_axis(axes: Axes, result: ContextResult) -> None:
    lengths: Sequence[int] = sorted({one.length for one in result.all})
    axes.set_xscale("log", base=2)
    axes.set_xlim(lengths[0] / 1.2, lengths[-1] * 1.2)
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_major_formatter(FixedFormatter([_tokens(length) for length in lengths]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("tokens of a sequence")


def _tokens(length: int) -> str:
    return f"{length // 1024}k" if length % 1024 == 0 else short(length, 4)
