"""python3 -m reports RECORDS... [-o DIR] [--summary]; installed: lockstep-report RECORDS..."""
import argparse
import os
import sys
from pathlib import Path
from typing import Optional, Sequence

from reports import VERSION
from reports.analysis.findings import summary_text
from reports.schema import ReportError
from reports.load import load
from reports.report import report_of


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        """Reports an error as one line, as all our programs do."""
        raise ReportError(f"{message}; see --help")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: allowed: a whole number from 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    called = Path(sys.argv[0]).name
    parser = _Parser(prog=called if called == "lockstep-report" else "python3 -m reports",
                     description="Makes a report from record files (docs/record_format.md).")
    parser.add_argument("records", nargs="+", metavar="RECORDS", help="JSON Lines files that the programs wrote (.jsonl, .jsonl.gz), nccl-tests' text or JSON, OSU's text")
    parser.add_argument("-o", "--output", default="out/report", metavar="DIR",
                        help="folder for the report; replaces a report that is there (default: %(default)s)")
    parser.add_argument("--ranks", type=_positive, metavar="N", help="number of ranks for outputs of other tools; overrides what they state (OSU's states none)")
    parser.add_argument("--collective", metavar="NAME", help="collective (all_reduce, ...) of nccl-tests' tables that name none")
    parser.add_argument("--version", action="version", version=f"lockstep-report (Lockstep) {VERSION}")
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
    except KeyboardInterrupt:  # the folder of a new report is removed, and an old report stays as it was
        print("\r\033[K" * sys.stderr.isatty() + "reports: interrupted; nothing was written", file=sys.stderr)
        return 130
    except OSError as error:  # standard output's: all others are ReportErrors
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python has not written yet
        if isinstance(error, BrokenPipeError):  # the reader of our output has closed it, as head does; only text is lost
            return 0
        print(f"reports: standard output: {error.strerror}", file=sys.stderr)
        return 2


def _report(options: argparse.Namespace) -> int:
    report = report_of(records := load(options.records, options.ranks, options.collective))
    notes = [note for run in records.runs for note in run.notes or ()]
    for note in notes if not sys.stdout.isatty() else ():  # a terminal has them once, below
        print(f"reports: note: {note}", file=sys.stderr)
    index = None
    if not options.summary:
        from reports.html.write import write_report  # matplotlib takes a second to import; a summary needs none

        index = write_report(report, Path(options.output))
    print(summary_text(report.findings))
    for note in notes:
        print(f"NOTE: {note}")
    for note in report.notes:
        if note.level == "error":
            print(f"WRONG OR FAILED: {note.text}")
    if index:
        print(f"report: {index}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
