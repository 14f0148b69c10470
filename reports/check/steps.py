"""Warnings about schedules and simulated layouts."""
from typing import Iterable

from reports.analysis.steps.cases import repeated
from reports.check.runs import Note, are, notes_on_runs, worst_first
from reports.records import Records, ScheduleLine
from reports.units import counted, joined, short

LATE = 0.02  # share of the shortest task: a wake-up that is later shows in the makespan


def notes_on_schedules(records: Records) -> list[Note]:
    """Worst first."""
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
