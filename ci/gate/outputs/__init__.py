"""Outputs of a report for people and programs: the table on the terminal, and the files that the flags name."""
import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from gate.model import Change, CouldNotRun, GateError, Report, Series, UsageError, Verdict
from gate.builds import wipe
from gate.outputs.records import check_writable, lines_of, text_of, write_whole
from gate.outputs.markdown import junit, markdown
from gate.outputs.terminal import table, wants_colour
from reports.analysis.gate.words import change_text

FILES = (("markdown", "for a pull request"), ("junit", "JUnit XML: a test per case"),
         ("records", "JSON Lines (docs/record_format.md)"), ("html", "a page with plots, in one file"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="show every case, not only those that changed or are undecided")
    for name, what in FILES:
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"also write this file: {what}")


@dataclass(frozen=True)
class Outputs:
    """Made before anything is measured: refuses files that could not be written at the end."""

    arguments: argparse.Namespace
    command: tuple[str, ...]  # without anything private
    started: str  # UTC, ISO 8601

    def write(self, report: Report) -> None:
        """The table comes first and always; then all writable files, before the first error is reported."""
        wipe()
        failures = self._print(table(with_earlier(report), self.arguments.all, wants_colour(sys.stdout, os.environ)))
        failures += [error for name, _ in FILES if self._file(name) for error in self._try_to_write(name, report)]
        if failures:
            raise failures[0]

    def _file(self, name: str) -> Path | None:
        return getattr(self.arguments, name)

    def _try_to_write(self, name: str, report: Report) -> list[GateError]:
        try:
            write_whole(self._file(name), self._text(name, report), f"--{name}")
        except GateError as error:
            return [error]
        return []

    def _text(self, name: str, report: Report) -> str:
        shown = _published(report)
        if name == "markdown":
            return markdown(with_earlier(shown), shlex.join(["python3", *self.command]))
        if name == "junit":
            return junit(with_earlier(shown), self.started, undecided_fails=self.arguments.undecided == "fail")
        lines = lines_of(shown, self.command, self.started)
        return text_of(lines) if name == "records" else page(lines)

    def _print(self, text: str) -> list[GateError]:
        """Prints the table even if the terminal's encoding lacks a letter of a case's name."""
        encoding = sys.stdout.encoding or "utf-8"
        try:
            print(text.encode(encoding, "replace").decode(encoding), flush=True)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes the text that Python has not written yet
            return [CouldNotRun(f"standard output: {error.strerror}")]
        return []


def prepare_outputs(arguments: argparse.Namespace, words: Sequence[str]) -> Outputs:
    """Outputs that the flags ask for; `words`: the command line without the program."""
    files = [(name, getattr(arguments, name)) for name, _ in FILES if getattr(arguments, name)]
    for i, (name, path) in enumerate(files):
        check_writable(path, f"--{name}")
        for other, before in files[:i]:
            if before.resolve() == path.resolve():
                raise UsageError(f"--{name} {path}: --{other} has the same file; allowed: a file each")
    if arguments.html:
        check_packages()
    command = ("ci/gate.py", *(_public(word) for word in words))
    return Outputs(arguments, command, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def _published(report: Report) -> Report:
    """The report with names of its sides that contain nothing private."""
    base, head = (replace(side, name=_public(side.name)) for side in (report.base, report.head))
    return replace(report, base=base, head=head)


def _public(word: str) -> str:
    """The command, with only the last part of absolute paths, as in all records."""
    flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return flag + equals + (value.rsplit("/", 1)[1] if value.startswith(("/", "~")) and "/" in value else value)


MOST = 10  # number of earlier changes that become notes


def with_earlier(report: Report) -> Report:
    """The report with notes on those changes of a history that are no verdict on a case: all except a recent last one. Records have them."""
    found: list[tuple[str, Series, Change]] = []
    for series in report.series:
        changes = series.changes if series.verdict is Verdict.SAME else series.changes[:-1]
        found += [(series.points[change.at].time, series, change) for change in changes]
    found.sort(key=lambda entry: entry[0], reverse=True)
    lines = [f"earlier change, {time[:10]}: {series.case} {change_text(change.ratio, series.channel)} in {change.blame}"
             for time, series, change in found[:MOST]]
    more = [f"{len(found) - MOST} more earlier changes"] if len(found) > MOST else []
    return replace(report, notes=(*report.notes, *lines, *more))


# ---- A report as a page of HTML in one file, the same that python3 -m reports makes from its records

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
