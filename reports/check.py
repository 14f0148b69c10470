"""Warnings that a reader needs before the numbers: mixed, missing, wrong or doubtful records are named, not hidden. Warnings that
touch one finding stand with it (analysis/caveats.py)."""
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Callable, Iterable, Optional

from reports.analysis.results import PanelResult
from reports.analysis.roofline.findings import ABOVE
from reports.analysis.roofline.rooflines import Case, case_of, drift_of, Roofline, way_text
from reports.analysis.steps.schedules import repeated
from reports.records import Ceiling, Kernel, KernelCount, Machine, Records, ScheduleLine
from reports.units import bytes_text, counted, joined, share_text, short


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


def found_note(level: str, found: list, noun: str, text_of: Callable[[list], str], before: str = "") -> list[Note]:
    """A note on what was found, if anything was."""
    return [Note(level, f"{before}{counted(len(found), noun)} {text_of(found)}.")] if found else []


def notes_on_runs(records: Records) -> list[Note]:
    return [*_of_readers(records), *_stopped(records), *_machines(records), *_builds(records), *_bases(records), *_days(records), *_empty_runs(records)]


def _of_readers(records: Records) -> Iterable[Note]:
    """Notes of readers, mostly of other tools' files, on what they skipped or took with a reservation."""
    return [Note("warning", note) for run in records.runs for note in run.notes or ()]


def _stopped(records: Records) -> Iterable[Note]:
    return found_note("error", [run for run in records.runs if run.partial], "run", lambda stopped: (
        f"{have(stopped)} a partial record, from a program that was stopped before its end: "
        f"{joined([f'{run.program} of {run.started}' for run in stopped])}"))


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
        return "which are never in one plot (simulated values accompany any)"
    return "which are never in one plot"


def _machines(records: Records) -> Iterable[Note]:
    machines = {run.machine.fingerprint: run.machine for run in records.runs}
    if len(machines) > 1:
        phrases = [f"machine {i} is {machine_text(m)}" for i, m in enumerate(machines.values(), start=1)]
        yield Note("warning", f"These records come from {len(machines)} machines, {_apart(records)}: "
                              f"{joined(phrases)}. Do not compare times between them.")


def _builds(records: Records) -> Iterable[Note]:
    builds = list(dict.fromkeys(run.build for run in records.runs if not run.is_foreign))
    foreign = [run for run in records.runs if run.is_foreign]
    if foreign:
        tools = joined(sorted({tool for run in foreign for tool in run.libraries}))
        yield Note("info", f"{counted(len(foreign), 'run')} {have(foreign)} been read from the output of {tools}, which does not state the "
                           "cores of its machine, nor its source and build.")
    if len(builds) > 1:
        phrases = [f"build {i} is {b.short_revision}, {b.compiler}, {b.type}" for i, b in enumerate(builds, start=1)]
        yield Note("warning", f"These records come from {len(builds)} builds, {_apart(records)}: "
                              f"{joined(phrases)}.")
    if any(build.dirty for build in builds):
        yield Note("warning", "The source had uncommitted changes: the revision alone does not repeat these numbers.")
    if any(build.revision == "unknown" for build in builds):
        yield Note("warning", "The git revision of the source is unknown.")
    slow = sorted({build.type or "unknown" for build in builds} - {"Release", "RelWithDebInfo"})
    if slow:
        yield Note("warning", f"Build type {joined(slow)}: not the optimised build, so these are not its numbers.")


def _bases(records: Records) -> Iterable[Note]:
    lines, word = records.lines, _word_for(records)
    counts = Counter(line.basis for line in lines if not isinstance(line, (Ceiling, KernelCount)))
    for basis, meaning in (("emulated", "in wall-clock time, over links or kernels of a stated speed"),
                           ("simulated", "computed in virtual time, not run")):
        if counts[basis]:
            yield Note("info", f"{counts[basis]:,} of {counted(sum(counts.values()), word)} are {basis} ({meaning}). "
                               "They are labelled so: where a figure has measured ones too, they are named, or hollow and dashed.")


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
    return found_note("warning", [run.program for run in records.runs if run.run not in used and not run.notes], "run",
                      lambda empty: f"left no rows: {joined(sorted(set(empty)))}")


# ---- Warnings about the rows of collectives

def notes_on_collectives(records: Records, results: Iterable[PanelResult]) -> list[Note]:
    found = [*_bad(records.rows, "row", "row", _of_algorithms), *notes_on_runs(records), *_unverified(records), *_zero_sizes(records)]
    for result in results:
        found += _holes(result) + _pooled(result)
    return found


def _bad(lines: Iterable, timed: str, noun: str, names: Callable[[list], str]) -> list[Note]:
    """Wrong and failed rows or kernels."""
    wrong, failed = ([line for line in lines if line.status == status] for status in ("wrong", "failed"))
    return [*found_note("error", wrong, timed, lambda _: (
                f"had wrong results and {are(wrong)} excluded from every plot and sentence: {names(wrong)}")),
            *found_note("error", failed, noun, lambda _: f"failed and {have(failed)} no times: {names(failed)}")]


def _of_algorithms(rows: list) -> str:
    return joined(sorted({f"{row.collective} {row.algorithm} at {counted(row.ranks, 'rank')}" for row in rows}))


def _unverified(records: Records) -> Iterable[Note]:
    return found_note("warning", [row for row in records.rows if row.ok and row.wrong is None and row.basis != "simulated"], "row",
                      lambda _: "were not verified", "The results of ")


def _zero_sizes(records: Records) -> Iterable[Note]:
    return found_note("info", [row for row in records.rows if row.bytes == 0], "row",
                      lambda _: "of 0 bytes: in the tables, not in the plots (logarithmic axes)")


def _holes(result: PanelResult) -> list[Note]:
    """Sizes that some algorithms of a panel have and others lack, which is easily missed in a plot."""
    sizes = result.sizes
    by_sizes: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for label, timed in _timed_sizes(result).items():
        missing = tuple(size for size in sizes if size not in timed)
        if missing:
            by_sizes[missing].append(label)
    return [Note("warning", f"{result.headline}: {joined(labels)} {'has' if len(labels) == 1 else 'have'} no time at "
                            f"{_sizes_text(missing)}.") for missing, labels in by_sizes.items()]


def _timed_sizes(panel: PanelResult) -> dict[str, set[int]]:
    timed = {series.label: set(series.sizes) for series in panel.series}
    named = {series.algorithm for series in panel.series}
    untimed = {row.algorithm for row in panel.lines if row.bytes > 0} - named
    return {**timed, **{name: set() for name in sorted(untimed)}}


def _sizes_text(sizes: tuple[int, ...]) -> str:
    if len(sizes) <= 4:
        return joined([bytes_text(size) for size in sizes])
    return f"{len(sizes)} sizes from {bytes_text(sizes[0])} to {bytes_text(sizes[-1])}"


def _pooled(result: PanelResult) -> list[Note]:
    pooled = [series.label for series in result.series if series.pooled]
    if not pooled:
        return []
    return [Note("info", f"{result.headline}: several rows of the same size had their samples put together, for "
                         f"{joined(pooled)}.")]


# Warnings about schedules and simulated layouts.

LATE = 0.02  # share of the shortest task: a later wake-up affects the makespan


def notes_on_schedules(records: Records) -> list[Note]:
    lines = records.schedules
    return [*notes_on_runs(records), *_hidden(lines), *_late(lines), *_without_timeline(lines)]


def _hidden(lines: tuple[ScheduleLine, ...]) -> Iterable[Note]:
    return found_note("info", [0] * repeated(lines), "step", lambda found: (
        f"of earlier runs {are(found)} ignored: a later run has the same schedule, workload and basis"))


def _late(lines: tuple[ScheduleLine, ...]) -> Iterable[Note]:
    late = [line for line in lines if line.late_us and line.times_ms and line.late_us > LATE * 1e3 * _shortest(line)]
    if late:
        worst = max(late, key=lambda line: line.late_us)
        yield Note("warning", f"In {counted(len(late), 'emulated step')} some task began late by more than "
                              f"{short(100 * LATE)} % of the shortest one, {worst.schedule} most "
                              f"({short(worst.late_us)} µs): the machine had other work to do.")


def _shortest(line: ScheduleLine) -> float:
    times = line.times_ms
    return min((value for value in (times.forward, times.input_gradient, times.weight_gradient) if value > 0),
               default=0) / line.chunks


def _without_timeline(lines: tuple[ScheduleLine, ...]) -> Iterable[Note]:
    without = sorted({line.schedule for line in lines if not line.timeline})
    if without:
        yield Note("info", f"No timeline was recorded for {joined(without)}, so there is no chart of "
                           f"{'it' if len(without) == 1 else 'them'}.")


# ---- Warnings about kernels and ceilings

DRIFT = 1.10  # largest ratio of ceilings of several runs without a warning


def notes_on_kernels(records: Records, results: Iterable[Roofline]) -> list[Note]:
    found = [*_bad(records.kernels, "timed kernel", "kernel", _names), *notes_on_runs(records), *_not_run(records.kernels),
             *_unchecked(records.kernels), *_threads(records.kernels), *_inconsistent(records.kernels)]
    for result in results:
        for check in (_without_ceiling, _above, _one_sided, _kernel_holes, _repeated, _drift, _without_flops):
            found += [Note(note.level, f"{result.name}: {note.text}") for note in check(result)]
    return found


def _names(kernels: Iterable[Kernel], most: int = 6) -> str:
    """Lists at most this many, by name."""
    labels = sorted({case_of(kernel).label for kernel in kernels})
    rest = len(labels) - most
    return joined(labels[:most] + ([f"{rest} more"] if rest > 0 else []))


def _not_run(kernels: tuple[Kernel, ...]) -> Iterable[Note]:
    left_out = [kernel for kernel in kernels if not kernel.was_run]
    if left_out:
        yield Note("warning", f"{len(left_out)} of {counted(len(kernels), 'kernel')} to be timed (kernel, shape, dtype, way) were skipped, "
                              f"because the time budget had run out: {_names(left_out)}.")


def _unchecked(kernels: Iterable[Kernel]) -> Iterable[Note]:
    return found_note("warning", [kernel for kernel in kernels if kernel.ok and not kernel.checked], "timed kernel",
                      lambda found: f"were not checked: {_names(found)}", "The results of ")


def _threads(kernels: Iterable[Kernel]) -> Iterable[Note]:
    many = sorted({(k.threads, k.run.machine.cores) for k in kernels if k.threads > k.run.machine.cores})
    if many:
        text = joined([f"{threads} threads on {counted(cores, 'core')}" for threads, cores in many])
        yield Note("warning", f"More threads than cores: {text}. Threads then take turns.")
    yield from found_note("warning", [kernel for kernel in kernels if len(set(kernel.cores)) < len(kernel.cores)], "timed kernel",
                          lambda shared: f"two threads were seen on one core: those times used fewer cores than stated ({_names(shared)})", "In ")


def _inconsistent(kernels: Iterable[Kernel]) -> Iterable[Note]:
    known = [k for k in kernels if k.ok and k.share and k.ceiling_us and k.median_us]
    return found_note("warning", [k for k in known if abs(k.ceiling_us / k.median_us / k.share - 1) > 0.01], "timed kernel",
                      lambda off: f"is not its ceiling's time over its median ({_names(off)}): the records contradict themselves", "The share of ")


def _all_timed(roofline: Roofline) -> list[Kernel]:
    return [kernel for cases in roofline.timed.values() for kernel in cases.values()]


def _without_ceiling(roofline: Roofline) -> Iterable[Note]:
    for way, cases in roofline.timed.items():
        missing = [kernel for kernel in cases.values() if kernel.share is None]
        name = way_text(way, roofline.device)
        if missing and not roofline.ceilings_for(way).all:
            yield Note("warning", f"{name}: no ceilings were measured for it, so no limit is known for its "
                                  f"{counted(len(missing), 'kernel')}.")
        elif missing:
            yield Note("warning", f"{name}: {counted(len(missing), 'timed kernel')} of {len(cases)} {have(missing)} "
                                  f"no ceiling and no share: {_names(missing)}.")


def _above(roofline: Roofline) -> Iterable[Note]:
    above = sorted((kernel for kernel in _all_timed(roofline) if (kernel.share or 0) > ABOVE), key=lambda kernel: -kernel.share)
    return found_note("warning", above, "timed kernel", lambda _: (
        f"{are(above)} faster than the ceiling that should bind {'it' if len(above) == 1 else 'them'}, {case_of(above[0]).full} most "
        f"({above[0].cache}, {counted(above[0].threads, 'thread')}: {share_text(above[0].share)}): its operands came from a nearer cache "
        "than is supposed, or the machine was slower when the ceiling was measured"))


def _one_sided(roofline: Roofline) -> Iterable[Note]:
    caches = {way.cache for way in roofline.ways}
    for missing in {"warm", "cold"} - caches if caches else ():
        yield Note("info", f"nothing was timed with {missing} caches.")


def _kernel_holes(roofline: Roofline) -> Iterable[Note]:
    """Cases that were timed in some ways and not in others, which is easily missed in a plot."""
    counts: Counter[Case] = Counter(case for cases in roofline.timed.values() for case in cases)
    holes = [case for case, number in counts.items() if number < len(roofline.ways)]
    if holes:
        names = sorted({case.full for case in holes})
        rest = [f"{len(names) - 4} more"] if len(names) > 4 else []
        yield Note("info", f"{counted(len(holes), 'case')} of {len(counts)} {'was' if len(holes) == 1 else 'were'} not "
                           f"timed correctly in every way that others were: {joined(names[:4] + rest)}.")


def _repeated(roofline: Roofline) -> Iterable[Note]:
    return found_note("info", [0] * roofline.repeated, "kernel", lambda found: (
        f"of earlier runs {are(found)} in the tables only: a later run has the same, with ceilings of its own"))


def _drift(roofline: Roofline) -> Iterable[Note]:
    """Runs of one device whose ceilings differ, so that their shares refer to different limits."""
    spread = drift_of(roofline.found)
    if spread and spread[0] > DRIFT:
        yield Note("warning", f"the runs measured different ceilings, by up to {short(spread[0], 3)} times "
                              f"({spread[1]}): the machine differed between runs. Each share refers to its own "
                              "run's ceiling; the plot has the latest.")


def _without_flops(roofline: Roofline) -> Iterable[Note]:
    without = sorted({kernel.kernel for kernel in _all_timed(roofline) if not kernel.flops})
    if without:
        yield Note("info", f"no arithmetic is counted in {joined(without)}: not in the roofline plot (logarithmic "
                           "axes), but in the shares and the table.")
