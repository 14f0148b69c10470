"""gate.py compare: compares stored measurements of two sides, or of one side with a baseline store.

  gate.py compare BASE HEAD                  a file, a folder or a glob each
  gate.py compare BASE... -- HEAD...         several of each (-- is short for --head)
  gate.py compare --store DIR HEAD...        the newest revision that the store has of this machine"""
import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from gate import store
from gate.model import Channel, Report, Result, Side, UsageError, Verdict
from gate.inputs.files import files_of, read
from gate.inputs.observation import UNKNOWN, Observation
from gate.stored import StoredRule, compare
from gate.commands.ab import threshold_of


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
    told = _of_machines(base, head, arguments.fingerprint) + _of_runs(base, head)
    results, more = compare(base, head, rule)
    if not results:
        raise UsageError("the two sides have no case in common, nor any of their own; allowed: files with cases")
    if arguments.update:
        more.append(_update(arguments.store, head_texts, any(_is_doubtful(one, rule) for one in results)))
    sides = _side(base_texts or [str(arguments.store)], base), _side(head_texts, head)
    return Report("compare", *sides, rule.threshold, 1 - 2 * rule.error, tuple(results),
                  time.monotonic() - start, tuple(told + more))


def _sides(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    if arguments.store is not None:
        if arguments.head:
            raise UsageError("--store and --head: a store is the base, and all records are the head; allowed: one of them")
        return [], arguments.files
    for flag in ("update", "base_revision"):
        if getattr(arguments, flag):
            raise UsageError(f"--{flag.replace('_', '-')} without --store; allowed: with one")
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
    if machines[0] == machines[1] or not any(one.quantity.channel is Channel.STORED for one in (*base, *head)):
        return []
    text = f"machines differ: base {', '.join(machines[0])}, head {', '.join(machines[1])}"
    if policy == "refuse":
        raise UsageError(f"{text}; allowed: records of one machine, or --fingerprint warn")
    return [f"{text}: their times say nothing of the change"]


def _of_runs(base: Sequence[Observation], head: Sequence[Observation]) -> list[str]:
    shared = {one.origin.run for one in base} & {one.origin.run for one in head}
    return [f"{len(shared)} runs are on both sides: they say nothing"] if shared else []


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
    revisions = {one.origin.revision for one in observations}
    sources = {one.origin.source for one in observations}
    return Side(name, revisions.pop() if len(revisions) == 1 else UNKNOWN, sources.pop() if len(sources) == 1 else f"{len(sources)} files")
