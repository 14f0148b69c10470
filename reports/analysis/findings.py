"""The main findings: what the page opens with and what the terminal prints."""
from dataclasses import dataclass
from typing import Iterable, Sequence

from reports.analysis.panels import Setting
from reports.analysis.results import headline, PanelResult
from reports.analysis.winners import maps_of

MOST = 10


@dataclass(frozen=True)
class Finding:
    headline: str
    text: str
    why: str
    badge: str  # the basis, where the finding is not measured
    anchor: str  # the page's section


def main_findings(results: Sequence[PanelResult]) -> list[Finding]:
    """Which algorithm wins over sizes and ranks; then every all-reduce that answers ring or tree, and of the other
    collectives the one with the most ranks."""
    maps = [Finding(one.name, one.finding, "", badge_of(one.setting), one.anchor) for one in maps_of(results)]
    chosen: dict[tuple, int] = {}
    for i, result in enumerate(results):
        key = _group(result)
        if key not in chosen or result.panel.setting.ranks > results[chosen[key]].panel.setting.ranks:
            chosen[key] = i
    picked = sorted(chosen.values(), key=lambda i: (not results[i].duels, i))[:MOST]
    return maps + [_finding(results[i], i + 1) for i in picked]


def _finding(result: PanelResult, number: int) -> Finding:
    return Finding(headline(result), result.finding, result.why, badge_of(result.panel.setting), f"panel-{number}")


def badge_of(setting: Setting) -> str:
    return "" if setting.basis == "measured" else setting.basis


def _group(result: PanelResult) -> tuple:
    setting = result.panel.setting
    each = setting.ranks if result.duels and setting.collective == "all_reduce" else None
    return (setting.collective, setting.basis, setting.link, setting.devices_of, setting.fingerprint,
            setting.build, each)


def summary_text(findings: Iterable[Finding]) -> str:
    return "\n".join(f"{finding.headline}:\n  {finding.text}" for finding in findings)
