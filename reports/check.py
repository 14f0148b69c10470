"""What a reader must know before the numbers: mixed, missing, wrong or doubtful records are said, not hidden."""
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Iterable, Optional

from reports.analysis.panels import Panel
from reports.analysis.results import Analysis, PanelResult, headline
from reports.records import Machine, Records
from reports.units import bytes_text, counted, joined

FEW_SAMPLES = 10


@dataclass(frozen=True)
class Note:
    level: str  # "error", "warning", "info"
    text: str


def notes_on(records: Records, analysis: Analysis) -> list[Note]:
    """Worst first."""
    found = [*_bad_rows(records), *_machines(records), *_builds(records), *_bases(records), *_oversubscribed(records),
             *_days(records), *_unverified(records), *_samples(records), *_empty_runs(records), *_zero_sizes(records)]
    for result in analysis.results:
        found += _holes(result) + _pooled(result)
    return sorted(found, key=lambda note: ("error", "warning", "info").index(note.level))


def machine_text(machine: Machine) -> str:
    parts = [machine.cpu or "unknown CPU", counted(machine.cores, "core")]
    if machine.memory_bytes:
        parts.append(bytes_text(machine.memory_bytes, 3))
    parts += [f"{number} × {gpu}" for gpu, number in Counter(machine.gpus).items()]
    if machine.hosts > 1:
        parts.append(f"{machine.hosts} hosts")
    return ", ".join(parts)


def _bad_rows(records: Records) -> Iterable[Note]:
    wrong = [row for row in records.rows if row.status == "wrong"]
    failed = [row for row in records.rows if row.status == "failed"]
    if wrong:
        yield Note("error", f"{counted(len(wrong), 'row')} had wrong results and {_are(wrong)} left out of every plot "
                            f"and sentence: {_of_algorithms(wrong)}.")
    if failed:
        yield Note("error", f"{counted(len(failed), 'row')} failed and {_have(failed)} no times: "
                            f"{_of_algorithms(failed)}.")


def _are(rows: list) -> str:
    return "is" if len(rows) == 1 else "are"


def _have(rows: list) -> str:
    return "has" if len(rows) == 1 else "have"


def _of_algorithms(rows: list) -> str:
    return joined(sorted({f"{row.collective} {row.algorithm} at {counted(row.ranks, 'rank')}" for row in rows}))


def _machines(records: Records) -> Iterable[Note]:
    machines = {run.machine.fingerprint: run.machine for run in records.runs}
    if len(machines) > 1:
        told = [f"machine {i} is {machine_text(m)}" for i, m in enumerate(machines.values(), start=1)]
        yield Note("warning", f"These records come from {len(machines)} machines, which are never in one plot: "
                              f"{joined(told)}. Do not compare times between them.")


def _builds(records: Records) -> Iterable[Note]:
    builds = list(dict.fromkeys(run.build for run in records.runs))
    if len(builds) > 1:
        told = [f"build {i} is {b.short_revision}, {b.compiler}, {b.type}" for i, b in enumerate(builds, start=1)]
        yield Note("warning", f"These records come from {len(builds)} builds, which are never in one plot: "
                              f"{joined(told)}.")
    if any(build.dirty for build in builds):
        yield Note("warning", "The source had uncommitted changes: the revision alone does not repeat these numbers.")
    if any(build.revision == "unknown" for build in builds):
        yield Note("warning", "The git revision of the source is unknown.")
    slow = sorted({build.type or "unknown" for build in builds} - {"Release", "RelWithDebInfo"})
    if slow:
        yield Note("warning", f"Build type {joined(slow)}: not the optimised build, so these are not its numbers.")


def _bases(records: Records) -> Iterable[Note]:
    counts = Counter(row.basis for row in records.rows)
    for basis, meaning in (("emulated", "over links paced to a stated latency and bandwidth"),
                           ("simulated", "computed in virtual time, not run")):
        if counts[basis]:
            yield Note("info", f"{counts[basis]:,} of {counted(len(records.rows), 'row')} are {basis} ({meaning}). "
                               "They are labelled so and are never in one plot with measured ones.")


def _oversubscribed(records: Records) -> Iterable[Note]:
    ranks = sorted({(row.ranks, row.run.machine.cores) for row in records.rows if row.oversubscribed})
    if ranks:
        told = joined([f"{ranks} ranks on {counted(cores, 'core')}" for ranks, cores in ranks])
        yield Note("warning", f"More ranks than cores: {told}. Ranks then wait for a core as well as for each other, "
                              "so these times say more about the scheduler than a machine with a core a rank would.")


def _started(text: str) -> Optional[datetime]:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


def _days(records: Records) -> Iterable[Note]:
    days = sorted({started.date() for run in records.runs if (started := _started(run.started))})
    if len(days) > 1:
        yield Note("warning", f"The runs are of {len(days)} days, {days[0]} to {days[-1]}: machines drift.")


def _unverified(records: Records) -> Iterable[Note]:
    number = sum(row.ok and row.wrong is None for row in records.rows)
    if number:
        yield Note("warning", f"The results of {counted(number, 'row')} were not verified.")


def _samples(records: Records) -> Iterable[Note]:
    few = [row for row in records.rows if row.ok and len(row.samples_us) < FEW_SAMPLES]
    if few:
        yield Note("info", f"{counted(len(few), 'row')} {_have(few)} fewer than {FEW_SAMPLES} samples: their p95 and "
                           "p99 are little more than the maximum.")


def _empty_runs(records: Records) -> Iterable[Note]:
    used = {row.run.run for row in records.rows}
    empty = [run.program for run in records.runs if run.run not in used]
    if empty:
        yield Note("warning", f"{counted(len(empty), 'run')} left no rows: {joined(sorted(set(empty)))}.")


def _zero_sizes(records: Records) -> Iterable[Note]:
    number = sum(row.bytes == 0 for row in records.rows)
    if number:
        yield Note("info", f"{counted(number, 'row')} of 0 bytes: in the tables, not in the plots (logarithmic axes).")


def _holes(result: PanelResult) -> list[Note]:
    """Sizes that some algorithms of a panel have and others have not: a plot hides that easily."""
    sizes = result.panel.sizes
    by_sizes: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for label, have in _timed_sizes(result.panel).items():
        missing = tuple(size for size in sizes if size not in have)
        if missing:
            by_sizes[missing].append(label)
    return [Note("warning", f"{headline(result)}: {joined(labels)} {'has' if len(labels) == 1 else 'have'} no time at "
                            f"{_sizes_text(missing)}.") for missing, labels in by_sizes.items()]


def _timed_sizes(panel: Panel) -> dict[str, set[int]]:
    timed = {series.label: set(series.sizes) for series in panel.series}
    named = {series.algorithm for series in panel.series}
    untimed = {row.algorithm for row in panel.rows if row.bytes > 0} - named
    return {**timed, **{name: set() for name in sorted(untimed)}}


def _sizes_text(sizes: tuple[int, ...]) -> str:
    if len(sizes) <= 4:
        return joined([bytes_text(size) for size in sizes])
    return f"{len(sizes)} sizes from {bytes_text(sizes[0])} to {bytes_text(sizes[-1])}"


def _pooled(result: PanelResult) -> list[Note]:
    pooled = [series.label for series in result.panel.series if series.pooled]
    if not pooled:
        return []
    return [Note("info", f"{headline(result)}: several rows of the same size had their samples put together, for "
                         f"{joined(pooled)}.")]
