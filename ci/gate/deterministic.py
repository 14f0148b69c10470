"""gate.py exact: compares values that repeat exactly. Bytes, steps, messages, simulated times and memory must be equal;
instructions of a call may differ by a threshold. A base that is a file needs no second build: --update writes it."""
import argparse
import json
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from pathlib import Path

from gate.builds import add_build_arguments, Build, compiler_of, left_out, made_with, resolve, ROOT
from gate.inputs.files import read_file
from gate.inputs.observation import by_quantity, judged, Quantity
from gate.model import Channel, CouldNotRun, Report, Result, Side, UsageError, Verdict
from gate.outputs.records import check_writable, write_whole
from gate.rule import threshold_of
from gate.worker import Line, load_suite, Worker
from reports.progress import Progress
from reports.claims import data as claims_data
from reports.claims.verdict import exact_verdicts, settle
from reports.load import load
from reports.schema import ReportError

# ---- The exact values of one build, and a file of them whose changes people can read

FORMAT = 1


Values = dict[Quantity, float]  # their channel is one of these, which a line of the file has as "counted"
COUNTED = {Channel.EXACT: None, Channel.INSTRUCTIONS: True, Channel.DEVICE: "device"}
NVCC = "nvcc"  # the one tool that the counts of GPU kernels depend on, and only they


@dataclass(frozen=True)
class Facts:
    revision: str
    counted_with: Mapping[str, str]  # everything besides the source that counts depend on: compiler, flags, tool
    values: Values

    def of(self, channel: Channel) -> Values:
        return {quantity: value for quantity, value in self.values.items() if quantity.channel is channel}


def write_facts(path: Path, facts: Facts) -> None:
    """Writes one value per line, sorted, so that a diff of the file shows the changed values."""
    head = json.dumps({"facts": FORMAT, "counted_with": dict(sorted(facts.counted_with.items()))})
    lines = sorted(starmap(_line, facts.values.items()))
    write_whole(path, "\n".join([head, *lines]) + "\n", "--base")


def _line(quantity: Quantity, value: float) -> str:
    fields = {"case": quantity.case, "unit": quantity.unit, "value": int(value) if value == int(value) else value}
    if (counted := COUNTED[quantity.channel]) is not None:
        fields["counted"] = counted
    if quantity.better != "lower":
        fields["better"] = quantity.better
    return json.dumps(fields)


def read_facts(path: Path, flag: str) -> Facts:
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if rows[0]["facts"] != FORMAT:
            raise ValueError(f"format {rows[0]['facts']}")
        channels = {counted: channel for channel, counted in COUNTED.items()}
        values = {Quantity(row["case"], channels[row.get("counted")], row["unit"], row.get("better", "lower")): float(row["value"])
                  for row in rows[1:]}
        return Facts(path.name, rows[0]["counted_with"], values)
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror}; allowed: a revision, a build folder, or a file of gate.py exact --update") from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(f"{flag} {path}: not a file of exact values ({error}); allowed: what gate.py exact --update writes") from error


# ---- Instructions of a call, counted by callgrind (valgrind.org/docs/manual/cl-manual.html). A worker runs under it, and
# only what is within lockstep_served_run (bench/serve/orders.cpp) is counted; each order leaves a dump of its own. A case is
# asked for one call to make it ready, then for 1 and for 1 + CALLS: the difference is the calls' own. Counts repeat exactly
# for code of one thread that does not depend on a clock; code that waits for another thread does not belong here. valgrind
# shows programs a processor without AVX-512, so that the AVX2 code is counted

CALLS = 2
# glibc keeps freed blocks in one list per size, so that malloc need not search: otherwise the length of the search depends on all
# earlier allocations of the process, and one allocation more anywhere changed counts of unchanged code by up to 2.4 %.
MALLOC = "glibc.malloc.tcache_count=65535"
OPTIONS = ("--tool=callgrind", "--collect-atstart=no", "--toggle-collect=lockstep_served_run", "--dump-after=lockstep_served_run")


def why_it_cannot_count() -> str | None:
    return None if shutil.which("valgrind") else "valgrind is not installed (package valgrind)"


def counted_with(build: Build) -> dict[str, str]:
    """Everything besides the source that counts depend on."""
    tool = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    how = made_with(build.folder)
    return {"tool": tool, "compiler": how["compiler"], "flags": how["flags"], "libc": f"{' '.join(platform.libc_ver())} {MALLOC}",
            "processor": _features()}


def count(build: Build, command: Sequence[str]) -> dict[str, float]:
    """Instructions of a call, by case of the worker."""
    with tempfile.TemporaryDirectory(prefix="lockstep_counts_") as name:
        folder = Path(name)
        under = ["valgrind", *OPTIONS, f"--callgrind-out-file={folder}/dump", str(build.program(command[0])), *command[1:], "--serve"]
        with Worker(under, {"GLIBC_TUNABLES": MALLOC}) as worker:
            cases = worker.ready()
            for index in range(len(cases)):
                for calls in (1, 1, 1 + CALLS):
                    worker.run(index, calls)
        dumps = [_total(folder / f"dump.{number}") for number in range(1, 3 * len(cases) + 1)]
    return {case: (dumps[3 * i + 2] - dumps[3 * i + 1]) / CALLS for i, case in enumerate(cases)}


def _total(path: Path) -> int:
    try:
        found = re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE)
    except OSError as error:
        raise CouldNotRun(f"valgrind wrote no dump for an order ({path.name}); does the program export lockstep_served_run?") from error
    if not found:
        raise CouldNotRun(f"valgrind: {path.name} has no totals")
    return int(found.group(1))


def _features() -> str:
    """Properties of the processor that decide which code runs under valgrind: our instruction sets, libc's string functions."""
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    has = set(flags.group(1).split()) if flags else set()
    return " ".join(name for name in ("avx2", "fma", "bmi2", "f16c", "erms", "fsrm") if name in has)


# ---- Two builds' exact values: facts at zero tolerance, counted instructions within a threshold


def compare_facts(base: Facts, head: Facts, count_threshold: float) -> tuple[list[Result], list[str]]:
    """Results and notes. Counts are not compared if the sides were counted with different tools."""
    notes = []
    channels = {Channel.EXACT}
    different = {name for name in {**base.counted_with, **head.counted_with} if base.counted_with.get(name) != head.counted_with.get(name)}
    for channel, what, names in ((Channel.INSTRUCTIONS, "instructions", different - {NVCC}), (Channel.DEVICE, "GPU kernels", different & {NVCC})):
        if not names:
            channels.add(channel)
        elif base.of(channel) or head.of(channel):
            listed = ", ".join(f"{name} {base.counted_with.get(name, 'none')} and {head.counted_with.get(name, 'none')}" for name in sorted(names))
            notes.append(f"{what} are not compared, as they were counted with different tools: {listed}")
    before, after = ({quantity.case: value for quantity, value in side.values.items()} for side in (base, head))
    quantities = {quantity.case: quantity for side in (head, base) for quantity in side.values if quantity.channel in channels}
    return [_compare(quantities[case], before.get(case), after.get(case), count_threshold)
            for case in {**before, **after} if case in quantities], notes


def _compare(quantity: Quantity, base: float | None, head: float | None, count_threshold: float) -> Result:
    if base is None or head is None:
        verdict = Verdict.NEW if base is None else Verdict.GONE
        return Result(quantity.case, quantity.channel, verdict, quantity.unit, base, head)
    return judged(quantity, base, head, count_threshold if quantity.channel is Channel.INSTRUCTIONS else 0.0)


# Kinds of a suite's lines. "records": the program's records (--json FILE) have facts; "counts": it serves, and its instructions are counted;
# "device": a command of ptx_check, whose records have what GPU kernels do; left out where a build has no CUDA;
# "claims": COMMAND is a file of claims, and the commands of bench/suite/claims.suite whose evidence is counted or simulated have
# records that settle them.
KINDS = ("records", "counts", "device", "claims")


def collect(build: Build, lines: list[Line], progress=lambda *_: None) -> tuple[Facts, list[str]]:
    """All values of a build, and notes on what was left out."""
    notes = []
    values: Values = {}
    cannot, no_device = why_it_cannot_count(), build.why_no_device_counts()
    for done, line in enumerate(lines):
        progress(f"{build.side.name}: {line.name}", done)
        if line.kind == "records":
            values |= _recorded(build, line)
        elif line.kind == "device":
            values |= {} if no_device else _counted_on_device(build, line)
        elif line.kind == "claims":
            values |= _settled(build, line)
        elif cannot is None:
            values |= {Quantity(f"{line.name}: {case}", Channel.INSTRUCTIONS, "instructions"): number
                       for case, number in count(build, line.command).items()}
    if cannot is not None and any(line.kind == "counts" for line in lines):
        notes.append(f"no instructions were counted: {cannot}")
    if no_device is not None and any(line.kind == "device" for line in lines):
        notes.append(f"no GPU kernels were counted: {no_device}")
    nvcc = {} if no_device else {NVCC: compiler_of(build.folder, "CUDA")}
    return Facts(build.side.revision, {**({} if cannot else counted_with(build)), **nvcc}, values), notes


def _counted_on_device(build: Build, line: Line) -> Values:
    return {replace(quantity, channel=Channel.DEVICE): value for quantity, value in _recorded(build, line, build.device_counts).items()}


def _recorded(build: Build, line: Line, records: Callable[..., Path] | None = None) -> Values:
    """Exact values of the line's records. If there are none, the suite is wrong."""
    with tempfile.TemporaryDirectory(prefix="lockstep_facts_") as name:
        found = by_quantity(read_file((records or build.records)(line.name, line.command, Path(name) / "records.jsonl")))
    values = {replace(quantity, case=f"{line.name}: {quantity.case}"): runs[0].values[0]
              for quantity, runs in found.items() if quantity.channel is Channel.EXACT}
    if not values:
        raise CouldNotRun(f"{line.name}: the records of {line.command[0]} have no exact value")
    return values


def _settled(build: Build, line: Line) -> Values:
    """The verdicts of counted and simulated evidence on the claims of a file. A verdict is part of the case's name, so that the
    old case is gone if the verdict changes, in either direction."""
    try:
        commands = claims_data.load_suite()
        claims = claims_data.load_claims(Path(line.command[0]), commands)
        with tempfile.TemporaryDirectory(prefix="lockstep_claims_") as folder:
            files = [build.records(f"{line.name}: {name}", command, Path(folder) / f"{name}.jsonl")
                     for name, command in claims_data.exact_lines(claims, commands).items()]
            verdicts = exact_verdicts(settle(claims, load(map(str, files)), commands))
    except ReportError as error:
        raise CouldNotRun(f"{line.name}: {error}") from error
    return {Quantity(f"{line.name}: {name}: {verdict}", Channel.EXACT, "verdict"): 1.0 for name, verdict in verdicts.items()}


# ---- The command of gate.py

SUITE = ROOT / "ci" / "gate_exact.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", required=True, metavar="REV|BUILD|FILE", help="the side to compare with; FILE was written by --update")
    parser.add_argument("--head", required=True, metavar="REV|BUILD", help="the side that gets a verdict")
    parser.add_argument("--update", action="store_true", help="write the head's values to the file --base, after comparing if it is there")
    parser.add_argument("--suite", type=Path, default=SUITE, metavar="FILE", help="lines NAME records|counts|device COMMAND (default: ci/gate_exact.txt)")
    parser.add_argument("--count-threshold", default="1%", metavar="PERCENT", help="instructions may differ by this much (default: 1%%)")
    add_build_arguments(parser)


def run(arguments: argparse.Namespace) -> Report:
    start = time.monotonic()
    threshold = threshold_of(arguments.count_threshold, "--count-threshold")
    lines = load_suite(arguments.suite, "KIND", KINDS)
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
    results, more = compare_facts(base, head, threshold)
    notes += left_out((base_side, head_side), ROOT)
    if arguments.update:
        head = _with_device_counts_of(base, head)
        write_facts(file, head)
        more.append(f"{file.name} has the head's {len(head.values)} values now")
    return Report("exact", base_side, head_side, threshold, 1.0, tuple(results), time.monotonic() - start, tuple([*notes, *more]))


def _check_update(file: Path, lines: list[Line]) -> None:
    """Raises CouldNotRun, before anything runs, if `file` would lose its counts because this machine cannot count instructions."""
    check_writable(file, "--base")
    cannot = why_it_cannot_count()
    if cannot is not None and any(line.kind == "counts" for line in lines):
        raise CouldNotRun(f"--update: {file.name} would have no instruction counts: {cannot}")


def _with_device_counts_of(base: Facts, head: Facts) -> Facts:
    """The head's values; a build without CUDA keeps the counts of GPU kernels that the file has."""
    if head.of(Channel.DEVICE) or NVCC not in base.counted_with:
        return head
    return Facts(head.revision, {**head.counted_with, NVCC: base.counted_with[NVCC]}, {**head.values, **base.of(Channel.DEVICE)})


def _collect(text: str, flag: str, lines: list[Line], arguments: argparse.Namespace) -> tuple[Facts, Side, list[str]]:
    programs = sorted({line.command[0] for line in lines if line.kind != "device"})
    build = resolve(text, flag, programs, ROOT, arguments.build_cache, arguments.cmake)
    facts, notes = collect(build, lines, Progress("lines", len(lines)))
    return facts, build.side, notes
