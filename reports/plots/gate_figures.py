"""The figures of the gate: cases as ratios with their intervals, and a case's value over a history."""
import math
from collections import Counter
from typing import Any, Optional, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from reports.analysis.gate.words import change_text, interval_text, limit_text, NONE
from reports.plots.kernel_dots import row_lines
from reports.plots.frame import (
    axes_grid, axes_within, Heading, key, legend_below, log_axis, marked, new_figure, row_axes, ticks_at)
from reports.plots.style import ALARM, GRID, INK, MUTED, OTHERS, Style
from reports.records import GateCase, GateChange, GateSeries
from reports.units import counted, short


# ---- Style of verdicts in every figure: a colour and a shape each, so that they also differ in grey print; and the axis of ratios

VERDICTS = {"slower": Style("#d55e00", ">", "-"), "undecided": Style("#e69f00", "D", "-"), "faster": Style("#009e73", "<", "-"),
            "same": Style("#0072b2", "o", "-")}
WORDS = {"slower": ALARM, "undecided": INK, "faster": INK, "same": MUTED}  # colour of text: dark enough to read


def _look(verdict: str) -> dict[str, Any]:
    """Arguments of marked() and key(): undecided is hollow."""
    return {"style": VERDICTS[verdict], "hollow": verdict == "undecided", "markeredgewidth": 1.3}


LARGE = 0.6  # the axis is logarithmic if it contains changes by more than the factor 1 + LARGE


def limits_of(centres: Sequence[float], bounds: Sequence[float], least: float) -> tuple[float, float]:
    """Range of ratios on the axis. It contains all centres, and the bounds unless that would compress the centres too much."""
    reach = max([least, *(abs(math.log(ratio)) for ratio in centres if ratio > 0)])
    low = [-reach, *(max(math.log(bound), -2.5 * reach) for bound in bounds if bound > 0)]
    high = [reach, *(min(math.log(bound), 2.5 * reach) for bound in bounds if bound > 0)]
    return math.exp(1.12 * min(low)), math.exp(1.12 * max(high))


def percent_axis(axes: Axes, limits: tuple[float, float], label: str) -> None:
    if limits[1] > 1 + LARGE or limits[0] < 1 / (1 + LARGE):
        log_axis(axes.xaxis, *limits, tick_text)
    else:
        axes.set_xlim(*limits)
        axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(lambda ratio, _: tick_text(ratio))
    axes.set_xlabel(label)


def tick_text(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return "0" if abs(change) < 1e-9 else f"{'+' if change > 0 else '−'}{short(abs(change), 3)}"


# ---- Names of rows of a chart that are longer than their space: in two lines, then without their middle; all stay distinct

BREAKS = " /,:"  # a line may end after these


def in_two_lines(name: str, width: int) -> str:
    """One line if it fits, else two, broken at a separator; a name that is too long for two lines loses its middle."""
    if len(name) <= width:
        return name
    name = without_middle(name, 2 * width - 2)
    least = len(name) - width
    seams = [i + 1 for i, letter in enumerate(name) if letter in BREAKS and least <= i + 1 <= width]
    at = min(seams, key=lambda place: abs(place - len(name) / 2), default=min(width, len(name)))
    return f"{name[:at].rstrip()}\n{name[at:].lstrip()}"


def without_middle(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[len(name) - (width - 1 - head):]}"


def row_names(names: Sequence[str], width: int) -> list[str]:
    shown = [in_two_lines(name, width) for name in names]
    often, seen = Counter(shown), Counter()
    for i, name in enumerate(shown):
        if often[name] > 1:
            seen[name] += 1
            shown[i] = f"{name} #{seen[name]}"
    return shown


# A row per case, worst first: the ratio of the two sides with its interval, single pairs as faint dots below it.

WIDTH = 11.4  # inches
MOST = 40  # most rows; the others are in one row of dots
NAME = 56  # characters of a row's name in a line
NAMES, NUMBERS = 3.75, 2.95  # inches at the left and at the right of the axes
CHANGE, INTERVAL, VERDICT = 0.75, 2.05, 2.2  # inches to the right of the axes: right ends of two columns of numbers, left end of words
ROW, TALL_ROW = 0.23, 0.34  # inches per row whose name takes one line, two lines


def rows_of(cases: Sequence[GateCase]) -> tuple[list[GateCase], list[GateCase]]:
    """Cases with a ratio, worst first: those with a row, and, if there are too many, the others. All notable ones that fit have
    a row."""
    known = [case for case in cases if case.ratio is not None and case.ratio > 0]
    kept = {id(case) for case in sorted(known, key=lambda case: case.verdict == "same")[:MOST]}
    return [case for case in known if id(case) in kept], [case for case in known if id(case) not in kept]


def forest_figure(shown: tuple[Sequence[GateCase], float, float], heading: Heading) -> Figure:
    """`shown`: the cases, worst first, the threshold and the confidence of the intervals."""
    cases, threshold, confidence = shown
    rows, rest = rows_of(cases)
    names = row_names([case.case for case in rows], NAME)
    row = TALL_ROW if any("\n" in name for name in names) else ROW
    if rest:
        names.append(f"{counted(len(rest), 'case')} more, {', '.join(dict.fromkeys(case.verdict for case in rest))}")
    figure, top = new_figure(heading, 1.55 + row * max(len(names), 1), WIDTH)
    axes = axes_within(figure, top, NAMES, NUMBERS, 0.92, 0.3)
    row_axes(axes, names, 8, 0.6, linespacing=1.05)
    row_lines(axes, len(names), GRID)
    bounds = [bound for case in rows for bound in (case.low, case.high) if bound is not None]
    limits = limits_of([case.ratio for case in (*rows, *rest)], bounds, least=max(1.6 * threshold, 1e-4))
    percent_axis(axes, limits, "change of the head against the base (%); right of 0 is slower")
    axes.tick_params(axis="x", labelsize=8.5)
    if threshold > 0:
        axes.axvspan(1 / (1 + threshold), 1 + threshold, color=GRID, alpha=0.55, linewidth=0, zorder=0.2)
    axes.axvline(1, color=MUTED, linewidth=0.9, zorder=0.5)
    for i, case in enumerate(rows):
        _draw(axes, i, case)
    if rest:
        _draw_rest(axes, len(rows), rest)
    _column_heads(axes, confidence if any(case.low is not None for case in rows) else None)
    _legend(figure, rows, rest, threshold)
    return figure


def _draw(axes: Axes, row: int, case: GateCase) -> None:
    style = VERDICTS[case.verdict]
    left, right = axes.get_xlim()
    pairs = [ratio for ratio in case.ratios if left <= ratio <= right]
    axes.plot(pairs, [row] * len(pairs), linestyle="none", marker="|", markersize=6.5, color=OTHERS, markeredgewidth=1.1,
              zorder=1.5)
    if case.low is not None and case.high is not None:
        axes.plot([max(case.low, left), min(case.high, right)], [row, row], color=style.colour, linewidth=2.2, zorder=2.5,
                  solid_capstyle="butt")
        _cut_ends(axes, row, case, style.colour)
    axes.plot([case.ratio], [row], zorder=3, **marked(**_look(case.verdict)))
    number = {"transform": axes.get_yaxis_transform(), "size": 8, "va": "center", "clip_on": False}
    interval = interval_text(case.low, case.high)
    axes.text(_behind(CHANGE), row, change_text(case.ratio, case.channel), ha="right", color=INK, **number)
    axes.text(_behind(INTERVAL), row, "" if interval == NONE else interval, ha="right", color=MUTED, **number)
    axes.text(_behind(VERDICT), row, case.verdict, color=WORDS[case.verdict],
              weight="bold" if case.verdict == "slower" else "normal", **number)


def _behind(inches: float) -> float:
    """Position at the right of the axes, in widths of the axes."""
    return 1 + inches / (WIDTH - NAMES - NUMBERS)


def _cut_ends(axes: Axes, row: int, case: GateCase, colour: str) -> None:
    """Arrow heads where an interval continues outside the axes."""
    left, right = axes.get_xlim()
    for is_cut, place, marker in ((case.low < left, 0, "<"), (case.high > right, 1, ">")):
        if is_cut:
            axes.plot([place], [row], marker=marker, markersize=5, color=colour, transform=axes.get_yaxis_transform(),
                      clip_on=False, zorder=2.6)


def _draw_rest(axes: Axes, row: int, cases: Sequence[GateCase]) -> None:
    """A dot per case, moved up and down a little so that neighbouring dots can be seen."""
    for verdict, style in VERDICTS.items():
        ratios = [case.ratio for case in cases if case.verdict == verdict]
        places = row + 0.28 * np.sin(2.4 * np.arange(len(ratios)))
        axes.plot(ratios, places, linestyle="none", marker=".", markersize=3.5, color=style.colour, alpha=0.6,
                  markeredgewidth=0, zorder=2)
    axes.axhline(row - 0.5, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)


def _column_heads(axes: Axes, confidence: Optional[float]) -> None:
    """Headings above the numbers at the right."""
    place = {"transform": axes.get_yaxis_transform(), "size": 8, "color": MUTED, "va": "bottom", "clip_on": False}
    above = -0.62
    axes.text(_behind(CHANGE), above, "change", ha="right", **place)
    if confidence is not None:
        axes.text(_behind(INTERVAL), above, f"{limit_text(confidence)} interval", ha="right", **place)
    axes.text(_behind(VERDICT), above, "verdict", **place)


def _legend(figure: Figure, rows: Sequence[GateCase], rest: Sequence[GateCase], threshold: float) -> None:
    seen = {case.verdict for case in (*rows, *rest)}
    handles: list = [key(verdict, **_look(verdict)) for verdict in VERDICTS if verdict in seen]
    if any(case.ratios for case in rows):
        line = "one run of the head" if all(case.channel == "stored" for case in rows) else "one pair"
        handles.append(Line2D([], [], linestyle="none", marker="|", markersize=7, color=OTHERS, label=line))
    if threshold > 0:
        handles.append(Patch(color=GRID, alpha=0.55, label=f"less than {limit_text(threshold)}: does not matter"))
    legend_below(figure, handles, len(handles) or 1, handletextpad=0.4, columnspacing=1.8)


# ---- A panel per case: its value over record files, the levels between change points, and at the right the commits to blame

LEFT, RIGHT = 0.85, 3.2  # inches at the sides of a panel; at the right stand the changes
PANEL, HEAD, FOOT = 1.0, 0.36, 0.5  # inches: of axes, of the name above, of ticks below
MOST_CHANGES = 3  # at the right of a panel; the last ones
MOST_TICKS = 7


def history_figure(series: Sequence[GateSeries], heading: Heading) -> Figure:
    figure, top = new_figure(heading, 0.55 + (HEAD + PANEL + FOOT) * len(series), WIDTH)
    for axes, line in zip(axes_grid(figure, top, len(series), 1, (LEFT, RIGHT, 0.05), (0, HEAD, FOOT)), series):
        _draw_history(axes, line)
    return figure


def _draw_history(axes: Axes, series: GateSeries) -> None:
    values = [point.value for point in series.points]
    axes.plot(range(len(values)), values, color=VERDICTS["same"].colour, marker="o", markersize=3.2, linewidth=0.8,
              markeredgewidth=0, alpha=0.75, zorder=2)
    for start, end, level in _levels(series):
        axes.plot([start - 0.5, end - 0.5], [level, level], color=INK, linewidth=1.4, zorder=2.5)
    first = max(len(series.changes) - MOST_CHANGES, 0)
    for number, change in enumerate(series.changes, start=1):
        _mark(axes, str(number) if number > first else "", change)
    _list_changes(axes, series, first)
    axes.set_title(f"{without_middle(series.case, 92)} ({series.unit}, {series.better} is better)", size=9, pad=15)
    axes.set_xlim(-0.7, max(len(values) - 0.3, 0.7))
    low, high = min(values), max(values)
    room = 0.15 * (high - low) or 0.02 * abs(high) or 1
    axes.set_ylim(low - room, high + room)
    _ticks(axes, series)


def _levels(series: GateSeries) -> list[tuple[int, int, float]]:
    """(first point, point after the last, level) between changes; none where there are no changes."""
    ends = [*(change.at for change in series.changes), len(series.points)]
    starts = [0, *ends[:-1]]
    levels = [*(change.before for change in series.changes[:1]), *(change.after for change in series.changes)]
    return list(zip(starts, ends, levels))


def _mark(axes: Axes, number: str, change: GateChange) -> None:
    colour = VERDICTS["slower" if change.worse else "faster"].colour
    axes.axvline(change.at - 0.5, color=colour, linewidth=1.3, linestyle=(0, (3, 2)), zorder=1.5)
    axes.text(change.at - 0.5, 1.02, number, transform=axes.get_xaxis_transform(), ha="center", va="bottom", size=8,
              weight="bold", color=colour)


def _list_changes(axes: Axes, series: GateSeries, first: int) -> None:
    """Text at the right: each marked change with its interval and the commits to blame."""
    place = {"transform": axes.transAxes, "va": "top", "size": 8, "clip_on": False}
    if not series.changes:
        axes.text(1.015, 1.0, series.why or "no change", color=MUTED, **place)
    for line, change in enumerate(series.changes[first:]):
        y = 1.02 - 0.37 * line
        colour = ALARM if change.worse else INK
        interval = interval_text(change.low, change.high)
        text = f"{change_text(change.ratio, series.channel)} ({interval})" if change.low is not None else \
            change_text(change.ratio, series.channel)
        word = ("slower" if change.worse else "faster") + (", recent" if change.recent else "")
        axes.text(1.015, y, f"{first + line + 1}  {text} {word}", color=colour,
                  weight="bold" if change.recent and change.worse else "normal", **place)
        axes.text(1.034, y - 0.165, _short_range(change.blame), color=MUTED, **place)
    rest = "; ".join(part for part in (counted(first, "earlier change") if first else "", series.why if series.changes else "") if part)
    axes.text(1.015, -0.13, rest, color=MUTED, **place)


def _short_range(blame: str) -> str:
    """Twelve digits of each commit."""
    return "..".join(revision[:12] for revision in blame.split(".."))


def _ticks(axes: Axes, series: GateSeries) -> None:
    places = range(0, len(series.points), max(1, -(-len(series.points) // MOST_TICKS)))
    ticks_at(axes, places, [f"{series.points[i].revision[:7]}\n{series.points[i].time[:10]}" for i in places])
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 1e4 else short(value, 4))
    axes.tick_params(labelsize=7.5)
