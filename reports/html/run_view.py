"""Runs, machines and trace files in the form that all pages show."""

import shutil
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Optional, Sequence

from reports.check import machine_text
from reports.page import Fact
from reports.records import Machine, Records, Run
from reports.units import bytes_text, joined


@dataclass(frozen=True)
class RunView:
    """One run of a program, which may write several records: one for each number of ranks, or for each kind of link."""

    runs: Sequence[Run]
    lines: int

    def of_all(self, name: str) -> str:
        """A field of all records: "2 and 4"."""
        return joined([str(value) for value in dict.fromkeys(getattr(run, name) for run in self.runs)])


@dataclass(frozen=True)
class FrameView:
    """The part that all pages share, around their subject."""

    facts: Sequence[Fact]
    runs: Sequence[RunView]
    machines: Sequence[Sequence[Fact]]
    files: Sequence[str]


def frame_view(records: Records, more: Sequence[Fact], files: Sequence[str]) -> FrameView:
    """The facts are the machines, then `more`, then the builds and the start times of the runs."""
    runs = records.runs
    facts = [Fact("Machine", "; ".join(machine_text(machine) for machine in _machines(records))), *more,
             Fact("Build", joined(list(dict.fromkeys(_build(run) for run in runs)))), Fact("Started", _started(runs))]
    return FrameView(facts, run_views(records), [_machine(machine) for machine in _machines(records)], files)


def run_views(records: Records) -> list[RunView]:
    """Records of one file that follow each other are of one run of a program if they have its command; a command may be unknown."""
    lines = Counter(line.run.run for line in records.lines)
    found = groupby(records.runs,
                    key=lambda run: (run.file, run.command, run.build, run.seed) if run.command else run.run)
    return [RunView(runs, sum(lines[run.run] for run in runs)) for _, (*runs,) in found]


def _machines(records: Records) -> list[Machine]:
    return list({run.machine.fingerprint: run.machine for run in records.runs}.values())


def _build(run: Run) -> str:
    return ", ".join(part for part in (run.build.short_revision, run.build.compiler, run.build.type) if part)


def _started(runs: Sequence[Run]) -> str:
    times = sorted(run.started for run in runs)
    return times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"


def _machine(machine: Machine) -> list[Fact]:
    caches = asdict(machine.caches) if machine.caches else {}
    sizes = [f"{name.split('_')[0].upper()} {bytes_text(size)}" for name, size in caches.items() if size]
    facts = [("CPU", machine.cpu), ("Cores", machine.cpu and str(machine.cores)), ("Hosts", str(machine.hosts)),
             ("Memory", machine.memory_bytes and bytes_text(machine.memory_bytes, 3)), ("Caches", ", ".join(sizes)),
             ("Clock", machine.mhz and f"{machine.mhz:.0f} MHz"), ("GPUs", ", ".join(machine.gpus) or "none"),
             ("Kernel", machine.kernel), ("Fingerprint", machine.fingerprint)]
    return [Fact(name, str(text or "unknown")) for name, text in facts]


# Trace files that a run wrote (--trace FILE): copied into the page's folder if they are in the records' folder.

def trace_name(run: Run) -> Optional[str]:
    for word, following in zip(run.command, [*run.command[1:], ""]):
        if word == "--trace":
            return following or None
        if word.startswith("--trace="):
            return word.removeprefix("--trace=")
    return None


def copy_traces(records: Records, folder: Path) -> dict[str, str]:
    """Copies the runs' traces into `folder` and returns the command that wrote each. Records have no absolute paths: a trace
    is searched for in the folder of the records, then in the current folder."""
    commands: dict[str, str] = {}
    for run in records.runs:
        name = trace_name(run)
        source = name and _found(name, records.files)
        if source and source.name not in commands:
            folder.mkdir(exist_ok=True)
            shutil.copyfile(source, folder / source.name)
            commands[source.name] = " ".join(run.command)
    return commands


def _found(name: str, files: Sequence[str]) -> Optional[Path]:
    places = [*(Path(file).parent for file in files), Path(".")]
    candidates = [place / part for place in places for part in (name, Path(name).name)]
    return next((path for path in candidates if path.is_file()), None)
