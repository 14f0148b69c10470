"""Converts a history to a Report, so that every output can show it: a case's verdict is that of its last change, if it is recent."""

import statistics
from collections.abc import Sequence
from importlib.util import find_spec

from gate.model import Change, CouldNotRun, HistoryReport, Report, Result, Series, Side, Verdict
from reports.analysis.gate.words import change_text


MOST = 10  # number of earlier changes that become notes


def as_report(report: Report | HistoryReport) -> Report:
    if isinstance(report, Report):
        return report
    last = max((point for series in report.series for point in series.points), key=lambda point: point.time, default=None)
    return Report(report.mode, Side("before"), Side(report.source, last.revision if last else "unknown", report.source),
                  report.threshold, report.confidence, tuple(_result(series) for series in report.series), report.seconds,
                  (*report.notes, *_earlier(report)))


def _result(series: Series) -> Result:
    if series.verdict is Verdict.SAME:
        values = [point.value for point in series.points]
        level = series.changes[-1].after if series.changes else statistics.median(values) if values else None
        return Result(series.case, series.channel, Verdict.SAME, series.unit, base=level, head=level,
                      why=series.why or f"{len(values)} points")
    change = series.changes[-1]
    return Result(series.case, series.channel, series.verdict, series.unit, base=change.before, head=change.after,
                  ratio=change.ratio, low=change.low, high=change.high, why=f"since {change.blame}")


def _earlier(report: HistoryReport) -> list[str]:
    """The changes that are no verdict on a case: all except a recent last one."""
    found: list[tuple[str, Series, Change]] = []
    for series in report.series:
        told = series.changes if series.verdict is Verdict.SAME else series.changes[:-1]
        found += [(series.points[change.at].time, series, change) for change in told]
    found.sort(key=lambda one: one[0], reverse=True)
    lines = [f"earlier change, {time[:10]}: {series.case} {change_text(change.ratio, series.channel.value)} in {change.blame}"
             for time, series, change in found[:MOST]]
    return lines + ([f"{len(found) - MOST} more earlier changes"] if len(found) > MOST else [])


# A report as a page of HTML in one file, the same that python3 -m reports makes from its records.

NEEDED = ("matplotlib", "jinja2", "jsonschema")


def check_packages() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CouldNotRun(f"--html: needs Python's {' and '.join(missing)} (ci/install.sh report), not installed here")


def page(lines: Sequence[dict]) -> str:
    """Page of the lines that --records writes."""
    from reports.html.write import gate_file  # matplotlib takes a second to import
    from reports.records import Records, line_from, run_from

    runs = {line["run"]: run_from(line) for line in lines if line["record"] == "run"}
    verdicts, histories = (tuple(line_from(line, runs[line["run"]]) for line in lines if line["record"] == kind)
                           for kind in ("verdict", "history"))
    return gate_file(Records((), tuple(runs.values()), verdicts=verdicts, histories=histories))
