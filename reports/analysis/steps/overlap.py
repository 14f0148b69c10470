"""Collectives beside the computation: how much of them is hidden, over sizes of buckets, ZeRO stages and links."""
from dataclasses import dataclass

from reports.analysis.findings import Finding
from reports.analysis.steps.cases import BASES, place_of
from reports.records import Link, Overlap, Records, ScheduleLine
from reports.units import bytes_text, counted, share_text, short, time_text

HIDDEN = 0.995  # share of the communication that counts as all


@dataclass(frozen=True)
class OverlapResult:
    """One model on so many replicas, on one basis: by link, the shortest step first."""

    anchor: str
    basis: str
    lines: tuple[ScheduleLine, ...]
    place: str = ""  # of what was emulated or measured, where there are several

    @property
    def overlap(self) -> Overlap:
        return self.lines[0].overlap

    @property
    def name(self) -> str:
        one = self.overlap
        name = (f"{counted(one.layers, 'layer')} of {bytes_text(one.bytes_a_layer, 3)} on "
                f"{counted(one.replicas, 'replica')}, {one.algorithm}")
        return f"{name}, {self.place}" if self.place else name

    @property
    def by_link(self) -> dict[str, list[ScheduleLine]]:
        grouped: dict[str, list[ScheduleLine]] = {}
        for line in self.lines:
            grouped.setdefault(link_text(line.run.link), []).append(line)
        return grouped

    @property
    def findings(self) -> list[Finding]:
        badge = "" if self.basis == "measured" else self.basis
        told = [f"{link}: {link_finding(lines)}" for link, lines in self.by_link.items()]
        return [Finding(f"{self.name}, {self.basis}", told[0], " ".join(told[1:]), badge, self.anchor)]


def analyse_overlap(records: Records) -> tuple[OverlapResult, ...]:
    """Keeps the latest of equal lines of several runs."""
    grouped: dict[tuple, dict[tuple, ScheduleLine]] = {}
    for line in records.schedules:
        if line.overlap is None:
            continue
        one = line.overlap
        work = one.layers, one.bytes_a_layer, one.replicas, one.algorithm, line.microbatches
        key = (*work, place_of(line), line.basis)
        case = (one.bucket_cap_bytes, one.zero_stage, one.prefetch, line.run.link)
        grouped.setdefault(key, {})[case] = line
    ordered = sorted(grouped.items(), key=lambda item: (item[0][:-1], BASES.index(item[0][-1])))
    several = len({key[-2] for key in grouped if key[-2]}) > 1
    return tuple(OverlapResult(f"overlap-{number}", key[-1], tuple(sorted(of.values(), key=_order)),
                               key[-2] if several else "") for number, (key, of) in enumerate(ordered, start=1))


def _order(line: ScheduleLine) -> tuple:
    link = line.run.link
    return (-(link.gbps or float("inf")), link.latency_us or 0) if link else (-float("inf"), 0), line.makespan_ms


def link_text(link: Link | None) -> str:
    if link is None:
        return "links without limit"
    parts = [f"{short(link.gbps)} GB/s"] * bool(link.gbps) + [time_text(link.latency_us)] * bool(link.latency_us)
    return f"links of {', '.join(parts)}" if parts else "links without limit"


def way_text(line: ScheduleLine) -> str:
    """ZeRO 2, buckets of 25 MiB."""
    one = line.overlap
    if one.zero_stage == 3:
        return f"ZeRO 3, {counted(one.prefetch, 'layer')} gathered ahead"
    buckets = f"buckets of {bytes_text(one.bucket_cap_bytes, 3)}" if one.bucket_cap_bytes else "one bucket"
    return buckets if one.zero_stage == 0 else f"ZeRO {one.zero_stage}, {buckets}"


def exposed_ms(line: ScheduleLine) -> float:
    return max(line.makespan_ms - line.overlap.compute_alone_ms, 0.0)


def hidden_text(line: ScheduleLine) -> str:
    """92 % hidden, 3.1 ms exposed."""
    share = line.overlap.efficiency
    if share >= HIDDEN:
        return "all of it hidden"
    if share <= 1 - HIDDEN:
        return f"nothing hidden, {time_text(1e3 * exposed_ms(line))} exposed"
    return f"{share_text(share)} hidden, {time_text(1e3 * exposed_ms(line))} exposed"


def link_finding(lines: list[ScheduleLine]) -> str:
    best, worst = lines[0], lines[-1]
    alone = best.overlap
    told = (f"computing takes {time_text(1e3 * alone.compute_alone_ms)}, the collectives alone "
            f"{time_text(1e3 * alone.communication_alone_ms)}, both together {time_text(1e3 * best.makespan_ms)} with "
            f"{way_text(best)} ({hidden_text(best)})")
    if len(lines) == 1:
        return told + "."
    longest = time_text(1e3 * worst.makespan_ms)
    return f"{told}; the longest is {longest} with {way_text(worst)} ({hidden_text(worst)})."
