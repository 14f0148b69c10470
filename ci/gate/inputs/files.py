"""Finds the files that a user names, and the format of each."""
import glob
from collections.abc import Callable, Sequence
from pathlib import Path

from gate.model import UsageError
from gate.inputs.google import read_google_benchmark
from gate.inputs.observation import Observation
from gate.inputs.records import read_foreign, read_records
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
