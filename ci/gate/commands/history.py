"""gate.py history: in a series of record files, one per revision, where did a case's level change, and which commits are to blame?
Status 1 if the last change of a case is for the worse and among its last points."""
import argparse
import time
from pathlib import Path

from gate.model import HistoryReport, UsageError
from gate.history import HistoryRule, history
from gate.inputs.files import read
from gate.commands.ab import threshold_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="DIR", help="folders, files or globs of measurements, ordered by their time")
    parser.add_argument("--last", type=int, default=10, metavar="N", help="points of a case that count as recent (default: 10)")
    parser.add_argument("--threshold", default="2%", metavar="PERCENT", help="smaller steps are left out (default: 2%%)")


def run(arguments: argparse.Namespace) -> HistoryReport:
    start = time.monotonic()
    if arguments.last < 1:
        raise UsageError(f"--last {arguments.last}; allowed: at least 1")
    rule = HistoryRule(threshold=threshold_of(arguments.threshold, "--threshold"), last=arguments.last)
    observations = read(arguments.files, "DIR")
    if not observations:
        raise UsageError(f"DIR {' '.join(arguments.files)}: no measurement; allowed: files with at least one")
    series, notes = history(observations, rule)
    return HistoryReport(Path(arguments.files[0]).name, rule.last, rule.error, 1 - 2 * rule.bound_error, rule.threshold,
                         tuple(series), time.monotonic() - start, tuple(notes))
