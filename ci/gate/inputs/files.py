"""Finds the files that a user names, and the format of each; reads google/benchmark's JSON."""
import glob
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gate.inputs.observation import FAILURES, Observation, Origin, Quantity, UNKNOWN
from gate.inputs.records import read_foreign, read_records
from gate.model import Channel, UsageError
from reports.foreign import field, fingerprint_of, parsed_json, positive, utc
from reports.load import foreign_reader
from reports.schema import ReportError

SUFFIXES = (".jsonl", ".json", ".txt", ".out", ".log")  # endings of files in a folder; a file that is named may have any
ALLOWED = "our records (JSON Lines), google/benchmark's JSON, nccl-tests' text or JSON, OSU's text"

Reader = Callable[[Path], list[Observation]]


def files_of(text: str, what: str) -> list[Path]:
    """A file, a folder (its files, not those of folders in it), or a glob; sorted by name."""
    path = Path(text)
    if path.is_dir():
        found = sorted(one for one in path.iterdir() if one.is_file() and one.suffix in SUFFIXES and not one.name.startswith("."))
    elif path.exists():
        found = [path]
    else:
        found = sorted(Path(one) for one in glob.glob(text, recursive=True) if Path(one).is_file())
    if not found:
        why = "no such file in it" if path.is_dir() else "no such file"
        raise UsageError(f"{what} {text}: {why}; allowed: a file, a folder with {' '.join(SUFFIXES)}, or a glob, of {ALLOWED}")
    return found


def read(texts: Sequence[str], what: str) -> list[Observation]:
    """Observations of all named files; a file that is named twice is read once."""
    paths = dict.fromkeys(path.resolve() for text in texts for path in files_of(text, what))
    return [one for path in paths for one in read_file(path)]


def read_file(path: Path) -> list[Observation]:
    try:
        return _reader_of(path)(path)
    except ReportError as error:
        raise UsageError(str(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start}); allowed: {ALLOWED}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; allowed: {ALLOWED}") from error


def _reader_of(path: Path) -> Reader:
    """Reader of a file, chosen by its content. Our records are recognised by their first line, even if the file is broken. Raises
    UsageError for an empty or unknown file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    first = text.lstrip().split("\n", 1)[0]
    if not first:
        raise UsageError(f"{path}: the file is empty; allowed: {ALLOWED}")
    if path.suffix == ".jsonl" or '"record"' in first:
        return read_records
    if foreign_reader(path.name, text):
        return read_foreign
    if not first.startswith("{"):
        raise UsageError(f"{path}:1: '{first[:40]}'; allowed: {ALLOWED}")
    if '"benchmarks"' in text:
        return read_google_benchmark
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


def read_google_benchmark(path: Path) -> list[Observation]:
    data = parsed_json(path.read_text(encoding="utf-8"), str(path))
    context = field(data, "context", dict, str(path))
    origin = Origin(str(path), path.name, utc(str(context.get("date", ""))), _revision(context), _fingerprint(context))
    found = [one for number, entry in enumerate(field(data, "benchmarks", list, str(path)))
             for one in _of_benchmark(entry, origin, f"{path}: benchmarks[{number}]")]
    if not found:
        raise UsageError(f"{path}: no benchmark; allowed: at least one that is not an aggregate (was "
                         "--benchmark_report_aggregates_only given?)")
    return found


def _of_benchmark(entry: Any, origin: Origin, where: str) -> Iterator[Observation]:
    name = field(entry, "name", str, where)
    if field(entry, "run_type", str, where, missing="iteration") != "iteration":
        return
    case = _HOW_LONG.sub("", field(entry, "run_name", str, where, missing=name))
    failed = field(entry, "error_occurred", bool, where, missing=False)
    yield Observation(Quantity(f"{case}: failures", Channel.EXACT, FAILURES), origin, (float(failed),))
    if failed or field(entry, "skipped", bool, where, missing=False):
        return
    unit = field(entry, "time_unit", str, where, missing="ns")
    if unit not in _US:
        raise UsageError(f"{where}: field 'time_unit' is '{unit}'; allowed: {', '.join(_US)}")
    taken = "real_time" if any(word in _REAL for word in case.split("/")) else "cpu_time"
    yield Observation(Quantity(case, Channel.STORED, "us"), origin, (positive(entry, taken, where) * _US[unit],))


def _revision(context: dict) -> str:
    return next((str(context[name]) for name in _REVISIONS if name in context), UNKNOWN)


def _fingerprint(context: dict) -> str:
    """Fingerprint without the host's name, which differs in each container, and the clock, whose current value some kernels report."""
    caches = [(one.get("type"), one.get("level"), one.get("size")) for one in context.get("caches", []) if isinstance(one, dict)]
    return fingerprint_of(["google/benchmark", context.get("num_cpus"), *sorted(map(str, caches))])
