"""Runs the lines of an exact suite in one build."""
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..builds import Build
from ..errors import CouldNotRun
from ..groups import run_in_group
from ..inputs.files import read_file
from ..inputs.observation import by_quantity
from ..model import Channel
from ..suite import suite_rows
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
    return [ExactLine(*row) for row in suite_rows(path, "KIND", KINDS)]


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
        with tempfile.TemporaryFile() as said:
            try:
                status = run_in_group(command, LINE_DEADLINE_S, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
            except subprocess.TimeoutExpired as error:
                raise CouldNotRun(f"{line.name}: {line.command[0]} did not end within {LINE_DEADLINE_S} s") from error
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
        if status != 0:
            raise CouldNotRun(f"{build.side.name}: {line.name}: {line.command[0]} ended with status {status}: {' '.join(last)}")
        found = by_quantity(read_file(file))
    values = [Value(f"{line.name}: {quantity.case}", Channel.EXACT, quantity.unit, runs[0].values[0], quantity.better)
              for quantity, runs in found.items() if quantity.channel is Channel.EXACT]
    if not values:
        raise CouldNotRun(f"{line.name}: the records of {line.command[0]} have no exact value")
    return values
