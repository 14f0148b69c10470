"""Finds the files that a user names, and the format of each; reads google/benchmark's JSON."""
import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gate.inputs.observation import FAILURES, Observation, Origin, Quantity, UNKNOWN
from gate.inputs.records import read_foreign, read_records
from gate.model import Channel, UsageError
from reports.foreign import documents, Fields, fingerprint_of, Text, utc
from reports.load import foreign_reader, text_of
from reports.schema import ReportError

SUFFIXES = (".jsonl", ".json", ".txt", ".out", ".log")  # endings of files in a folder; a file that is named may have any
ALLOWED = "our records (JSON Lines), google/benchmark's JSON, nccl-tests' text or JSON, OSU's text"

Reader = Callable[[Path], list[Observation]]


def files_of(text: str, what: str) -> list[Path]:
    """A file, a folder (its own files, not its folders'), or a glob; sorted by name."""
    path = Path(text)
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.is_file() and file.suffix in SUFFIXES and not file.name.startswith("."))
    elif path.exists():
        found = [path]
    else:
        found = sorted(Path(name) for name in glob.glob(text, recursive=True) if Path(name).is_file())
    if not found:
        why = "no such file in it" if path.is_dir() else "no such file"
        raise UsageError(f"{what} {text}: {why}; allowed: a file, a folder with {' '.join(SUFFIXES)}, or a glob, of {ALLOWED}")
    return found


def read(texts: Sequence[str], what: str) -> list[Observation]:
    """Observations of all named files; a file that is named twice is read once."""
    paths = dict.fromkeys(path.resolve() for text in texts for path in files_of(text, what))
    return [observed for path in paths for observed in read_file(path)]


def read_file(path: Path) -> list[Observation]:
    try:
        return _reader_of(path)(path)
    except ReportError as error:
        text = str(error)
        raise UsageError(text if "allowed" in text else f"{text}; allowed: {ALLOWED}") from error


def _reader_of(path: Path) -> Reader:
    """Reader of a file, chosen by its content. Our records are recognised by their first line, even if the file is broken. Raises
    UsageError for an empty or unknown file."""
    text = text_of(str(path))
    first = text.lstrip().split("\n", 1)[0]
    if not first:
        raise UsageError(f"{path}: the file is empty; allowed: {ALLOWED}")
    if path.suffix == ".jsonl" or '"record"' in first:
        return read_records
    if foreign_reader(path.name, text):
        return read_foreign
    if '"benchmarks"' in text and "{" in text:
        return read_google_benchmark
    if not first.startswith("{"):
        raise UsageError(f"{path}:1: '{first[:40]}'; allowed: {ALLOWED}")
    raise UsageError(f"{path}: JSON without 'benchmarks' or 'results'; allowed: {ALLOWED}")


# ---- Reads google/benchmark's JSON (--benchmark_out_format=json) as observations. A file is one process: its repetitions are samples
# of one run. Aggregates are left out, as they are computed from the same repetitions.
#
# The benchmark's name decides which time counts: real time with UseRealTime or UseManualTime (names end in
# /real_time, /manual_time), else the CPU time of its process, which does not include waits.

_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_REAL = ("real_time", "manual_time")
_HOW_LONG = re.compile(r"/(min_time|min_warmup_time|repeats):[^/]*")  # parts of a name that do not change the measured code
_REVISIONS = ("revision", "git_revision")  # names that users give to it: --benchmark_context=revision=...


_AGGREGATE = re.compile(r"(.+)_(mean|median|stddev|cv|BigO|RMS)$")  # names of aggregates, which old versions give no run_type
# Fields that are read, or are not worth a note
_READ = ("name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions", "repetition_index", "threads",
         "iterations", "real_time", "cpu_time", "time_unit", "error_occurred", "error_message", "skipped", "skip_message")


def read_google_benchmark(path: Path) -> list[Observation]:
    source = Text(str(path), text_of(str(path)))
    found = [observed for number, data in enumerate(documents(source)) for observed in _of_process(data, source, f" {number + 1}" if number else "")]
    if not found:
        raise UsageError(f"{path}: no benchmark; allowed: at least one that is not an aggregate (was "
                         f"--benchmark_report_aggregates_only given?){''.join(f'; {note}' for note in source.notes())}")
    notes = tuple(source.notes())
    return [replace(observed, origin=replace(observed.origin, notes=notes)) for observed in found]


def _of_process(data: Any, source: Text, number: str) -> Iterator[Observation]:
    top = Fields(data, source.name)
    context, entries = top.get("context", dict), top.get("benchmarks", list)
    origin = Origin(source.name + number, Path(source.name).name, utc(str(context.get("date", ""))), _revision(context), _fingerprint(context))
    top.leave_unread(source)
    names = {entry.get("name") for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)}
    for at, entry in enumerate(entries):
        yield from _of_benchmark(Fields(entry, f"{source.name}: benchmarks[{at}]"), origin, names, source)


def _is_aggregate(entry: dict, name: str, names: set) -> bool:
    if "run_type" in entry or not (match := _AGGREGATE.match(name)):
        return entry.get("run_type", "iteration") == "aggregate"
    return match[1] in names or "big_o" in entry or "rms" in entry or {f"{match[1]}_{suffix}" for suffix in ("mean", "median", "stddev")} <= names


def _of_benchmark(entry: Fields, origin: Origin, names: set, source: Text) -> Iterator[Observation]:
    name = entry.get("name", str)
    if _is_aggregate(entry.data, name, names):
        source.leave("aggregates, left out", name)
        return
    case = _HOW_LONG.sub("", entry.get("run_name", str, name))
    entry.leave_unread(source, left_out=_READ)
    if (kind := entry.get("run_type", str, "iteration")) != "iteration":
        source.leave("entries that are no repetitions, left out", f"{name} ({kind})")
        return
    failed = entry.get("error_occurred", bool, False)
    failure = Observation(Quantity(f"{case}: failures", Channel.EXACT, FAILURES), origin, (float(failed),))
    if failed or entry.get("skipped", bool, False):
        why = str(entry.data.get("error_message") or entry.data.get("skip_message"))[:60]
        source.leave("benchmarks that failed or were skipped", f"{name} '{why}'")
        yield failure
        return
    unit = entry.get("time_unit", str, "ns")
    if unit not in _US:
        raise UsageError(f"{entry.where}: field 'time_unit' is '{unit}'; allowed: {', '.join(_US)}")
    taken = "real_time" if any(word in _REAL for word in case.split("/")) else "cpu_time"
    is_nan = entry.data.get(taken) != entry.data.get(taken)
    time = 0.0 if is_nan else entry.get(taken, float)
    if time <= 0:
        source.leave("benchmarks without a time above 0, left out", f"{name} ('{taken}' is {entry.data[taken]:g})")
        return
    yield failure
    yield Observation(Quantity(case, Channel.STORED, "us"), origin, (time * _US[unit],))


def _revision(context: dict) -> str:
    return next((str(context[name]) for name in _REVISIONS if name in context), UNKNOWN)


def _fingerprint(context: dict) -> str:
    """Fingerprint without the host's name, which differs in each container, and the clock, whose current value some kernels report."""
    caches = [(cache.get("type"), cache.get("level"), cache.get("size")) for cache in context.get("caches", []) if isinstance(cache, dict)]
    return fingerprint_of(["google/benchmark", context.get("num_cpus"), *sorted(map(str, caches))])
