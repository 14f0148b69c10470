"""What is drawn of a rank's lanes: computations, communication beside them, and where the one waits for the other."""
from dataclasses import dataclass
from typing import Iterable, NamedTuple, Sequence

from reports.step_records import Task, Timeline

COMPUTE = "compute"
STRIPS = ("send", "receive", "tensor", "gather", "reduce", "copy")
_SENDER = {"RECV_F": ("SEND_F", -1), "RECV_B": ("SEND_B", 1)}  # which send, and of which stage beside the receiver's


class Box(NamedTuple):
    op: str
    chunk: int  # which of the rank's stages: 0, 1, ...
    start: float
    end: float
    label: str  # the microbatch; empty if several boxes were put together


@dataclass(frozen=True)
class RankLanes:
    compute: tuple[Box, ...]
    strips: dict[str, tuple[Box, ...]]  # by lane
    exposed: tuple[tuple[float, float], ...]  # the compute lane waits for communication that is under way


def lanes_of(timeline: Timeline, finest: float = 0.0) -> list[RankLanes]:
    """`finest`: boxes of one kind that are shorter, and nearer to each other, are put together."""
    starts = _send_starts(timeline)
    return [_rank_lanes(tasks, starts, finest) for tasks in timeline]


def _rank_lanes(tasks: Sequence[Task], starts: dict, finest: float) -> RankLanes:
    stages = sorted({task.stage for task in tasks if task.stage >= 0})
    chunk_of = {stage: i for i, stage in enumerate(stages)}
    flights = [_in_flight(task, starts) for task in tasks]

    def boxes(lane: str) -> tuple[Box, ...]:
        found = (Box(t.op, chunk_of.get(t.stage, 0), t.start, t.end, str(t.microbatch) if t.microbatch >= 0 else "")
                 for t in flights if t.lane == lane and t.end > t.start)
        return tuple(_merged(sorted(found, key=lambda box: box.start), finest))
    return RankLanes(boxes(COMPUTE), {lane: found for lane in STRIPS if (found := boxes(lane))},
                     tuple(exposed_of(flights)))


def _send_starts(timeline: Timeline) -> dict[tuple[str, int, int], float]:
    return {(t.op, t.stage, t.microbatch): t.start for tasks in timeline for t in tasks if t.lane == "send"}


def _in_flight(task: Task, starts: dict) -> Task:
    """A receive is drawn from the moment at which its message left: before, nothing is under way."""
    if task.op not in _SENDER:
        return task
    op, offset = _SENDER[task.op]
    left = starts.get((op, task.stage + offset, task.microbatch), task.start)
    return task._replace(start=min(max(left, task.start), task.end))


def _merged(boxes: Iterable[Box], finest: float) -> Iterable[Box]:
    last = None
    for box in boxes:
        joins = (last and box[:2] == last[:2] and box.start - last.end < finest and box.end - box.start < finest)
        if joins:
            last = last._replace(end=box.end, label="")
            continue
        if last:
            yield last
        last = box
    if last:
        yield last


def exposed_of(tasks: Sequence[Task]) -> list[tuple[float, float]]:
    """Times at which the compute lane does nothing while something comes in or a collective runs."""
    busy = joined_spans((t.start, t.end) for t in tasks if t.lane == COMPUTE)
    moving = joined_spans((t.start, t.end) for t in tasks if t.lane not in (COMPUTE, "send") and t.end > t.start)
    borders = [0.0, *(edge for span in busy for edge in span), max((end for _, end in moving), default=0.0)]
    idle = [gap for gap in zip(borders[::2], borders[1::2]) if gap[1] > gap[0]]
    return [(max(a, c), min(b, d)) for a, b in idle for c, d in moving if min(b, d) > max(a, c)]


def joined_spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Sorted, those that touch as one."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
