"""The parts of a step and the kinds of memory with their names and colours, as stacks have them."""
from typing import Iterable

from reports.analysis.steps.layouts import KINDS
from reports.analysis.training.words import NAMES
from reports.plots.gantt_style import COMPUTE, STRIPS
from reports.plots.stacked_bars import OTHER
from reports.plots.style import PAPER

_LIKE = {"forward": "F", "backward": "B", "recompute": "RECOMPUTE", "optimizer": "STEP", "exposed_tensor": "tensor",
         "exposed_pipeline": "receive", "exposed_gather": "gather", "exposed_reduce": "reduce", "exposed_copy": "copy"}
_PARTS = {**{part: {**COMPUTE, **STRIPS}[name][0] for part, name in _LIKE.items()}, "bubble": PAPER,
          "around": "#cfd4da"}
_KINDS = dict(zip(KINDS, ("#0072b2", "#56b4e9", "#e69f00", "#009e73", "#a0a0a0")))


def part_colours(of: Iterable[dict[str, float]]) -> tuple[tuple[str, str, str], ...]:
    """Of the parts that any has."""
    return _present(of, [*NAMES], lambda part: (part, NAMES.get(part, part), _PARTS.get(part, OTHER)))


def kind_colours(of: Iterable[dict[str, float]]) -> tuple[tuple[str, str, str], ...]:
    return _present(of, [*KINDS], lambda kind: (kind, kind, _KINDS.get(kind, OTHER)))


def _present(of: Iterable[dict[str, float]], known: list[str], entry) -> tuple[tuple[str, str, str], ...]:
    of = list(of)
    names = dict.fromkeys([*known, *(name for one in of for name in one if name != "total")])
    return tuple(entry(name) for name in names if any(one.get(name) for one in of))
