"""How data-parallel ranks agree: the loss over bytes sent, and a step's time with a slow replica."""
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from reports.analysis.training.replicas import behind_ms, by_bytes, loss_by_bytes, slowed, way, way_name
from reports.analysis.training.runs import TrainingResult
from reports.plots.frame import Heading
from reports.plots.stacked_bars import BarRow, Scale, stacked_figure
from reports.plots.style import COMPUTE, numbered
from reports.plots.training_lines import legend, run_axes, smooth
from reports.units import bytes_text, time_text

OWN, AGREE = "own", "agree"
FEW = 30  # points of a line that are marked
LINES = 20


def bytes_figure(result: TrainingResult, heading: Heading) -> Figure:
    runs = by_bytes(result.runs)[:LINES]
    figure, axes = run_axes(runs, heading, 0, LINES)
    for number, one in enumerate(runs):
        style = numbered(number)
        sent, losses = zip(*loss_by_bytes(one))
        axes.plot(sent, smooth(losses), color=style.colour, linewidth=1.5, linestyle=style.dash, label=way(one),
                  marker=style.marker if len(sent) <= FEW else None, markersize=4, zorder=3)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(int(value), 2)))
    axes.set_xlabel("sent so far by the rank that sends most (bytes)")
    axes.set_ylabel("loss (nats per token)")
    legend(figure, from_zero=False)
    return figure


def straggler_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = []
    runs = slowed(result.runs)
    for one, before in zip(runs, (None, *runs)):
        whole, agreeing = one.mean_ms, behind_ms(one)
        rows.append(BarRow(way_name(one), {OWN: max(whole - agreeing, 0.0), AGREE: agreeing}, time_text(1e3 * whole),
                           gap=before is not None and before.sync.straggler != one.sync.straggler))
    colours = ((OWN, "replicas' own steps", COMPUTE["F"][0]), (AGREE, "behind them: waits and messages", "#d55e00"))
    return stacked_figure(rows, Scale("mean time of a step, mean of the replicas (ms)", colours=colours), heading)
