"""Cases of ci/compare_kernels.sh, as Lockstep's records have them (docs/record_format.md).

    compare_kernels_cases.py RECORDS    prints each case as an argument of bench/peers/streaming_limit
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

SMALL_SHARE = 0.02  # share of a case's largest operand; smaller ones are left out of its streams (a norm's gamma, scales of blocks)


@dataclass(frozen=True)
class Operand:
    name: str
    access: str
    dtype: str
    bytes: int

    @property
    def passes(self) -> int:
        return 2 if self.access == "update" else 1


@dataclass(frozen=True)
class KernelCase:
    kernel: str
    dtype: str
    shape: str
    cache: str
    threads: int
    flops: float
    bytes: float
    median_us: float
    min_us: float
    operands: tuple[Operand, ...]

    @property
    def name(self) -> str:
        """Name that peers print: "gelu_fwd/f32/B8_T128_C1024/cold"."""
        return f"{self.kernel}/{self.dtype}/{self.shape}/{self.cache}"

    @property
    def family(self) -> str:
        return self.kernel.removesuffix("_fwd").removesuffix("_bwd")

    def size(self, letter: str) -> int:
        """A number of the shape: 768 of "B8_T1024_C768" for C."""
        found = re.search(rf"(?:^|_){letter}(\d+)(?:_|$)", self.shape)
        if not found:
            raise KeyError(f"{self.name} has no {letter}")
        return int(found.group(1))

    def most_touched_bytes(self) -> float:
        """Most bytes of one operand that count. A kernel that declares less than its operands hold touches only a part of the
        largest (the named rows of a table), such that the sum is the declared number. The same rule is in bench/kernels/timed_device.h.
        """
        left, passes = self.bytes, sum(operand.passes for operand in self.operands)
        for operand in sorted(self.operands, key=lambda o: o.bytes):
            if operand.bytes * passes >= left:
                return left / passes
            left -= operand.bytes * operand.passes
            passes -= operand.passes
        return max(operand.bytes for operand in self.operands)

    def footprint_bytes(self) -> float:
        return sum(min(operand.bytes, self.most_touched_bytes()) for operand in self.operands)

    def shared_operands(self) -> set[str]:
        """Names of operands whose touched rows are selected by ids; sets of operands share these operands, and select other rows."""
        if all(operand.name != "ids" for operand in self.operands):
            return set()
        return {operand.name for operand in self.operands if operand.bytes > self.most_touched_bytes()}

    def streams(self) -> str:
        most = self.most_touched_bytes()
        touched = [(o.access[0], min(o.bytes, math.ceil(most))) for o in self.operands]
        largest = max(size for _, size in touched)
        return "+".join(f"{access}{size}" for access, size in touched if size >= SMALL_SHARE * largest)


def read_records(path: Path) -> list[KernelCase]:
    cases = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["record"] != "kernel":
            continue
        if record["status"] != "ok":
            raise SystemExit(f"{path}: {record['kernel']} {record['shape']}: {record['status']}: {record['error']}")
        if len(set(record["cores"])) < record["threads"]:
            print(f"{path}: {record['kernel']}: threads shared a core", file=sys.stderr)
        cases.append(
            KernelCase(
                record["kernel"],
                record["dtype"],
                record["shape"],
                record["cache"],
                record["threads"],
                record["flops"],
                record["bytes"],
                statistics.median(record["samples_us"]),
                min(record["samples_us"]),
                tuple(Operand(o["name"], o["access"], o["dtype"], o["bytes"]) for o in record["operands"]),
            )
        )
    return cases


def main() -> None:
    for case in read_records(Path(sys.argv[1])):
        print(f"{case.name}={case.streams()}")


if __name__ == "__main__":
    main()
