"""A panel per case: its value over record files, the levels between change points, and at the right the commits to blame."""
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator

from reports.analysis.gate.words import change_text, interval_text
from reports.records import GateChange, GateSeries
from reports.plots.frame import Heading, new_figure, tidy
from reports.plots.gate_figures import VERDICTS, without_middle
from reports.plots.style import ALARM, INK, MUTED, PAPER
from reports.units import counted, short

WIDTH = 11.4  # inches
LEFT, RIGHT = 0.85, 3.2  # inches at the sides of a panel; at the right stand the changes
PANEL, HEAD, FOOT = 1.0, 0.36, 0.5  # inches: of axes, of the name above, of ticks below
MOST = 12  # panels
MOST_CHANGES = 3  # beside a panel; the last ones
MOST_TICKS = 7


def shown_series(series: Sequence[GateSeries]) -> list[GateSeries]:
    """At most MOST series: those with changes first (recent ones before others, slowdowns before speedups, large changes before small
    ones), then times without a change. An exact value that never changed is not plotted."""
    def key(one: GateSeries) -> tuple[bool, bool, bool, float]:
        if not one.changes:
            return True, True, True, 0.0
        last = one.changes[-1]
        return False, not last.recent, not last.worse, -abs((last.ratio or 1) - 1)
    return sorted((one for one in series if one.changes or one.points and one.channel == "stored"), key=key)[:MOST]


def history_figure(series: Sequence[GateSeries], heading: Heading) -> Figure:
    """Draws `series`, which `shown_series` has selected."""
    figure, top = new_figure(heading, 0.55 + (HEAD + PANEL + FOOT) * len(series), WIDTH)
    height = figure.get_figheight()
    for i, one in enumerate(series):
        bottom = top - ((HEAD + PANEL + FOOT) * i + HEAD + PANEL) / height
        axes = figure.add_axes([LEFT / WIDTH, bottom, 1 - (LEFT + RIGHT) / WIDTH, PANEL / height])
        _draw(axes, one)
    return figure


def _draw(axes: Axes, one: GateSeries) -> None:
    tidy(axes)
    values = [point.value for point in one.points]
    axes.plot(range(len(values)), values, color=VERDICTS["same"].colour, marker="o", markersize=3.2, linewidth=0.8,
              markeredgewidth=0, alpha=0.75, zorder=2)
    for start, end, level in _levels(one):
        axes.plot([start - 0.5, end - 0.5], [level, level], color=INK, linewidth=1.4, zorder=2.5)
    first = max(len(one.changes) - MOST_CHANGES, 0)
    for number, change in enumerate(one.changes, start=1):
        _mark(axes, str(number) if number > first else "", change)
    _tell(axes, one, first)
    axes.set_title(f"{without_middle(one.case, 92)} ({one.unit}, {one.better} is better)", loc="left", size=9, color=INK, pad=15)
    axes.set_xlim(-0.7, max(len(values) - 0.3, 0.7))
    low, high = min(values), max(values)
    room = 0.15 * (high - low) or 0.02 * abs(high) or 1
    axes.set_ylim(low - room, high + room)
    _ticks(axes, one)


def _levels(one: GateSeries) -> list[tuple[int, int, float]]:
    """(first point, point after the last, level) between changes; none where there are no changes."""
    ends = [*(change.at for change in one.changes), len(one.points)]
    starts = [0, *ends[:-1]]
    levels = [*(change.before for change in one.changes[:1]), *(change.after for change in one.changes)]
    return list(zip(starts, ends, levels))


def _mark(axes: Axes, number: str, change: GateChange) -> None:
    colour = VERDICTS["slower" if change.worse else "faster"].colour
    axes.axvline(change.at - 0.5, color=colour, linewidth=1.3, linestyle=(0, (3, 2)), zorder=1.5)
    axes.text(change.at - 0.5, 1.02, number, transform=axes.get_xaxis_transform(), ha="center", va="bottom", size=8,
              weight="bold", color=colour)


def _tell(axes: Axes, one: GateSeries, first: int) -> None:
    """Text at the right: each marked change with its interval and the commits to blame."""
    place = {"transform": axes.transAxes, "va": "top", "size": 8, "clip_on": False}
    if not one.changes:
        axes.text(1.015, 1.0, one.why or "no change", color=MUTED, **place)
    for line, change in enumerate(one.changes[first:]):
        y = 1.02 - 0.37 * line
        colour = ALARM if change.worse else INK
        interval = interval_text(change.low, change.high)
        told = f"{change_text(change.ratio, one.channel)} ({interval})" if change.low is not None else \
            change_text(change.ratio, one.channel)
        word = ("slower" if change.worse else "faster") + (", recent" if change.recent else "")
        axes.text(1.015, y, f"{first + line + 1}  {told} {word}", color=colour,
                  weight="bold" if change.recent and change.worse else "normal", **place)
        axes.text(1.034, y - 0.165, _short_range(change.blame), color=MUTED, **place)
    rest = "; ".join(part for part in (counted(first, "earlier change") if first else "", one.why if one.changes else "") if part)
    axes.text(1.015, -0.13, rest, color=MUTED, **place)


def _short_range(blame: str) -> str:
    """Twelve digits of each commit."""
    return "..".join(revision[:12] for revision in blame.split(".."))


def _ticks(axes: Axes, one: GateSeries) -> None:
    number = len(one.points)
    step = max(1, -(-number // MOST_TICKS))
    places = list(range(0, number, step))
    names = [f"{one.points[i].revision[:7]}\n{one.points[i].time[:10]}" for i in places]
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FixedFormatter(names))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 1e4 else short(value, 4)))
    axes.tick_params(labelsize=7.5)
    axes.set_facecolor(PAPER)
