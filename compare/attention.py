"""Compares Lockstep's attention with PyTorch's scaled_dot_product_attention on the CPU, alternating case by case on the same two cores.

Prints a row per case: median times, the median over rounds of PyTorch's time over ours
(above 1: ours is faster) with its smallest and largest, and ours in GFLOP/s; then geometric means. Both multiply 4 d
FLOPs per pair of a query and a key that the mask allows, and the backward 10 d. The number of heads is such that all cases
take about as long, and even, so that two threads have equal work.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
from dataclasses import dataclass
from statistics import geometric_mean

# Where OMP_PROC_BIND is set, OpenMP binds the thread that loads it to the first core: here PyTorch's, and oneDNN's in
# our program, whose threads bind themselves.
CORES = sorted(os.sched_getaffinity(0))
OURS_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from compare.rows import time_calls  # noqa: E402
from compare.runner import flag  # noqa: E402

TARGETS = ["attention_loop"]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
KERNELS = ("attention_fwd", "attention_bwd")


@dataclass(frozen=True)
class AttentionCase:
    dtype: str
    length: int
    columns: int
    causal: bool

    @property
    def name(self) -> str:
        return f"{self.dtype} T{self.length} d{self.columns} {'causal' if self.causal else 'full'}"

    @property
    def heads(self) -> int:
        return max(2, min(16, 4096 // self.length))

    def flops(self, kernel: str) -> float:
        pairs = self.length * (self.length + 1) / 2 if self.causal else self.length**2
        return (4 if kernel == KERNELS[0] else 10) * self.columns * self.heads * pairs


def ours(program: str, case: AttentionCase, threads: int, milliseconds: float) -> dict[str, float]:
    command = ["taskset", "-c", ",".join(map(str, CORES)), program, "--dtype", case.dtype, "--length", str(case.length)]
    command += ["--columns", str(case.columns)]
    command += ["--heads", str(case.heads), "--threads", str(threads), "--milliseconds", str(milliseconds)]
    command += ["--causal"] * case.causal
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, env=OURS_ENVIRONMENT)
    rows = [line.split(",") for line in out.stdout.splitlines()]
    return {row[0]: float(row[2]) for row in rows}


def pytorch(case: AttentionCase, milliseconds: float) -> dict[str, float]:
    """Operands as a training step has them: [batch, length, heads, columns] in memory."""

    def draw() -> torch.Tensor:
        return torch.randn(1, case.length, case.heads, case.columns).to(DTYPES[case.dtype]).transpose(1, 2)

    q, k, v = (draw().requires_grad_() for _ in range(3))
    d_o = draw()

    def forward() -> None:
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=case.causal)

    o = F.scaled_dot_product_attention(q, k, v, is_causal=case.causal)

    def backward() -> None:
        torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)

    return {kernel: statistics.median(time_calls([call], milliseconds)) for kernel, call in zip(KERNELS, (forward, backward))}


def compare(case: AttentionCase, flags: argparse.Namespace) -> dict[str, float]:
    rounds = [
        (ours(str(flags.build / "bin/attention_loop"), case, flags.threads, flags.milliseconds), pytorch(case, flags.milliseconds))
        for _ in range(flags.rounds)
    ]
    medians = {}
    for kernel in KERNELS:
        mine, theirs = (statistics.median(times[side][kernel] for times in rounds) for side in (0, 1))
        ratios = sorted(b[kernel] / a[kernel] for a, b in rounds)
        medians[kernel] = statistics.median(ratios)
        print(
            f"{case.name:22} {kernel:14} {mine / 1e3:9.3f} {theirs / 1e3:9.3f} ms   {medians[kernel]:5.2f}"
            f" ({ratios[0]:.2f} to {ratios[-1]:.2f})  {case.flops(kernel) / mine / 1e3:7.1f} GFLOP/s",
            flush=True,
        )
    return medians


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--lengths", "128,512,2048,8192", "tokens per sequence")
    flag(parser, "--columns", "64,128", "columns of a head")
    flag(parser, "--dtypes", "f32,bf16", "dtypes of weights and activations")
    flag(parser, "--masks", "causal,full", "masks of the attention")
    flag(parser, "--rounds", 3, "number of alternating rounds")
    flag(parser, "--threads", 2, "threads of each side")
    flag(parser, "--milliseconds", 100.0, "time of each case in a round; at least one call")


def run(flags: argparse.Namespace) -> None:
    torch.set_num_threads(flags.threads)
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {flags.threads} threads")
    words = (flags.dtypes.split(","), flags.lengths.split(","), flags.columns.split(","), flags.masks.split(","))
    results: dict[tuple[str, str], list[float]] = {}
    for dtype, length, columns, mask in itertools.product(*words):
        for kernel, ratio in compare(AttentionCase(dtype, int(length), int(columns), mask == "causal"), flags).items():
            results.setdefault((dtype, kernel), []).append(ratio)
    for (dtype, kernel), ratios in results.items():
        print(f"{dtype} {kernel}: {geometric_mean(ratios):.2f} in a geometric mean, {min(ratios):.2f} at least")

