"""Compares a mixture of experts with PyTorch's on the CPU, forward and backward, alternating: tokens per second of both.

PyTorch's layer is the usual one: softmax, topk, and for each expert index_select, two linear
layers with a GELU, and index_add of the rows times their gates; gradients of the input and of all weights. moe_bench runs
the same sizes on one rank, dropless, with an even router (--skew 1); PyTorch's router is forced to the same loads.
"""
from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import geometric_mean

import torch
from compare.rows import print_table, records
from compare.runner import flag

TARGETS = ["moe_bench"]
SIZES = ((512, 256, 1024, 8, 2), (1024, 512, 2048, 8, 2), (1024, 256, 512, 64, 6), (1024, 512, 1024, 32, 4))  # T h ffn E k
TURNS = 5


class Mixture(torch.nn.Module):
    def __init__(self, hidden: int, ffn: int, experts: int, top_k: int) -> None:
        super().__init__()
        self.top_k = top_k
        self.router = torch.nn.Linear(hidden, experts, bias=False)
        self.up = torch.nn.ModuleList(torch.nn.Linear(hidden, ffn) for _ in range(experts))
        self.down = torch.nn.ModuleList(torch.nn.Linear(ffn, hidden) for _ in range(experts))

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        scores = torch.softmax(self.router(x), -1)
        choices = torch.topk(scores + bias, self.top_k, -1).indices
        gates = scores.gather(1, choices)
        gates = gates / gates.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for expert, (up, down) in enumerate(zip(self.up, self.down)):
            token, place = (choices == expert).nonzero(as_tuple=True)
            rows = down(torch.nn.functional.gelu(up(x.index_select(0, token)), approximate="tanh"))
            out.index_add_(0, token, rows * gates[token, place, None])
        return out

    def even_bias(self, x: torch.Tensor, experts: int) -> torch.Tensor:
        """Bias of the scores that makes the loads even, fitted as in moe_bench."""
        bias, step = torch.zeros(experts), 0.5
        with torch.no_grad():
            scores = torch.softmax(self.router(x), -1)
            for _ in range(400):
                chosen = torch.topk(scores + bias, self.top_k, -1).indices.flatten()
                bias += step * (1 / experts - torch.bincount(chosen, minlength=experts) / len(chosen))
                step *= 0.99
        return bias


class Torch:
    def __init__(self, tokens: int, hidden: int, ffn: int, experts: int, top_k: int) -> None:
        torch.manual_seed(1)
        self.layer = Mixture(hidden, ffn, experts, top_k)
        self.x = torch.randn(tokens, hidden, requires_grad=True)
        self.dy = torch.randn(tokens, hidden)
        self.bias = self.layer.even_bias(self.x, experts)

    def turn(self) -> float:
        start = time.perf_counter()
        self.layer(self.x, self.bias).backward(self.dy)
        return time.perf_counter() - start

    def tokens_per_second(self) -> float:
        self.turn()
        return len(self.x) / statistics.median(self.turn() for _ in range(TURNS))


def ours(program: str, threads: int, size: tuple[int, ...]) -> float:
    tokens, hidden, ffn, experts, top_k = size
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "moe.jsonl"
        flags = {"--ep": 1, "--tokens": tokens, "--hidden": hidden, "--ffn": ffn, "--experts": experts, "--top-k": top_k,
                 "--skew": 1, "--threads": threads, "--rounds": TURNS, "--json": file}
        subprocess.run([program, *(str(word) for pair in flags.items() for word in pair)], check=True, stdout=subprocess.DEVNULL)
        (record,) = records(file, "step")
    us = sum(time_of["stats"]["median"] for time_of in record["times"] if time_of["mode"] == "serial")
    return tokens / us * 1e6


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--threads", 2, "threads of each side")
    flag(parser, "--rounds", 5, "number of alternating rounds")


def run(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    print(f"# PyTorch {torch.__version__}, {args.threads} threads; tokens per second, forward and backward, medians of "
          f"{args.rounds} alternating rounds")
    ratios, lines = [], []
    for size in SIZES:
        peer = Torch(*size)
        rounds = [(ours(str(args.build / "bin/moe_bench"), args.threads, size), peer.tokens_per_second()) for _ in range(args.rounds)]
        each = [a / b for a, b in rounds]
        ratios.append(statistics.median(each))
        lines.append([*map(str, size), *(f"{statistics.median(side):.0f}" for side in zip(*rounds)), f"{ratios[-1]:.2f}",
                      f"({min(each):.2f} to {max(each):.2f})"])
    print_table(["tokens", "h", "ffn", "experts", "k", "ours", "PyTorch", "ratio", "(least to most)"], lines)
    print(f"# geometric mean {geometric_mean(ratios):.2f}")

