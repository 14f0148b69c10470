"""Two builds' exact values: facts at zero tolerance, counted instructions within a threshold."""
from ..exact_values import judged
from ..inputs.observation import Quantity
from ..model import Channel, Result, Verdict
from .facts import Facts, Value, by_case


def compare_facts(base: Facts, head: Facts, count_threshold: float) -> tuple[list[Result], list[str]]:
    """Results and notes. Where the sides were counted with other tools, counts are not compared."""
    notes = []
    channels = {Channel.EXACT}
    different = {name for name in {**base.counted_with, **head.counted_with} if base.counted_with.get(name) != head.counted_with.get(name)}
    if not different:
        channels.add(Channel.INSTRUCTIONS)
    elif any(value.channel is Channel.INSTRUCTIONS for value in (*base.values, *head.values)):
        told = ", ".join(f"{name} {base.counted_with.get(name, 'none')} and {head.counted_with.get(name, 'none')}" for name in sorted(different))
        notes.append(f"instructions are not compared, as they were counted with different tools: {told}")
    before, after = (by_case(value for value in side.values if value.channel in channels) for side in (base, head))
    return [_compare(case, before.get(case), after.get(case), count_threshold) for case in {**before, **after}], notes


def _compare(case: str, base: Value | None, head: Value | None, count_threshold: float) -> Result:
    either = base or head
    if base is None:
        return Result(case, either.channel, Verdict.NEW, either.unit, head=head.value)
    if head is None:
        return Result(case, either.channel, Verdict.GONE, either.unit, base=base.value)
    threshold = count_threshold if either.channel is Channel.INSTRUCTIONS else 0.0
    return judged(Quantity(case, either.channel, either.unit, either.better), base.value, head.value, threshold)
