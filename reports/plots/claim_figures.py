"""A piece of evidence as a figure: its value along the axis, a line for each curve, the bound, and the side on which the claim holds."""
from typing import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.claims.verdict import Answer, axis_text, value_text
from reports.plots.frame import bytes_axis, Curve, curves_figure, Heading, marked, ticks_at, value_axis
from reports.plots.style import MUTED

HOLDS_COLOUR = "#009e73"


def claim_figure(answer: Answer, heading: Heading) -> Figure:
    evidence, found = answer.evidence, answer.found.curves
    curves = [Curve(f"{group} {evidence.by_name}" if evidence.by else "", [point.x for point in points],
                    [point.value for point in points]) for group, points in found.items()]

    def scale(axes: Axes) -> None:
        bounds = [evidence.test.bound, *([evidence.test.upper] if evidence.test.kind == "between" else [])]
        _scale_values(axes, [*bounds, *(value for curve in curves for value in curve.y)], answer)
        _scale_axis(axes, sorted({x for curve in curves for x in curve.x}), answer)
        _draw_bound(axes, answer)
    figure, axes, styles = curves_figure(heading, curves, scale, ends=bool(evidence.by))
    for points, look in zip(found.values(), styles.values()):
        failed = [(point.x, point.value) for point in points if point.holds is False]
        if failed:  # the claim does not hold there: hollow
            axes.plot(*zip(*failed), **marked(look, 5.2, hollow=True), zorder=4)
    return figure


def _scale_values(axes: Axes, values: Sequence[float], answer: Answer) -> None:
    low, high = min(values), max(values)
    if low > 0 and high / low > 4:
        value_axis(axes, low, high, lambda value: value_text(value, answer.evidence))
        return
    room = 0.12 * (high - low or abs(high) or 1.0)
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_formatter(lambda value, _: value_text(value, answer.evidence))


def _scale_axis(axes: Axes, xs: Sequence[float], answer: Answer) -> None:
    evidence = answer.evidence
    axes.set_xlabel(evidence.axis)
    if evidence.axis_unit == "bytes":
        bytes_axis(axes, [int(x) for x in xs])
        return
    if xs[0] > 0 and xs[-1] / xs[0] >= 8:
        axes.set_xscale("log", base=2)
        axes.set_xlim(xs[0] / 1.15, xs[-1] * 1.15)
    ticks_at(axes, xs, [axis_text(x, evidence) if x < 1e6 else f"{x / 1e9:.3g}e9" for x in xs])


def _draw_bound(axes: Axes, answer: Answer) -> None:
    """The bound as a line, and the side on which the claim holds as a tint."""
    test = answer.evidence.test
    low, high = axes.get_ylim()
    slack = test.tolerance * abs(test.bound)
    sides = {"at_most": (low, test.bound + slack), "at_least": (test.bound - slack, high), "near": (test.bound - slack, test.bound + slack),
             "between": (test.bound - slack, test.upper * (1 + test.tolerance))}
    axes.axhspan(*sides[test.kind], color=HOLDS_COLOUR, alpha=0.09, linewidth=0, zorder=0.5)
    for bound in (test.bound, test.upper) if test.kind == "between" else (test.bound,):
        axes.axhline(bound, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1.2)
    axes.set_ylim(low, high)
    below = test.kind == "at_most"
    axes.annotate("holds", xy=(0.985, test.bound), xycoords=("axes fraction", "data"), ha="right", va="top" if below else "bottom",
                  size=8.3, color=HOLDS_COLOUR, xytext=(0, -3 if below else 3), textcoords="offset points")
