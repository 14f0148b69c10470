"""What is compared: lines of a suite's file, each the command of a worker."""
import shlex
from dataclasses import dataclass
from pathlib import Path

from .errors import UsageError

CORES = ("one", "all")


@dataclass(frozen=True)
class Line:
    name: str
    one_core: bool  # the worker has one thread: both of a pair get the same core
    command: tuple[str, ...]  # the program first; --serve is added


def load_suite(path: Path) -> list[Line]:
    """A file of lines "NAME CORES COMMAND"; '#' begins a comment."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"--suite {path}: {error.strerror}; allowed: gate, or a file of lines NAME CORES COMMAND") from error
    lines: list[Line] = []
    for number, row in enumerate(text.splitlines(), start=1):
        words = shlex.split(row, comments=True)
        if not words:
            continue
        where = f"--suite {path}, line {number}"
        if len(words) < 3:
            raise UsageError(f"{where}: '{row.strip()}'; allowed: NAME CORES COMMAND")
        if words[1] not in CORES:
            raise UsageError(f"{where}: cores '{words[1]}'; allowed: {', '.join(CORES)}")
        if any(line.name == words[0] for line in lines):
            raise UsageError(f"{where}: a second '{words[0]}'; allowed: each name once")
        lines.append(Line(words[0], words[1] == "one", tuple(words[2:])))
    if not lines:
        raise UsageError(f"--suite {path}: no line; allowed: at least one NAME CORES COMMAND")
    return lines
