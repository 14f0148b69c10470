#!/usr/bin/env python3
"""Counterpart of mini_train: the same GPT-2, written for PyTorch as its users write it, trained on random tokens.

    torch_trainer.py --layers 4 --hidden 256 --heads 4 --vocabulary 256 --length 128 --batch 8 \\
        --dtype f32|bf16|bf16-weights --threads 2 --steps 20 [--compile]

Prints one line of JSON: milliseconds of each step (forward, backward, clipping and AdamW), tokens per step, versions.
  f32           weights and products in f32
  bf16          torch.autocast: f32 weights, bf16 products (what mini_train's bf16 with f32 master weights does)
  bf16-weights  bf16 weights, no master copy: less work, and not the same training
With --compile the model goes through torch.compile, in the first step; where that is not possible (it needs a C++
compiler and the headers of this Python), one line on standard error gives the reason, with exit status 3.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.c_attn, self.attn_proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.c_fc, self.mlp_proj = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(hidden, dim=2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(seen.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, vocabulary: int, length: int):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)


def timed_step(called: nn.Module, model: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor, targets: torch.Tensor,
               autocast: bool) -> float:
    """Milliseconds of a step of the model, which is `called` or what that was compiled from: forward, backward, clipping and AdamW."""
    start = time.perf_counter()
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=autocast):
        loss = called(tokens, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if tokens.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "heads", "vocabulary", "length", "batch", "threads", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16", "bf16-weights"], default="f32")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = Gpt(options.layers, options.hidden, options.heads, options.vocabulary, options.length)
    if options.dtype == "bf16-weights":
        model = model.bfloat16()
    optimizer = optimizer_of(model)
    called = torch.compile(model) if options.compile else model
    shape = (options.batch, options.length)
    milliseconds = []
    for step in range(options.steps):
        tokens, targets = (torch.randint(options.vocabulary, shape) for _ in range(2))
        try:
            milliseconds.append(timed_step(called, model, optimizer, tokens, targets, options.dtype == "bf16"))
        except Exception as error:  # compilers raise errors of many types
            if not options.compile or step > 0:
                raise
            print("torch.compile:", next(line for line in str(error).splitlines() if line.strip()), file=sys.stderr)
            sys.exit(3)
    print(json.dumps({"ms": milliseconds, "tokens": options.batch * options.length, "torch": torch.__version__,
                      "capability": torch.backends.cpu.get_cpu_capability()}))


if __name__ == "__main__":
    main()
