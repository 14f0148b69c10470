"""gate.py exact: compares values that repeat exactly. Bytes, steps, messages, simulated times and memory must be equal;
instructions of a call may differ by a threshold. A base that is a file needs no second build: --update writes it."""
import argparse
import time
from pathlib import Path

from gate.builds import left_out, resolve, say
from gate.deterministic import (
    collect, compare_facts, ExactLine, Facts, load_exact_suite, read_facts, why_it_cannot_count, write_facts)
from gate.model import CouldNotRun, Report, Side, UsageError
from gate.outputs.records import check_writable
from gate.commands.ab import ROOT, threshold_of

SUITE = ROOT / "ci" / "gate_exact.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", required=True, metavar="REV|BUILD|FILE", help="the side to compare with; FILE was written by --update")
    parser.add_argument("--head", required=True, metavar="REV|BUILD", help="the side that gets a verdict")
    parser.add_argument("--update", action="store_true", help="write the head's values to the file --base, after comparing if it is there")
    parser.add_argument("--suite", type=Path, default=SUITE, metavar="FILE", help="lines NAME records|counts COMMAND (default: ci/gate_exact.txt)")
    parser.add_argument("--count-threshold", default="1%", metavar="PERCENT", help="instructions may differ by this much (default: 1%%)")
    parser.add_argument("--build-cache", type=Path, default=ROOT / "out" / "gate", metavar="DIR",
                        help="folder of builds (default: out/gate)")
    parser.add_argument("--cmake", action="append", default=[], metavar="FLAG",
                        help="flag for builds of revisions, such as -DLOCKSTEP_CUDA=OFF; may be repeated")


def run(arguments: argparse.Namespace) -> Report:
    start = time.monotonic()
    threshold = threshold_of(arguments.count_threshold, "--count-threshold")
    lines = load_exact_suite(arguments.suite)
    file = Path(arguments.base)
    is_file = file.is_file() or (arguments.update and not file.is_dir())
    if arguments.update and not is_file:
        raise UsageError(f"--update: --base {arguments.base} is no file; allowed: a file to be written")
    if arguments.update:
        _check_update(file, lines)
    base = read_facts(file, "--base") if file.is_file() else None
    head, head_side, notes = _collect(arguments.head, "--head", lines, arguments)
    if base is None and is_file:
        base, base_side = head, Side(file.name, head.revision, file.name)
    elif base is not None:
        base_side = Side(file.name, source=file.name)
    else:
        base, base_side, more = _collect(arguments.base, "--base", lines, arguments)
        notes = list(dict.fromkeys([*notes, *more]))
    results, told = compare_facts(base, head, threshold)
    notes += left_out((base_side, head_side), ROOT)
    if arguments.update:
        write_facts(file, head)
        told.append(f"{file.name} has the head's {len(head.values)} values now")
    return Report("exact", base_side, head_side, threshold, 1.0, tuple(results), time.monotonic() - start, tuple([*notes, *told]))


def _check_update(file: Path, lines: list[ExactLine]) -> None:
    """Raises CouldNotRun, before anything runs, if `file` would lose its counts because this machine cannot count instructions."""
    check_writable(file, "--base")
    cannot = why_it_cannot_count()
    if cannot is not None and any(line.kind == "counts" for line in lines):
        raise CouldNotRun(f"--update: {file.name} would have no instruction counts: {cannot}")


def _collect(text: str, flag: str, lines: list[ExactLine], arguments: argparse.Namespace) -> tuple[Facts, Side, list[str]]:
    programs = sorted({line.command[0] for line in lines})
    build = resolve(text, flag, programs, ROOT, arguments.build_cache, arguments.cmake)
    facts, notes = collect(build, lines, say)
    return facts, build.side, notes
