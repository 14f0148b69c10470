"""A suite: the lines of its file, each the command of a worker."""
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gate.errors import UsageError

CORES = ("one", "all")


@dataclass(frozen=True)
class Line:
    name: str
    one_core: bool  # the worker has one thread: both of a pair get the same core
    command: tuple[str, ...]  # the program first; --serve is added


def load_suite(path: Path) -> list[Line]:
    """A file of lines "NAME CORES COMMAND"; '#' begins a comment."""
    return [Line(name, cores == "one", command) for name, cores, command in suite_rows(path, "CORES", CORES)]


def suite_rows(path: Path, what: str, allowed: Sequence[str]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Name, second word and command of each line. `what` the second word is, and what it may be."""
    form = f"NAME {what} COMMAND, {what} one of {', '.join(allowed)}"
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"--suite {path}: {error.strerror}; allowed: a file of lines {form}") from error
    rows: dict[str, tuple[str, str, tuple[str, ...]]] = {}
    for number, row in enumerate(text.splitlines(), start=1):
        where = f"--suite {path}, line {number}"
        try:
            words = shlex.split(row, comments=True)
        except ValueError as error:  # a quotation mark without its other
            raise UsageError(f"{where}: {error}; allowed: {form}") from error
        if not words:
            continue
        if len(words) < 3 or words[1] not in allowed:
            raise UsageError(f"{where}: '{row.strip()}'; allowed: {form}")
        if words[0] in rows:
            raise UsageError(f"{where}: a second '{words[0]}'; allowed: each name once")
        rows[words[0]] = (words[0], words[1], tuple(words[2:]))
    if not rows:
        raise UsageError(f"--suite {path}: no line; allowed: at least one {form}")
    return list(rows.values())
