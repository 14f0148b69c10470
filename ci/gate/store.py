"""gate.py store DIR RECORDS...: adds files of measurements to a baseline store, in a folder per machine."""
import argparse
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from gate.inputs.files import files_of, read_file
from gate.inputs.observation import Observation
from gate.model import CouldNotRun, UsageError
from gate.outputs.records import write_whole

# ---- A baseline store: a folder per machine fingerprint, in it the files of its runs. Nothing in it is ever changed.

def fingerprints(observations: Iterable[Observation]) -> list[str]:
    return sorted({observed.origin.fingerprint for observed in observations})


def add(store: Path, files: Sequence[Path]) -> list[Path]:
    """Copies files to paths of time, revision and content, so that a file is not added twice; returns these paths. All are read first,
    so that a broken one adds nothing."""
    planned = [(path, _place(path)) for path in files]
    return [_write(store / place, path.read_bytes()) for path, place in planned]


def baseline(store: Path, machines: Sequence[str], revision: str | None) -> list[Observation]:
    """Runs of these machines: those of the newest revision, or of the revision that begins with the given text."""
    found = [observed for machine in machines for path in sorted((store / machine).glob("*")) if not path.name.startswith(".")
             for observed in read_file(path)]
    if not found:
        there = machines_in(store)
        raise UsageError(f"--store {store}: nothing of machine {', '.join(machines)}; allowed: a store that `gate.py store` filled on "
                         f"this machine (it has: {', '.join(there) or 'nothing'}), or --fingerprint warn")
    if revision is None:
        wanted = max(found, key=lambda observed: observed.origin.started).origin.revision
    else:
        wanted = _only_revision(found, revision, store)
    return [observed for observed in found if observed.origin.revision == wanted]


def machines_in(store: Path) -> list[str]:
    return sorted(path.name for path in store.iterdir() if path.is_dir()) if store.is_dir() else []


def _only_revision(found: Sequence[Observation], begins: str, store: Path) -> str:
    revisions = sorted({observed.origin.revision for observed in found})
    meant = [revision for revision in revisions if revision.startswith(begins)]
    if len(meant) != 1:
        raise UsageError(f"--base-revision {begins}: {len(meant)} revisions of {store} begin so; allowed: one of "
                         f"{', '.join(revision[:12] for revision in revisions)}")
    return meant[0]


def _place(path: Path) -> Path:
    """Machine and name that a file has in a store."""
    observations = read_file(path)
    machines = fingerprints(observations)
    if len(machines) != 1:
        raise UsageError(f"{path}: {len(machines)} machines ({', '.join(machines) or 'no measurement'}); allowed: a file of one machine")
    newest = max((observed.origin for observed in observations), key=lambda origin: origin.started)
    words = (newest.started, newest.revision[:12], hashlib.sha256(path.read_bytes()).hexdigest()[:8])
    return Path(machines[0]) / ("-".join(re.sub(r"[^0-9A-Za-z]", "", word) for word in words if word) + path.suffix)


def _write(to: Path, content: bytes) -> Path:
    """Writes a file once: nothing in a store is ever changed."""
    if to.exists():
        return to
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CouldNotRun(f"{to.parent}: cannot be made: {error.strerror}") from error
    write_whole(to, content, "store")
    return to


# ---- The command of gate.py

def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, metavar="DIR", help="folder of the store; it is created if it does not exist")
    parser.add_argument("files", nargs="+", metavar="RECORDS", help="files, folders or globs")


def run(arguments: argparse.Namespace) -> int:
    files = list(dict.fromkeys(path for text in arguments.files for path in files_of(text, "RECORDS")))
    for path in dict.fromkeys(add(arguments.store, files)):
        print(path)
    return 0
