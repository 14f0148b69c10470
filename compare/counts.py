"""Prints what GPU kernels do, counted without a GPU (docs/gpu.md, Counts):

    build/cuda/tests/ptx_check counts build/cuda/ptx --json counts.jsonl
    python3 -m compare counts counts.jsonl --kernel '^softmax_fwd bf16'

The first line of a case is for all entries that the kernel launches. Per element of the largest operand: PTX instructions of
threads, machine instructions (SASS; estimated, where nvdisasm was in PATH), and how many of them an H100 can issue while its
memory moves the declared bytes. "moved": bytes of all sectors that are accessed over the declared bytes; "gaps": over the bytes
that threads asked for; "conflicts": turns of the banks of shared memory over the least; "tensor": FLOPs of tensor cores over the
declared ones. Then each entry: its launch, the code, and its PTX instructions per element by kind of work.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Optional

from compare.rows import print_table
from reports.analysis.roofline.counted import cases_of, CountedCase, H100
from reports.load import load
from reports.records import KernelCount
from reports.schema import ReportError

TARGETS: list[str] = []
HEAD = ["kernel", "shape", "PTX", "SASS", "allowed", "of allowed", "moved", "gaps", "conflicts", "tensor"]
KINDS = ("integer", "real", "special", "convert", "move", "memory", "control", "barrier", "tensor")
ENTRY_HEAD = ["entry", "grid", "block", "shared", "registers", "spilled", "resident", *KINDS]


def shown(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.2f}"


def case_row(case: CountedCase) -> list[str]:
    allowed = case.allowed(H100) if case.is_memory_bound else None
    excess = case.excess() if case.is_memory_bound and case.sass is not None else None
    numbers = (case.ptx, case.sass, allowed, excess, case.moved(), case.gaps(), case.conflicts(), case.tensor_excess())
    return [case.label, case.first.shape, *map(shown, numbers)]


def entry_row(entry: KernelCount) -> list[str]:
    def extent(sides: tuple[int, ...]) -> str:
        return "x".join(str(side) for side in sides)
    cluster = f"/{extent(entry.cluster)}" if max(entry.cluster) > 1 else ""
    return [entry.entry[:70], extent(entry.grid) + cluster, extent(entry.block), str(entry.static_shared_bytes + entry.dynamic_shared_bytes),
            str(entry.registers), str(entry.spill_bytes), f"{entry.resident_blocks} x {entry.resident_threads // max(entry.resident_blocks, 1)}",
            *(shown(entry.instructions.get(kind, 0) / entry.elems) for kind in KINDS)]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", help="records of ptx_check counts or launch")
    parser.add_argument("--kernel", default=".", metavar="REGEX", help="what a case's kernel and dtype match: 'softmax_fwd bf16'")


def run(options: argparse.Namespace) -> None:
    try:
        cases = [case for case in cases_of(load([str(Path(file)) for file in options.files]).kernel_counts)
                 if re.search(options.kernel, case.label)]
    except ReportError as error:
        sys.exit(f"compare counts: {error}")
    if not cases:
        sys.exit(f"compare counts: no kernel's counts match --kernel '{options.kernel}'")
    print_table(HEAD, [case_row(case) for case in cases])
    print()
    print_table(ENTRY_HEAD, [entry_row(entry) for case in cases for entry in case.entries])
