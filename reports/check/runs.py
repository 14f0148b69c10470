"""Warnings about all kinds of runs: machines, builds, days, bases."""
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Iterable, Optional

from reports.records import Ceiling, Machine, Records
from reports.units import bytes_text, counted, joined

FEW_SAMPLES = 10


@dataclass(frozen=True)
class Note:
    level: str  # "error", "warning", "info"
    text: str


def worst_first(notes: Iterable[Note]) -> list[Note]:
    return sorted(notes, key=lambda note: ("error", "warning", "info").index(note.level))


def are(lines: list) -> str:
    return "is" if len(lines) == 1 else "are"


def have(lines: list) -> str:
    return "has" if len(lines) == 1 else "have"


def notes_on_runs(records: Records) -> list[Note]:
    return [*_stopped(records), *_machines(records), *_builds(records), *_bases(records), *_days(records), *_empty_runs(records)]


def _stopped(records: Records) -> Iterable[Note]:
    stopped = [run for run in records.runs if run.partial]
    if stopped:
        told = joined([f"{run.program} of {run.started}" for run in stopped])
        yield Note("error", f"{counted(len(stopped), 'run')} {have(stopped)} a partial record, from a program that was "
                            f"stopped before its end: {told}.")


def machine_text(machine: Machine) -> str:
    is_known = machine.cpu is not None or machine.memory_bytes is not None
    parts = [machine.cpu or "unknown CPU", *([counted(machine.cores, "core")] if is_known else [])]
    if machine.memory_bytes:
        parts.append(bytes_text(machine.memory_bytes, 3))
    parts += [f"{number} × {gpu}" for gpu, number in Counter(machine.gpus).items()]
    if machine.hosts > 1:
        parts.append(f"{machine.hosts} hosts")
    return ", ".join(parts)


def _apart(records: Records) -> str:
    if any(line.basis == "simulated" for line in records.schedules + records.simulations):
        return "which are never in one plot (what is simulated stands beside any)"
    return "which are never in one plot"


def _machines(records: Records) -> Iterable[Note]:
    machines = {run.machine.fingerprint: run.machine for run in records.runs}
    if len(machines) > 1:
        told = [f"machine {i} is {machine_text(m)}" for i, m in enumerate(machines.values(), start=1)]
        yield Note("warning", f"These records come from {len(machines)} machines, {_apart(records)}: "
                              f"{joined(told)}. Do not compare times between them.")


def _builds(records: Records) -> Iterable[Note]:
    builds = list(dict.fromkeys(run.build for run in records.runs if not run.is_foreign))
    foreign = [run for run in records.runs if run.is_foreign]
    if foreign:
        tools = joined(sorted({tool for run in foreign for tool in run.libraries}))
        yield Note("info", f"{counted(len(foreign), 'run')} {have(foreign)} been read from the output of {tools}, which does not say the "
                           "cores of its machine, nor its source and build.")
    if len(builds) > 1:
        told = [f"build {i} is {b.short_revision}, {b.compiler}, {b.type}" for i, b in enumerate(builds, start=1)]
        yield Note("warning", f"These records come from {len(builds)} builds, {_apart(records)}: "
                              f"{joined(told)}.")
    if any(build.dirty for build in builds):
        yield Note("warning", "The source had uncommitted changes: the revision alone does not repeat these numbers.")
    if any(build.revision == "unknown" for build in builds):
        yield Note("warning", "The git revision of the source is unknown.")
    slow = sorted({build.type or "unknown" for build in builds} - {"Release", "RelWithDebInfo"})
    if slow:
        yield Note("warning", f"Build type {joined(slow)}: not the optimised build, so these are not its numbers.")


def _bases(records: Records) -> Iterable[Note]:
    lines, word = records.lines, _word_for(records)
    counts = Counter(line.basis for line in lines if not isinstance(line, Ceiling))
    for basis, meaning in (("emulated", "in wall-clock time, over links or kernels of a stated speed"),
                           ("simulated", "computed in virtual time, not run")):
        if counts[basis]:
            yield Note("info", f"{counts[basis]:,} of {counted(sum(counts.values()), word)} are {basis} ({meaning}). "
                               "They are labelled so, and no curve, bar or chart has measured ones beside them.")


def _word_for(records: Records) -> str:
    kinds = {"row": records.rows, "kernel": records.kernels, "step": records.schedules, "layout": records.simulations}
    return next((word for word, lines in kinds.items() if lines), "line")


def _started(text: str) -> Optional[datetime]:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


def _days(records: Records) -> Iterable[Note]:
    days = sorted({started.date() for run in records.runs if (started := _started(run.started))})
    if len(days) > 1:
        yield Note("warning", f"The runs are of {len(days)} days, {days[0]} to {days[-1]}: machines drift.")


def _empty_runs(records: Records) -> Iterable[Note]:
    used = {line.run.run for line in records.lines}
    empty = [run.program for run in records.runs if run.run not in used]
    if empty:
        yield Note("warning", f"{counted(len(empty), 'run')} left no rows: {joined(sorted(set(empty)))}.")
