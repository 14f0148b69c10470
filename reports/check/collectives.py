"""Warnings about the rows of collectives."""

from collections import defaultdict
from typing import Iterable

from reports.analysis.panels import Panel
from reports.analysis.results import Analysis, headline, PanelResult
from reports.analysis.steps.schedules import repeated
from reports.check.runs import are, FEW_SAMPLES, have, Note, notes_on_runs, worst_first
from reports.records import Records, ScheduleLine
from reports.units import bytes_text, counted, joined, short


def notes_on_collectives(records: Records, analysis: Analysis) -> list[Note]:
    """Warnings, worst first."""
    found = [*_bad_rows(records), *notes_on_runs(records), *_oversubscribed(records), *_unverified(records),
             *_samples(records), *_zero_sizes(records)]
    for result in analysis.results:
        found += _holes(result) + _pooled(result)
    return worst_first(found)


def _bad_rows(records: Records) -> Iterable[Note]:
    wrong = [row for row in records.rows if row.status == "wrong"]
    failed = [row for row in records.rows if row.status == "failed"]
    if wrong:
        yield Note("error", f"{counted(len(wrong), 'row')} had wrong results and {are(wrong)} left out of every plot "
                            f"and sentence: {_of_algorithms(wrong)}.")
    if failed:
        yield Note("error", f"{counted(len(failed), 'row')} failed and {have(failed)} no times: "
                            f"{_of_algorithms(failed)}.")


def _of_algorithms(rows: list) -> str:
    return joined(sorted({f"{row.collective} {row.algorithm} at {counted(row.ranks, 'rank')}" for row in rows}))


def _oversubscribed(records: Records) -> Iterable[Note]:
    ranks = sorted({(row.ranks, row.run.machine.cores) for row in records.rows if row.oversubscribed})
    if ranks:
        told = joined([f"{ranks} ranks on {counted(cores, 'core')}" for ranks, cores in ranks])
        yield Note("warning", f"More ranks than cores: {told}. Ranks then wait for a core as well as for each other, "
                              "so these times say more about the scheduler than a machine with a core per rank would.")


def _unverified(records: Records) -> Iterable[Note]:
    number = sum(row.ok and row.wrong is None and row.basis != "simulated" for row in records.rows)
    if number:
        yield Note("warning", f"The results of {counted(number, 'row')} were not verified.")


def _samples(records: Records) -> Iterable[Note]:
    few = [row for row in records.rows if row.ok and len(row.samples_us) < FEW_SAMPLES]
    if few:
        yield Note("info", f"{counted(len(few), 'row')} {have(few)} fewer than {FEW_SAMPLES} samples: their p95 and "
                           "p99 are little more than the maximum.")


def _zero_sizes(records: Records) -> Iterable[Note]:
    number = sum(row.bytes == 0 for row in records.rows)
    if number:
        yield Note("info", f"{counted(number, 'row')} of 0 bytes: in the tables, not in the plots (logarithmic axes).")


def _holes(result: PanelResult) -> list[Note]:
    """Sizes that some algorithms of a panel have and others lack, which is easily missed in a plot."""
    sizes = result.panel.sizes
    by_sizes: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for label, timed in _timed_sizes(result.panel).items():
        missing = tuple(size for size in sizes if size not in timed)
        if missing:
            by_sizes[missing].append(label)
    return [Note("warning", f"{headline(result)}: {joined(labels)} {'has' if len(labels) == 1 else 'have'} no time at "
                            f"{_sizes_text(missing)}.") for missing, labels in by_sizes.items()]


def _timed_sizes(panel: Panel) -> dict[str, set[int]]:
    timed = {series.label: set(series.sizes) for series in panel.series}
    named = {series.algorithm for series in panel.series}
    untimed = {row.algorithm for row in panel.rows if row.bytes > 0} - named
    return {**timed, **{name: set() for name in sorted(untimed)}}


def _sizes_text(sizes: tuple[int, ...]) -> str:
    if len(sizes) <= 4:
        return joined([bytes_text(size) for size in sizes])
    return f"{len(sizes)} sizes from {bytes_text(sizes[0])} to {bytes_text(sizes[-1])}"


def _pooled(result: PanelResult) -> list[Note]:
    pooled = [series.label for series in result.panel.series if series.pooled]
    if not pooled:
        return []
    return [Note("info", f"{headline(result)}: several rows of the same size had their samples put together, for "
                         f"{joined(pooled)}.")]


# Warnings about schedules and simulated layouts.

LATE = 0.02  # share of the shortest task: a later wake-up affects the makespan


def notes_on_schedules(records: Records) -> list[Note]:
    """Warnings, worst first."""
    lines = records.schedules
    return worst_first([*notes_on_runs(records), *_hidden(lines), *_late(lines), *_without_timeline(lines)])


def notes_on_simulations(records: Records) -> list[Note]:
    return worst_first(notes_on_runs(records))


def _hidden(lines: tuple[ScheduleLine, ...]) -> Iterable[Note]:
    number = repeated(lines)
    if number:
        yield Note("info", f"{counted(number, 'step')} of earlier runs {are([0] * number)} left out: a later one is of "
                           "the same schedule, workload and basis.")


def _late(lines: tuple[ScheduleLine, ...]) -> Iterable[Note]:
    late = [line for line in lines if line.late_us and line.times_ms and line.late_us > LATE * 1e3 * _shortest(line)]
    if late:
        worst = max(late, key=lambda line: line.late_us)
        yield Note("warning", f"In {counted(len(late), 'emulated step')} some task began late by more than "
                              f"{short(100 * LATE)} % of the shortest one, {worst.schedule} most "
                              f"({short(worst.late_us)} µs): the machine had other work to do.")


def _shortest(line: ScheduleLine) -> float:
    times = line.times_ms
    return min((value for value in (times.forward, times.input_gradient, times.weight_gradient) if value > 0),
               default=0) / line.chunks


def _without_timeline(lines: tuple[ScheduleLine, ...]) -> Iterable[Note]:
    without = sorted({line.schedule for line in lines if not line.timeline})
    if without:
        yield Note("info", f"No timeline is recorded of {joined(without)}: no chart is drawn of "
                           f"{'it' if len(without) == 1 else 'them'}.")
