"""The fastest algorithm for each size and number of ranks, as a map, and the findings with which the page opens."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Iterable, Optional, Sequence

from reports.analysis.caveats import findings_of
from reports.analysis.estimate import certain_factor
from reports.analysis.groups import by, Finding, Group
from reports.analysis.panels import setting_of, where_of
from reports.analysis.results import basis_text, fastest_words, PanelResult
from reports.units import bytes_text, counted, times_text


# ---- Maps, from panels that differ in their number of ranks only

FEWEST = 3  # fewest numbers of ranks for a map; with fewer the panels themselves suffice


@dataclass(frozen=True)
class Cell:
    """Fastest algorithm at one size and number of ranks."""

    ranks: int
    bytes: int
    label: str
    second: Optional[str]  # second fastest; None if no other was run
    margin: float  # times by which the second is slower for certain; 1 without a second


@dataclass(frozen=True)
class WinnerMap(Group):
    """`lines`: the rows of all panels."""

    results: tuple[PanelResult, ...] = ()  # fewest ranks first

    @property
    def name(self) -> str:
        return f"{self.results[0].title}, {basis_text(self.first)}"

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(_cell(result, size) for result in self.results for size in result.sizes)

    @property
    def labels(self) -> list[str]:
        """Algorithms that are fastest in some cell, the most frequent first."""
        counts = Counter(cell.label for cell in self.cells)
        return sorted(counts, key=lambda label: (-counts[label], label))

    @property
    def finding(self) -> str:
        """The fastest algorithm on the fewest and on the most ranks, and the widest margin."""
        text = "; ".join(f"on {counted(result.first.ranks, 'rank')} {fastest_words(result)}"
                         for result in (self.results[0], self.results[-1]))
        text = f"{text[0].upper()}{text[1:]}."
        shared = {result.first.ranks for result in self.results if result.oversubscribed}
        widest = max((cell for cell in self.cells if cell.ranks not in shared), key=lambda cell: cell.margin, default=None)
        if widest is None or widest.margin == 1:
            return text
        return (f"{text} The widest margin is {times_text(widest.margin)}: {widest.label} over {widest.second}, "
                f"{counted(widest.ranks, 'rank')}, {bytes_text(widest.bytes)}.")

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(self.finding, "")]


def maps_of(results: Sequence[PanelResult]) -> tuple[WinnerMap, ...]:
    groups = by((result for result in results if len(result.series) > 1),
                lambda result: setting_of(replace(result.first, ranks=0)))
    kept = [sorted(group, key=lambda result: result.first.ranks) for group in groups.values() if len(group) >= FEWEST]
    return tuple(WinnerMap(f"map-{number}", tuple(row for line in group for row in line.lines), results=tuple(group))
                 for number, group in enumerate(kept, start=1))


def _cell(panel: PanelResult, size: int) -> Cell:
    points = sorted(((point, series.label) for series in panel.series if (point := series.at(size))), key=lambda pair: (pair[0].time_us, pair[1]))
    (best, label), rest = points[0], points[1:]
    second, name = rest[0] if rest else (best, None)
    return Cell(panel.first.ranks, size, label, name, certain_factor(second.estimate, best.estimate))


# The main findings, with which the page opens and which the terminal prints.

MOST = 10


def main_findings(results: Sequence[PanelResult]) -> list[Finding]:
    """Findings: the fastest algorithm by size and ranks; then at most MOST panels: every all-reduce panel that compares ring and tree,
    and for each other collective the one with the most ranks."""
    def group(result: PanelResult) -> tuple:
        first = result.first
        is_apart = result.duels and first.collective == "all_reduce"
        return first.collective, where_of(first), first.ranks if is_apart else None
    picked = [max(alike, key=lambda result: result.first.ranks) for alike in by(results, group).values()]
    order = {result.anchor: number for number, result in enumerate(results)}
    picked.sort(key=lambda result: (not result.duels, order[result.anchor]))
    return findings_of([*maps_of(results), *picked[:MOST]])


def summary_text(findings: Iterable[Finding]) -> str:
    return "\n".join(f"{finding.headline}:\n  {' '.join(text for text in (finding.text, finding.caveat) if text)}" for finding in findings)
