"""Lines of schedules to what may be compared: workloads, the cases of each, and the bases on which a case was run."""
from collections import Counter
from dataclasses import dataclass
from typing import Iterable, Optional, Sequence

from reports.records import ScheduleLine, Times
from reports.units import counted, short

BASES = ("simulated", "emulated", "measured")  # one above the other in a figure


@dataclass(frozen=True)
class Workload:
    """Work of a step, whatever its order."""

    ranks: int
    microbatches: int
    times: Optional[Times]
    place: str = ""  # machine and build of what was emulated or measured, where there are several

    @property
    def name(self) -> str:
        name = f"{counted(self.ranks, 'rank')}, {counted(self.microbatches, 'microbatch')}".replace("chs", "ches")
        return f"{name}, {self.place}" if self.place else name

    @property
    def times_text(self) -> str:
        """F 10 ms, I 10 ms, W 10 ms, messages 1 ms."""
        if self.times is None:
            return ""
        t = self.times
        parts = [f"{name} {short(value)} ms" for name, value in
                 (("F", t.forward), ("I", t.input_gradient), ("W", t.weight_gradient), ("messages", t.message))]
        return ", ".join(parts)


@dataclass(frozen=True)
class Case:
    """One schedule for one workload, on each basis on which it was run: of several runs the latest."""

    workload: Workload
    name: str
    of_basis: dict[str, ScheduleLine]

    @property
    def lines(self) -> list[ScheduleLine]:
        return [self.of_basis[basis] for basis in BASES if basis in self.of_basis]

    @property
    def first(self) -> ScheduleLine:
        return self.lines[0]


def place_of(line: ScheduleLine) -> str:
    """Times of two machines or builds are never in one plot. What is simulated is of none: it stands beside any."""
    if line.basis == "simulated":
        return ""
    return f"machine {line.run.machine.fingerprint}, build {line.run.build.short_revision}, {line.run.build.type}"


def is_pipeline(line: ScheduleLine) -> bool:
    return line.overlap is None


def cases_of(lines: Iterable[ScheduleLine]) -> dict[Workload, list[Case]]:
    """In the order of the records."""
    alike: dict[tuple, list[ScheduleLine]] = {}
    for line in lines:
        if is_pipeline(line):
            alike.setdefault((line.ranks, line.microbatches, line.times_ms), []).append(line)
    found = {}
    for key, mine in alike.items():
        places = list(dict.fromkeys(place for line in mine if (place := place_of(line)))) or [""]
        for place in places:
            workload = Workload(*key, place if len(places) > 1 else "")
            found[workload] = _cases(workload, [line for line in mine if place_of(line) in ("", place)])
    return found


def _cases(workload: Workload, lines: Sequence[ScheduleLine]) -> list[Case]:
    grouped: dict[tuple, dict[str, ScheduleLine]] = {}
    for line in lines:
        grouped.setdefault(_variant(line), {})[line.basis] = line
    return [Case(workload, _name(variant, [other for other in grouped if other[0] == variant[0]]), of_basis)
            for variant, of_basis in grouped.items()]


def repeated(lines: Sequence[ScheduleLine]) -> int:
    """Lines that a later one of the same case, basis and place hides."""
    counts = Counter((line.ranks, line.microbatches, line.times_ms, *_variant(line), line.basis, place_of(line))
                     for line in lines if is_pipeline(line))
    return sum(number - 1 for number in counts.values())


def _variant(line: ScheduleLine) -> tuple:
    return line.schedule, line.chunks, line.memory_limit, line.w_memory, tuple(line.slice_tokens or ())


def _name(variant: Sequence, others: Sequence[tuple]) -> str:
    """The schedule, and what tells it from others of its name."""
    schedule, chunks, limit, w_memory, slices = variant
    parts = [schedule]
    if chunks > 1 and len({other[1] for other in others}) > 1:
        parts.append(f"v={chunks}")
    if limit is not None and len({other[2] for other in others}) > 1:
        parts.append(f"memory {short(limit)}")
    if w_memory is not None and len({other[3] for other in others}) > 1:
        parts.append(f"{short(w_memory)} until W")
    if slices and len({other[4] for other in others}) > 1:
        parts.append(f"k={len(slices)}" + ("" if len(set(slices)) == 1 else " uneven"))
    return ", ".join(parts)
