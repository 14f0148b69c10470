"""Costs of a mixture of experts on its ranks: parts of the time, cost of an uneven router, bytes and dropped copies."""
from dataclasses import dataclass
from typing import Optional

from reports.analysis.findings import Finding
from reports.analysis.training.runs import link_text
from reports.records import ExpertsLine, Records
from reports.units import counted, joined, share_text, short, time_text

PARTS = ("router", "permute", "dispatch", "shared", "experts", "combine", "unpermute")


@dataclass(frozen=True)
class ExpertsResult:
    """One set of sizes, of one dtype, on one machine and build, over one kind of link."""

    anchor: str
    lines: tuple[ExpertsLine, ...]

    @property
    def first(self) -> ExpertsLine:
        return self.lines[0]

    @property
    def name(self) -> str:
        one, size = self.first, {name: int(value) for name, value in self.first.sizes.items()}
        link = f", {link_text(one.run.link)}" if one.run.link else ""
        shared = f", shared {size['shared']:,}" if size["shared"] else ""
        return (f"{size['tokens']:,} tokens per rank, h {size['hidden']:,}, experts of {size['ffn']:,}{shared}, {one.dtype}, "
                f"{counted(one.threads, 'thread')} per rank{link}")

    @property
    def findings(self) -> list[Finding]:
        badge = "" if self.first.basis == "measured" else self.first.basis
        return [Finding(self.name, f"{split_text(self)} {skew_text(self)}", bytes_text_of(self), badge, self.anchor)]


def case_name(one: ExpertsLine) -> str:
    capacity = "dropless" if one.capacity_factor == 0 else f"capacity {short(one.capacity_factor, 3)}"
    return f"{one.experts} experts, top {one.top_k}, ep={one.ranks}, {capacity}, load {one.load:.2f}"


def analyse_experts(records: Records) -> tuple[ExpertsResult, ...]:
    """Keeps the latest of equal lines of several runs."""
    groups: dict[tuple, dict[tuple, ExpertsLine]] = {}
    for one in records.experts:
        setting = (one.run.machine.fingerprint, one.run.build, one.basis, one.run.link, one.dtype, one.threads,
                   one.algorithm, tuple(sorted(one.sizes.items())))
        groups.setdefault(setting, {})[(one.experts, one.top_k, one.capacity_factor, one.skew, one.ranks)] = one
    return tuple(ExpertsResult(f"experts-{number}", tuple(lines.values()))
                 for number, lines in enumerate(groups.values(), start=1))


def split_text(result: ExpertsResult) -> str:
    """Sentence on the parts of the time in the case with the most ranks and the most even router."""
    one = min(result.lines, key=lambda line: (-line.ranks, line.load))
    parts = one.parts_us("serial")
    whole = sum(parts.values())
    told = [f"{part} {share_text(us / whole)}" for part, us in parts.items() if us > 0.005 * whole]
    return f"{case_name(one)}: {time_text(one.median_us('serial'))}, forward and backward, of which {joined(told)}."


def slowdown_of(line: ExpertsLine, result: ExpertsResult) -> Optional[float]:
    """Ratio to the same case with the most even router; None for that case itself."""
    alike = [one for one in result.lines if (one.experts, one.top_k, one.capacity_factor, one.ranks)
             == (line.experts, line.top_k, line.capacity_factor, line.ranks)]
    even = min(alike, key=lambda one: one.load)
    return None if even is line else line.median_us("serial") / even.median_us("serial")


def skew_text(result: ExpertsResult) -> str:
    """Cost of the most uneven router."""
    known = [(slowdown_of(one, result), one) for one in result.lines if one.ranks > 1]
    told = [(ratio, one) for ratio, one in known if ratio is not None]
    if not told:
        return "All cases have one load: nothing says what an uneven router costs."
    ratio, one = max(told, key=lambda each: each[1].load)
    rows = one.most_rows / one.mean_rows
    return (f"With a load of {one.load:.2f} times an even share the busiest of {one.ranks} ranks has {rows:.2f} times the "
            f"mean rows, and the layer takes {ratio:.2f} times as long as with the most even router.")


def bytes_text_of(result: ExpertsResult) -> str:
    wrong = [line for line in result.lines if line.status != "ok"]
    passes = sum(line.checked_passes for line in result.lines)
    dropped = [line for line in result.lines if line.dropped]
    drops = ""
    if dropped:
        most = max(dropped, key=lambda line: line.dropped / line.copies)
        drops = f" At most {share_text(most.dropped / most.copies)} of the copies are dropped ({case_name(most)})."
    if wrong:
        return f"{counted(len(wrong), 'row')} of {len(result.lines)} wrong.{drops}"
    return (f"Bytes are those of the copies for other ranks, and results one rank's within rounding, in all {passes:,} passes "
            f"of {counted(len(result.lines), 'row')}.{drops}")
