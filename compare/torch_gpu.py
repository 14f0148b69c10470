#!/usr/bin/env python3
"""Counterpart of mini_train on a GPU: the same GPT-2 124M in PyTorch, with its usual optimisations.

    torch_gpu.py [--parts copy,attention,eager,compiled] [--seconds 80] [--batches 32,16,64] --json OUT

scaled_dot_product_attention, bf16 autocast over f32 weights, fused AdamW, sequence 1024; eager, which needs no compiler,
and by torch.compile. Batch sizes run in turn until the seconds are spent; each has a line of JSON, written at once.
Attention alone is timed once with PyTorch's own choice, and once with each of its backends.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_trainer import Gpt, optimizer_of, timed_step

LAYERS, HIDDEN, HEADS, VOCABULARY, LENGTH = 12, 768, 12, 50304, 1024
WARM_UP, STEPS = 5, 20
SLEEP_CYCLES = 50_000_000  # about 30 ms


def provenance() -> dict:
    return {"what": "run", "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())), "gpu": torch.cuda.get_device_name(0),
            "python": platform.python_version(), "command": sys.argv[1:]}


def microseconds_of(call: Callable[[], object], calls: int) -> list[float]:
    """Times each call by itself, by CUDA events, after as many calls that are not timed. The device sleeps first, so that
    the host is ahead of the device: else events around short calls would time the host's launches."""
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
    for _ in range(calls):
        call()
    torch.cuda._sleep(SLEEP_CYCLES)
    for begin, end in marks:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [1e3 * begin.elapsed_time(end) for begin, end in marks]


def copy_line() -> dict:
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").fill_(1)
    target = torch.empty_like(source)
    samples = microseconds_of(lambda: target.copy_(source), 9)
    return {"what": "copy", "bytes": 2 * source.numel(), "samples_us": samples,
            "gbps": 2 * source.numel() / min(samples) / 1e3}


BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}


@dataclass(frozen=True)
class Attention:
    """Causal, bf16. Queries, keys and values are parts of one tensor, as a model's projection leaves them."""

    batch: int
    heads: int
    kv_heads: int
    length: int
    width: int

    @property
    def name(self) -> str:  # kernels_bench's, without the stride of rows
        group = self.heads // self.kv_heads
        return f"B{self.batch}_H{self.heads}_T{self.length}_D{self.width}" + (f"_G{group}" if group > 1 else "")

    def operands(self) -> tuple[torch.Tensor, ...]:
        heads = (self.heads, self.kv_heads, self.kv_heads)
        joint = torch.randn(self.batch, self.length, sum(heads), self.width, dtype=torch.bfloat16, device="cuda",
                            requires_grad=True)
        return tuple(part.transpose(1, 2) for part in joint.split(heads, dim=2))


SHAPES = (Attention(1, HEADS, HEADS, LENGTH, HIDDEN // HEADS), Attention(8, HEADS, HEADS, LENGTH, HIDDEN // HEADS),
          Attention(1, 4, 2, 16384, 128), Attention(1, 4, 4, 16384, 64))


def attention_lines(shape: Attention) -> Iterator[dict]:
    """Times PyTorch's own choice, then each backend; a backend that refuses is reported with its reason."""
    yield from attention_by(shape, "chosen", contextlib.nullcontext())
    for name, backend in BACKENDS.items():
        try:
            yield from attention_by(shape, name, sdpa_kernel(backend))
        except RuntimeError as error:
            yield {"what": "refused", "backend": name, "shape": shape.name, "error": str(error).splitlines()[0]}


def attention_by(shape: Attention, name: str, chosen: contextlib.AbstractContextManager) -> list[dict]:
    q, k, v = shape.operands()
    calls = 50 if shape.length <= LENGTH else 10
    attend = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True, enable_gqa=shape.kv_heads < shape.heads)
    with chosen:
        seen = attend()
        slope = torch.randn_like(seen)
        forward = microseconds_of(attend, calls)
        backward = microseconds_of(lambda: torch.autograd.grad(seen, (q, k, v), slope, retain_graph=True), calls)
    return [{"what": what, "backend": name, "shape": shape.name, "dtype": "bf16", "samples_us": samples,
             "us": statistics.median(samples)}
            for what, samples in (("attention_fwd", forward), ("attention_bwd", backward))]


def training_line(batch: int, compiled: bool) -> dict:
    torch.manual_seed(1)
    model = Gpt(LAYERS, HIDDEN, HEADS, VOCABULARY, LENGTH).cuda()
    optimizer = optimizer_of(model)
    forward = torch.compile(model, dynamic=False) if compiled else model
    tokens, targets = (torch.randint(VOCABULARY, (batch, LENGTH), device="cuda") for _ in range(2))

    milliseconds = [timed_step(forward, model, optimizer, tokens, targets, autocast=True) for _ in range(WARM_UP + STEPS)]
    timed = milliseconds[WARM_UP:]
    return {"what": "gpt2", "compiled": compiled, "batch": batch, "length": LENGTH, "vocabulary": VOCABULARY, "parameters":
            sum(p.numel() for p in model.parameters()), "ms": timed, "peak_bytes": torch.cuda.max_memory_allocated(),
            "tokens_per_s": batch * LENGTH / statistics.median(timed) * 1e3}


def training_lines(batches: list[int], until: float, compiled: bool) -> Iterator[dict]:
    """Runs batch sizes in turn, skipping those that would likely end after the deadline."""
    longest = 0.0
    for batch in batches:
        began = time.monotonic()
        if began + longest > until:
            break
        try:
            yield training_line(batch, compiled)
        except torch.cuda.OutOfMemoryError as error:
            yield {"what": "refused", "compiled": compiled, "batch": batch, "error": str(error).splitlines()[0]}
        torch.cuda.empty_cache()
        longest = max(longest, time.monotonic() - began)


# Lines of each part, by the batch sizes and the deadline
PARTS: dict[str, Callable[[list[int], float], Iterable[dict]]] = {
    "copy": lambda *_: [copy_line()], "attention": lambda *_: chain.from_iterable(map(attention_lines, SHAPES)),
    "eager": partial(training_lines, compiled=False), "compiled": partial(training_lines, compiled=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--seconds", type=float, default=80, help="time for all batches; none begins that would likely end later")
    parser.add_argument("--batches", type=lambda text: [int(word) for word in text.split(",")], default=[32, 16, 64])
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"--parts: unknown {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: PyTorch sees none")
    torch.set_float32_matmul_precision("high")
    start = time.monotonic()
    with open(options.json, "w", encoding="utf-8") as file:
        def write(line: dict) -> None:
            print(json.dumps(line), file=file, flush=True)
            print(" ".join(f"{key} {value}" for key, value in line.items() if key not in ("samples_us", "ms")), flush=True)

        write(provenance())
        for part in options.parts:
            for line in PARTS[part](options.batches, start + options.seconds):
                write(line)


if __name__ == "__main__":
    main()
