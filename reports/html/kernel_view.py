"""View for the template of the kernels' page, all text made."""
from collections import Counter
from dataclasses import dataclass
from typing import Optional, Sequence

from reports.analysis.findings import Finding
from reports.analysis.roofline.ceilings import ceilings_text
from reports.analysis.roofline.findings import badge_of, comparison_text, comparisons_of
from reports.analysis.roofline.results import RooflineResult
from reports.analysis.roofline.rooflines import case_of, way_of, way_text
from reports.check.kernels import notes_on_kernels
from reports.check.runs import Note
from reports.html.kernel_tables import arithmetic_table, bandwidth_table, ceilings_table, kernels_table
from reports.html.run_view import BadLine, Fact, MachineView, RunView, machine_views, run_facts, run_views
from reports.html.tables import Table
from reports.plots.figures import FigureFile
from reports.records import Kernel, Records
from reports.units import counted, joined


@dataclass(frozen=True)
class RooflineView:
    anchor: str
    name: str
    badge: str  # "simulated"; empty for what was measured
    ceilings: Sequence[str]  # sentences, one for each number of threads
    small_tables: Sequence[Table]
    comparisons: Sequence[str]  # sentences
    figures: Sequence[FigureFile]
    tables: Sequence[Table]


@dataclass(frozen=True)
class KernelPage:
    facts: Sequence[Fact]
    findings: Sequence[Finding]
    notes: Sequence[Note]
    bad_rows: Sequence[BadLine]
    rooflines: Sequence[RooflineView]
    runs: Sequence[RunView]
    machines: Sequence[MachineView]
    files: Sequence[str]


def kernel_page_of(records: Records, results: Sequence[RooflineResult], figures: Sequence[Sequence[FigureFile]],
                   files: Sequence[str]) -> KernelPage:
    return KernelPage(
        facts=_facts(records), findings=[finding for result in results for finding in result.findings],
        notes=notes_on_kernels(records, results), bad_rows=[_bad(one) for one in records.kernels if not one.ok],
        rooflines=[_roofline(result, files_of) for result, files_of in zip(results, figures)],
        runs=run_views(records), machines=machine_views(records), files=files)


def _roofline(result: RooflineResult, figures: Sequence[FigureFile]) -> RooflineView:
    roofline = result.roofline
    small = [table for table in (bandwidth_table(roofline), arithmetic_table(roofline)) if table]
    tables = [kernels_table(roofline)] if roofline.kernels else []
    tables += [ceilings_table(roofline)] if roofline.ceilings else []
    return RooflineView(result.anchor, result.name, badge_of(roofline), _ceilings(result), small,
                        _comparisons(result), figures, tables)


def _ceilings(result: RooflineResult) -> list[str]:
    if not result.roofline.ceilings:
        return ["No ceilings are in the records: speeds are known, distances from the machine's limits are not."]
    cpu = result.roofline.place.device == "cpu"
    return [f"{counted(one.threads, 'thread') if cpu else 'The device'}: {ceilings_text(one)}."
            for one in result.roofline.ceilings.values()]


def _comparisons(result: RooflineResult) -> list[str]:
    found = comparisons_of(result.roofline)
    return [f"{one.name[:1].upper()}{one.name[1:]}, {comparison_text(one)}." for each in found.values() for one in each]


def _facts(records: Records) -> list[Fact]:
    kernels = records.kernels
    names = {kernel.kernel for kernel in kernels}
    samples = sum(len(kernel.samples_us) for kernel in kernels)
    cases = len({case_of(kernel) for kernel in kernels})
    what = (f"{counted(len(names), 'kernel')}, {counted(cases, 'case')} (kernel, shape, dtype), {_ways_text(kernels)}"
            if kernels else "ceilings only")
    basis = Counter(kernel.basis for kernel in kernels) or Counter(run.basis for run in records.runs)
    return run_facts(records, [
        Fact("What was run", what),
        Fact("Timed", f"{len(kernels):,} timed kernels, {samples:,} samples; {_checked(kernels)}"),
        Fact("Basis", joined([f"{number:,} {name}" for name, number in basis.items()])),
    ])


def _ways_text(kernels: Sequence[Kernel]) -> str:
    """On cpu by 1 and 2 threads, caches cold and warm."""
    devices = joined(sorted({kernel.device for kernel in kernels}))
    threads = sorted({kernel.threads for kernel in kernels if kernel.device == "cpu"})
    by = f" by {joined([str(n) for n in threads])} thread{'' if threads == [1] else 's'}" if threads else ""
    return f"on {devices}{by}, caches {joined(sorted({kernel.cache for kernel in kernels}))}"


def _checked(kernels: Sequence[Kernel]) -> str:
    checked = sum(kernel.ok and kernel.checked for kernel in kernels)
    return "all checked" if checked == len(kernels) else f"{checked:,} checked"


def _bad(kernel: Kernel) -> BadLine:
    what = f"{case_of(kernel).full}, {kernel.device}, {way_text(way_of(kernel), kernel.device)}, {kernel.basis}"
    reason: Optional[str] = kernel.error
    return BadLine(kernel.status, what, reason or "no reason recorded")
