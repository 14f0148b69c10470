"""Measured time over the plan's alpha-beta prediction, against size."""
from matplotlib.figure import Figure

from reports.analysis.predict import Predictions
from reports.plots.frame import End, Heading, bytes_axis, draw_line, label_ends, line_axes, value_axis
from reports.plots.style import GRID, MUTED, Style
from reports.units import short

BAND = 1.25  # shaded: within 25 %


def predicted(predictions: Predictions, shown: dict[str, Style], heading: Heading) -> Figure:
    known = list(predictions.by_label.values())
    figure, axes = line_axes(heading, [p.label for p in known if p.label in shown])
    ratios = [ratio for p in known for ratio in p.ratios]
    bytes_axis(axes, sorted({size for p in known for size in p.model.sizes}))
    value_axis(axes, min(ratios + [1 / BAND]), max(ratios + [BAND]), lambda value: f"{short(value)}×")
    axes.axhspan(1 / BAND, BAND, color=GRID, alpha=0.6, zorder=0.5, linewidth=0)
    axes.axhline(1, color=MUTED, linewidth=1.2, zorder=1)
    axes.set_xlabel("message size")
    axes.set_ylabel("measured / predicted time")
    for p in known:
        draw_line(axes, p.model.sizes, p.ratios, shown.get(p.label))
    ends = [End(p.label, p.model.sizes[-1], p.ratios[-1], shown[p.label]) for p in known if p.label in shown]
    label_ends(axes, ends, len(known) - len(ends))
    return figure
