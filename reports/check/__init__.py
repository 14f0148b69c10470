"""Warnings that a reader needs before the numbers: mixed, missing, wrong or doubtful records are named, not hidden."""
from reports.analysis.report import Report
from reports.check.collectives import notes_on_collectives, notes_on_schedules, notes_on_simulations
from reports.check.kernels import notes_on_kernels
from reports.check.runs import Note


def notes_on(report: Report) -> list[Note]:
    """Warnings by subject; each worst first."""
    records = report.records
    collectives = notes_on_collectives(records.of_collectives(), report.collectives) if report.collectives else []
    kernels = notes_on_kernels(records.of_kernels(), report.kernels) if report.kernels else []
    schedules = notes_on_schedules(records.of_schedules()) if report.schedules or report.overlaps else []
    simulations = notes_on_simulations(records.of_simulations()) if report.simulations else []
    return collectives + kernels + schedules + simulations
