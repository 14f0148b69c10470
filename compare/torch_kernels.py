"""PyTorch's time for the cases of a record file, eager, on the CPU:

    python3 -m compare.torch_kernels RECORDS COLD_BYTES MILLISECONDS

Each call goes to the next of as many sets of inputs as exceed COLD_BYTES together (0: one set), as ours do. Outputs are
PyTorch's own, from its allocator, as in a training loop. Prints LABEL,NAME,calls,median_us,mean_us,min_us, where the
label is "pytorch", and, where there is more than one way to write a kernel, the way. Cases that PyTorch cannot do are
listed on stderr.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from pathlib import Path

import torch
from compare.kernels import KernelCase, Operand, read_records
from compare.rows import time_calls
from compare.torch_kernel_calls import DTYPES, Tensors, makers_of


def tensor_of(operand: Operand) -> torch.Tensor:
    dtype = DTYPES[operand.dtype]
    count = operand.bytes // torch.empty(0, dtype=dtype).element_size()
    if dtype.is_floating_point:
        return torch.rand(count).add_(0.5).to(dtype)
    return torch.zeros(count, dtype=dtype)


def sets_of(case: KernelCase, number: int) -> list[Tensors]:
    """Sets of inputs as in kernels_bench: a table of which ids name a few rows exists once, and each set names other rows."""
    first = {operand.name: tensor_of(operand) for operand in case.operands}
    shared = case.shared_operands()
    sets = []
    for _ in range(number):
        tensors = {name: x if name in shared else x.clone() for name, x in first.items()}
        if "ids" in tensors:
            tensors["ids"].random_(0, case.size("V"))
        sets.append(tensors)
    return sets


def print_case(case: KernelCase, cold_bytes: float, milliseconds: float) -> None:
    for way, make in makers_of(case).items():
        label = f"pytorch {way}".strip()
        try:
            number = max(1, math.ceil(cold_bytes / case.footprint_bytes())) if case.cache == "cold" else 1
            times = time_calls([make(case, tensors) for tensors in sets_of(case, number)], milliseconds, warm_up=2, least=5)
        except (RuntimeError, TypeError, KeyError, IndexError) as error:
            print(f"{label}, {case.name}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
            continue
        median, mean = statistics.median(times), statistics.mean(times)
        print(f"{label},{case.name},{len(times)},{median:.3f},{mean:.3f},{min(times):.3f}", flush=True)


def main() -> None:
    path, cold_bytes, milliseconds = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    cases = read_records(path)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", cases[0].threads)))
    with torch.no_grad():
        for case in cases:
            print_case(case, cold_bytes, milliseconds)


if __name__ == "__main__":
    main()
