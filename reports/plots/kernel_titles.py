"""The words on a figure of kernels: a title that says the finding, a line on what was run, a badge."""
from typing import Sequence

from reports.analysis.roofline.findings import NEAR, comparison_text, reach_text
from reports.analysis.roofline.pairs import Comparison
from reports.analysis.roofline.results import RooflineResult
from reports.analysis.roofline.rooflines import Roofline, way_text
from reports.plots.dumbbells import MOST, case_count
from reports.units import joined, share_text, unbroken

_SHOWS = {
    "roofline": "bands: from the least to the most that copy, read, triad or fma, gemm reach",
    "shares": "a dot a shape and dtype, at the median; farthest from the limit first",
    "caches": "at the median",
    "threads": "at the median",
}


def kernel_badge(result: RooflineResult) -> str:
    basis = result.roofline.place.basis
    return "" if basis == "measured" else f"{basis.upper()}: not a time of this machine's own"


def kernel_subtitle(kind: str, result: RooflineResult, comparisons: Sequence[Comparison]) -> str:
    parts = [result.name, _SHOWS[kind]]
    if comparisons and case_count(comparisons) > MOST:
        parts.append(f"the {MOST // 2} largest and {MOST // 2} smallest ratios of {case_count(comparisons)}")
    return "  ·  ".join(parts)


def kernel_title(kind: str, result: RooflineResult, comparisons: Sequence[Comparison]) -> str:
    roofline = result.roofline
    if kind == "roofline":
        return unbroken(f"{_capital(way_text(roofline.main, roofline.place.device))}: "
                        f"{reach_text(roofline.timed[roofline.main])}".rstrip("."))
    if kind == "shares":
        return unbroken(f"{share_text(NEAR)} of the ceiling that binds is reached by {joined(_near_by_way(roofline))}")
    told = comparisons[-1]
    return unbroken(f"{_capital(told.name)}, {comparison_text(told)}")


def _near_by_way(roofline: Roofline) -> list[str]:
    told = []
    for way in roofline.ways:
        shares = [kernel.share for kernel in roofline.timed[way].values() if kernel.share is not None]
        if shares:
            near = sum(share >= NEAR for share in shares)
            told.append(f"{near} of {len(shares)} ({way_text(way, roofline.place.device)})")
    return told


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
