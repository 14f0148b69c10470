"""Warnings about kernels and ceilings."""
from collections import Counter
from typing import Iterable

from reports.analysis.roofline.rooflines import Case, case_of, odd_ones, Roofline, way_text
from reports.analysis.roofline.findings import ABOVE, RooflineResult
from reports.check.runs import FEW_SAMPLES, Note, are, have, notes_on_runs, worst_first
from reports.records import Kernel, Records
from reports.units import counted, joined, share_text, short

DRIFT = 1.10  # largest ratio of ceilings of several runs without a warning


def notes_on_kernels(records: Records, results: Iterable[RooflineResult]) -> list[Note]:
    """Warnings, worst first."""
    found = [*_bad(records.kernels), *notes_on_runs(records), *_unchecked(records.kernels), *_threads(records.kernels),
             *_inconsistent(records.kernels), *_samples(records.kernels)]
    for result in results:
        for check in (_without_ceiling, _above, _one_sided, _holes, _repeated, _drift, _odd, _without_flops):
            found += [Note(note.level, f"{result.name}: {note.text}") for note in check(result.roofline)]
    return worst_first(found)


def _names(kernels: Iterable[Kernel], most: int = 6) -> str:
    """Lists at most this many, by name."""
    labels = sorted({case_of(kernel).label for kernel in kernels})
    rest = len(labels) - most
    return joined(labels[:most] + ([f"{rest} more"] if rest > 0 else []))


def _bad(kernels: Iterable[Kernel]) -> Iterable[Note]:
    wrong = [kernel for kernel in kernels if kernel.status == "wrong"]
    failed = [kernel for kernel in kernels if kernel.status == "failed"]
    if wrong:
        yield Note("error", f"{counted(len(wrong), 'timed kernel')} had wrong results and {are(wrong)} left out of "
                            f"every plot and sentence: {_names(wrong)}.")
    if failed:
        yield Note("error", f"{counted(len(failed), 'kernel')} failed and {have(failed)} no times: {_names(failed)}.")


def _unchecked(kernels: Iterable[Kernel]) -> Iterable[Note]:
    found = [kernel for kernel in kernels if kernel.ok and not kernel.checked]
    if found:
        yield Note("warning", f"The results of {counted(len(found), 'timed kernel')} were not checked: "
                              f"{_names(found)}.")


def _threads(kernels: Iterable[Kernel]) -> Iterable[Note]:
    many = sorted({(k.threads, k.run.machine.cores) for k in kernels if k.threads > k.run.machine.cores})
    if many:
        told = joined([f"{threads} threads on {counted(cores, 'core')}" for threads, cores in many])
        yield Note("warning", f"More threads than cores: {told}. Threads then take turns.")
    shared = [kernel for kernel in kernels if len(set(kernel.cores)) < len(kernel.cores)]
    if shared:
        yield Note("warning", f"In {counted(len(shared), 'timed kernel')} two threads were seen on one core: those "
                              f"times are of fewer cores than they say ({_names(shared)}).")


def _inconsistent(kernels: Iterable[Kernel]) -> Iterable[Note]:
    known = [k for k in kernels if k.ok and k.share and k.ceiling_us and k.median_us]
    off = [k for k in known if abs(k.ceiling_us / k.median_us / k.share - 1) > 0.01]
    if off:
        yield Note("warning", f"The share of {counted(len(off), 'timed kernel')} is not its ceiling's time over its "
                              f"median ({_names(off)}): the records contradict themselves.")


def _samples(kernels: Iterable[Kernel]) -> Iterable[Note]:
    few = [kernel for kernel in kernels if kernel.ok and len(kernel.samples_us) < FEW_SAMPLES]
    if few:
        yield Note("info", f"{counted(len(few), 'timed kernel')} {have(few)} fewer than {FEW_SAMPLES} samples: their "
                           "p5 and p95 are little more than the extremes.")


def _all_timed(roofline: Roofline) -> list[Kernel]:
    return [kernel for cases in roofline.timed.values() for kernel in cases.values()]


def _without_ceiling(roofline: Roofline) -> Iterable[Note]:
    for way, cases in roofline.timed.items():
        missing = [kernel for kernel in cases.values() if kernel.share is None]
        name = way_text(way, roofline.place.device)
        if missing and not roofline.ceilings_for(way).all:
            yield Note("warning", f"{name}: no ceilings were measured for it, so nothing can be said of its "
                                  f"{counted(len(missing), 'kernel')} against a limit.")
        elif missing:
            yield Note("warning", f"{name}: {counted(len(missing), 'timed kernel')} of {len(cases)} {have(missing)} "
                                  f"no ceiling and no share: {_names(missing)}.")


def _above(roofline: Roofline) -> Iterable[Note]:
    above = [kernel for kernel in _all_timed(roofline) if kernel.share is not None and kernel.share > ABOVE]
    if above:
        most = max(above, key=lambda kernel: kernel.share)
        where = f"{most.cache}, {counted(most.threads, 'thread')}"
        yield Note("warning", f"{counted(len(above), 'timed kernel')} {are(above)} faster than the ceiling that is to "
                              f"bind {'it' if len(above) == 1 else 'them'}, {case_of(most).full} most "
                              f"({where}: {share_text(most.share)}): its operands came from a nearer cache than is "
                              "supposed, or the machine was slower when the ceiling was measured.")


def _one_sided(roofline: Roofline) -> Iterable[Note]:
    caches = {way.cache for way in roofline.ways}
    for missing in {"warm", "cold"} - caches if caches else ():
        yield Note("info", f"nothing was timed with {missing} caches.")


def _holes(roofline: Roofline) -> Iterable[Note]:
    """Cases that were timed in some ways and not in others, which is easily missed in a plot."""
    counts: Counter[Case] = Counter(case for cases in roofline.timed.values() for case in cases)
    holes = [case for case, number in counts.items() if number < len(roofline.ways)]
    if holes:
        names = sorted({case.full for case in holes})
        rest = [f"{len(names) - 4} more"] if len(names) > 4 else []
        yield Note("info", f"{counted(len(holes), 'case')} of {len(counts)} {'was' if len(holes) == 1 else 'were'} not "
                           f"timed correctly in every way that others were: {joined(names[:4] + rest)}.")


def _repeated(roofline: Roofline) -> Iterable[Note]:
    if roofline.repeated:
        yield Note("info", f"{counted(roofline.repeated, 'kernel')} of earlier runs {are([0] * roofline.repeated)} in "
                           "the tables only: a later run has the same, with ceilings of its own.")


def _drift(roofline: Roofline) -> Iterable[Note]:
    """Runs of one device whose ceilings differ, so that their shares refer to different limits."""
    spread = roofline.drift
    if spread and spread[0] > DRIFT:
        yield Note("warning", f"the runs measured different ceilings, by up to {short(spread[0], 3)} times "
                              f"({spread[1]}): the machine was not alike in all of them. Each share is of its own "
                              "run's ceiling; the plot has the latest.")


def _odd(roofline: Roofline) -> Iterable[Note]:
    """Warning of ceilings that cannot be the machine's: shares of them refer to a limit that is too low."""
    odd = odd_ones(roofline.ceilings)
    if odd:
        rest = [f"{len(odd) - 4} more"] if len(odd) > 4 else []
        yield Note("warning", f"ceilings that cannot be the machine's limits: {joined(odd[:4] + rest)}. Something else "
                              "was running, or the loop is poor; shares of these ceilings are too high.")


def _without_flops(roofline: Roofline) -> Iterable[Note]:
    without = sorted({kernel.kernel for kernel in _all_timed(roofline) if not kernel.flops})
    if without:
        yield Note("info", f"no arithmetic is counted in {joined(without)}: not in the roofline plot (logarithmic "
                           "axes), but in the shares and the table.")
