"""Cases of ci/compare_kernels.sh, as Lockstep's records have them (docs/record_format.md).

    compare_kernels_cases.py RECORDS    prints each case as an argument of bench/peers/streaming_limit
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

SMALL_SHARE = 0.02  # of a case's largest operand: less is left out of its streams (a norm's gamma, scales of blocks)


@dataclass(frozen=True)
class Operand:
    name: str
    access: str
    dtype: str
    bytes: int


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
        """What peers print: "gelu_fwd/f32/B8_T128_C1024/cold"."""
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

    def streams(self) -> str:
        largest = max(operand.bytes for operand in self.operands)
        return "+".join(f"{o.access[0]}{o.bytes}" for o in self.operands if o.bytes >= SMALL_SHARE * largest)


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
