"""Runs the lines of an exact suite in one build."""
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..builds import Build
from ..errors import CouldNotRun, UsageError
from ..inputs.files import read_file
from ..inputs.observation import by_quantity
from ..model import Channel
from .counts import count, counted_with, why_it_cannot_count
from .facts import Facts, Value

KINDS = ("records", "counts")
LINE_DEADLINE_S = 600


@dataclass(frozen=True)
class ExactLine:
    name: str
    kind: str  # "records": the program's records have facts; "counts": it serves, and its instructions are counted
    command: tuple[str, ...]  # the program first; --json FILE or --serve is added


def load_exact_suite(path: Path) -> list[ExactLine]:
    """A file of lines "NAME KIND COMMAND"; '#' begins a comment."""
    try:
        rows = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"--suite {path}: {error.strerror}; allowed: a file of lines NAME KIND COMMAND") from error
    lines = []
    for number, row in enumerate(rows, start=1):
        words = shlex.split(row, comments=True)
        if not words:
            continue
        if len(words) < 3 or words[1] not in KINDS:
            raise UsageError(f"--suite {path}, line {number}: '{row.strip()}'; allowed: NAME {'|'.join(KINDS)} COMMAND")
        lines.append(ExactLine(words[0], words[1], tuple(words[2:])))
    return lines


def collect(build: Build, lines: list[ExactLine], progress=lambda _: None) -> tuple[Facts, list[str]]:
    """All values of a build, and notes on what was left out."""
    notes = []
    values: list[Value] = []
    cannot = why_it_cannot_count()
    for line in lines:
        progress(f"{build.side.name}: {line.name}")
        if line.kind == "records":
            values += _recorded(build, line)
        elif cannot is None:
            values += [Value(f"{line.name}: {case}", Channel.INSTRUCTIONS, "instructions", number)
                       for case, number in count(build, line.command).items()]
    if cannot is not None and any(line.kind == "counts" for line in lines):
        notes.append(f"no instructions were counted: {cannot}")
    return Facts(build.side.revision, {} if cannot else counted_with(build), tuple(values)), notes


def _recorded(build: Build, line: ExactLine) -> list[Value]:
    """What the line's records have that is exact. Nothing is a mistake of the suite."""
    with tempfile.TemporaryDirectory(prefix="lockstep_facts_") as name:
        file = Path(name) / "records.jsonl"
        command = [str(build.program(line.command[0])), *line.command[1:], "--json", str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LINE_DEADLINE_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise CouldNotRun(f"{line.name}: {line.command[0]} did not end within {LINE_DEADLINE_S} s") from error
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise CouldNotRun(f"{line.name}: {line.command[0]} ended with status {done.returncode}: {' '.join(last)}")
        found = by_quantity(read_file(file))
    values = [Value(f"{line.name}: {quantity.case}", Channel.EXACT, quantity.unit, runs[0].values[0], quantity.better)
              for quantity, runs in found.items() if quantity.channel is Channel.EXACT]
    if not values:
        raise CouldNotRun(f"{line.name}: the records of {line.command[0]} have no exact value")
    return values
