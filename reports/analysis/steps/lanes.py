"""Boxes that are drawn of a rank's lanes: computations, communication beside them, and where the one waits for the other."""
from dataclasses import dataclass
from typing import Callable, Iterable, NamedTuple, Optional, Sequence

from reports.records import Task, Timeline

COMPUTE = "compute"
STRIPS = ("send", "receive", "tensor", "gather", "reduce", "replicas", "copy", "load", "host")
_SENDER = {"RECV_F": ("SEND_F", -1), "RECV_B": ("SEND_B", 1)}  # which send, and of which stage beside the receiver's

PIECES = 10  # so many times as long are pieces of one pass that are put together
_FOR_ANOTHER = ("HOLD", "ASKED", "YIELD")  # BPipe: a rank answers its partner beside its own list, which waits for none
_NEEDS = {"F": ("RECV_F",), "B": ("RECV_B",), "I": ("RECV_B",)}


class Box(NamedTuple):
    op: str
    chunk: int  # which of the rank's stages: 0, 1, ...
    start: float
    end: float
    label: str  # the microbatch, or the layer; empty if several boxes were put together


@dataclass(frozen=True)
class RankLanes:
    compute: tuple[Box, ...]
    strips: dict[str, tuple[Box, ...]]  # by lane
    exposed: tuple[tuple[float, float], ...]  # the compute lane waits for communication in flight


def lanes_of(timeline: Timeline, finest: float = 0.0) -> list[RankLanes]:
    """`finest`, in ms: boxes of one kind that are shorter, and nearer to each other, are put together."""
    starts, layers = _send_starts(timeline), labels_are_layers(timeline)
    return [_rank_lanes(tasks, starts, finest, layers) for tasks in timeline]


def labels_are_layers(timeline: Timeline) -> bool:
    """In a step of one microbatch its number says nothing."""
    return max((task.microbatch for tasks in timeline for task in tasks), default=0) < 1


def _rank_lanes(tasks: Sequence[Task], starts: dict, finest: float, layers: bool) -> RankLanes:
    stages = sorted({task.stage for task in tasks if task.stage >= 0})
    chunk_of = {stage: i for i, stage in enumerate(stages)}
    flights = [_in_flight(task, starts) for task in tasks]

    def boxes(lane: str) -> list[Box]:
        found = (Box(t.op, chunk_of.get(t.stage, 0), t.start, t.end, _label(t.part if layers else t.microbatch))
                 for t in flights if t.lane == lane and t.end > t.start)
        return sorted(found, key=lambda box: box.start)
    # A pass through a stage in pieces is one box, the collectives between them in it, unless each piece can be seen.
    passes = _merged(boxes(COMPUTE), PIECES * finest, lambda box: (box.op, box.chunk, box.label))
    return RankLanes(tuple(_merged(passes, finest, lambda box: box[:2])),
                     {lane: tuple(found) for lane in STRIPS if (found := boxes(lane))}, tuple(exposed_of(flights)))


def _label(number: int) -> str:
    return str(number) if number >= 0 else ""


def _send_starts(timeline: Timeline) -> dict[tuple[str, int, int], float]:
    return {(t.op, t.stage, t.microbatch): t.start for tasks in timeline for t in tasks if t.lane == "send"}


def _in_flight(task: Task, starts: dict) -> Task:
    """A receive is drawn from the moment at which its message left: before, nothing is in flight."""
    if task.op not in _SENDER:
        return task
    op, offset = _SENDER[task.op]
    left = starts.get((op, task.stage + offset, task.microbatch), task.start)
    return task._replace(start=min(max(left, task.start), task.end))


def _merged(boxes: Iterable[Box], near: float, of: Callable[[Box], tuple]) -> Iterable[Box]:
    """Neighbours that are alike in `of`, shorter than `near` and nearer to each other, as one."""
    last = None
    for box in boxes:
        if last and of(box) == of(last) and box.start - last.end < near and box.end - box.start < near:
            last = last._replace(end=max(last.end, box.end), label=last.label if box.label == last.label else "")
            continue
        if last:
            yield last
        last = box
    if last:
        yield last


def exposed_of(tasks: Sequence[Task]) -> list[tuple[float, float]]:
    """Times at which the compute lane stands still while bytes move that it waits for (schedules/step/breakdown.h).

    A computation waits for the messages of its stage and microbatch. Records do not say which collectives it waits for:
    all that run meanwhile are taken. After its last computation a rank waits for all that it still sends and reduces.
    """
    computed = sorted((t for t in tasks if t.lane == COMPUTE), key=lambda t: (t.start, t.end))
    moving = [t for t in tasks if t.lane != COMPUTE and t.end > t.start]
    collectives = [t for t in moving if t.lane not in ("send", "receive") and t.op not in _FOR_ANOTHER]
    messages = {(t.op, t.stage, t.microbatch): t for t in moving if t.lane == "receive"}
    exposed, free = [], 0.0
    for task, following in zip(computed, [*computed[1:], None]):
        if task.start > free:
            waited = _messages_for(task, following, messages)
            exposed += _during((free, task.start), [*waited, *collectives])
        free = max(free, task.end)
    return exposed + _during((free, float("inf")), [t for t in moving if t.lane != "receive"])


def _messages_for(task: Task, following: Optional[Task], messages: dict) -> list[Task]:
    """Where two run as one (DualPipe) the first begins when the messages of both are there."""
    own, other = (_received_for(one, messages) for one in (task, following))
    return own + [message for message in other if abs(message.end - task.start) < 1e-6]


def _received_for(task: Optional[Task], messages: dict) -> list[Task]:
    keys = [(op, task.stage, task.microbatch) for op in _NEEDS.get(task.op, ())] if task else []
    return [messages[key] for key in keys if key in messages]


def _during(gap: tuple[float, float], tasks: Iterable[Task]) -> list[tuple[float, float]]:
    inside = ((max(t.start, gap[0]), min(t.end, gap[1])) for t in tasks)
    return joined_spans((start, end) for start, end in inside if end > start)


def joined_spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Sorted, those that touch as one."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
