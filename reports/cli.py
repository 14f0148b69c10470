"""python3 -m reports RECORDS... [-o DIR] [--summary]"""
import argparse
import os
import sys
from pathlib import Path
from typing import Optional, Sequence

from reports.analysis.findings import summary_text
from reports.analysis.report import report_of
from reports.check import notes_on
from reports.schema import ReportError
from reports.load import load


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        """One line, as all our programs do."""
        raise ReportError(f"{message}; see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python3 -m reports", description="Makes a page of record files (docs/record_format.md).")
    parser.add_argument("records", nargs="+", metavar="RECORDS", help="JSON Lines files that the programs wrote (.jsonl, .jsonl.gz)")
    parser.add_argument("-o", "--output", default="out/report", metavar="DIR",
                        help="folder of the page; a report that is there is replaced (default: %(default)s)")
    parser.add_argument("--summary", action="store_true", help="only print the main findings; write nothing")
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    try:
        status = _report(_parser().parse_args(arguments))
        sys.stdout.flush()
        return status
    except ReportError as error:
        print(f"reports: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # standard output cannot be written: all other failures are ReportErrors
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes the text that Python has not written yet
        if isinstance(error, BrokenPipeError):  # the reader of our output left, as head does; nothing is lost but text
            return 0
        print(f"reports: standard output: {error.strerror}", file=sys.stderr)
        return 2


def _report(options: argparse.Namespace) -> int:
    report = report_of(load(options.records))
    index = None
    if not options.summary:
        from reports.html.write import write_report  # matplotlib takes a second to import; a summary needs none

        index = write_report(report, Path(options.output))
    print(summary_text(report.findings))
    for note in notes_on(report):
        if note.level == "error":
            print(f"WRONG OR FAILED: {note.text}")
    if index:
        print(f"report: {index}")
    return 0
