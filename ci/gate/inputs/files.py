"""Which files a user means, and which format each has."""
import glob
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from gate.model import UsageError
from gate.inputs.foreign import read_google_benchmark, read_nccl_json, read_nccl_text
from gate.inputs.observation import Observation
from gate.inputs.records import read_records

SUFFIXES = (".jsonl", ".json", ".txt", ".out", ".log")  # in a folder; a file that is named may have any
ALLOWED = "our records (JSON Lines), google/benchmark's JSON, nccl-tests' text or JSON"

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
        raise UsageError(f"{what} {text}: no such file; allowed: a file, a folder with {' '.join(SUFFIXES)}, or a glob, of {ALLOWED}")
    return found


def read(texts: Sequence[str], what: str) -> list[Observation]:
    """Paths of all files that are meant; a file that is meant twice is read once."""
    paths = dict.fromkeys(path.resolve() for text in texts for path in files_of(text, what))
    return [one for path in paths for one in read_file(path)]


def read_file(path: Path) -> list[Observation]:
    try:
        return _reader_of(path)(path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start}); allowed: {ALLOWED}") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; allowed: {ALLOWED}") from error


def _reader_of(path: Path) -> Reader:
    """By what is in it. Ours are told by their first line; a file of them that is broken is still ours."""
    text = path.read_text(encoding="utf-8", errors="replace")
    first = text.lstrip().split("\n", 1)[0]
    if not first:
        raise UsageError(f"{path}: the file is empty; allowed: {ALLOWED}")
    if path.suffix == ".jsonl" or '"record"' in first:
        return read_records
    if not first.startswith("{"):
        if first.startswith("#") or "# nThread" in text or "# Collective test" in text:
            return read_nccl_text
        raise UsageError(f"{path}:1: '{first[:40]}'; allowed: {ALLOWED}")
    try:
        keys = json.loads(text)
    except (RecursionError, ValueError):
        keys = text  # cut off, or nested too deeply: its reader says what is wrong
    if "benchmarks" in keys:
        return read_google_benchmark
    if "results" in keys:
        return read_nccl_json
    raise UsageError(f"{path}: JSON without 'benchmarks' or 'results'; allowed: {ALLOWED}")
