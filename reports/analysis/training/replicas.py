"""Training runs by how data-parallel ranks agree: the loss at equal bytes, and what a slow replica costs."""
from statistics import mean
from typing import Sequence

from reports.records import Training
from reports.units import bytes_text, counted, short, time_text

SMOOTH = 10  # steps of which a loss is the mean
NONE_SLOW = "no replica is slow"
WITHIN = "allreduce"  # gradients are reduced within the step


def way(one: Training) -> str:
    """diloco:every=8; of gradients that are compressed, as int4"""
    if one.compression:
        return f"as {one.compression}"
    return one.sync.way if one.sync else WITHIN


def straggler_name(text: str) -> str:
    """replica=3,factor=3,step_ms=50: replica 3 takes 3 times as long"""
    fields = dict(item.split("=") for item in text.split(","))
    if fields.get("factor", "1") == "1":
        return NONE_SLOW
    who = "another replica in each step" if fields.get("replica", "any") == "any" else f"replica {fields['replica']}"
    return f"{who} takes {fields['factor']} times as long"


def way_name(one: Training) -> str:
    """diloco:every=8; replica 3 takes 3 times as long"""
    return way(one) + (f"; {straggler_name(one.sync.straggler)}" if one.sync and one.sync.straggler else "")


def compared(runs: Sequence[Training]) -> tuple[Training, ...]:
    """Runs whose replicas sent anything, where one of them agrees in another way than by plain gradients within the step."""
    told = tuple(one for one in runs if one.sent_bytes)
    return told if any(one.sync or one.compression for one in told) else ()


def slowed(runs: Sequence[Training]) -> tuple[Training, ...]:
    """By which replica is slow, none first."""
    told = (one for one in runs if one.sync and one.sync.straggler)
    return tuple(sorted(told, key=lambda one: (straggler_name(one.sync.straggler) != NONE_SLOW, one.sync.straggler)))


def by_bytes(runs: Sequence[Training]) -> tuple[Training, ...]:
    """Those whose losses are compared: none has a replica that is slowed."""
    return compared(tuple(one for one in runs if not (one.sync and one.sync.straggler)))


def budget(runs: Sequence[Training]) -> int:
    """Bytes that every one of them has sent."""
    return min(one.sent_bytes for one in runs)


def loss_at(one: Training, most_bytes: float = float("inf")) -> float | None:
    """Mean of the last steps until which no more was sent."""
    known = [step.loss for step in one.steps if step.loss is not None and (step.sent_bytes or 0) <= most_bytes]
    return mean(known[-SMOOTH:]) if known else None


def loss_by_bytes(one: Training) -> list[tuple[int, float]]:
    """A point for each number of bytes sent so far: the mean loss of the steps since."""
    losses: dict[int, list[float]] = {}
    for step in one.steps:
        if step.loss is not None and step.sent_bytes:
            losses.setdefault(step.sent_bytes, []).append(step.loss)
    return [(sent, mean(some)) for sent, some in losses.items()]


def behind_ms(one: Training) -> float:
    """Part of a step that comes behind the replicas' own: mean, without the first."""
    return mean(step.sync_ms or 0.0 for step in one.steps[1:] or one.steps)


def equal_bytes_text(runs: Sequence[Training]) -> str:
    """At equal bytes, 3.5 MiB from the rank that sends most, the loss is 2.6 nats per token with diloco:every=32, ..."""
    told = by_bytes(runs)
    if len(told) < 2:
        return ""
    most = budget(told)
    losses = sorted((loss, way(one)) for one in told if (loss := loss_at(one, most)) is not None)
    if not losses:
        return ""
    at_end = sorted((loss_at(one), way(one)) for one in told)
    return (f"At equal bytes, {bytes_text(most, 3)} from the rank that sends most, the loss is "
            f"{_best_and_worst(losses, ' nats per token')}; at equal tokens {_best_and_worst(at_end)}.")


def _best_and_worst(losses: Sequence[tuple[float, str]], unit: str = "") -> str:
    """2.6 nats per token with int4, 5.1 with allreduce"""
    (best, best_way), (worst, worst_way) = losses[0], losses[-1]
    return f"{short(best)}{unit} with {best_way.removeprefix('as ')}, {short(worst)} with {worst_way.removeprefix('as ')}"


def straggler_text(runs: Sequence[Training]) -> str:
    """A step takes, where replica 3 takes 3 times as long, from 62.6 ms (async:staleness=100) to 158 ms (server:..."""
    told = slowed(runs)
    sentences = []
    for straggler in dict.fromkeys(one.sync.straggler for one in told):
        steps = sorted((one.mean_ms, way(one)) for one in told if one.sync.straggler == straggler)
        sentences.append(f"where {straggler_name(straggler)}, from {time_text(1e3 * steps[0][0])} ({steps[0][1]}) to "
                         f"{time_text(1e3 * steps[-1][0])} ({steps[-1][1]})")
    return f"A step takes, {'; '.join(sentences)}." if sentences else ""


def missed_text(one: Training) -> str:
    if one.sync is None or one.sync.missed_mean is None:
        return ""
    return f"{short(one.sync.missed_mean)}, {counted(one.sync.missed_most, 'update')} at most"
