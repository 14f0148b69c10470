"""gate.py compare: compares stored measurements of two sides, or of one side with a baseline store.

  gate.py compare BASE HEAD                  a file, a folder or a glob each
  gate.py compare BASE... -- HEAD...         several of each (-- is short for --head)
  gate.py compare --store DIR HEAD...        the newest revision that the store has of this machine"""
import argparse
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gate import store
from gate.drift import drift_of, drifts, notes
from gate.inputs.files import files_of, read
from gate.inputs.observation import by_quantity, compare_exactly, judged, notes_of, Observation, Quantity, UNKNOWN
from gate.model import Channel, Report, Result, Side, UsageError, Verdict
from gate.rule import holm, least_p, p_above, Shift, shift_of, threshold_of, verdict_of

# ---- Compares two sets of stored observations: finds cases that differ by more than their runs differ among themselves.
#
# Only runs (processes) are independent; a run counts as the median of its samples. Each case is judged by the exact rank-sum
# test of its runs, and a comparison's cases together by Holm.

Runs = Mapping[Quantity, Sequence[Observation]]


@dataclass(frozen=True)
class StoredRule:
    """Settings, fixed before any data are looked at."""

    threshold: float = 0.02  # smaller changes do not matter
    error: float = 0.05  # probability that one bound of one interval is wrong
    # Probability that any of all cases is called slower where none is; the same for faster. Half is for the drift's bound, which
    # all cases share, half for the cases
    family: float = 0.01
    trust: bool = False  # assume the same speed of the machine without calibration; otherwise nothing is then called slower or faster

    @property
    def of_cases(self) -> float:
        return self.family / 2


@dataclass(frozen=True)
class Timing:
    """A case that both sides have: logarithms of costs, one per run, and its results before the correction for all cases together."""

    quantity: Quantity
    base: tuple[float, ...]
    head: tuple[float, ...]
    drift: Shift
    calibrated: bool

    def shift(self, error: float) -> Shift:
        """The shift beyond the drift."""
        found = shift_of(self.base, self.head, error)
        return Shift(found.middle - self.drift.middle, found.low - self.drift.high, found.high - self.drift.low)

    def p_slower(self) -> float:
        """P-value that it is no worse at all, for any drift within the bounds."""
        return p_above(self.base, self.head, self.drift.high)

    def p_faster(self) -> float:
        return p_above(self.head, self.base, -self.drift.low)


def compare(base: Sequence[Observation], head: Sequence[Observation], rule: StoredRule) -> tuple[list[Result], list[str]]:
    """A result for each case of either side (outputs sort them), and notes for the reader."""
    of_base, of_head = by_quantity(base), by_quantity(head)
    found = drifts(of_base, of_head, rule.family / 2)
    timings = [_timing(quantity, of_base[quantity], of_head[quantity], found) for quantity in of_base
               if quantity in of_head and quantity.channel is Channel.STORED and not quantity.calibrates]
    slower = holm([timing.p_slower() for timing in timings])
    faster = holm([timing.p_faster() for timing in timings])
    results = [_judged(timing, *ps, len(timings), rule) for timing, *ps in zip(timings, slower, faster, strict=True)]
    remarks = (notes(found, rule.trust) if timings else []) + _too_few(timings, rule)
    return results + compare_exactly(of_base, of_head) + _faults(of_base, of_head) + _one_sided(of_base, of_head), remarks


def _timing(quantity: Quantity, base: Sequence[Observation], head: Sequence[Observation], found: Mapping[str, Shift]) -> Timing:
    costs = [tuple(quantity.log_cost(run.typical) for run in runs) for runs in (base, head)]
    return Timing(quantity, costs[0], costs[1], drift_of(quantity.kind, found), bool(found))


def _judged(timing: Timing, p_slower: float, p_faster: float, cases: int, rule: StoredRule) -> Result:
    """As in `ab`; slower and faster must also pass the correction for all cases."""
    shift = timing.shift(rule.error)
    why = runs = f"{len(timing.base)} and {len(timing.head)} runs"
    verdict = verdict_of(shift, rule.threshold)
    p = {Verdict.SLOWER: p_slower, Verdict.FASTER: p_faster}.get(verdict)
    if verdict is Verdict.UNDECIDED or p is not None and p > rule.of_cases:
        verdict, why = Verdict.UNDECIDED, _why_undecided(timing, runs, cases, rule)
    elif p is not None:
        why = f"{runs}, p = {p:.2g} with Holm"
        if not (timing.calibrated or rule.trust):
            verdict, why = Verdict.UNDECIDED, f"{why}: {verdict.value} if the machine was the same, which is not known"
    sign = 1 if timing.quantity.better == "lower" else -1
    base, head = (math.exp(sign * statistics.median(costs)) for costs in (timing.base, timing.head))
    zero = statistics.median(timing.base) + timing.drift.middle
    return Result(timing.quantity.case, Channel.STORED, verdict, timing.quantity.unit, base, head, math.exp(shift.middle), _exp(shift.low),
                  _exp(shift.high), why, min(len(timing.base), len(timing.head)), tuple(math.exp(cost - zero) for cost in timing.head))


def _why_undecided(timing: Timing, runs: str, cases: int, rule: StoredRule) -> str:
    if max(len(timing.base), len(timing.head)) == 1:
        return "one run a side: how much runs differ is not known"
    if least_p(len(timing.base), len(timing.head)) * cases > rule.of_cases:
        return f"{runs} are too few for {counted(cases)}"
    return f"not clear with {runs}"


def counted(cases: int) -> str:
    return "1 case" if cases == 1 else f"{cases} cases"


def _too_few(timings: Sequence[Timing], rule: StoredRule) -> list[str]:
    """States the number of runs needed to find anything, if some cases have fewer."""
    lacking = [timing for timing in timings
               if least_p(len(timing.base), len(timing.head)) * len(timings) > rule.of_cases]
    if not lacking:
        return []
    needed = next(n for n in range(2, 100) if least_p(n, n) * len(timings) <= rule.of_cases)
    return [f"{len(lacking)} of {counted(len(timings))} have too few runs to be found slower among so many at "
            f"{rule.family * 100:g} %; {needed} runs (processes) a side are needed"]


def _faults(base: Runs, head: Runs) -> list[Result]:
    """Faults that only the head was checked for, and has."""
    found = [judged(quantity, 0.0, max(value for run in runs for value in run.values))
             for quantity, runs in head.items() if quantity.is_fault and quantity not in base]
    return [result for result in found if result.verdict is not Verdict.SAME]


def _one_sided(base: Runs, head: Runs) -> list[Result]:
    """Cases that one side lacks, a line each, whatever values they have; and values that the head lacks in cases that both have."""
    def cases(runs: Runs) -> dict[str, Quantity]:
        return {_case_of(quantity): quantity for quantity in runs if not quantity.calibrates}
    both = cases(base), cases(head)
    lacking = [Result(quantity.case, quantity.channel, Verdict.GONE, quantity.unit) for quantity in base
               if quantity not in head and not quantity.calibrates and not quantity.is_fault and _case_of(quantity) in both[1]]
    return lacking + [Result(case, quantity.channel, verdict, quantity.unit)
                      for mine, other, verdict in ((*both, Verdict.GONE), (*reversed(both), Verdict.NEW))
                      for case, quantity in mine.items() if case not in other]


def _case_of(quantity: Quantity) -> str:
    return quantity.case.split(": ")[0]


def _exp(bound: float) -> float | None:
    return math.exp(bound) if math.isfinite(bound) else None


# ---- The command of gate.py

def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="+", metavar="RECORDS", help="files, folders or globs; without --head and --store: BASE HEAD")
    parser.add_argument("--head", nargs="+", default=[], metavar="RECORDS", help="records that get a verdict; then all others are the base")
    parser.add_argument("--store", type=Path, metavar="DIR", help="a baseline store: then all records are the head")
    parser.add_argument("--base-revision", metavar="REV", help="revision of the store that is the base (default: its newest)")
    parser.add_argument("--update", action="store_true", help="add the head to the store if nothing is slower")
    parser.add_argument("--fingerprint", choices=("refuse", "warn"), default="refuse",
                        help="what to do if the sides come from different machines (default: refuse)")
    parser.add_argument("--uncalibrated", choices=("undecided", "trust"), default="undecided",
                        help="verdict on cases that look slower or faster without a calibration of the machine (default: undecided)")
    parser.add_argument("--threshold", default="2%", metavar="PERCENT", help="smaller changes do not matter (default: 2%%)")


def run(arguments: argparse.Namespace) -> Report:
    start = time.monotonic()
    rule = StoredRule(threshold=threshold_of(arguments.threshold, "--threshold"), trust=arguments.uncalibrated == "trust")
    base_texts, head_texts = _sides(arguments)
    head = _measurements(head_texts, "HEAD")
    base = _measurements(base_texts, "BASE") if arguments.store is None else _of_store(arguments, head)
    remarks = _of_machines(base, head, arguments.fingerprint) + _of_runs(base, head) + notes_of((*base, *head))
    results, more = compare(base, head, rule)
    if not results:
        raise UsageError("the two sides have no case in common, nor any of their own; allowed: files with cases")
    if arguments.update:
        more.append(_update(arguments.store, head_texts, any(_is_doubtful(result, rule) for result in results)))
    sides = _side(base_texts or [str(arguments.store)], base), _side(head_texts, head)
    return Report("compare", *sides, rule.threshold, 1 - 2 * rule.error, tuple(results),
                  time.monotonic() - start, tuple(remarks + more))


def _sides(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    if arguments.store is not None:
        if arguments.head:
            raise UsageError("--store and --head: a store is the base, and all records are the head; allowed: one of them")
        return [], arguments.files
    for flag in ("update", "base_revision"):
        if getattr(arguments, flag):
            raise UsageError(f"--{flag.replace('_', '-')} requires --store")
    if arguments.head:
        return arguments.files, arguments.head
    if len(arguments.files) != 2:
        raise UsageError(f"{len(arguments.files)} RECORDS given; allowed: BASE HEAD, or BASE... --head HEAD..., or --store DIR HEAD...")
    return arguments.files[:1], arguments.files[1:]


def _measurements(texts: Sequence[str], what: str) -> list[Observation]:
    found = read(texts, what)
    if not found:
        raise UsageError(f"{what} {' '.join(texts)}: no measurement; allowed: files with at least one")
    return found


def _of_store(arguments: argparse.Namespace, head: Sequence[Observation]) -> list[Observation]:
    machines = store.fingerprints(head)
    if arguments.fingerprint == "warn" and not any((arguments.store / machine).is_dir() for machine in machines):
        machines = store.machines_in(arguments.store)
    return store.baseline(arguments.store, machines, arguments.base_revision)


def _of_machines(base: Sequence[Observation], head: Sequence[Observation], policy: str) -> list[str]:
    """Only times depend on the machine: sides that have only counted values may come from any machine."""
    machines = [store.fingerprints(side) for side in (base, head)]
    if machines[0] == machines[1] or not any(observed.quantity.channel is Channel.STORED for observed in (*base, *head)):
        return []
    text = f"machines differ: base {', '.join(machines[0])}, head {', '.join(machines[1])}"
    if policy == "refuse":
        raise UsageError(f"{text}; allowed: records of one machine, or --fingerprint warn")
    return [f"{text}: their times show nothing about the change"]


def _of_runs(base: Sequence[Observation], head: Sequence[Observation]) -> list[str]:
    shared = {observed.origin.run for observed in base} & {observed.origin.run for observed in head}
    return [f"{len(shared)} runs are on both sides: they show nothing"] if shared else []


def _is_doubtful(result: Result, rule: StoredRule) -> bool:
    """A baseline must not follow a slowdown, not even one that may be due to the machine."""
    return result.verdict is Verdict.SLOWER or result.low is not None and result.low > 1 + rule.threshold / 2


def _update(folder: Path, texts: Sequence[str], doubtful: bool) -> str:
    if doubtful:
        return f"{folder} was not updated: something is slower, or looks so"
    added = store.add(folder, list(dict.fromkeys(path for text in texts for path in files_of(text, "HEAD"))))
    return f"added {len(added)} files to {folder}, for machine {added[0].parent.name}"


def _side(texts: Sequence[str], observations: Sequence[Observation]) -> Side:
    name = texts[0] if len(texts) == 1 else f"{texts[0]} and {len(texts) - 1} more"
    revisions = {observed.origin.revision for observed in observations}
    sources = {observed.origin.source for observed in observations}
    return Side(name, revisions.pop() if len(revisions) == 1 else UNKNOWN, sources.pop() if len(sources) == 1 else f"{len(sources)} files")
