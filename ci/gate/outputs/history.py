"""A history as a Report: a case's verdict is that of its last change, if that is recent. So every output can tell it."""
import statistics

from reports.analysis.gate.words import change_text

from gate.model import Change, HistoryReport, Report, Result, Series, Side, Verdict

MOST = 10  # earlier changes that are told as notes


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
    """The changes that are no verdict on a case: all but a recent last one."""
    found: list[tuple[str, Series, Change]] = []
    for series in report.series:
        told = series.changes if series.verdict is Verdict.SAME else series.changes[:-1]
        found += [(series.points[change.at].time, series, change) for change in told]
    found.sort(key=lambda one: one[0], reverse=True)
    lines = [f"earlier change, {time[:10]}: {series.case} {change_text(change.ratio, series.channel.value)} in {change.blame}"
             for time, series, change in found[:MOST]]
    return lines + ([f"{len(found) - MOST} more earlier changes"] if len(found) > MOST else [])
