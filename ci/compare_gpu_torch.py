#!/usr/bin/env python3
"""The peer of mini_train on a GPU: the same GPT-2 124M in PyTorch, as fast as its users know to make it.

    compare_gpu_torch.py [--seconds 80] [--batches 32,16,64] --json OUT

torch.compile, scaled_dot_product_attention, bf16 autocast over f32 weights, fused AdamW, sequence 1024. Batch after
batch until the seconds are spent; a line of JSON for each, written at once. Before that, attention alone and a copy.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from compare_trainer_torch import Gpt, optimizer_of

LAYERS, HIDDEN, HEADS, VOCABULARY, LENGTH = 12, 768, 12, 50304, 1024
WARM_UP, STEPS = 5, 20


def provenance() -> dict:
    return {"what": "run", "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())), "gpu": torch.cuda.get_device_name(0),
            "python": platform.python_version(), "command": sys.argv[1:]}


def microseconds_of(call: Callable[[], object], calls: int) -> list[float]:
    """Of each call by itself, from CUDA events, after as many calls that are not timed."""
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
    for _ in range(calls):
        call()
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


def attention_lines(batch: int) -> list[dict]:
    """Causal, bf16; queries, keys and values beside each other in one tensor, as a model's projection leaves them."""
    width = HIDDEN // HEADS
    joint = torch.randn(batch, LENGTH, 3, HEADS, width, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    q, k, v = (joint[:, :, part].transpose(1, 2) for part in range(3))
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    slope = torch.randn_like(seen)
    forward = microseconds_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), 50)
    backward = microseconds_of(lambda: torch.autograd.grad(seen, (q, k, v), slope, retain_graph=True), 50)
    shape = f"B{batch}_H{HEADS}_T{LENGTH}_D{width}"
    return [{"what": what, "shape": shape, "dtype": "bf16", "samples_us": samples, "us": statistics.median(samples)}
            for what, samples in (("attention_fwd", forward), ("attention_bwd", backward))]


def training_line(batch: int) -> dict:
    torch.manual_seed(1)
    model = Gpt(LAYERS, HIDDEN, HEADS, VOCABULARY, LENGTH).cuda()
    optimizer = optimizer_of(model)
    forward = torch.compile(model, dynamic=False)
    tokens, targets = (torch.randint(VOCABULARY, (batch, LENGTH), device="cuda") for _ in range(2))

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    milliseconds = []
    for _ in range(WARM_UP + STEPS):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    timed = milliseconds[WARM_UP:]
    return {"what": "gpt2", "batch": batch, "length": LENGTH, "vocabulary": VOCABULARY, "parameters":
            sum(p.numel() for p in model.parameters()), "ms": timed, "peak_bytes": torch.cuda.max_memory_allocated(),
            "tokens_per_s": batch * LENGTH / statistics.median(timed) * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=80, help="no batch begins that would likely end later")
    parser.add_argument("--batches", type=lambda text: [int(word) for word in text.split(",")], default=[32, 16, 64])
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: PyTorch sees none")
    torch.set_float32_matmul_precision("high")
    start = time.monotonic()
    with open(options.json, "w", encoding="utf-8") as file:
        def write(line: dict) -> None:
            print(json.dumps(line), file=file, flush=True)
            told = {key: value for key, value in line.items() if key not in ("samples_us", "ms")}
            print(" ".join(f"{key} {value}" for key, value in told.items()), flush=True)

        write(provenance())
        write(copy_line())
        for line in attention_lines(1) + attention_lines(8):
            write(line)
        longest = 0.0
        for batch in options.batches:
            began = time.monotonic()
            if began - start + longest > options.seconds:
                break
            write(training_line(batch))
            torch.cuda.empty_cache()
            longest = max(longest, time.monotonic() - began)


if __name__ == "__main__":
    main()
