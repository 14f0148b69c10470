"""View of the kernels' page, with all text ready."""

from collections import Counter
from dataclasses import dataclass
from typing import Optional, Sequence

from reports.analysis.caveats import findings_of
from reports.analysis.findings import Finding
from reports.analysis.roofline.rooflines import (
    binding_name, case_of, Ceilings, ceilings_text, LEVELS, Roofline, UNITS, way_of, way_text)
from reports.analysis.roofline.findings import badge_of, comparison_text, comparisons_of, RooflineResult
from reports.check import Note, notes_on_kernels
from reports.html.run_view import BadLine, Fact, machine_views, MachineView, run_facts, run_views, RunView
from reports.html.tables import Cell, Column, Line, number, Table, word
from reports.plots.figures import FigureFile
from reports.records import Ceiling, Kernel, Records
from reports.units import counted, joined, short


# ---- Tables: every timed kernel, and the ceilings

_KERNELS = (
    Column("kernel", "", False), Column("shape", "", False), Column("dtype", "dtype of the activations", False),
    Column("threads", "threads of the pool; 1 on a GPU"),
    Column("cache", "warm: the same operands in every call; cold: others in every call", False),
    Column("timing", "the host's clock, CUDA events, or a CUDA graph's replay", False),
    Column("code", "code that ran: a library's or our own, or the instruction set of our loops", False),
    Column("share %", "share of the binding ceiling; 100 is at the ceiling"),
    Column("bound by", "the ceiling that allows the least speed", False),
    Column("GB/s", "declared bytes divided by the median"), Column("GFLOP/s", "declared FLOPs divided by the median"),
    Column("median µs", "median time of a call"), Column("p5 µs", ""), Column("p95 µs", ""),
    Column("ceiling µs", "shortest time that the binding ceiling allows"),
    Column("FLOP/byte", "arithmetic intensity, as declared"), Column("samples", ""),
    Column("result", "result of the check in the benchmark", False),
)


def kernels_table(roofline: Roofline) -> Table:
    """Rows of all records, farthest from the limit first; those without a share at the end, and last those that were left out."""
    kernels = sorted(roofline.kernels, key=lambda one: (not one.was_run, not one.ok, one.share is None, one.share or 0.0, one.kernel))
    ceilings = [one for each in roofline.ceilings.values() for one in each.all]
    return Table("Every timed kernel, farthest from its limit first", _KERNELS,
                 tuple(_kernel_line(kernel, ceilings) for kernel in kernels))


def _kernel_line(one: Kernel, ceilings: list[Ceiling]) -> Line:
    stats = one.stats
    return Line((
        word(one.kernel), word(one.shape), word(one.dtype), number(one.threads), word(one.cache),
        word(one.timing), word(one.implementation or "–"), number(None if one.share is None else 100 * one.share, 3),
        word(binding_name(one, ceilings)), number(one.gbps), number(one.gflops), number(one.median_us),
        number(stats.p5 if stats else None), number(stats.p95 if stats else None), number(one.ceiling_us),
        number(one.intensity, 3), number(len(one.samples_us)), word(_result(one)),
    ), one.status if one.was_run else "ok")


def _result(one: Kernel) -> str:
    if not one.was_run:
        return "not run: the time budget was over"
    if not one.ok:
        return f"{one.status}: {one.error}" if one.error else one.status
    return "checked" if one.checked else "not checked"


_STREAMS = ("copy", "read", "triad")
_LOOPS = ("fma", "gemm")


def bandwidth_table(roofline: Roofline) -> Optional[Table]:
    """Table in GB/s: a line per number of threads and way of access, a column per level."""
    levels = [level for level in LEVELS
              if any(one.level == level for each in roofline.ceilings.values() for one in each.all)]
    columns = [*_head(roofline), Column("GB/s of", "way of access", False)]
    columns += [Column(LEVELS[level], f"operands in {LEVELS[level]}") for level in levels]
    lines = [Line((*_first(roofline, each), word(stream), *(number(each.value(stream, level), 3) for level in levels)))
             for each in roofline.ceilings.values() for stream in _STREAMS
             if any(each.value(stream, level) for level in levels)]
    return Table("Bandwidth", tuple(columns), tuple(lines)) if lines else None


def arithmetic_table(roofline: Roofline) -> Optional[Table]:
    """Table in GFLOP/s: a line per number of threads and loop, a column per dtype."""
    dtypes = list(dict.fromkeys(one.dtype for each in roofline.ceilings.values() for one in each.all
                                if one.unit == "gflops" and one.dtype))
    columns = [*_head(roofline), Column("GFLOP/s of", "fma: in registers; gemm: a large square product", False)]
    columns += [Column(dtype, f"arithmetic in {dtype}") for dtype in dtypes]
    lines = [Line((*_first(roofline, each), word(loop), *(number(each.value(loop, dtype), 3) for dtype in dtypes)))
             for each in roofline.ceilings.values() for loop in _LOOPS
             if any(each.value(loop, dtype) for dtype in dtypes)]
    return Table("Arithmetic", tuple(columns), tuple(lines)) if lines else None


def _head(roofline: Roofline) -> list[Column]:
    return [Column("threads", "threads of the pool")] if roofline.place.device == "cpu" else []


def _first(roofline: Roofline, each: Ceilings) -> list[Cell]:
    return [number(each.threads)] if roofline.place.device == "cpu" else []


_CEILINGS = (
    Column("threads", ""), Column("ceiling", "", False), Column("level or dtype", "", False),
    Column("value", "best sample"), Column("unit", "", False), Column("median", "median of the samples"),
    Column("p5", ""), Column("p95", ""), Column("samples", ""),
)


def ceilings_table(roofline: Roofline) -> Table:
    lines = []
    for one in (one for each in roofline.ceilings.values() for one in each.all):
        where = LEVELS.get(one.level or "", one.level) or one.dtype or "–"
        stats = one.stats
        spread = [number(value) for value in (stats.median, stats.p5, stats.p95)] if stats else [Cell("–", None)] * 3
        lines.append(Line((number(one.threads), word(one.name), word(where), Cell(short(one.value, 4), one.value),
                           word(UNITS[one.unit]), *spread, number(stats.count if stats else None))))
    return Table("Every ceiling with its spread", _CEILINGS, tuple(lines))


# View for the template of the kernels' page, with all text ready.

@dataclass(frozen=True)
class RooflineView:
    anchor: str
    name: str
    badge: str  # "simulated"; empty if measured
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
        facts=_facts(records), findings=findings_of(results),
        notes=notes_on_kernels(records, results), bad_rows=[_bad(one) for one in records.kernels if not one.ok and one.was_run],
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
    kernels = [one for one in records.kernels if one.was_run]
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
    """Words such as "on cpu by 1 and 2 threads, caches cold and warm"."""
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
