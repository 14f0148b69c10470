"""PyTorch's time for the cases of a record file, eager, on the CPU:

    compare_kernels_torch.py RECORDS COLD_BYTES MILLISECONDS

Each call goes to the next of as many sets of inputs as exceed COLD_BYTES together (0: one set), as ours do. Outputs are
PyTorch's own, from its allocator, as in a training loop. Prints pytorch,NAME,calls,median_us,mean_us,min_us.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Callable

import torch
from compare_kernels_cases import KernelCase, Operand, read_records

F = torch.nn.functional
aten = torch.ops.aten

DTYPES = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f64": torch.float64,
    "i32": torch.int32,
    "i8": torch.int8,
}
LEAST_CALLS = 5

Tensors = dict[str, torch.Tensor]
Call = Callable[[], object]


def tensor_of(operand: Operand) -> torch.Tensor:
    dtype = DTYPES[operand.dtype]
    count = operand.bytes // torch.empty(0, dtype=dtype).element_size()
    if dtype.is_floating_point:
        return torch.rand(count).add_(0.5).to(dtype)
    return torch.zeros(count, dtype=dtype)


def rows_of(case: KernelCase, t: Tensors) -> Tensors:
    """Two-dimensional where an operand is a multiple of the columns."""
    columns = case.size("V" if "softmax" in case.kernel or "entropy" in case.kernel else "C")
    return {name: x.view(-1, columns) if x.numel() > columns else x for name, x in t.items()}


def norm_fwd(case: KernelCase, t: Tensors) -> Call:
    t = rows_of(case, t)
    columns = [t["x"].shape[1]]
    gamma, beta = t["gamma"].view(-1), t["beta"].view(-1)
    if "residual" in t:
        return lambda: torch.native_layer_norm(t["x"] + t["residual"], columns, gamma, beta, 1e-5)
    return lambda: torch.native_layer_norm(t["x"], columns, gamma, beta, 1e-5)


def norm_bwd(case: KernelCase, t: Tensors) -> Call:
    columns = [case.size("C")]
    r = {name: x.view(-1, columns[0]) for name, x in t.items() if name in ("x", "dy", "dsum")}
    gamma, beta = t["gamma"], torch.zeros_like(t["gamma"])
    mean, rstd = t["mean"].view(-1, 1).to(r["x"].dtype), t["rstd"].view(-1, 1).to(r["x"].dtype)
    wanted = [True, True, True]

    def call() -> object:
        dx, dgamma, dbeta = aten.native_layer_norm_backward(r["dy"], r["x"], columns, mean, rstd, gamma, beta, wanted)
        t["dgamma"] += dgamma
        t["dbeta"] += dbeta
        return dx + r["dsum"] if "dsum" in r else dx

    return call


def rmsnorm_fwd(case: KernelCase, t: Tensors) -> Call:
    t = rows_of(case, t)

    def call() -> object:
        x = t["x"] + t["residual"] if "residual" in t else t["x"]
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype) * t["gamma"].view(-1)

    return call


def gelu_fwd(_case: KernelCase, t: Tensors) -> Call:
    return lambda: F.gelu(t["x"], approximate="tanh")


def gelu_bwd(_case: KernelCase, t: Tensors) -> Call:
    return lambda: aten.gelu_backward(t["dy"], t["x"], approximate="tanh")


def softmax_fwd(case: KernelCase, t: Tensors) -> Call:
    x = t["x"].view(-1, last_size(case))
    return lambda: torch.softmax(x, -1)


def softmax_bwd(case: KernelCase, t: Tensors) -> Call:
    y, dy = (t[name].view(-1, last_size(case)) for name in ("y", "dy"))
    return lambda: aten._softmax_backward_data(dy, y, -1, y.dtype)


def last_size(case: KernelCase) -> int:
    """Columns: the last number of the shape."""
    return int(case.shape.rsplit("_", 1)[-1][1:])


def cross_entropy(case: KernelCase, t: Tensors) -> Call:
    logits, targets = t["logits"].view(-1, case.size("V")), t["targets"].long()

    def call() -> object:
        scores = torch.log_softmax(logits, -1)
        _, weight = aten.nll_loss_forward(scores, targets, None, 1, -100)
        one = torch.ones((), dtype=scores.dtype)
        dscores = aten.nll_loss_backward(one, scores, targets, None, 1, -100, weight)
        return aten._log_softmax_backward_data(dscores, scores, -1, scores.dtype)

    return call


def adamw(_case: KernelCase, t: Tensors) -> Call:
    """Clip factor, step, and the copy of narrow weights, as a training loop has them."""
    weight = torch.nn.Parameter(t["master"])
    optimizer = torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.01)
    weight.grad = torch.zeros_like(t["master"])
    optimizer.step()

    def call() -> None:
        weight.grad = t["grad"].float().mul_(t["clip"]) if t["grad"].dtype != torch.float32 else t["grad"].mul_(t["clip"])
        optimizer.step()
        if "weights" in t:
            t["weights"].copy_(weight.detach())

    return call


def sum_of_squares(_case: KernelCase, t: Tensors) -> Call:
    return lambda: torch.linalg.vector_norm(t["x"])


def residual_add(_case: KernelCase, t: Tensors) -> Call:
    return lambda: torch.add(t["a"], t["b"])


def cast(_case: KernelCase, t: Tensors) -> Call:
    return lambda: t["x"].to(t["y"].dtype)


def quantize(_case: KernelCase, t: Tensors) -> Call:
    x = t["x"].view(t["scales"].numel(), -1)

    def call() -> object:
        scales = x.abs().amax(-1, keepdim=True) / 127
        return torch.round(x / scales).to(torch.int8), scales

    return call


def dequantize(_case: KernelCase, t: Tensors) -> Call:
    codes, scales = t["codes"].view(t["scales"].numel(), -1), t["scales"].view(-1, 1)
    return lambda: (codes * scales).to(t["y"].dtype)


def dropout(_case: KernelCase, t: Tensors) -> Call:
    return lambda: F.dropout(t["x"], 0.1)


def gemm_fwd(case: KernelCase, t: Tensors) -> Call:
    x, w = t["x"].view(-1, case.size("C")), t["w"].view(-1, case.size("C"))
    bias = t.get("bias")
    if "pre" in t:
        return lambda: F.gelu(F.linear(x, w, bias), approximate="tanh")
    return lambda: F.linear(x, w, bias)


def gemm_dgrad(case: KernelCase, t: Tensors) -> Call:
    dy, w = t["dy"].view(-1, case.size("O")), t["w"].view(case.size("O"), -1)
    if "pre" not in t:
        return lambda: dy @ w
    pre = t["pre"].view(-1, case.size("C"))
    return lambda: aten.gelu_backward(dy @ w, pre, approximate="tanh")


def gemm_wgrad(case: KernelCase, t: Tensors) -> Call:
    x, dy, dw = t["x"].view(-1, case.size("C")), t["dy"].view(-1, case.size("O")), t["dw"].view(case.size("O"), -1)

    def call() -> None:
        dw.add_(dy.t() @ x)
        if "dbias" in t:
            t["dbias"].add_(dy.sum(0))

    return call


def attention_fwd(case: KernelCase, t: Tensors) -> Call:
    """Composed, as version 1.13 has no fused attention on the CPU; causal."""
    length, heads, columns = case.size("T"), case.size("H"), case.size("D")
    row = heads * columns
    stride = case.size("S") if "_S" in case.shape else row
    shape, strides = (case.size("B"), length, heads, columns), (length * stride, stride, columns, 1)
    q, k, v = (t[name].as_strided(shape, strides).transpose(1, 2) for name in "qkv")
    unseen = torch.ones(length, length, dtype=torch.bool).triu(1)

    def call() -> object:
        scores = (q @ k.transpose(-1, -2)).mul_(columns**-0.5).masked_fill_(unseen, float("-inf"))
        return torch.softmax(scores, -1) @ v

    return call


def embedding_fwd(case: KernelCase, t: Tensors) -> Call:
    table, ids = t["table"].view(-1, case.size("C")), t["ids"]
    positions = t["positions"].view(-1, case.size("C"))
    return lambda: F.embedding(ids, table).view(-1, *positions.shape) + positions


MAKERS: dict[str, Callable[[KernelCase, Tensors], Call]] = {
    "gelu_fwd": gelu_fwd,
    "gelu_bwd": gelu_bwd,
    "softmax_fwd": softmax_fwd,
    "softmax_bwd": softmax_bwd,
    "layernorm_fwd": norm_fwd,
    "layernorm_bwd": norm_bwd,
    "residual_layernorm_fwd": norm_fwd,
    "residual_layernorm_bwd": norm_bwd,
    "rmsnorm_fwd": rmsnorm_fwd,
    "residual_rmsnorm_fwd": rmsnorm_fwd,
    "cross_entropy": cross_entropy,
    "adamw": adamw,
    "sum_of_squares": sum_of_squares,
    "residual_add": residual_add,
    "cast": cast,
    "quantize_int8": quantize,
    "dequantize_int8": dequantize,
    "dropout": dropout,
    "attention_fwd": attention_fwd,
    "embedding_fwd": embedding_fwd,
    "gemm_fwd": gemm_fwd,
    "gemm_bias_fwd": gemm_fwd,
    "gemm_bias_gelu_fwd": gemm_fwd,
    "gemm_dgrad": gemm_dgrad,
    "gemm_dgelu_dgrad": gemm_dgrad,
    "gemm_wgrad": gemm_wgrad,
    "gemm_bias_wgrad": gemm_wgrad,
}


def time_calls(calls: list[Call], milliseconds: float) -> list[float]:
    for call in calls[:2]:
        call()
    times: list[float] = []
    end = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < end or len(times) < LEAST_CALLS:
        call = calls[len(times) % len(calls)]
        before = time.perf_counter()
        call()
        times.append((time.perf_counter() - before) * 1e6)
    return times


def time_case(case: KernelCase, cold_bytes: float, milliseconds: float) -> list[float]:
    set_bytes = sum(operand.bytes for operand in case.operands)
    sets = max(1, math.ceil(cold_bytes / set_bytes)) if case.cache == "cold" else 1
    make = MAKERS[case.kernel]
    first = {operand.name: tensor_of(operand) for operand in case.operands}
    calls = [make(case, {name: x.clone() for name, x in first.items()}) for _ in range(sets)]
    return time_calls(calls, milliseconds)


def main() -> None:
    path, cold_bytes, milliseconds = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    cases = read_records(path)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", cases[0].threads)))
    with torch.no_grad():
        for case in cases:
            if case.kernel not in MAKERS or any(operand.dtype not in DTYPES for operand in case.operands):
                continue
            times = time_case(case, cold_bytes, milliseconds)
            median, mean = statistics.median(times), statistics.mean(times)
            print(f"pytorch,{case.name},{len(times)},{median:.3f},{mean:.3f},{min(times):.3f}", flush=True)


if __name__ == "__main__":
    main()
