"""Communication that overlaps with computation: in the chart of a rank's lanes, and as the hidden part of collectives."""

from dataclasses import dataclass
from typing import Callable, Iterable, NamedTuple, Optional, Sequence

from reports.analysis.estimate import alike, certain_factor, Estimate, exact, median_of, PRECISE, decided_share, undecided
from reports.analysis.groups import by, Group, latest, link_text, listed
from reports.analysis.steps.schedules import BASES, place_of
from reports.records import Link, Memory, Records, ScheduleLine, Simulation, Task, Timeline
from reports.units import bytes_text, counted, share_text, short, time_text


# ---- Boxes in the chart of a rank's lanes: computations, communication that overlaps with them, and waits between the two

COMPUTE = "compute"
STRIPS = ("send", "receive", "tensor", "gather", "reduce", "replicas", "copy", "load", "host")
# for each receive: the action that sends, and the sender's stage minus the receiver's
_SENDER = {"RECV_F": ("SEND_F", -1), "RECV_B": ("SEND_B", 1)}

PIECES = 10  # pieces of one pass are merged up to this multiple of `finest`
_FOR_ANOTHER = ("HOLD", "ASKED", "YIELD")  # BPipe: a rank answers its partner outside of its own list, which does not wait for the answer
_NEEDS = {"F": ("RECV_F",), "B": ("RECV_B",), "I": ("RECV_B",)}


class Box(NamedTuple):
    op: str
    chunk: int  # index among the rank's stages: 0, 1, ...
    start: float
    end: float
    label: str  # the microbatch, or the layer; empty if several boxes were merged


@dataclass(frozen=True)
class RankLanes:
    compute: tuple[Box, ...]
    strips: dict[str, tuple[Box, ...]]  # by lane
    exposed: tuple[tuple[float, float], ...]  # the compute lane waits for communication in flight


def lanes_of(timeline: Timeline, finest: float = 0.0) -> list[RankLanes]:
    """Boxes of each rank. Boxes of one kind that are shorter than `finest` ms, and closer than that, are merged."""
    starts, layers = _send_starts(timeline), labels_are_layers(timeline)
    return [_rank_lanes(tasks, starts, finest, layers) for tasks in timeline]


def labels_are_layers(timeline: Timeline) -> bool:
    """True for a step of one microbatch, whose number would have no meaning: boxes are labelled with layers."""
    return max((task.microbatch for tasks in timeline for task in tasks), default=0) < 1


def _rank_lanes(tasks: Sequence[Task], starts: dict, finest: float, layers: bool) -> RankLanes:
    stages = sorted({task.stage for task in tasks if task.stage >= 0})
    chunk_of = {stage: i for i, stage in enumerate(stages)}
    flights = [_in_flight(task, starts) for task in tasks]

    def boxes(lane: str) -> list[Box]:
        found = (Box(t.op, chunk_of.get(t.stage, 0), t.start, t.end, _label(t.part if layers else t.microbatch))
                 for t in flights if t.lane == lane and t.end > t.start)
        return sorted(found, key=lambda box: box.start)
    # A pass through a stage in pieces is one box, including the collectives between them, unless each piece is large enough to be seen.
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
    """Merges neighbours that are equal in `of`, shorter than `near` and nearer to each other."""
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
    """Times at which the compute lane is idle while bytes move that it waits for (schedules/step/breakdown.h).

    A computation waits for the messages of its stage and microbatch. Records do not contain which collectives it waits for:
    all that run meanwhile count. After its last computation a rank waits for all that it still sends and reduces.
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
    """Messages that an action waits for. If two run as one (DualPipe), the first begins when the messages of both have arrived."""
    own, other = (_received_for(line, messages) for line in (task, following))
    return own + [message for message in other if abs(message.end - task.start) < 1e-6]


def _received_for(task: Optional[Task], messages: dict) -> list[Task]:
    keys = [(op, task.stage, task.microbatch) for op in _NEEDS.get(task.op, ())] if task else []
    return [messages[key] for key in keys if key in messages]


def _during(gap: tuple[float, float], tasks: Iterable[Task]) -> list[tuple[float, float]]:
    inside = ((max(t.start, gap[0]), min(t.end, gap[1])) for t in tasks)
    return joined_spans((start, end) for start, end in inside if end > start)


def joined_spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals, sorted; those that touch are merged."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


# Charts: timelines with the words above them.

@dataclass(frozen=True)
class Chart:
    """A timeline and the words above it."""

    basis: str
    timeline: Timeline
    makespan_ms: float
    label: str  # follows the makespan: "bubble 12 % of that"
    memory: Optional[Memory]

    @property
    def ranks(self) -> int:
        return len(self.timeline)

    @property
    def end_ms(self) -> float:
        return max((task.end for rank in self.timeline for task in rank), default=self.makespan_ms)


def charts_of(lines: Iterable[ScheduleLine | Simulation]) -> list[Chart]:
    """Charts of the lines with a timeline."""
    return [Chart(line.basis, line.timeline, line.makespan_ms, _after_makespan(line), line.memory)
            for line in lines if line.timeline]


def _after_makespan(line: ScheduleLine | Simulation) -> str:
    if isinstance(line, ScheduleLine) and line.overlap:
        return f"computing {share_text(line.overlap.compute_alone_ms / line.makespan_ms)} of that"
    bubble = f"bubble {short(100 * line.bubbles.of_makespan, 3)} % of that"
    if not isinstance(line, ScheduleLine) or line.filler is None:
        return bubble
    return f"{bubble}, {100 * line.filler.filled:.0f} % of it filled over {counted(line.filler.steps, 'step')}"


# Collectives that overlap with computation: their hidden part, over sizes of buckets, ZeRO stages and links.

HIDDEN = 0.995  # share of the communication from which on all counts as hidden


class OverlapResult(Group):
    """One model on one number of replicas, on one basis: cases by link, the shortest step first."""

    @property
    def name(self) -> str:
        overlap = self.first.overlap
        return listed(f"{counted(overlap.layers, 'layer')} of {bytes_text(overlap.bytes_per_layer, 3)} on {counted(overlap.replicas, 'replica')}",
                      overlap.algorithm, self.place)

    @property
    def headline(self) -> str:
        return f"{self.name}, {self.first.basis}"

    @property
    def by_link(self) -> dict[str, list[ScheduleLine]]:
        return by(self.lines, lambda line: link_text(line.run.link))

    @property
    def statements(self) -> list[tuple[str, ...]]:
        first, *others = (f"{link}: {link_finding(lines)}" for link, lines in self.by_link.items())
        return [(first, " ".join(others))]


def analyse_overlap(records: Records) -> tuple[OverlapResult, ...]:
    def work(line: ScheduleLine) -> tuple:
        overlap = line.overlap
        return (overlap.layers, overlap.bytes_per_layer, overlap.replicas, overlap.algorithm, line.microbatches, place_of(line)), BASES.index(line.basis)
    groups = latest([line for line in records.schedules if line.overlap], work,
                    lambda line: (line.overlap.bucket_cap_bytes, line.overlap.zero_stage, line.overlap.prefetch, line.run.link))
    return OverlapResult.of_places("overlap", ((key[0][-1], sorted(groups[key].values(), key=_order)) for key in sorted(groups)))


def _order(line: ScheduleLine) -> tuple:
    return slowness(line.run.link), line.makespan_ms


def slowness(link: Link | None) -> tuple[float, float]:
    """Sort key: the fastest links first."""
    return -((link and link.gbps) or float("inf")), (link and link.latency_us) or 0


def way_text(line: ScheduleLine) -> str:
    """Name such as "ZeRO 2, buckets of 25 MiB"."""
    overlap = line.overlap
    if overlap.zero_stage == 3:
        return f"ZeRO 3, {counted(overlap.prefetch, 'layer')} prefetched"
    buckets = f"buckets of {bytes_text(overlap.bucket_cap_bytes, 3)}" if overlap.bucket_cap_bytes else "one bucket"
    return buckets if overlap.zero_stage == 0 else f"ZeRO {overlap.zero_stage}, {buckets}"


def step_of(line: ScheduleLine) -> Estimate:
    return exact(line.makespan_ms) if line.basis == "simulated" else median_of(line.samples_ms)


def exposed_ms(line: ScheduleLine) -> float:
    return max(line.makespan_ms - line.overlap.compute_alone_ms, 0.0)


def most_hidden(line: ScheduleLine) -> float:
    """Share that can be hidden at all: nothing of one bucket of all gradients, as it is complete only when the backward ends."""
    return 0.0 if line.overlap.collectives == 1 and line.overlap.zero_stage == 0 else 1.0


def hidden_of(line: ScheduleLine) -> Estimate:
    """Hidden share of the collectives."""
    overlap = line.overlap
    alone = max(overlap.communication_alone_ms, 1e-12)
    exposed = step_of(line)
    shares = (1 - (ms - overlap.compute_alone_ms) / alone for ms in (exposed.value, exposed.high, exposed.low))
    return Estimate(*shares).within(0.0, most_hidden(line))


def hidden_text(line: ScheduleLine) -> str:
    """Words such as "92 % hidden, 3.1 ms exposed"."""
    share = hidden_of(line)
    if share.low >= HIDDEN:
        return "all of it hidden"
    exposed = f", {time_text(1e3 * exposed_ms(line))} exposed"
    if share.high <= 1 - HIDDEN:
        return f"nothing hidden{exposed}"
    return decided_share(share, "hidden") + (exposed if share.half <= PRECISE else "")


def link_finding(lines: list[ScheduleLine]) -> str:
    best, worst = lines[0], lines[-1]
    alone = best.overlap
    text = (f"computing takes {time_text(1e3 * alone.compute_alone_ms)}, the collectives alone "
            f"{time_text(1e3 * alone.communication_alone_ms)}, both together {time_text(1e3 * best.makespan_ms)} with "
            f"{way_text(best)} ({hidden_text(best)})")
    if certain_factor(step_of(worst), step_of(best)) == 1:
        doubt = undecided(max(step_of(line).spread for line in lines), best.run.oversubscribed)
        return text + ("." if len(lines) == 1 or alike(step_of(worst), step_of(best)) else f"; which case is shortest is {doubt}.")
    longest = time_text(1e3 * worst.makespan_ms)
    return f"{text}; the longest is {longest} with {way_text(worst)} ({hidden_text(worst)})."
