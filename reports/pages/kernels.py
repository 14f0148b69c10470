"""The page of kernels under the measured ceilings of their device."""
from collections import Counter
from typing import Any, Iterable, Sequence

from reports.analysis.groups import dotted, Finding
from reports.analysis.roofline.counted import analyse_counts, cases_of, CountedKernels, GOAL, H100, H200
from reports.analysis.roofline.findings import Comparison, comparison_text, comparisons_of, kernel_findings, NEAR
from reports.analysis.roofline.rooflines import (
    analyse_kernels, binding_name, case_of, ceilings_text, LEVELS, plotted, Roofline, UNITS, way_of, way_text)
from reports.check import notes_on_kernels
from reports.page import (
    bad_lines, BadLine, basis_badge, Block, Cell, Column, Drawing, drawing, each, Fact, Figures, numbers, Page,
    Section, Sentences, SmallTables, Table, table, Tables, Title, words)
from reports.records import Kernel, Records
from reports.units import counted, joined, share_text, short, unbroken

MOST_ROWS = 36  # rows of a figure that compares two ways; if there are more, those with the largest and smallest ratios


# ---- Tables: every timed kernel, and the ceilings

def kernels_table(roofline: Roofline) -> Table:
    """Rows of all records, farthest from the limit first; kernels without a share at the end, and last the skipped ones."""
    kernels = sorted(roofline.lines, key=lambda line: (not line.was_run, not line.ok, line.share is None, line.share or 0.0, line.kernel))
    return table("Every timed kernel, farthest from its limit first", [
        words("kernel", lambda kernel: kernel.kernel), words("shape", lambda kernel: kernel.shape), words("dtype", lambda kernel: kernel.dtype, "dtype of the activations"),
        numbers("threads", lambda kernel: kernel.threads, "threads of the pool; 1 on a GPU"),
        words("cache", lambda kernel: kernel.cache, "warm: the same operands in every call; cold: others in every call"),
        words("timing", lambda kernel: kernel.timing, "the host's clock, CUDA events, or a CUDA graph's replay"),
        words("code", lambda kernel: kernel.implementation or "–", "code that ran: a library's or our own, or the instruction set of our loops"),
        numbers("share %", lambda kernel: None if kernel.share is None else 100 * kernel.share, "share of the binding ceiling; 100 is at the ceiling", 3),
        words("bound by", lambda kernel: binding_name(kernel, roofline.latest_ceilings), "the ceiling that allows the least speed"),
        numbers("GB/s", lambda kernel: kernel.gbps, "declared bytes divided by the median"),
        numbers("GFLOP/s", lambda kernel: kernel.gflops, "declared FLOPs divided by the median"),
        numbers("median µs", lambda kernel: kernel.median_us, "median time of a call"), numbers("p5 µs", lambda kernel: kernel.stats and kernel.stats.p5),
        numbers("p95 µs", lambda kernel: kernel.stats and kernel.stats.p95),
        numbers("ceiling µs", lambda kernel: kernel.ceiling_us, "shortest time that the binding ceiling allows"),
        numbers("FLOP/byte", lambda kernel: kernel.intensity, "arithmetic intensity, as declared", 3), numbers("samples", lambda kernel: len(kernel.samples_us)),
        words("result", _result, "result of the check in the benchmark"),
    ], kernels, lambda word: word.status if word.was_run else "ok")


def _result(kernel: Kernel) -> str:
    if not kernel.was_run:
        return "not run: the time budget was over"
    if not kernel.ok:
        return f"{kernel.status}: {kernel.error}" if kernel.error else kernel.status
    return "checked" if kernel.checked else "not checked"


def _small_table(roofline: Roofline, caption: str, kind: Column, names: Sequence[str], columns: Iterable[Column],
                 places: Sequence[str]) -> Table:
    """A line per number of threads and name of a ceiling, a column per place in which it was measured."""
    rows = [(each, name) for each in roofline.ceilings.values() for name in names if any(each.value(name, place) for place in places)]
    threads = [numbers("threads", lambda row: row[0].threads, "threads of the pool")] if roofline.device == "cpu" else []
    return table(caption, [*threads, kind, *columns], rows)


def _value(name: str, place: str, meaning: str) -> Column:
    return numbers(name, lambda row: row[0].value(row[1], place), meaning, 3)


def bandwidth_table(roofline: Roofline) -> Table:
    """Table in GB/s: a line per number of threads and way of access, a column per level."""
    levels = [level for level in LEVELS if any(ceiling.level == level for ceiling in roofline.latest_ceilings)]
    return _small_table(roofline, "Bandwidth", words("GB/s of", lambda row: row[1], "way of access"), ("copy", "read", "triad"),
                        [_value(LEVELS[level], level, f"operands in {LEVELS[level]}") for level in levels], levels)


def arithmetic_table(roofline: Roofline) -> Table:
    """Table in GFLOP/s: a line per number of threads and loop, a column per dtype."""
    dtypes = list(dict.fromkeys(ceiling.dtype for ceiling in roofline.latest_ceilings if ceiling.unit == "gflops" and ceiling.dtype))
    return _small_table(roofline, "Arithmetic", words("GFLOP/s of", lambda row: row[1], "fma: in registers; gemm: a large square product"),
                        ("fma", "gemm"), [_value(dtype, dtype, f"arithmetic in {dtype}") for dtype in dtypes], dtypes)


_CEILINGS = (
    numbers("threads", lambda kernel: kernel.threads), words("ceiling", lambda kernel: kernel.name),
    words("level or dtype", lambda kernel: LEVELS.get(kernel.level or "", kernel.level) or kernel.dtype or "–"),
    Column("value", "best sample", lambda kernel: Cell(short(kernel.value, 4), kernel.value)), words("unit", lambda kernel: UNITS[kernel.unit]),
    numbers("median", lambda kernel: kernel.stats and kernel.stats.median, "median of the samples"),
    numbers("p5", lambda kernel: kernel.stats and kernel.stats.p5), numbers("p95", lambda kernel: kernel.stats and kernel.stats.p95), numbers("samples", lambda kernel: kernel.stats and kernel.stats.count),
)


# ---- Figures. The title of the shares has a finding that no sentence of the page has: the number of kernels near the ceiling, by threads
# and caches

_FIGURES = {  # the function, what it shows, its description
    "roofline": ("kernel_figures.roofline_figure", "Speed in FLOP/s against arithmetic intensity in FLOP per byte, with the measured ceilings",
                 "bands: from the least to the most that copy, read, triad or fma, gemm reach"),
    "shares": ("kernel_dots.shares_figure", "Share of the binding ceiling of each kernel",
               "one dot per shape and dtype, at the median; farthest from the limit first"),
    "caches": ("kernel_dots.dumbbells_figure", "GB/s of each kernel with cold and with warm caches", "at the median"),
    "threads": ("kernel_dots.dumbbells_figure", "GB/s of each kernel with few and with many threads", "at the median"),
}


def kernel_drawings(roofline: Roofline) -> list[Drawing]:
    """Figures for which there are data."""
    if not roofline.timed:
        return []
    timed = [case for cases in roofline.timed.values() for case in cases.values()]
    shown = {"roofline": roofline if any(map(plotted, roofline.timed.values())) else None,
             "shares": roofline if any(line.share is not None for line in timed) else None, **comparisons_of(roofline)}
    return [_drawing(roofline, kind, of) for kind, of in shown.items() if of]


def _drawing(roofline: Roofline, kind: str, of: Roofline | Sequence[Comparison]) -> Drawing:
    draw, what, about = _FIGURES[kind]
    title = what if kind != "shares" else unbroken(
        f"{share_text(NEAR)} of the ceiling that binds is reached by {joined(_near_by_way(roofline))}")
    cases = 0 if of is roofline else len({pair.case for kernel in of for pair in kernel.pairs})
    cut = f"the {MOST_ROWS // 2} largest and {MOST_ROWS // 2} smallest ratios of {cases}" if cases > MOST_ROWS else ""
    basis = roofline.first.run.basis
    return drawing(kind, f"{roofline.anchor}-{roofline.device}-{basis}-{kind}", draw, of, title,
                   dotted(roofline.name, about, cut), basis_badge([basis]), f"{what}; {roofline.name}")


def _near_by_way(roofline: Roofline) -> list[str]:
    phrases = []
    for way in roofline.ways:
        shares = [kernel.share for kernel in roofline.timed[way].values() if kernel.share is not None]
        if shares:
            phrases.append(f"{sum(share >= NEAR for share in shares)} of {len(shares)} ({way_text(way, roofline.device)})")
    return phrases


# ---- Kernels by their counts

def counted_table(found: CountedKernels) -> Table:
    """Cases that memory should limit, those with the most instructions first."""
    return table("Ceilings that counts allow, for kernels that memory should limit", [
        words("kernel", lambda case: case.label), words("shape", lambda case: case.first.shape),
        numbers("bytes", lambda case: case.bytes_per_element, "declared bytes per element of the largest operand", 3),
        numbers("issued", lambda case: case.sass, "machine instructions of threads (SASS) per element, estimated from executed PTX", 3),
        numbers("allowed H100", lambda case: case.allowed(H100), "thread instructions per element while memory moves its bytes: multiprocessors x 128 x clock x bytes / bandwidth", 3),
        numbers("issued / allowed", lambda case: case.excess(), f"on an H100; above 1 instructions are the limit; the goal is {GOAL}", 3),
        numbers("ceiling H100 %", lambda case: 100 * case.ceiling(H100), "largest share of the memory's bandwidth that the instructions allow", 3),
        numbers("ceiling H200 %", lambda case: 100 * case.ceiling(H200), "the same for an H200, whose memory is faster", 3),
        numbers("PTX", lambda case: case.ptx, "PTX instructions of threads per element", 3),
        numbers("moved / declared", lambda case: case.moved(), "bytes of all sectors that are accessed, over the declared bytes", 3),
        numbers("gaps", lambda case: case.gaps(), "bytes of these sectors over the bytes that threads ask for; 1: coalesced", 3),
        numbers("conflicts", lambda case: case.conflicts(), "turns of shared memory's banks over those without conflicts", 3),
        numbers("registers", lambda case: max(entry.registers for entry in case.entries), "of a thread"),
        numbers("spilled", lambda case: max(entry.spill_bytes for entry in case.entries), "bytes of a thread"),
        numbers("threads", lambda case: min(entry.resident_threads for entry in case.entries), "threads on a multiprocessor at the same time, of 2,048"),
    ], found.judged)


def _counted_section(found: CountedKernels) -> Section:
    about = ("Counted from the compiled code without a GPU, not timed: a ceiling says what a kernel cannot exceed, not what it reaches "
             "(docs/gpu.md, Counts).")
    blocks: list[Block] = [Sentences([found.text, about])]
    if found.judged:
        title = "Instructions that a kernel issues, over those for which its bytes leave time"
        blocks += [Figures([drawing("counted", "counted", "kernel_dots.counted_figure", found, title, "counted in the compiled code, per kernel and dtype",
                                    "COUNTED: not timed", "One dot per kernel and dtype")], wide=True),
                   Tables([counted_table(found)], found.basis)]
    return Section(found.anchor, "GPU kernels by their counts", found.basis, blocks)


# ---- The page

def _section_of(result: Roofline | CountedKernels) -> Section:
    return _counted_section(result) if isinstance(result, CountedKernels) else _section(result)


def _rooflines(results: Sequence[Any]) -> list[Roofline]:
    return [result for result in results if isinstance(result, Roofline)]


def _findings(results: Sequence[Any]) -> list[Finding]:
    return [*kernel_findings(_rooflines(results)),
            *(Finding("GPU kernels", result.text, "", result.basis, result.anchor) for result in results if isinstance(result, CountedKernels))]


def _section(roofline: Roofline) -> Section:
    small = [bandwidth_table(roofline), arithmetic_table(roofline)]
    tables = [kernels_table(roofline), table("Every ceiling with its spread", _CEILINGS, roofline.latest_ceilings)]
    blocks: list[Block] = [Title("What the machine can do"), Sentences(_ceilings(roofline), answers=False), SmallTables(small),
                           Title("How close the kernels come"), Sentences(_comparisons(roofline), answers=False),
                           Figures(kernel_drawings(roofline), wide=True), Tables(tables, roofline.basis)]
    return Section(roofline.anchor, roofline.name, roofline.basis, blocks, link=roofline.name)


def _ceilings(roofline: Roofline) -> list[str]:
    if not roofline.ceilings:
        return ["No ceilings are in the records: speeds are known, distances from the machine's limits are not."]
    return [f"{counted(ceiling.threads, 'thread') if roofline.device == 'cpu' else 'The device'}: {ceilings_text(ceiling)}."
            for ceiling in roofline.ceilings.values()]


def _comparisons(roofline: Roofline) -> list[str]:
    found = [kernel for each in comparisons_of(roofline).values() for kernel in each]
    return [f"{kernel.name[:1].upper()}{kernel.name[1:]}, {comparison_text(kernel)}." for kernel in found]


def _facts(records: Records, _: Sequence[Any]) -> list[Fact]:
    kernels = [kernel for kernel in records.kernels if kernel.was_run]
    names = {kernel.kernel for kernel in kernels}
    samples = sum(len(kernel.samples_us) for kernel in kernels)
    cases = len({case_of(kernel) for kernel in kernels})
    what = (f"{counted(len(names), 'kernel')}, {counted(cases, 'case')} (kernel, shape, dtype), {_ways_text(kernels)}"
            if kernels else "ceilings only" if records.ceilings else "nothing was timed")
    basis = Counter(kernel.basis for kernel in kernels) or Counter(run.basis for run in records.runs)
    checked = sum(kernel.ok and kernel.checked for kernel in kernels)
    if records.kernel_counts:
        what += f"; {counted(len(cases_of(records.kernel_counts)), 'case')} counted"
    return [Fact("What was run", what),
            Fact("Timed", f"{len(kernels):,} timed kernels, {samples:,} samples; "
                          f"{'all checked' if checked == len(kernels) else f'{checked:,} checked'}"),
            Fact("Basis", joined([f"{number:,} {name}" for name, number in basis.items()]))]


def _ways_text(kernels: Sequence[Kernel]) -> str:
    """Words such as "on cpu by 1 and 2 threads, caches cold and warm"."""
    devices = joined(sorted({kernel.device for kernel in kernels}))
    threads = sorted({kernel.threads for kernel in kernels if kernel.device == "cpu"})
    by = f" by {joined([str(n) for n in threads])} thread{'' if threads == [1] else 's'}" if threads else ""
    return f"on {devices}{by}, caches {joined(sorted({kernel.cache for kernel in kernels}))}"


def _bad(records: Records) -> list[BadLine]:
    return bad_lines((kernel for kernel in records.kernels if kernel.was_run),
                     lambda kernel: f"{case_of(kernel).full}, {kernel.device}, {way_text(way_of(kernel), kernel.device)}, {kernel.basis}")


PAGE = Page(
    3, "kernels", "Kernels", "How far is each kernel from what this machine can do?",
    "How far is each kernel from what this machine can do, and what limits it?",
    records=lambda records: records.only("kernels", "ceilings", "kernel_counts"),
    results=lambda records: (*analyse_kernels(records), *analyse_counts(records)), sections=each(_section_of), figure="roofline",
    facts=_facts, findings=_findings, notes=lambda records, results: notes_on_kernels(records, _rooflines(results)), bad=_bad, bad_heading="Wrong and failed kernels")
