"""What is counted, computed or simulated must not differ at all: two sides' facts at zero tolerance."""
from collections.abc import Mapping, Sequence

from .inputs.observation import Observation, Quantity
from .model import Channel, Result, Verdict


def compare_exactly(base: Mapping[Quantity, Sequence[Observation]], head: Mapping[Quantity, Sequence[Observation]]) -> list[Result]:
    """A result for each fact that both sides have."""
    return [_compared(quantity, _values(quantity, runs), _values(quantity, head[quantity])) for quantity, runs in base.items()
            if quantity in head and quantity.channel is Channel.EXACT]


def _values(quantity: Quantity, runs: Sequence[Observation]) -> list[float]:
    """All that differ; of faults the worst."""
    found = sorted({value for run in runs for value in run.values})
    return found[-1:] if quantity.is_fault else found


def _compared(quantity: Quantity, base: list[float], head: list[float]) -> Result:
    if len(base) > 1 or len(head) > 1:
        side, values = ("base", base) if len(base) > 1 else ("head", head)
        return Result(quantity.case, Channel.EXACT, Verdict.UNDECIDED, quantity.unit, base[-1], head[-1],
                      why=f"not exact: runs of the {side} have {len(values)} values, {values[0]:g} to {values[-1]:g}")
    return judged(quantity, base[0], head[0])


def judged(quantity: Quantity, before: float, after: float, threshold: float = 0.0) -> Result:
    """The result of two values that know no noise."""
    worse, better = (after, before) if quantity.better == "lower" else (before, after)
    verdict = Verdict.SAME
    if worse > better * (1 + threshold):
        verdict = Verdict.SLOWER
    elif better > worse * (1 + threshold):
        verdict = Verdict.FASTER
    return Result(quantity.case, quantity.channel, verdict, quantity.unit, before, after, quantity.worse(before, after))
