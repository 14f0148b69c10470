"""Runs, machines and trace files in the form that all pages show."""

import shutil
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Optional, Sequence

from reports.check import machine_text
from reports.records import Machine, Records, Run
from reports.units import bytes_text, joined


@dataclass(frozen=True)
class Fact:
    name: str
    text: str


@dataclass(frozen=True)
class BadLine:
    status: str
    what: str
    why: str


MachineView = Sequence[Fact]


@dataclass(frozen=True)
class RunView:
    """One run of a program, which may write several records: one for each number of ranks, or for each kind of link."""

    run: Run  # its first record
    ids: str
    ranks: str
    basis: str
    command: str
    rows: int
    libraries: str


def run_facts(records: Records, told: Sequence[Fact]) -> list[Fact]:
    """Facts: the machines, then `told`, then the builds and the start times of the runs."""
    runs = records.runs
    return [Fact("Machine", "; ".join(machine_text(machine) for machine in _machines(records))), *told,
            Fact("Build", joined(list(dict.fromkeys(_build(run) for run in runs)))), Fact("Started", _started(runs))]


def run_views(records: Records) -> list[RunView]:
    lines = Counter(line.run.run for line in records.lines)
    return [_run_view(runs, sum(lines[run.run] for run in runs)) for runs in _by_program_run(records.runs)]


def _by_program_run(runs: Sequence[Run]) -> list[list[Run]]:
    """Records of one file that follow each other are of one run of a program if they have its command; a command may be unknown."""
    return [list(found) for _, found in groupby(runs, key=lambda run: (run.file, run.command, run.build, run.seed) if run.command else run.run)]


def _run_view(runs: Sequence[Run], rows: int) -> RunView:
    first = runs[0]
    of_all = {name: joined([str(value) for value in dict.fromkeys(getattr(run, name) for run in runs)]) for name in ("run", "ranks", "basis")}
    return RunView(first, of_all["run"], of_all["ranks"], of_all["basis"], " ".join(first.command), rows,
                   ", ".join(f"{name}: {version}" for name, version in first.libraries.items()))


def machine_views(records: Records) -> list[MachineView]:
    return [_machine(machine) for machine in _machines(records)]


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


# Trace files that a run wrote (--trace FILE): copied beside the page if they lie beside the records.

@dataclass(frozen=True)
class TraceLink:
    name: str
    href: str
    what: str  # the command that wrote it


def trace_name(run: Run) -> Optional[str]:
    for word, following in zip(run.command, [*run.command[1:], ""]):
        if word == "--trace":
            return following or None
        if word.startswith("--trace="):
            return word.removeprefix("--trace=")
    return None


def copy_traces(records: Records, files: Sequence[str], folder: Path) -> list[TraceLink]:
    """Copies the runs' traces into `folder` and returns links to them. Records have no absolute paths: a trace is searched for in the
    folder of the records, then in the current folder."""
    links: dict[str, TraceLink] = {}
    for run in records.runs:
        name = trace_name(run)
        source = name and _found(name, files)
        if not source or source.name in links:
            continue
        folder.mkdir(exist_ok=True)
        shutil.copyfile(source, folder / source.name)
        links[source.name] = TraceLink(source.name, f"{folder.name}/{source.name}", " ".join(run.command))
    return list(links.values())


def _found(name: str, files: Sequence[str]) -> Optional[Path]:
    places = [*(Path(file).parent for file in files), Path(".")]
    candidates = [place / part for place in places for part in (name, Path(name).name)]
    return next((path for path in candidates if path.is_file()), None)
