"""The main findings: what the page opens with and what the terminal prints."""
from dataclasses import dataclass
from typing import Iterable, Sequence

from reports.analysis.results import PanelResult, headline

MOST = 10


@dataclass(frozen=True)
class Finding:
    headline: str
    text: str
    why: str
    badge: str  # what was not measured is said to be so
    anchor: str  # of its place in the page


def main_findings(results: Sequence[PanelResult]) -> list[Finding]:
    """Every all-reduce that answers ring or tree; of the other collectives the one with the most ranks."""
    chosen: dict[tuple, int] = {}
    for i, result in enumerate(results):
        key = _group(result)
        if key not in chosen or result.panel.setting.ranks > results[chosen[key]].panel.setting.ranks:
            chosen[key] = i
    picked = sorted(chosen.values(), key=lambda i: (not results[i].duels, i))[:MOST]
    return [_finding(results[i], i + 1) for i in picked]


def _finding(result: PanelResult, number: int) -> Finding:
    return Finding(headline(result), result.finding, result.why, _badge(result), f"panel-{number}")


def _badge(result: PanelResult) -> str:
    basis = result.panel.setting.basis
    return "" if basis == "measured" else basis


def _group(result: PanelResult) -> tuple:
    setting = result.panel.setting
    each = setting.ranks if result.duels and setting.collective == "all_reduce" else None
    return (setting.collective, setting.basis, setting.link, setting.fingerprint, setting.build, each)


def summary_text(findings: Iterable[Finding]) -> str:
    return "\n".join(f"{finding.headline}:\n  {finding.text}" for finding in findings)
