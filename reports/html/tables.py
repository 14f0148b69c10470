"""The tables of the page as data: columns with their meaning, cells with the text shown and the value sorted by."""

from dataclasses import dataclass
from typing import Optional, Protocol, Sequence, Union

from reports.analysis.fit import Predictions
from reports.analysis.panels import labels_of, Panel, variant_of
from reports.analysis.results import PanelResult
from reports.analysis.findings import WinnerMap
from reports.records import Energy, Row
from reports.units import about, bytes_text, short


Value = Union[str, float, int, None]


@dataclass(frozen=True)
class Cell:
    text: str
    value: Value  # key for sorting


@dataclass(frozen=True)
class Column:
    name: str
    meaning: str
    numeric: bool = True


@dataclass(frozen=True)
class Line:
    cells: tuple[Cell, ...]
    status: str = "ok"  # "wrong" and "failed" are shown in red


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]


def number(value: Optional[float], significant: int = 4) -> Cell:
    return Cell("–", None) if value is None else Cell(short(value, significant), value)


def word(text: str) -> Cell:
    return Cell(text, text)


def size(value: int) -> Cell:
    return Cell(bytes_text(value), value)


_RESULTS = (
    Column("size", "bytes of the message, as algbw divides by"), Column("algorithm", "algorithm with its options", False),
    Column("placement", "in place or out of place", False), Column("median µs", "median time of a call on the slowest rank"),
    Column("95 % interval µs", "bootstrap interval of the median"), Column("mean µs", "mean time of a call, as nccl-tests prints it"),
    Column("algbw GB/s", "size / mean time"), Column("busbw GB/s", "algbw times nccl-tests' factor"),
    Column("vs fastest", "median over the fastest median at this size and placement"),
    Column("wrong", "number of wrong elements"),
    Column("status", "ok, wrong or failed", False),
)


_WINNERS = (
    Column("ranks", ""), Column("size", "bytes of the message, as algbw divides by"), Column("fastest", "", False),
    Column("next", "second fastest algorithm", False), Column("next / fastest", "ratio of their times"),
)


def winner_table(winners: WinnerMap) -> Table:
    return Table("Every size and number of ranks", _WINNERS, tuple(
        Line((number(cell.ranks), size(cell.bytes), word(cell.label), word(cell.second or "–"), number(cell.margin, 3)))
        for cell in winners.cells))


def results_table(result: PanelResult) -> Table:
    panel = result.panel
    labels = labels_of(panel.rows)
    best: dict[tuple[int, bool], float] = {}
    for row in panel.rows:
        if (time := _median(row)) is not None and row.ok:
            key = (row.bytes, row.in_place)
            best[key] = min(time, best.get(key, time))
    rows = sorted(panel.rows, key=lambda row: (row.bytes, row.algorithm, row.in_place))
    lines = (_result_line(row, labels[(row.algorithm, variant_of(row))], best) for row in rows)
    return Table("Every row of the records", _RESULTS, tuple(lines))


def _median(row: Row) -> Optional[float]:
    return row.stats.median if row.stats else row.time_us


def _result_line(row: Row, label: str, best: dict[tuple[int, bool], float]) -> Line:
    time = _median(row)
    fastest = best.get((row.bytes, row.in_place))
    ratio = time / fastest if row.ok and time and fastest else None
    status = row.status if not row.error else f"{row.status}: {row.error}"
    return Line((size(row.bytes), word(label), word("in" if row.in_place else "out"), number(time), _interval(row),
                 number(row.time_us), number(row.algbw_gbps), number(row.busbw_gbps), number(ratio, 3),
                 Cell("–" if row.wrong is None else f"{row.wrong:,}", row.wrong), word(status)), row.status)


def _interval(row: Row) -> Cell:
    if not row.stats or row.stats.ci_low is None or row.stats.ci_high is None:
        return Cell("–", None)
    return Cell(f"{short(row.stats.ci_low, 4)} to {short(row.stats.ci_high, 4)}", row.stats.ci_high - row.stats.ci_low)


_PERCENTILES = (
    Column("size", "bytes of the message"), Column("algorithm", "algorithm with its options", False),
    Column("samples", "number of timed calls"), Column("min µs", "the fastest call"), Column("p5 µs", ""),
    Column("p50 µs", "median"),
    Column("p95 µs", ""), Column("p99 µs", ""), Column("max µs", "the slowest call"),
    Column("p99 / p50", "p99 over the median: how long the tail is"),
)


def percentile_table(panel: Panel) -> Table:
    points = [(p, one.label) for one in panel.series for p in one.points if p.samples]
    points.sort(key=lambda labelled: (labelled[0].bytes, labelled[1]))
    lines = tuple(Line((size(p.bytes), word(label), number(p.samples), number(p.min), number(p.p5), number(p.time_us),
                        number(p.p95), number(p.p99), number(p.max), number(p.p99 / p.time_us, 3)))
                  for p, label in points)
    return Table("Percentiles of the time of a call", _PERCENTILES, lines)


_PLANS = (
    Column("algorithm", "algorithm with its options", False), Column("steps", "messages one after another on the longest path"),
    Column("wire bytes / byte", "bytes that the busiest rank sends per byte of the message, at the largest size"),
    Column("latency-bound below", "size at which alpha times steps equals beta times bytes"),
    Column("predicted by", "the program, message by message; or alpha × steps + beta × bytes", False),
    Column("measured / predicted, smallest", "ratio at the smallest size"), Column("largest", "ratio at the largest size"),
    Column("worst", "ratio farthest from 1"),
)


def plan_table(predictions: Predictions) -> Table:
    lines = []
    for p in predictions.by_label.values():
        worst = max(p.ratios, key=lambda ratio: max(ratio, 1 / ratio))
        below = p.latency_bound_below
        lines.append(Line((word(p.label), number(p.steps), number(p.wire_per_byte, 3),
                           Cell("–", None) if below is None else Cell(about(below), below),
                           word("message by message" if p.played_out else "alpha, beta"), number(p.ratios[0], 3),
                           number(p.ratios[-1], 3), number(worst, 3))))
    return Table("Plans and their prediction", _PLANS, tuple(lines))


# Columns for the energy of a step, in tables where at least one line has it.

_COLUMNS = (Column("tokens/J", "tokens per joule of whole devices, in the timed steps"),
            Column("J per step", "joules of whole devices, in the timed steps"),
            Column("W", "mean power of whole devices, in the timed steps"), Column("of", "", False))


class Counted(Protocol):
    """A line of the records that may have an energy."""

    energy: Energy | None


def energy_columns(lines: Sequence[Counted]) -> tuple[Column, ...]:
    return _COLUMNS if any(one.energy for one in lines) else ()


def energy_cells(lines: Sequence[Counted], one: Counted) -> tuple[Cell, ...]:
    """Cells of the line `one` in these columns."""
    if not energy_columns(lines):
        return ()
    energy = one.energy
    return (number(energy and energy.tokens_per_joule), number(energy and energy.joules_per_step),
            number(energy and energy.watts, 3), word(energy.of if energy else "–"))
