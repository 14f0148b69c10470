"""The figures of all rooflines, rendered to files in a folder."""

from pathlib import Path
from typing import Callable, Sequence

from matplotlib.figure import Figure

from reports.analysis.roofline.findings import Comparison, comparisons_of, NEAR, RooflineResult, sides
from reports.analysis.roofline.rooflines import Roofline, way_text
from reports.plots import style
from reports.plots.dumbbells import case_count, dumbbells_figure, MOST
from reports.plots.figures import FigureFile, in_parallel, save
from reports.plots.frame import Heading
from reports.plots.roofline import plotted, roofline_figure
from reports.plots.shares import rows_of, shares_figure
from reports.units import joined, share_text, unbroken

# ---- The words on a figure of kernels: a title that names the quantities, a line that describes the run, a badge

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


def kernel_title(kind: str, result: RooflineResult) -> str:
    """Title of a figure. That of the shares has a finding that no sentence of the page has: the number of kernels near the ceiling, by
    threads and caches."""
    if kind == "shares":
        return unbroken(f"{share_text(NEAR)} of the ceiling that binds is reached by {joined(_near_by_way(result.roofline))}")
    return _ALT[kind]


def _near_by_way(roofline: Roofline) -> list[str]:
    told = []
    for way in roofline.ways:
        shares = [kernel.share for kernel in roofline.timed[way].values() if kernel.share is not None]
        if shares:
            near = sum(share >= NEAR for share in shares)
            told.append(f"{near} of {len(shares)} ({way_text(way, roofline.place.device)})")
    return told


Draw = Callable[[RooflineResult, Sequence[Comparison], Heading], Figure]


def render_kernels(results: Sequence[RooflineResult], folder: Path) -> list[list[FigureFile]]:
    """Renders the figures of each result into `folder`, as stem.svg, and returns them in the order of the results."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [(result, kind, folder) for result in results for kind in kinds_of(result)]
    files = dict(zip([(task[0].anchor, task[1]) for task in tasks], in_parallel(_render, tasks)))
    return [[files[result.anchor, kind] for kind in kinds_of(result)] for result in results]


def kinds_of(result: RooflineResult) -> list[str]:
    """Kinds of figures for which there are data."""
    roofline = result.roofline
    if not roofline.timed:
        return []
    comparisons = comparisons_of(roofline)
    wanted = {"roofline": any(plotted(cases) for cases in roofline.timed.values()),
              "shares": bool(rows_of(roofline)), "caches": bool(comparisons["caches"]),
              "threads": bool(comparisons["threads"])}
    return [kind for kind, there in wanted.items() if there]


def draw(kind: str, result: RooflineResult) -> Figure:
    comparisons = comparisons_of(result.roofline).get(kind, [])
    heading = Heading(kernel_title(kind, result), kernel_subtitle(kind, result, comparisons),
                      kernel_badge(result))
    return _DRAW[kind](result, comparisons, heading)


def _render(result: RooflineResult, kind: str, folder: Path) -> FigureFile:
    place = result.roofline.place
    stem = f"{result.anchor}-{place.device}-{place.basis}-{kind}"
    with style.context():
        save(draw(kind, result), folder / stem)
    title = kernel_title(kind, result)
    return FigureFile(kind, stem, title, f"{_ALT[kind]}; {result.name}. {title}")


_DRAW: dict[str, Draw] = {
    "roofline": lambda result, _, heading: roofline_figure(result.roofline, heading),
    "shares": lambda result, _, heading: shares_figure(result.roofline, heading),
    "caches": lambda _, comparisons, heading: dumbbells_figure(comparisons, sides(comparisons[0]), heading),
    "threads": lambda _, comparisons, heading: dumbbells_figure(comparisons, sides(comparisons[0]), heading),
}

_ALT = {
    "roofline": "Speed in FLOP/s against arithmetic intensity in FLOP per byte, with the measured ceilings",
    "shares": "Share of the binding ceiling of each kernel",
    "caches": "GB/s of each kernel with cold and with warm caches",
    "threads": "GB/s of each kernel with few and with many threads",
}
