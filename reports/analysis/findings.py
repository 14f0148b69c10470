"""The fastest algorithm for each size and number of ranks, as a map, and the findings with which the page opens."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Iterable, Optional, Sequence

from reports.analysis.caveats import limited
from reports.analysis.panels import Panel, Setting
from reports.analysis.estimate import certain_factor
from reports.analysis.groups import by, Finding
from reports.analysis.results import basis_text, fastest_words, headline, PanelResult
from reports.units import bytes_text, collective_name, counted, times_text


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
class WinnerMap:
    results: tuple[PanelResult, ...]  # fewest ranks first
    number: int  # position of the map in the report

    @property
    def setting(self) -> Setting:
        return self.results[0].panel.setting

    @property
    def anchor(self) -> str:
        return f"map-{self.number}"

    @property
    def name(self) -> str:
        op = "" if self.setting.op in ("none", "") else f" {self.setting.op}"
        return f"{collective_name(self.setting.collective)}, {self.setting.dtype}{op}, {basis_text(self.setting)}"

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(_cell(result.panel, size) for result in self.results for size in result.panel.sizes)

    @property
    def labels(self) -> list[str]:
        """Algorithms that are fastest in some cell, the most frequent first."""
        counts = Counter(cell.label for cell in self.cells)
        return sorted(counts, key=lambda label: (-counts[label], label))

    @property
    def headline(self) -> str:
        """Sentence on the fastest algorithm on the fewest and on the most ranks."""
        ends = [f"on {counted(result.panel.setting.ranks, 'rank')} {fastest_words(result.panel, result.fastest)}"
                for result in (self.results[0], self.results[-1])]
        text = "; ".join(ends)
        return text[0].upper() + text[1:] + "."

    @property
    def finding(self) -> str:
        """The headline and the widest margin."""
        shared = {result.panel.setting.ranks for result in self.results if result.panel.oversubscribed}
        widest = max((cell for cell in self.cells if cell.ranks not in shared), key=lambda cell: cell.margin, default=None)
        if widest is None or widest.margin == 1:
            return self.headline
        return (f"{self.headline} The widest margin is {times_text(widest.margin)}: {widest.label} over {widest.second}, "
                f"{counted(widest.ranks, 'rank')}, {bytes_text(widest.bytes)}.")


def maps_of(results: Sequence[PanelResult]) -> tuple[WinnerMap, ...]:
    groups = by((result for result in results if len(result.panel.series) > 1), lambda result: replace(result.panel.setting, ranks=0))
    kept = [group for group in groups.values() if len(group) >= FEWEST]
    return tuple(WinnerMap(tuple(sorted(group, key=lambda result: result.panel.setting.ranks)), number)
                 for number, group in enumerate(kept, start=1))


def _cell(panel: Panel, size: int) -> Cell:
    points = sorted(((point, one.label) for one in panel.series if (point := one.at(size))), key=lambda one: (one[0].time_us, one[1]))
    (best, label), rest = points[0], points[1:]
    second, name = rest[0] if rest else (best, None)
    return Cell(panel.setting.ranks, size, label, name, certain_factor(second.estimate, best.estimate))


# The main findings, with which the page opens and which the terminal prints.

MOST = 10


def main_findings(results: Sequence[PanelResult]) -> list[Finding]:
    """Findings: the fastest algorithm by size and ranks; then at most MOST panels: every all-reduce panel that compares ring and tree,
    and for each other collective the one with the most ranks."""
    maps = [limited(Finding(one.name, one.finding, "", badge_of(one.setting), one.anchor),
                    [row for result in one.results for row in result.panel.rows]) for one in maps_of(results)]
    chosen: dict[tuple, int] = {}
    for i, result in enumerate(results):
        key = _group(result)
        if key not in chosen or result.panel.setting.ranks > results[chosen[key]].panel.setting.ranks:
            chosen[key] = i
    picked = sorted(chosen.values(), key=lambda i: (not results[i].duels, i))[:MOST]
    return maps + [_finding(results[i], i + 1) for i in picked]


def _finding(result: PanelResult, number: int) -> Finding:
    finding = Finding(headline(result), result.finding, result.why, badge_of(result.panel.setting), f"panel-{number}")
    return limited(finding, result.panel.rows)


def badge_of(setting: Setting) -> str:
    return "" if setting.basis == "measured" else setting.basis


def _group(result: PanelResult) -> tuple:
    setting = result.panel.setting
    each = setting.ranks if result.duels and setting.collective == "all_reduce" else None
    return (setting.collective, setting.basis, setting.link, setting.devices_of, setting.fingerprint,
            setting.build, each)


def summary_text(findings: Iterable[Finding]) -> str:
    return "\n".join(f"{one.headline}:\n  {' '.join(text for text in (one.text, one.caveat) if text)}" for one in findings)
