"""The page of collectives: a panel for each setting, and maps of the fastest algorithm."""
from collections import Counter
from statistics import median
from typing import Any, Optional, Sequence

from reports.analysis.caveats import caveat_of, disturbed_text
from reports.analysis.crossover import best_time, sentence, Verdict
from reports.analysis.findings import main_findings, maps_of, WinnerMap
from reports.analysis.fit import Prediction
from reports.analysis.groups import by, dotted
from reports.analysis.panels import labels_of, Series, variant_of
from reports.analysis.results import analyse, basis_text, link_text, PanelResult
from reports.check import notes_on_collectives
from reports.page import (
    Aside, BadLine, basis_badge, Block, Cell, Column, Drawing, drawing, Fact, Figures, NONE, numbers, Page, ranks_text, Section, Sentences,
    sizes, STATUS, status_of, Table, table, Tables, words)
from reports.records import Records, Row
from reports.units import about, bytes_text, collective_name, counted, joined, rate_text, short, time_text, times_text, unbroken


# ---- Tables

_WINNERS = (
    numbers("ranks", lambda cell: cell.ranks), sizes("size", lambda cell: cell.bytes, "bytes of the message, as algbw divides by"),
    words("fastest", lambda cell: cell.label), words("next", lambda cell: cell.second or "–", "second fastest algorithm"),
    numbers("next / fastest", lambda cell: cell.margin, "ratio of their times", 3),
)


def results_table(result: PanelResult) -> Table:
    labels, best = labels_of(result.lines), {}
    for row in result.lines:
        if (time := _median(row)) is not None and row.ok:
            key = (row.bytes, row.in_place)
            best[key] = min(time, best.get(key, time))

    def ratio(row: Row) -> Optional[float]:
        time, fastest = _median(row), best.get((row.bytes, row.in_place))
        return time / fastest if row.ok and time and fastest else None
    return table("Every row of the records", [
        sizes("size", lambda row: row.bytes, "bytes of the message, as algbw divides by"),
        words("algorithm", lambda row: labels[(row.algorithm, variant_of(row))], "algorithm with its options"),
        words("placement", lambda row: "in" if row.in_place else "out", "in place or out of place"),
        numbers("median µs", _median, "median time of a call on the slowest rank"),
        Column("95 % interval µs", "bootstrap interval of the median", _interval),
        numbers("mean µs", lambda row: row.time_us, "mean time of a call, as nccl-tests prints it"),
        numbers("algbw GB/s", lambda row: row.algbw_gbps, "size / mean time"),
        numbers("busbw GB/s", lambda row: row.busbw_gbps, "algbw times nccl-tests' factor"),
        numbers("vs fastest", ratio, "median over the fastest median at this size and placement", 3),
        Column("wrong", "number of wrong elements", lambda row: Cell("–" if row.wrong is None else f"{row.wrong:,}", row.wrong)),
        words("status", lambda row: STATUS.cell(row).text, "ok, wrong or failed"),
    ], sorted(result.lines, key=lambda row: (row.bytes, row.algorithm, row.in_place)), status_of)


def _median(row: Row) -> Optional[float]:
    return row.stats.median if row.stats else row.time_us


def _interval(row: Row) -> Cell:
    if not row.stats or row.stats.ci_low is None or row.stats.ci_high is None:
        return NONE
    return Cell(f"{short(row.stats.ci_low, 4)} to {short(row.stats.ci_high, 4)}", row.stats.ci_high - row.stats.ci_low)


# Columns of (point, its series' label).
_PERCENTILES = (
    sizes("size", lambda row: row[0].bytes, "bytes of the message"), words("algorithm", lambda row: row[1], "algorithm with its options"),
    *(numbers(name, lambda row, field=field: getattr(row[0].stats, field), meaning) for name, field, meaning in (
        ("samples", "count", "number of timed calls"), ("min µs", "min", "the fastest call"), ("p5 µs", "p5", ""),
        ("p50 µs", "median", "median"), ("p95 µs", "p95", ""), ("p99 µs", "p99", ""), ("max µs", "max", "the slowest call"))),
    numbers("p99 / p50", lambda row: row[0].stats.p99 / row[0].time_us, "p99 over the median: how long the tail is", 3),
)


def percentile_table(panel: PanelResult) -> Table:
    points = [(point, series.label) for series in panel.series for point in series.points if point.stats.count]
    return table("Percentiles of the time of a call", _PERCENTILES, sorted(points, key=lambda row: (row[0].bytes, row[1])))


def _below(line: Prediction) -> Cell:
    below = line.latency_bound_below
    return NONE if below is None else Cell(about(below), below)


_PLANS = (
    words("algorithm", lambda line: line.label, "algorithm with its options"),
    numbers("steps", lambda line: line.steps, "messages one after another on the longest path"),
    numbers("wire bytes / byte", lambda line: line.wire_per_byte,
            "bytes that the busiest rank sends per byte of the message, at the largest size", 3),
    Column("latency-bound below", "size at which alpha times steps equals beta times bytes", _below),
    words("predicted by", lambda line: "message by message" if line.played_out else "alpha, beta",
          "the program, message by message; or alpha × steps + beta × bytes"),
    numbers("measured / predicted, smallest", lambda line: line.ratios[0], "ratio at the smallest size", 3),
    numbers("largest", lambda line: line.ratios[-1], "ratio at the largest size", 3),
    numbers("worst", lambda line: max(line.ratios, key=lambda ratio: max(ratio, 1 / ratio)), "ratio farthest from 1", 3),
)


# ---- The words on a figure: a title, a line that describes the run, a badge if it was not measured. The title names the quantities,
# or has a finding that no sentence of the page has: a finding appears once

def _badge(row: Row) -> str:
    machine = row.run.simulated_machine
    return basis_badge([row.basis], f" on {machine}" if machine else link_text(row.run.link))


def subtitle(kind: str, result: PanelResult) -> str:
    transports = joined(sorted({series.variant.transport for series in result.series}))
    return dotted(collective_name(result.first.collective), counted(result.first.ranks, "rank"), result.dtype, transports,
                  result.gpus, "in place" if result.in_place else "out of place", _SHOWS[kind][1])


def _latency(result: PanelResult) -> str:
    if result.duels:
        return "Time of a call by message size"
    size = result.sizes[0]
    best = min((point.time_us, series.label) for series in result.series if (point := series.at(size)))
    return f"{best[1]} takes {time_text(best[0])} at {bytes_text(size)}" + _of_all(result, "the least")


def _busbw(result: PanelResult) -> str:
    rate, label, size = max((point.busbw_gbps(point.time_us), series.label, point.bytes)
                            for series in result.series for point in series.points)
    return f"{label} reaches {rate_text(rate)} at {bytes_text(size)}" + _of_all(result, "the most")


def _of_all(result: PanelResult, rank: str) -> str:
    number = len(result.series)
    return f", {rank} of {number} algorithms" if number > 1 else ""


def _predicted(result: PanelResult) -> str:
    known = result.predictions.by_label
    ratios = [ratio for prediction in known.values() for ratio in prediction.ratios]
    within = 100 * sum(0.8 <= ratio <= 1.25 for ratio in ratios) // len(ratios)
    off = median(abs(ratio - 1) for ratio in ratios)
    side = "" if off < 0.05 else "; most are longer" if median(ratios) > 1 else "; most are shorter"
    return (f"Half of the measured times lie within {short(100 * off, 2)} % of the prediction, "
            f"{'all' if within == 100 else f'{within} %'} within 25 %{side}")


def _percentiles(result: PanelResult) -> str:
    worst = max((point.stats.p99 / point.time_us, series.label, point.bytes) for series in result.series
                for point in series.points)
    return f"p99 is up to {times_text(worst[0])} the median ({worst[1]} at {bytes_text(worst[2])})"


_SHOWS = {  # description of a figure, the line below its title, the title
    "relative": ("Time over the fastest algorithm's time against message size", "grey strip: within 5 % of the fastest",
                 lambda result: "Time of each algorithm over the fastest one's, by message size"),
    "latency": ("Time of a call against message size", "median, band p5 to p95", _latency),
    "busbw": ("Bus bandwidth against message size", "at the median, band p5 to p95", _busbw),
    "predicted": ("Measured over predicted time against message size", "grey strip: within 25 %", _predicted),
    "percentiles": ("Percentiles of the time of a call against message size", "over the median", _percentiles),
}


def title_of(kind: str, result: PanelResult) -> str:
    return unbroken(sentence(_SHOWS[kind][2](result)).rstrip("."))


# ---- Selection of the series that get a colour if there are too many to distinguish; the others are drawn in grey

MOST = 6
_FIRST = ["ring", "double_tree", "tree"]


def shown_labels(result: PanelResult) -> list[str]:
    """At most MOST labels: the best of ring and tree, the plain ring, series that are fastest at some sizes, libraries, then the others,
    those closest to the fastest first."""
    series = result.series
    if len(series) <= MOST:
        return [line.label for line in series]
    duellists = [family.representative.label for duel in result.duels for family in (duel.ring, duel.tree)]
    libraries = [line.label for line in series if line.variant.executor == "library"]
    plain = [line.label for line in series if line.algorithm in _FIRST[:1]]
    winners = sorted(result.fastest, key=lambda span: span.first / span.last)
    wanted = [*duellists, *plain, *(str(span.answer) for span in winners if span.answer is not Verdict.UNDECIDED), *libraries, *_by_distance(result)]
    return list(dict.fromkeys(wanted))[:MOST]


def ordered(results: Sequence[PanelResult]) -> list[str]:
    """All labels that are shown anywhere, in the order in which they get styles: ring and tree first."""
    labels = list(dict.fromkeys(label for result in results for label in shown_labels(result)))
    names = {label: label.split(" (")[0] for label in labels}  # without the transport
    return sorted(labels, key=lambda label: _FIRST.index(names[label]) if names[label] in _FIRST else len(_FIRST))


def _by_distance(result: PanelResult) -> list[str]:
    """Labels by the median, over the sizes, of the time over the fastest's; the smallest ratio first."""
    best = {size: best_time(result.series, size) for size in result.sizes}

    def distance(series: Series) -> float:
        ratios = [point.time_us / best[point.bytes] for point in series.points]
        return sorted(ratios)[len(ratios) // 2]
    return [series.label for series in sorted(result.series, key=distance)]


# ---- Sections: for each collective its maps, then its panels

def panel_drawings(result: PanelResult, places: dict[str, int]) -> list[Drawing]:
    """`places`: each label's among the styles."""
    series, first = result.series, result.first
    wanted = {"relative": len(series) > 1, "latency": True, "busbw": True, "predicted": bool(result.predictions.by_label),
              "percentiles": any(point.stats.count > 1 for line in series for point in line.points)}
    shown = {label: places[label] for label in shown_labels(result)} if series else {}
    stem = f"{result.anchor}-{first.collective}-{first.ranks}-ranks-{first.basis}"
    return [drawing(kind, f"{stem}-{kind}", f"curves.{kind}", (result, shown), title_of(kind, result), subtitle(kind, result),
                    _badge(first), f"{_SHOWS[kind][0]}; {result.headline}")
            for kind, there in wanted.items() if series and there]


def map_drawing(winners: WinnerMap) -> Drawing:
    first = winners.first
    subtitle = dotted(winners.name, "colour: the fastest", "number: time of the next over it, where it is more than 5 %")
    return drawing("winners", f"{winners.anchor}-{first.collective}-{first.basis}-winners", "curves.winner_map", winners,
                   "The fastest algorithm by message size and number of ranks", subtitle, _badge(first))


def _map(winners: WinnerMap) -> Section:
    blocks = [Sentences([winners.finding]), Figures([map_drawing(winners)], wide=True),
              Tables([table("Every size and number of ranks", _WINNERS, winners.cells)], opened=False)]
    name = f"Which algorithm at which size on how many ranks: {winners.name}"
    return Section(winners.anchor, name, winners.basis, blocks)


def _panel(result: PanelResult, places: dict[str, int]) -> Section:
    rows, name = result.lines, basis_text(result.first) if result.basis else ""
    about = _about_prediction(result)
    tables = [table("Plans and their prediction", _PLANS, result.predictions.by_label.values()), results_table(result),
              percentile_table(result)]
    disturbed = disturbed_text(rows)
    sentences = [disturbed] if disturbed else [result.answer, result.best, result.why, result.bounds]
    blocks: list[Block] = [Sentences(sentences, caveat="" if disturbed else caveat_of(rows)), *([Aside(about)] if about else []),
                           Figures(panel_drawings(result, places)), Tables(tables, name, opened=False)]
    return Section(result.anchor, result.headline, name, blocks)


def _about_prediction(result: PanelResult) -> str:
    """Warning about the predicted times; empty if there is nothing to warn of."""
    predictions = result.predictions
    if not result.series or not predictions.no_fit:
        return ""
    if not predictions.by_label:
        return f"Measured against predicted: not possible here, {predictions.no_fit}."
    if predictions.left_out:
        return f"No prediction for {joined(list(predictions.left_out))}: {predictions.no_fit}."
    return f"No alpha and beta from send/recv, {predictions.no_fit}; the predicted times are the program's own."


def _sections(results: Sequence[PanelResult]) -> list[Section]:
    places = {label: place for place, label in enumerate(ordered(results))}
    maps = by(maps_of(results), lambda result: result.first.collective)
    return [Section(name.replace("_", "-"), collective_name(name), link=collective_name(name),
                    parts=[*map(_map, maps.get(name, ())), *(_panel(panel, places) for panel in panels)])
            for name, panels in by(results, lambda result: result.first.collective).items()]


# ---- The page

def _facts(records: Records, _: Sequence[Any]) -> list[Fact]:
    rows = records.rows
    found = [row.bytes for row in rows if row.bytes > 0]
    programs = joined(sorted({run.program for run in records.runs}))
    over = joined(sorted({f"{row.transport} ({row.run.rank_kind})" for row in rows}))
    spans = f"{bytes_text(min(found))} to {bytes_text(max(found))}" if found else "0 B"
    verified = sum(row.ok and row.wrong is not None for row in rows)
    return [Fact("What was run", f"{programs}: {ranks_text(rows)} ranks over {over}, {spans}"),
            Fact("Rows", f"{len(rows):,} rows, {sum(len(row.samples_us) for row in rows):,} timed calls; "
                         f"{'all verified' if verified == len(rows) else f'{verified:,} verified'}"),
            Fact("Basis", joined([f"{number:,} rows {basis}" for basis, number in Counter(r.basis for r in rows).items()]))]


def _bad(row: Row) -> BadLine:
    place = "in place" if row.in_place else "out of place"
    what = (f"{collective_name(row.collective)} {row.algorithm}, {counted(row.ranks, 'rank')} over {row.transport}, "
            f"{bytes_text(row.bytes)}, {row.dtype} {row.op}, {place}, {row.basis}")
    wrong = f"{counted(row.wrong, 'element')} differ" if row.wrong else ""
    return BadLine(row.status, what, "; ".join(part for part in (wrong, row.error) if part) or "no reason recorded")


PAGE = Page(
    2, "collectives", "Collectives", "Which algorithm is fastest at which size?", "Ring or tree, at which size, and why.",
    records=lambda records: records.only("rows"), results=analyse, sections=_sections, figure="relative",
    facts=_facts, findings=main_findings, notes=notes_on_collectives, bad=lambda records: [_bad(row) for row in records.rows if not row.ok],
    bad_heading="Wrong and failed rows")
