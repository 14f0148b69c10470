"""Training runs as bars: where the time of a step goes, and what fills the memory."""
from matplotlib.figure import Figure

from reports.analysis.training.runs import TrainingResult, memory_text, run_name
from reports.plots.frame import Heading
from reports.plots.part_colours import kind_colours, part_colours
from reports.plots.stacked_bars import BarRow, Scale, stacked_figure
from reports.units import bytes_text, time_text

MIB, GIB = 1 << 20, 1 << 30


def parts_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = [BarRow(run_name(one), one.parts_ms, time_text(1e3 * sum(one.parts_ms.values()))) for one in result.runs]
    return stacked_figure(rows, Scale("time of a step, mean of the ranks (ms)",
                                      colours=part_colours(row.parts for row in rows)), heading)


def memory_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = [BarRow(run_name(one), one.memory_bytes, bytes_text(one.memory_bytes["total"], 3)) for one in result.runs]
    large = max(one.memory_bytes["total"] for one in result.runs) >= 4 * GIB
    return stacked_figure(rows, Scale(f"memory of the fullest rank at its peak ({'GiB' if large else 'MiB'})",
                                      1 / (GIB if large else MIB),
                                      kind_colours(row.parts for row in rows)), heading)


def memory_title(result: TrainingResult) -> str:
    least = min(result.runs, key=lambda one: one.memory_bytes["total"])
    whole = bytes_text(least.memory_bytes["total"], 3)
    return f"{run_name(least)} takes {whole} on its fullest rank: {memory_text(least)}"
