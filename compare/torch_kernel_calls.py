"""Code that an eager user of PyTorch (1.13 or newer) writes for each of our kernels: functions from a case and its inputs, named as
the operands of our records, to the call that is timed. Where PyTorch has one operator it is used, else the formula, operator by
operator. Gradients of parameters are added to what is there, as in ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from compare.kernels import KernelCase

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
EPSILON = 1e-5

Tensors = dict[str, torch.Tensor]
Call = Callable[[], object]
Maker = Callable[[KernelCase, Tensors], Call]


def rows_of(t: Tensors, columns: int, names: str) -> Tensors:
    return {name: t[name].view(-1, columns) for name in names.split() if name in t}


def of_rows(names: str, letter: str, function: Callable[..., object]) -> Maker:
    """Calls a function of these operands as matrices, whose number of columns the shape has after this letter."""
    return lambda case, t: partial(function, *(t[name].view(-1, case.size(letter)) for name in names.split()))


def norm_fwd(case: KernelCase, t: Tensors) -> Call:
    columns = case.size("C")
    r = rows_of(t, columns, "x residual")

    def call() -> object:
        x = r["x"] + r["residual"] if "residual" in r else r["x"]
        return x, torch.native_layer_norm(x, [columns], t["gamma"], t["beta"], EPSILON)

    return call


def norm_bwd(case: KernelCase, t: Tensors) -> Call:
    columns = case.size("C")
    r = rows_of(t, columns, "x dy dsum")
    beta = torch.zeros_like(t["gamma"])
    mean, rstd = (t[name].view(-1, 1).to(r["x"].dtype) for name in ("mean", "rstd"))

    def call() -> object:
        dx, dgamma, dbeta = aten.native_layer_norm_backward(
            r["dy"], r["x"], [columns], mean, rstd, t["gamma"], beta, [True, True, True]
        )
        t["dgamma"] += dgamma
        t["dbeta"] += dbeta
        return dx.add_(r["dsum"]) if "dsum" in r else dx

    return call


def rmsnorm_fwd(case: KernelCase, t: Tensors) -> Call:
    r = rows_of(t, case.size("C"), "x residual")

    def call() -> object:
        x = r["x"] + r["residual"] if "residual" in r else r["x"]
        rstd = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + EPSILON)
        return x, x * rstd.to(x.dtype) * t["gamma"], rstd

    return call


def rmsnorm_bwd(case: KernelCase, t: Tensors) -> Call:
    """The backward that automatic differentiation makes of the forward: elements in their dtype, sums of a row in f32."""
    columns = case.size("C")
    r = rows_of(t, columns, "x dy dsum")
    rstd = t["rstd"].view(-1, 1).to(r["x"].dtype)

    def call() -> object:
        normalised = r["x"] * rstd
        t["dgamma"] += (r["dy"] * normalised).sum(0)
        dnormalised = r["dy"] * t["gamma"]
        slope = (dnormalised * normalised).mean(-1, keepdim=True)
        dx = dnormalised.sub_(normalised.mul_(slope)).mul_(rstd)
        return dx.add_(r["dsum"]) if "dsum" in r else dx

    return call


def gates_of(case: KernelCase, t: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    gate, up = t["x"].view(-1, 2, case.size("C")).unbind(1)
    return gate, up


def swiglu_fwd(case: KernelCase, t: Tensors) -> Call:
    gate, up = gates_of(case, t)
    return lambda: F.silu(gate) * up


def swiglu_bwd(case: KernelCase, t: Tensors) -> Call:
    """Backward from the gate and up projections alone, as ours."""
    gate, up = gates_of(case, t)
    dy = t["dy"].view(-1, case.size("C"))
    return lambda: (aten.silu_backward(dy * up, gate), dy * F.silu(gate))


def cross_entropy(case: KernelCase, t: Tensors) -> Call:
    logits, targets = t["logits"].view(-1, case.size("V")), t["targets"].long()

    def call() -> object:
        scores = torch.log_softmax(logits, -1)
        _, weight = aten.nll_loss_forward(scores, targets, None, 1, -100)
        slope = torch.ones((), dtype=scores.dtype)
        dscores = aten.nll_loss_backward(slope, scores, targets, None, 1, -100, weight)
        return aten._log_softmax_backward_data(dscores, scores, -1, scores.dtype)

    return call


def cross_entropy_stats(case: KernelCase, t: Tensors) -> Call:
    """Loss of shard 0, as Megatron-LM's vocabulary-parallel loss: in f32, operator by operator."""
    logits, targets = t["logits"].view(-1, case.size("V")), t["targets"].long().unsqueeze(1)

    def call() -> object:
        scores = logits.float()
        largest = scores.amax(-1, keepdim=True)
        target = scores.gather(1, targets)
        return largest, (scores - largest).exp_().sum(-1, keepdim=True), target

    return call


def cross_entropy_finish(case: KernelCase, t: Tensors) -> Call:
    """Gradient of shard 0: merges the shards' maxima, sums and target logits first. As above."""
    logits, targets = t["logits"].view(-1, case.size("V")), t["targets"].long().unsqueeze(1)
    stats = t["stats"].view(-1, logits.shape[0], 3)
    minus_one = torch.full((logits.shape[0], 1), -1.0)

    def call() -> object:
        largest, sums, target = stats.unbind(-1)
        most = largest.amax(0)
        whole = most + (sums * (largest - most).exp_()).sum(0).log_()
        gradient = (logits.float() - whole.unsqueeze(1)).exp_().scatter_add_(1, targets, minus_one)
        return whole - target.sum(0), gradient.to(logits.dtype)

    return call


def gradient_of(t: Tensors) -> torch.Tensor:
    return t["grad"].float().mul_(t["clip"]) if t["grad"].dtype != torch.float32 else t["grad"].mul(t["clip"])


OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
}


def optimizer_step(optimizer: torch.optim.Optimizer, weight: torch.nn.Parameter, t: Tensors) -> Call:
    """Clip factor, step, and the copy of narrow weights, as a training loop has them."""
    weight.grad = torch.zeros_like(weight)
    optimizer.step()  # makes its state

    def call() -> None:
        weight.grad = gradient_of(t)
        optimizer.step()
        if "weights" in t:
            t["weights"].copy_(weight.detach())

    return call


def optimizer(case: KernelCase, t: Tensors) -> Call:
    weight = torch.nn.Parameter(t["master"])
    make, numbers = OPTIMIZERS[case.kernel]
    return optimizer_step(make([weight], lr=1e-3, weight_decay=0.1, **numbers), weight, t)


def quantize(_case: KernelCase, t: Tensors) -> Call:
    x = t["x"].view(t["scales"].numel(), -1)

    def call() -> object:
        scales = x.abs().amax(-1, keepdim=True) / 127
        return torch.round(x / scales).to(torch.int8), scales

    return call


def dequantize(_case: KernelCase, t: Tensors) -> Call:
    codes, scales = t["codes"].view(t["scales"].numel(), -1), t["scales"].view(-1, 1)
    return lambda: (codes * scales).to(t["y"].dtype)


def arrays_of(t: Tensors, prefix: str) -> list[torch.Tensor]:
    return [x for name, x in t.items() if name.startswith(prefix)]


def sum_by_stack(_case: KernelCase, t: Tensors) -> Call:
    sources = arrays_of(t, "source")
    return lambda: torch.stack(sources).sum(0)


def sum_by_add(_case: KernelCase, t: Tensors) -> Call:
    """Adds two buffers, then the others in place; narrow floats are rounded after each sum."""
    sources = arrays_of(t, "source")

    def call() -> object:
        total = sources[0] + sources[1]
        for source in sources[2:]:
            total.add_(source)
        return total

    return call


def scale_of(case: KernelCase) -> float:
    return 0.125 if case.shape.endswith("_scaled") else 1.0


def pack_bucket(case: KernelCase, t: Tensors) -> Call:
    pieces, scale = arrays_of(t, "piece"), scale_of(case)
    if scale == 1:
        return lambda: torch._utils._flatten_dense_tensors(pieces)
    return lambda: torch._utils._flatten_dense_tensors(pieces).mul_(scale)


def unpack_bucket(case: KernelCase, t: Tensors) -> Call:
    """PyTorch's own gives views of the bucket; they are copied out, as ours are."""
    pieces, scale = arrays_of(t, "piece"), scale_of(case)

    def call() -> None:
        for piece, view in zip(pieces, torch._utils._unflatten_dense_tensors(t["bucket"], pieces)):
            piece.copy_(view) if scale == 1 else torch.mul(view, scale, out=piece)

    return call


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


def gemm_batched(case: KernelCase, t: Tensors) -> Call:
    entries, inner = case.size("E"), case.size("K")
    a = t["a"].view(entries, -1, inner)
    b = t["b"].view(entries, -1, inner).transpose(1, 2) if case.shape.endswith("t") else t["b"].view(entries, inner, -1)
    return lambda: torch.bmm(a, b)


def heads_of(case: KernelCase, t: Tensors, names: str) -> list[torch.Tensor]:
    """[batch, heads, length, columns] of arrays whose rows are S elements apart; o and its gradient are dense."""
    batch, queries, heads, columns = (case.size(letter) for letter in "BTHD")
    keys = case.size("K") if "_K" in case.shape else queries
    if keys != queries and "_full" not in case.shape:
        raise KeyError(f"{case.name}: a causal mask of more keys than queries")
    group = case.size("G") if "_G" in case.shape else 1

    def view(name: str) -> torch.Tensor:
        count, length = (heads // group, keys) if name in ("k", "v") else (heads, queries)
        stride = case.size("S") if "_S" in case.shape and name in ("q", "k", "v") else count * columns
        strides = (length * stride, stride, columns, 1)
        heads_of_name = t[name].as_strided((batch, length, count, columns), strides).transpose(1, 2)
        return heads_of_name if count == heads else heads_of_name.repeat_interleave(group, 1)

    return [view(name) for name in names.split()]


FUSED_ATTENTION = getattr(F, "scaled_dot_product_attention", None)  # from version 2 on


def probabilities(case: KernelCase, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    scores = (q @ k.transpose(-1, -2)).mul_(case.size("D") ** -0.5)
    if "_full" not in case.shape:
        scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores, -1)


def attention_fwd(case: KernelCase, t: Tensors) -> Call:
    """Fused where PyTorch has it on the CPU, else composed."""
    q, k, v = heads_of(case, t, "q k v")
    if FUSED_ATTENTION:
        return partial(FUSED_ATTENTION, q, k, v, is_causal="_full" not in case.shape)
    return lambda: probabilities(case, q, k) @ v


def attention_bwd(case: KernelCase, t: Tensors) -> Call:
    """The fused forward's; composed as automatic differentiation does it, from probabilities that the forward has kept. Ours recomputes
    them from the log-sum-exp."""
    q, k, v, d_o = heads_of(case, t, "q k v d_o")
    if FUSED_ATTENTION:
        inputs = tuple(x.detach().requires_grad_() for x in (q, k, v))
        with torch.enable_grad():
            o = FUSED_ATTENTION(*inputs, is_causal="_full" not in case.shape)
        return lambda: torch.autograd.grad(o, inputs, d_o, retain_graph=True)
    weights = probabilities(case, q, k)
    scale = case.size("D") ** -0.5

    def call() -> object:
        dv = weights.transpose(-1, -2) @ d_o
        dscores = aten._softmax_backward_data(d_o @ v.transpose(-1, -2), weights, -1, weights.dtype).mul_(scale)
        return dscores @ k, dscores.transpose(-1, -2) @ q, dv

    return call


def attention_decode(case: KernelCase, t: Tensors) -> Call:
    """Composed; queries that share a head of keys are the rows of one product. Contexts are all as long as the cache."""
    if "_ragged" in case.shape or "table" in t:
        raise KeyError(f"{case.name}: not a plain cache of full contexts")
    sequences, heads, columns, keys = (case.size(letter) for letter in "SHDK")
    group = case.size("G") if "_G" in case.shape else 1
    q = t["q"].view(sequences, heads // group, group, columns)
    k, v = (t[name].view(sequences, heads // group, keys, columns) for name in ("k", "v"))
    return lambda: torch.softmax((q @ k.transpose(-1, -2)).mul_(columns**-0.5), -1) @ v


def embedding_fwd(case: KernelCase, t: Tensors) -> Call:
    table, ids = t["table"].view(-1, case.size("C")), t["ids"]
    positions = t["positions"].view(-1, case.size("C"))
    return lambda: F.embedding(ids, table).view(-1, *positions.shape) + positions


def add_positions(case: KernelCase, t: Tensors) -> None:
    t["dpositions"] += t["dy"].view(-1, case.size("T") * case.size("C")).sum(0)


def embedding_bwd_dense(case: KernelCase, t: Tensors) -> Call:
    """PyTorch's own: a gradient of the whole table, added to what is there."""
    dy, dtable = (t[name].view(-1, case.size("C")) for name in ("dy", "dtable"))
    ids = t["ids"].long()

    def call() -> None:
        dtable.add_(aten.embedding_dense_backward(dy, ids, dtable.shape[0], -1, False))
        add_positions(case, t)

    return call


def embedding_bwd_index_add(case: KernelCase, t: Tensors) -> Call:
    """Adds the gradients of tokens to only those rows of the table that tokens name."""
    dy, dtable = (t[name].view(-1, case.size("C")) for name in ("dy", "dtable"))

    def call() -> None:
        dtable.index_add_(0, t["ids"], dy.float())
        add_positions(case, t)

    return call


ONE_WAY: dict[str, Maker] = {
    "gelu_fwd": lambda _, t: lambda: F.gelu(t["x"], approximate="tanh"),
    "gelu_bwd": lambda _, t: lambda: aten.gelu_backward(t["dy"], t["x"], approximate="tanh"),
    "swiglu_fwd": swiglu_fwd, "swiglu_bwd": swiglu_bwd,
    "softmax_fwd": of_rows("x", "C", partial(torch.softmax, dim=-1)),
    "softmax_bwd": of_rows("dy y", "C", lambda dy, y: aten._softmax_backward_data(dy, y, -1, y.dtype)),
    **dict.fromkeys(("layernorm_fwd", "residual_layernorm_fwd"), norm_fwd),
    **dict.fromkeys(("layernorm_bwd", "residual_layernorm_bwd"), norm_bwd),
    **dict.fromkeys(("rmsnorm_fwd", "residual_rmsnorm_fwd"), rmsnorm_fwd),
    **dict.fromkeys(("rmsnorm_bwd", "residual_rmsnorm_bwd"), rmsnorm_bwd),
    "cross_entropy": cross_entropy, "cross_entropy_stats": cross_entropy_stats, "cross_entropy_finish": cross_entropy_finish,
    **dict.fromkeys(OPTIMIZERS, optimizer),
    "sum_of_squares": lambda _, t: lambda: torch.linalg.vector_norm(t["x"]),
    "residual_add": lambda _, t: lambda: torch.add(t["a"], t["b"]),
    "cast": lambda _, t: lambda: t["x"].to(t["y"].dtype),
    "quantize_int8": quantize, "dequantize_int8": dequantize,
    "dropout": lambda _, t: lambda: F.dropout(t["x"], 0.1),
    "pack_bucket": pack_bucket, "unpack_bucket": unpack_bucket,
    "attention_fwd": attention_fwd, "attention_bwd": attention_bwd, "attention_decode": attention_decode,
    "embedding_fwd": embedding_fwd,
    **dict.fromkeys(("gemm_fwd", "gemm_bias_fwd", "gemm_bias_gelu_fwd"), gemm_fwd),
    **dict.fromkeys(("gemm_dgrad", "gemm_dgelu_dgrad"), gemm_dgrad),
    **dict.fromkeys(("gemm_wgrad", "gemm_bias_wgrad"), gemm_wgrad),
    "gemm_batched": gemm_batched,
}
SEVERAL_WAYS: dict[str, dict[str, Maker]] = {
    "reduction": {"stack": sum_by_stack, "add": sum_by_add},
    "embedding_bwd": {"dense": embedding_bwd_dense, "index_add": embedding_bwd_index_add},
}


def makers_of(case: KernelCase) -> dict[str, Maker]:
    """Functions that make a case's call, by the way in which it is written ("" if there is one way); none for fp8, which PyTorch 1.13
    lacks."""
    if any(operand.dtype not in DTYPES for operand in case.operands):
        return {}
    if case.kernel in SEVERAL_WAYS:
        return SEVERAL_WAYS[case.kernel]
    return {"": ONE_WAY[case.kernel]} if case.kernel in ONE_WAY else {}
