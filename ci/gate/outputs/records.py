"""A report as records (docs/record_format.md): a run line that says what was compared, a verdict line a case."""
import json
import math
import platform
import secrets
from collections.abc import Sequence
from dataclasses import asdict

from ..model import Change, HistoryReport, Report, Result, Series
from .machine import this_machine

MACHINE_RANKS = {"ranks": 1, "transport": "local", "rank_kind": "processes", "oversubscribed": False, "seed": None,
                 "link": None, "gpu": None, "basis": "measured"}


def lines_of(report: Report, command: Sequence[str], started: str) -> list[dict]:
    """`command` as strangers may see it; `started` UTC, ISO 8601."""
    run = secrets.token_hex(8)
    return [run_line(report, run, command, started), *(verdict_line(result, run) for result in report.results)]


def run_line(report: Report, run: str, command: Sequence[str], started: str) -> dict:
    compared = {"mode": report.mode, "base": asdict(report.base), "head": asdict(report.head), "threshold": report.threshold,
                "confidence": report.confidence, "seconds": report.seconds, "notes": list(report.notes)}
    return {"record": "run", "version": 1, "run": run, "program": "gate.py", "command": list(command), "started": started,
            "git": {"revision": report.head.revision or "unknown", "dirty": None},
            "build": {"compiler": None, "flags": None, "type": None}, "machine": this_machine(),
            "libraries": {"python": platform.python_version()}, **MACHINE_RANKS, "gate": compared}


def verdict_line(result: Result, run: str) -> dict:
    return {"record": "verdict", "run": run, "case": result.case, "channel": result.channel.value,
            "verdict": result.verdict.value, "unit": result.unit, "base": _known(result.base), "head": _known(result.head),
            "ratio": _known(result.ratio), "low": _known(result.low), "high": _known(result.high), "why": result.why,
            "pairs": result.pairs, "ratios": list(result.ratios), "seconds": result.seconds}


def history_lines(report: Report | HistoryReport, run: str) -> list[dict]:
    """Beside the verdicts, where there is a history."""
    return [_series_line(series, run) for series in report.series] if isinstance(report, HistoryReport) else []


def _series_line(series: Series, run: str) -> dict:
    return {"record": "history", "run": run, "case": series.case, "channel": series.channel.value, "unit": series.unit,
            "better": series.better, "why": series.why, "points": [asdict(point) for point in series.points],
            "changes": [_change(change) for change in series.changes]}


def _change(change: Change) -> dict:
    return {**asdict(change), **{name: _known(getattr(change, name)) for name in ("ratio", "low", "high")}}


def text_of(lines: Sequence[dict]) -> str:
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def _known(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
