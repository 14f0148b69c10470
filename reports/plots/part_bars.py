"""The parts of a step and the kinds of memory as bars: their colours, training runs, stages of ZeRO."""
from typing import Iterable

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.analysis.steps.layouts import KINDS
from reports.analysis.training.runs import TrainingResult, predicted_runs, run_name
from reports.analysis.training.sharding import STATES, ShardingResult, stage_text, states_bytes, told_text
from reports.analysis.training.words import NAMES
from reports.plots.frame import Heading
from reports.plots.stacked_bars import BarRow, OTHER, Scale, stacked_figure
from reports.plots.style import COMPUTE, INK, PAPER, STRIPS
from reports.units import bytes_text, time_text

_LIKE = {"forward": "F", "backward": "B", "recompute": "RECOMPUTE", "optimizer": "STEP", "exposed_tensor": "tensor",
         "exposed_pipeline": "receive", "exposed_gather": "gather", "exposed_reduce": "reduce", "exposed_copy": "copy"}
_PARTS = {**{part: {**COMPUTE, **STRIPS}[name][0] for part, name in _LIKE.items()}, "bubble": PAPER,
          "around": "#cfd4da"}
_KINDS = dict(zip(KINDS, ("#0072b2", "#56b4e9", "#e69f00", "#009e73", "#a0a0a0")))


def part_colours(of: Iterable[dict[str, float]]) -> tuple[tuple[str, str, str], ...]:
    """Colours of the parts that any has."""
    return _present(of, [*NAMES], lambda part: (part, NAMES.get(part, part), _PARTS.get(part, OTHER)))


def kind_colours(of: Iterable[dict[str, float]]) -> tuple[tuple[str, str, str], ...]:
    return _present(of, [*KINDS], lambda kind: (kind, kind, _KINDS.get(kind, OTHER)))


def _present(of: Iterable[dict[str, float]], known: list[str], entry) -> tuple[tuple[str, str, str], ...]:
    of = list(of)
    names = dict.fromkeys([*known, *(name for one in of for name in one if name != "total")])
    return tuple(entry(name) for name in names if any(one.get(name) for one in of))


MIB, GIB = 1 << 20, 1 << 30


def parts_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = [BarRow(run_name(one), one.parts_ms, time_text(1e3 * sum(one.parts_ms.values()))) for one in result.runs]
    return stacked_figure(rows, Scale("time of a step, mean of the ranks (ms)",
                                      colours=part_colours(row.parts for row in rows)), heading)


def predicted_figure(result: TrainingResult, heading: Heading) -> Figure:
    """Two bars a run: what was predicted before it ran, and what its step took."""
    rows = []
    for one in predicted_runs(result.runs):
        told = one.predicted
        rows.append(BarRow(f"{one.layout.text}, {one.dtype}: predicted", told.parts_ms,
                           f"{time_text(1e3 * told.step_ms)}, {100 * told.error:+.0f} %", gap=True))
        rows.append(BarRow("measured", told.measured_parts_ms, time_text(1e3 * told.measured_step_ms)))
    return stacked_figure(rows, Scale("time of a step, mean of the ranks (ms)",
                                      colours=part_colours(row.parts for row in rows)), heading)


def memory_figure(result: TrainingResult, heading: Heading) -> Figure:
    rows = [BarRow(run_name(one), one.memory_bytes, bytes_text(one.memory_bytes["total"], 3)) for one in result.runs]
    large = max(one.memory_bytes["total"] for one in result.runs) >= 4 * GIB
    return stacked_figure(rows, Scale(f"memory of the fullest rank at its peak ({'GiB' if large else 'MiB'})",
                                      1 / (GIB if large else MIB),
                                      kind_colours(row.parts for row in rows)), heading)


def sharding_figure(result: ShardingResult, heading: Heading) -> Figure:
    rows = [BarRow(stage_text(one), {kind: one.held_bytes.get(kind, 0.0) for kind in STATES}, told_text(one))
            for one in result.lines]
    scale = Scale("memory of a rank between steps (MiB)", 1 / MIB, kind_colours(row.parts for row in rows))
    figure = stacked_figure(rows, scale, heading)
    axes = figure.axes[0]
    axes.plot([states_bytes(one.formula_bytes) / MIB for one in result.lines], axes.get_yticks(), linestyle="",
              marker="|", markersize=15, markeredgewidth=2, color=INK, zorder=4, clip_on=False)
    handle = Line2D([], [], linestyle="", marker="|", markersize=9, markeredgewidth=2, color=INK)
    axes.legend([handle], ["the formulas' sum"], loc="lower right", frameon=False, fontsize=8.5, labelcolor=INK)
    return figure
