"""The tables of the kernels' page: every timed kernel, and the ceilings."""
from typing import Optional

from reports.analysis.roofline.ceilings import LEVELS, UNITS, Ceilings, binding_name
from reports.analysis.roofline.rooflines import Roofline
from reports.html.tables import Cell, Column, Line, Table, number, word
from reports.records import Ceiling, Kernel
from reports.units import short

_KERNELS = (
    Column("kernel", "", False), Column("shape", "", False), Column("dtype", "of the activations", False),
    Column("threads", "of the pool; 1 on a GPU"),
    Column("cache", "warm: the same operands again; cold: others each time", False),
    Column("timing", "the host's clock, CUDA events, or a CUDA graph's replay", False),
    Column("code", "that ran: a library's or our own, or the instruction set of our loops", False),
    Column("share %", "of the binding ceiling; 100 is at the ceiling"),
    Column("bound by", "the ceiling that allows the least speed", False),
    Column("GB/s", "declared bytes over the median"), Column("GFLOP/s", "declared FLOPs over the median"),
    Column("median µs", "time of a call"), Column("p5 µs", ""), Column("p95 µs", ""),
    Column("ceiling µs", "the time that the binding ceiling allows"),
    Column("FLOP/byte", "arithmetic intensity, as declared"), Column("samples", ""),
    Column("result", "of the check beside the timing", False),
)


def kernels_table(roofline: Roofline) -> Table:
    """All records, farthest from the limit first; those without a share at the end."""
    kernels = sorted(roofline.kernels, key=lambda one: (not one.ok, one.share is None, one.share or 0.0, one.kernel))
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
    ), one.status)


def _result(one: Kernel) -> str:
    if not one.ok:
        return f"{one.status}: {one.error}" if one.error else one.status
    return "checked" if one.checked else "not checked"


_STREAMS = ("copy", "read", "triad")
_LOOPS = ("fma", "gemm")


def bandwidth_table(roofline: Roofline) -> Optional[Table]:
    """A line a number of threads and way of access, a column a level: GB/s."""
    levels = [level for level in LEVELS
              if any(one.level == level for each in roofline.ceilings.values() for one in each.all)]
    columns = [*_head(roofline), Column("GB/s of", "the way of access", False)]
    columns += [Column(LEVELS[level], f"operands in {LEVELS[level]}") for level in levels]
    lines = [Line((*_first(roofline, each), word(stream), *(number(each.value(stream, level), 3) for level in levels)))
             for each in roofline.ceilings.values() for stream in _STREAMS
             if any(each.value(stream, level) for level in levels)]
    return Table("Bandwidth", tuple(columns), tuple(lines)) if lines else None


def arithmetic_table(roofline: Roofline) -> Optional[Table]:
    """A line a number of threads and loop, a column a dtype: GFLOP/s."""
    dtypes = list(dict.fromkeys(one.dtype for each in roofline.ceilings.values() for one in each.all
                                if one.unit == "gflops" and one.dtype))
    columns = [*_head(roofline), Column("GFLOP/s of", "fma: in registers; gemm: a large square product", False)]
    columns += [Column(dtype, f"arithmetic in {dtype}") for dtype in dtypes]
    lines = [Line((*_first(roofline, each), word(loop), *(number(each.value(loop, dtype), 3) for dtype in dtypes)))
             for each in roofline.ceilings.values() for loop in _LOOPS
             if any(each.value(loop, dtype) for dtype in dtypes)]
    return Table("Arithmetic", tuple(columns), tuple(lines)) if lines else None


def _head(roofline: Roofline) -> list[Column]:
    return [Column("threads", "of the pool")] if roofline.place.device == "cpu" else []


def _first(roofline: Roofline, each: Ceilings) -> list[Cell]:
    return [number(each.threads)] if roofline.place.device == "cpu" else []


_CEILINGS = (
    Column("threads", ""), Column("ceiling", "", False), Column("level or dtype", "", False),
    Column("value", "the best sample"), Column("unit", "", False), Column("median", "of the samples"),
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
