"""Attention over sequences that ranks share: time, memory, bytes and load of each method, by length."""
from dataclasses import dataclass
from functools import cached_property
from typing import Callable

from reports.analysis.findings import Finding
from reports.analysis.training.runs import link_text
from reports.records import DIRECTIONS, Context, Records
from reports.units import bytes_text, counted, joined, share_text, short, time_text


@dataclass(frozen=True)
class Line:
    """One method on one number of ranks, by length."""

    way: str
    points: tuple[Context, ...]

    @property
    def lengths(self) -> list[int]:
        return [one.length for one in self.points]

    @property
    def longest(self) -> Context:
        return self.points[-1]


@dataclass(frozen=True)
class ContextResult:
    """One set of sizes on one number of ranks, with one dtype and mask, on one machine and build, over one kind of link."""

    anchor: str
    lines: tuple[Line, ...]

    @property
    def first(self) -> Context:
        return self.lines[0].points[0]

    @property
    def all(self) -> list[Context]:
        return [point for line in self.lines for point in line.points]

    @cached_property
    def at_longest(self) -> list[Context]:
        """Row of each method at the longest length that all have."""
        common = set.intersection(*(set(line.lengths) for line in self.lines)) or {self.lines[0].lengths[-1]}
        return [point for line in self.lines for point in line.points if point.length == max(common)]

    @property
    def name(self) -> str:
        one = self.first
        link = f", {link_text(one.run.link)}" if one.run.link else ""
        return (f"cp {one.ranks}, {counted(int(one.sizes['batch']), 'sequence')}, {int(one.sizes['heads'])} heads of "
                f"{int(one.sizes['head_columns'])}, {one.dtype}, {'causal' if one.causal else 'no mask'}, "
                f"{counted(one.threads, 'thread')} per rank{link}")

    @property
    def findings(self) -> list[Finding]:
        badge = "" if self.first.basis == "measured" else self.first.basis
        return [Finding(self.name, f"{time_sentence(self)} {load_sentence(self)}", bytes_sentence(self), badge, self.anchor)]


def analyse_context(records: Records) -> tuple[ContextResult, ...]:
    """Keeps the latest of equal rows of several runs."""
    groups: dict[tuple, dict[str, dict[int, Context]]] = {}
    for one in records.contexts:
        sizes = tuple((name, size) for name, size in sorted(one.sizes.items()) if name != "length")
        setting = (one.run.machine.fingerprint, one.run.build, one.basis, one.run.link, one.dtype, one.causal, one.threads,
                   one.ranks, sizes)
        groups.setdefault(setting, {}).setdefault(one.way, {})[one.length] = one
    return tuple(ContextResult(f"context-{number}", tuple(Line(way, tuple(points[n] for n in sorted(points)))
                                                          for way, points in ways.items()))
                 for number, ways in enumerate(groups.values(), start=1))


def exposed_us(one: Context) -> float:
    return sum(one.time(direction, "async").exposed_stats.median for direction in DIRECTIONS)


def simulated_exposed_us(one: Context) -> float | None:
    """Exposed communication that the simulator predicts over emulated links, in microseconds."""
    return sum(one.simulated_exposed_us.values()) if one.simulated_exposed_us else None


def hidden(one: Context) -> float:
    """Share of the communication alone that kernels hide."""
    return _hidden_of(one, exposed_us(one))


def simulated_hidden(one: Context) -> float | None:
    exposed = simulated_exposed_us(one)
    return None if exposed is None else _hidden_of(one, exposed)


def _hidden_of(one: Context, exposed: float) -> float:
    alone = one.median_us("communication")
    return min(max(1 - exposed / alone, 0.0), 1.0) if alone else 1.0


def sent_bytes(one: Context) -> float:
    return sum(one.sent_bytes.values())


def _told(result: ContextResult, value: Callable[[Context], float], text: Callable[[float], str]) -> str:
    ordered = sorted(result.at_longest, key=value)
    return joined([f"{one.way} {text(value(one))}" for one in ordered])


def time_sentence(result: ContextResult) -> str:
    length = result.at_longest[0].length
    return (f"At {length:,} tokens forward and backward take "
            f"{_told(result, lambda one: one.median_us('async'), time_text)}.")


def memory_sentence(result: ContextResult) -> str:
    length = result.at_longest[0].length
    return f"At {length:,} tokens a rank holds {_told(result, lambda one: one.peak_bytes, lambda size: bytes_text(round(size), 3))}."


def hidden_sentence(result: ContextResult) -> str:
    length = result.at_longest[0].length
    return (f"At {length:,} tokens kernels hide {_told(result, hidden, share_text)} of the time that communication takes "
            "alone.")


def exposed_sentence(result: ContextResult) -> str:
    length = result.at_longest[0].length
    return (f"At {length:,} tokens communication adds {_told(result, exposed_us, time_text)} to the kernels; simulated: "
            f"{_told(result, lambda one: simulated_exposed_us(one) or 0.0, time_text)}.")


def load_sentence(result: ContextResult) -> str:
    """Sentence on the load, counted in the list: the computation of the busiest rank over the mean."""
    loads: dict[str, list[str]] = {}
    for one in result.at_longest:
        loads.setdefault(short(one.load, 3), []).append(one.way)
    return "The rank with most to compute has " + joined(
        [f"{load} times the mean in {joined(ways)}" for load, ways in sorted(loads.items())]) + "."


def bytes_sentence(result: ContextResult) -> str:
    wrong = [one for one in result.all if one.status != "ok"]
    if wrong:
        return f"{counted(len(wrong), 'row')} of {len(result.all)} are wrong: {wrong[0].way}: {wrong[0].error}."
    passes = sum(one.checked_passes for one in result.all)
    return (f"A rank sends {_told(result, sent_bytes, lambda size: bytes_text(round(size), 3))}; results are one rank's "
            f"within {max(one.difference for one in result.all):.1e} of the largest in all {passes:,} passes.")
