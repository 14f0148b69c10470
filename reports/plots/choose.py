"""Which series get colour where there are too many to tell apart; the others are drawn in grey."""
from typing import Sequence

from reports.analysis.crossover import best_time
from reports.analysis.panels import Series
from reports.analysis.results import PanelResult

MOST = 6
_FIRST = ["ring", "double_tree", "tree"]


def shown_labels(result: PanelResult) -> list[str]:
    """At most MOST: those that win somewhere, ring and tree, libraries, then the best of the rest."""
    series = result.panel.series
    if len(series) <= MOST:
        return [one.label for one in series]
    duellists = [family.representative.label for duel in result.duels for family in (duel.ring, duel.tree)]
    libraries = [one.label for one in series if one.variant.executor == "library"]
    plain = [one.label for one in series if one.algorithm in _FIRST[:1]]
    winners = sorted(result.fastest, key=lambda span: span.first / span.last)
    wanted = [*duellists, *plain, *(str(span.answer) for span in winners), *libraries, *_by_distance(result)]
    return list(dict.fromkeys(wanted))[:MOST]


def ordered(results: Sequence[PanelResult]) -> list[str]:
    """All labels that are shown anywhere, in the order in which styles are given out: ring and tree first."""
    labels = list(dict.fromkeys(label for result in results for label in shown_labels(result)))
    names = {label: label.split(" (")[0] for label in labels}  # without the transport
    return sorted(labels, key=lambda label: _FIRST.index(names[label]) if names[label] in _FIRST else len(_FIRST))


def _by_distance(result: PanelResult) -> list[str]:
    """Closest to the fastest first, over the sizes."""
    panel = result.panel
    best = {size: best_time(panel.series, size) for size in panel.sizes}

    def distance(series: Series) -> float:
        ratios = [point.time_us / best[point.bytes] for point in series.points]
        return sorted(ratios)[len(ratios) // 2]
    return [series.label for series in sorted(panel.series, key=distance)]
