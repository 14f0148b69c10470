"""Reads record files, and outputs of nccl-tests and OSU micro-benchmarks, into Records. The first error ends the reading with one
line, FILE:LINE: error."""
import gzip
import json
import math
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Callable, Iterable, Optional

from reports import nccl_tests, osu
from reports.foreign import decoded, Text
from reports.lines import Line
from reports.schema import KINDS, problem_in, ReportError, shown
from reports.records import Records, Run, line_from, plural, run_from
from reports.units import counted, joined

VERSION = 1
FORMER_KINDS = ("scaling", "sharding", "layer", "context", "experts")


def is_partial(name: str) -> bool:
    """True for a file left by a stopped program (core/output_file.h), such as rows.partial.jsonl."""
    return ".partial" in Path(name).suffixes[-2:]


ForeignReader = Callable[[Text], list[Line]]


def foreign_reader(name: str, text: str) -> Optional[ForeignReader]:
    """The reader of another tool's output, by what is in it; None: it is no such output."""
    first = text.lstrip().split("\n", 1)[0]
    if '"record"' in first or name.removesuffix(".gz").endswith(".jsonl"):
        return None
    if not first.startswith("{") and (tools := [tool for tool in (osu, nccl_tests) if tool.is_text(text)]):
        return lambda source: [line for tool in tools for line in tool.text_lines(source)]
    return nccl_tests.json_lines if '"results"' in text and "{" in text else None


def load(files: Iterable[str], ranks: Optional[int] = None, collective: Optional[str] = None) -> Records:
    """All lines of the files, in order. `ranks` and `collective`: for outputs of other tools that do not state them. Raises ReportError."""
    reader = _Reader(ranks, collective)
    names = tuple(files)
    for name in names:
        reader.read_file(name)
    if not any(reader.lines.values()):
        left_out = [f"; {note}" for run in reader.runs.values() for note in run.notes or ()]
        raise ReportError(f"{', '.join(names)}: no records but {counted(len(reader.runs), 'run line')}{''.join(left_out)}")
    return Records(names, tuple(reader.runs.values()),
                   **{plural(kind): tuple(lines) for kind, lines in reader.lines.items()})


class _Reader:
    def __init__(self, ranks: Optional[int], collective: Optional[str]) -> None:
        self._said = ranks, collective  # by the user
        self.runs: dict[str, Run] = {}
        self.lines: dict[str, list[Any]] = {kind: [] for kind in KINDS if kind != "run"}
        self._first_seen: dict[str, str] = {}

    def read_file(self, name: str) -> None:
        lines = _whole_lines_of(name) if is_partial(name) else _lines_of(name)
        if not lines:
            raise ReportError(f"{name}: the file is empty; it must hold records (docs/record_format.md)")
        if foreign := foreign_reader(name, "\n".join(lines)):
            self._read_foreign(name, text_of(name), foreign)
            return
        def each(taken: Callable[[str, Any], Any], given: Iterable[Any]) -> list[Any]:
            made = []
            for number, one in enumerate(given, start=1):
                try:
                    made.append(taken(f"{name}:{number}", one))
                except _BadLine as bad:
                    cut = " (the file seems to be cut off here)" if number == len(lines) and bad.is_syntax else ""
                    raise ReportError(f"{name}:{number}: {bad}{cut}") from None
            return made

        records = _noting_former_kinds(name, each(lambda _, line: _parse(line), lines))
        each(lambda place, data: self._take(data, place, is_partial(name)), records)

    def _read_foreign(self, name: str, text: str, reader: ForeignReader) -> None:
        whole, _, last = text.rpartition("\n")
        if re.match(r"\s*\d", last):
            raise ReportError(f"{name}:{whole.count(chr(10)) + 2}: '{last.strip()[:40]}' has no end of line, so its last number may be cut; "
                              "allowed: the whole output (was the program stopped?)")
        source = Text(name, text, *self._said)
        lines = reader(source)
        if notes := source.notes():
            lines[0]["notes"] = notes
        try:
            for line in lines:
                self._take(line, name, partial=False)
        except _BadLine as bad:
            raise ReportError(f"{name}: {bad}") from None

    def _take(self, data: dict[str, Any], place: str, partial: bool) -> None:
        kind = data.get("record")
        if kind in FORMER_KINDS:
            if not isinstance(run := data.get("run"), str) or run not in self.runs:
                raise _BadLine(f"{kind} of run {shown(run)}, but no run line with that name stands before it")
            return  # the run has a note on it
        if kind not in KINDS:
            raise _BadLine(f"field 'record' is {shown(kind)}, must be one of {', '.join(KINDS)}")
        if kind == "run" and data.get("version") != VERSION:
            raise _BadLine(f"record format version {shown(data.get('version'))}; this program reads version {VERSION}"
                           " only, and does not mix versions")
        problem = problem_in(data, kind)
        if problem:
            raise _BadLine(problem)
        if kind == "run":
            self._take_run(run_from(data, partial, place.rpartition(":")[0]), place)
        else:
            self.lines[kind].append(line_from(data, self._run_of(data)))

    def _take_run(self, run: Run, place: str) -> None:
        if run.run in self.runs:
            raise _BadLine(f"run '{run.run}' was already given at {self._first_seen[run.run]}; give each run once")
        self.runs[run.run] = run
        self._first_seen[run.run] = place

    def _run_of(self, data: dict[str, Any]) -> Run:
        run = self.runs.get(data["run"])
        if run is None:
            raise _BadLine(f"{data['record']} of run '{data['run']}', but no run line with that name stands before it")
        if data["record"] in ("verdict", "history") and run.gate is None:
            raise _BadLine(f"{data['record']} of run '{data['run']}', whose run line lacks what was compared (field 'gate')")
        basis = data.get("basis", run.basis)  # a ceiling and a verdict have none of their own
        # Counted or published points of a study are shown together with simulated ones, each with its own basis.
        is_reference = data["record"] == "study" and basis in ("counted", "published")
        if not is_reference and basis != run.basis:
            raise _BadLine(f"the {data['record']} is {basis} but its run is {run.basis}; the two are never mixed in a"
                           " run")
        return run


def _noting_former_kinds(name: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records; a run of which lines will be left out, as their kinds are of earlier versions, has a note."""
    kinds: dict[Any, Counter[str]] = defaultdict(Counter)  # by run
    for data in records:
        if data.get("record") in FORMER_KINDS and isinstance(data.get("run"), str):
            kinds[data["run"]][data["record"]] += 1

    def noted(data: dict[str, Any]) -> dict[str, Any]:
        left_out = kinds.get(data["run"]) if data.get("record") == "run" and isinstance(data.get("run"), str) else None
        if not left_out:
            return data
        what = joined([f"{counted(number, 'line')} of kind '{kind}'" for kind, number in left_out.items()])
        return {**data, "notes": [*(data.get("notes") or ()),
                                  f"{Path(name).name}: {what}, of an earlier version, left out; run {data.get('program')} again: "
                                  "what they had is in records of kind 'step'"]}
    return [noted(data) for data in records]


class _BadLine(Exception):
    def __init__(self, text: str, is_syntax: bool = False) -> None:
        super().__init__(text)
        self.is_syntax = is_syntax


def _bytes_of(name: str) -> bytes:
    with gzip.open(name) if name.endswith(".gz") else open(name, "rb") as file:
        return file.read()


def text_of(name: str) -> str:
    """The text of a file (foreign.decoded), which may be compressed by gzip. Raises ReportError."""
    try:
        return decoded(_bytes_of(name))
    except FileNotFoundError:
        raise ReportError(f"{name}: no such file") from None
    except UnicodeDecodeError as error:
        raise ReportError(f"{name}: not UTF-8 text (byte {error.start})") from None
    except (OSError, EOFError) as error:
        raise ReportError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _lines_of(name: str) -> list[str]:
    lines = text_of(name).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _whole_lines_of(name: str) -> list[str]:
    """Lines without an unfinished last one, which a stopped program leaves."""
    lines = _lines_of(name)
    return lines if Path(name).read_bytes().endswith(b"\n") else lines[:-1]


def _reject_constant(name: str) -> None:
    raise _BadLine(f"{name} is not a JSON number; what is unknown is null")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _BadLine(f"{shown(text)} is not a number that 64 bits hold; what is unknown is null")
    return number


def _integer(text: str) -> int:
    if len(text) > 19:
        raise _BadLine(f"{shown(text)} is not an integer that 64 bits hold; what is unknown is null")
    return int(text)


def _parse(line: str) -> dict[str, Any]:
    try:
        data = json.loads(line, parse_constant=_reject_constant, parse_float=_finite, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise _BadLine(f"not JSON: {error.msg} at column {error.colno}", is_syntax=True) from None
    except RecursionError:
        raise _BadLine("not a record: nested too deeply") from None
    if not isinstance(data, dict):
        raise _BadLine(f"must be a JSON object, is {shown(data)}")
    return data
