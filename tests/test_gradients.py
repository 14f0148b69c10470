"""Our references against PyTorch's automatic differentiation in f64: an independent check of every gradient.

tests/kernel_reference_dump writes cases (inputs and our reference's results); here a function for each kernel computes
the same with PyTorch. Kernels are tested against these references (kernels/*/x_test.cpp).
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

from conftest import Programs

torch = pytest.importorskip("torch", reason="PyTorch is missing: ci/install.sh test (python3-torch)")
F = torch.nn.functional

from torch_optimizers import OPTIMIZERS, optimizer_of

RELATIVE = 1e-11  # relative to the largest element of an operand; sums of a few hundred numbers in f64


@dataclass(frozen=True)
class Case:
    kernel: str
    arguments: dict[str, float]
    before: dict[str, "torch.Tensor"]
    after: dict[str, "torch.Tensor"]  # results of our reference

    def integer(self, name: str) -> int:
        return int(self.arguments[name])

    def matrix(self, name: str, *shape: str) -> "torch.Tensor":
        """An input in its shape, with gradient."""
        return self.before[name].reshape([self.integer(s) for s in shape]).clone().requires_grad_()

    def ids(self, name: str) -> "torch.Tensor":
        return self.before[name].long()


Results = dict[str, "torch.Tensor"]


def gradients(result: "torch.Tensor", upstream: "torch.Tensor", *inputs: "torch.Tensor") -> list["torch.Tensor"]:
    return list(torch.autograd.grad(result, inputs, upstream.reshape(result.shape)))


def gelu(x: "torch.Tensor") -> "torch.Tensor":
    return F.gelu(x, approximate="tanh")


def gelu_fwd(case: Case) -> Results:
    return {"y": gelu(case.before["x"])}


def gelu_bwd(case: Case) -> Results:
    x = case.before["x"].clone().requires_grad_()
    return {"dx": gradients(gelu(x), case.before["dy"], x)[0]}


def swiglu(x: "torch.Tensor") -> "torch.Tensor":
    """x is [rows, 2, columns]."""
    return F.silu(x[:, 0]) * x[:, 1]


def gates_of(case: Case) -> "torch.Tensor":
    shape = (case.integer("rows"), 2, case.integer("columns"))
    return case.before["x"].reshape(shape).clone().requires_grad_()


def swiglu_fwd(case: Case) -> Results:
    return {"y": swiglu(gates_of(case))}


def swiglu_bwd(case: Case) -> Results:
    x = gates_of(case)
    return {"dx": gradients(swiglu(x), case.before["dy"], x)[0]}


def rotate(case: Case, x: "torch.Tensor") -> "torch.Tensor":
    """Pairs of columns as complex numbers."""
    rows, heads, columns = (case.integer(n) for n in ("rows", "heads", "head_columns"))
    half = columns // 2
    positions = case.arguments["first_position"] + torch.arange(rows) % case.integer("length")
    frequencies = case.arguments["theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(positions.double(), frequencies)[:, None, :]
    x = x.reshape(rows, heads, columns)
    pairs = (x[..., :half], x[..., half:]) if case.integer("halves") else (x[..., 0::2], x[..., 1::2])
    turned = torch.complex(*pairs) * torch.polar(torch.ones_like(angles), angles)
    if case.integer("halves"):
        return torch.cat([turned.real, turned.imag], -1)
    return torch.stack([turned.real, turned.imag], -1).flatten(-2)


def rotary_fwd(case: Case) -> Results:
    return {"y": rotate(case, case.before["x"])}


def rotary_bwd(case: Case) -> Results:
    """Gradient of the input of the rotation, from the gradient of its result."""
    x = torch.zeros_like(case.before["x"], requires_grad=True)
    return {"y": gradients(rotate(case, x), case.before["x"], x)[0]}


def cross_entropy(case: Case) -> Results:
    logits = case.matrix("logits", "rows", "columns")
    losses = F.cross_entropy(logits[:, : case.integer("valid_columns")], case.ids("targets"), reduction="none")
    upstream = torch.full_like(losses, case.arguments["scale"])
    return {"losses": losses.detach(), "logits": gradients(losses, upstream, logits)[0]}


def gemm_fwd(case: Case) -> Results:
    x, w = case.matrix("x", "rows", "inputs"), case.matrix("w", "outputs", "inputs")
    pre = F.linear(x, w, case.before.get("bias"))
    return {"pre": pre.detach(), "y": (gelu(pre) if "pre" in case.after else pre).detach()}


def gemm_dgrad(case: Case) -> Results:
    """Also through a GELU if there is one: x = gelu(pre)."""
    w = case.matrix("w", "outputs", "inputs")
    through_gelu = "pre" in case.before
    entering = case.matrix("pre", "rows", "inputs") if through_gelu else torch.zeros(
        case.integer("rows"), case.integer("inputs"), dtype=torch.float64, requires_grad=True
    )
    y = F.linear(gelu(entering) if through_gelu else entering, w)
    return {"dx": gradients(y, case.before["dy"], entering)[0]}


def gemm_wgrad(case: Case) -> Results:
    """Result plus the existing content."""
    x = case.matrix("x", "rows", "inputs")
    w = torch.zeros(case.integer("outputs"), case.integer("inputs"), dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(case.integer("outputs"), dtype=torch.float64, requires_grad=True)
    dw, dbias = gradients(F.linear(x, w, bias), case.before["dy"], w, bias)
    results = {"dw": case.before["dw"] + dw.flatten()}
    if "dbias" in case.before:
        results["dbias"] = case.before["dbias"] + dbias
    return results


def normalise(case: Case, x: "torch.Tensor", gamma: "torch.Tensor", beta: "torch.Tensor | None") -> "torch.Tensor":
    """LayerNorm, or RMSNorm in kernels that have no beta and no mean."""
    epsilon = case.arguments["epsilon"]
    if "layernorm" in case.kernel:
        return F.layer_norm(x, [case.integer("columns")], gamma, beta, epsilon)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * gamma


def norm_fwd(case: Case) -> Results:
    """The sum with a residual is stored in f32, and its norm computed from the stored values."""
    results = {}
    x = case.matrix("x", "rows", "columns").detach()
    if "residual" in case.before:
        x = (x + case.before["residual"].reshape(x.shape)).float().double()
        results["sum"] = x
    mean = x.mean(-1) if "layernorm" in case.kernel else torch.zeros(x.shape[0], dtype=x.dtype)
    variance = (x - mean[:, None]).pow(2).mean(-1)
    y = normalise(case, x, case.before["gamma"], case.before.get("beta"))
    return {**results, "y": y, "mean": mean, "rstd": torch.rsqrt(variance + case.arguments["epsilon"])}


def norm_bwd(case: Case) -> Results:
    """Parameters' gradients are added to the existing ones; dsum reaches x past the norm."""
    x, gamma = case.matrix("x", "rows", "columns"), case.matrix("gamma", "columns")
    beta = torch.zeros_like(gamma, requires_grad=True) if "dbeta" in case.before else None
    inputs = [x, gamma] if beta is None else [x, gamma, beta]
    dx, *of_parameters = gradients(normalise(case, x, gamma, beta), case.before["dy"], *inputs)
    names = ("dgamma", "dbeta")
    results = {name: case.before[name] + gradient for name, gradient in zip(names, of_parameters)}
    past_the_norm = case.before["dsum"] if "dsum" in case.before else 0
    return {**results, "dx": dx.flatten() + past_the_norm}


def softmax_fwd(case: Case) -> Results:
    return {"y": torch.softmax(case.matrix("x", "rows", "columns"), -1)}


def softmax_bwd(case: Case) -> Results:
    """log y has the softmax y."""
    x = torch.log(case.matrix("y", "rows", "columns")).detach().requires_grad_()
    return {"dx": gradients(torch.softmax(x, -1), case.before["dy"], x)[0]}


def residual_add(case: Case) -> Results:
    return {"y": case.before["a"] + case.before["b"]}


def heads_of(case: Case, flat: "torch.Tensor", length: str) -> "torch.Tensor":
    """[batch, heads, length, head_columns] from an array whose rows are a stride apart; a head of keys or values is
    repeated for every query head that shares it."""
    of_keys = "key_" if length == "keys" else ""
    batch, tokens, heads, columns = (case.integer(n) for n in ("batch", length, of_keys + "heads", "head_columns"))
    stride = case.integer(of_keys + "stride")
    strided = flat.as_strided((batch, tokens, heads, columns), (tokens * stride, stride, columns, 1)).transpose(1, 2)
    return strided.repeat_interleave(case.integer("heads") // heads, 1)


def attend(case: Case, q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor") -> tuple["torch.Tensor", "torch.Tensor"]:
    """o as [batch, queries, heads * head_columns], and lse."""
    queries, keys = case.integer("queries"), case.integer("keys")
    scores = heads_of(case, q, "queries") @ heads_of(case, k, "keys").transpose(-1, -2) * case.arguments["factor"]
    if case.integer("causal"):
        unseen = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
        scores = scores.masked_fill(unseen, float("-inf"))
    o = torch.softmax(scores, -1) @ heads_of(case, v, "keys")
    return o.transpose(1, 2).flatten(), torch.logsumexp(scores, -1)


def attention_fwd(case: Case) -> Results:
    o, lse = attend(case, *(case.before[name] for name in "qkv"))
    return {"o": o, "lse": lse}


def attention_bwd(case: Case) -> Results:
    """Between rows our reference leaves NaN, as tests fill outputs."""
    inputs = [case.before[name].clone().requires_grad_() for name in "qkv"]
    o, _ = attend(case, *inputs)
    results = {}
    for name, gradient in zip(("dq", "dk", "dv"), gradients(o, case.before["d_o"], *inputs)):
        of_keys = "" if name == "dq" else "key_"
        row = case.integer(of_keys + "heads") * case.integer("head_columns")
        gradient[torch.arange(gradient.numel()) % case.integer(of_keys + "stride") >= row] = float("nan")
        results[name] = gradient
    return results


def embed(case: Case, table: "torch.Tensor", positions: "torch.Tensor | None") -> "torch.Tensor":
    """Ids outside of the shard get a row of zeros."""
    whole = torch.cat([torch.zeros(case.integer("first_id"), table.shape[1], dtype=table.dtype), table])
    y = F.embedding(case.ids("ids"), whole)
    if positions is None:
        return y
    return y + positions.repeat(case.integer("tokens") // case.integer("length"), 1)


def embedding_fwd(case: Case) -> Results:
    positions = case.matrix("positions", "length", "columns") if "positions" in case.before else None
    return {"y": embed(case, case.matrix("table", "rows", "columns"), positions)}


def embedding_bwd(case: Case) -> Results:
    """Result plus the existing content."""
    tables = [torch.zeros(case.integer("rows"), case.integer("columns"), dtype=torch.float64, requires_grad=True)]
    names = ["dtable"]
    if "dpositions" in case.before:
        tables.append(torch.zeros(case.integer("length"), case.integer("columns"), dtype=torch.float64, requires_grad=True))
        names.append("dpositions")
    y = embed(case, tables[0], tables[1] if len(tables) > 1 else None)
    found = gradients(y, case.before["dy"], *tables)
    return {name: case.before[name] + gradient.flatten() for name, gradient in zip(names, found)}


def clipped(case: Case) -> "torch.Tensor":
    return case.before["grad"] * (case.arguments["grad_scale"] * case.before["clip"])


def optimizer_step(case: Case) -> Results:
    weight = torch.nn.Parameter(case.before["master"].clone())
    a = case.arguments
    numbers = {"momentum": a["beta1"], "alpha": a["beta2"], "eps": a["epsilon"], "weight-decay": a["decay"], **a}
    optimizer = optimizer_of(case.kernel, [weight], a["rate"], numbers)
    states = {name: case.before[name].clone() for name in ("m", "v") if name in case.before}
    m = "momentum_buffer" if case.kernel == "momentum" else "exp_avg"
    v = "square_avg" if case.kernel == "rmsprop" else "exp_avg_sq"
    named = {{"m": m, "v": v}[name]: state for name, state in states.items()}
    optimizer.state[weight] = {"step": torch.tensor(a["step"] - 1), **named}
    weight.grad = clipped(case)
    optimizer.step()
    return {"master": weight, **states}


NORMS = ("layernorm", "rmsnorm", "residual_layernorm", "residual_rmsnorm")
BY_KERNEL: dict[str, Callable[[Case], Results]] = {
    "gelu_fwd": gelu_fwd,
    "gelu_bwd": gelu_bwd,
    "swiglu_fwd": swiglu_fwd,
    "swiglu_bwd": swiglu_bwd,
    "rotary_fwd": rotary_fwd,
    "rotary_bwd": rotary_bwd,
    "cross_entropy": cross_entropy,
    **{f"{name}_fwd": norm_fwd for name in NORMS},
    **{f"{name}_bwd": norm_bwd for name in NORMS},
    "softmax_fwd": softmax_fwd,
    "softmax_bwd": softmax_bwd,
    "attention_fwd": attention_fwd,
    "attention_bwd": attention_bwd,
    "embedding_fwd": embedding_fwd,
    "embedding_bwd": embedding_bwd,
    "residual_add": residual_add,
    **{name: optimizer_step for name in OPTIMIZERS},
    "gemm_fwd": gemm_fwd,
    "gemm_bias_fwd": gemm_fwd,
    "gemm_bias_gelu_fwd": gemm_fwd,
    "gemm_dgrad": gemm_dgrad,
    "gemm_dgelu_dgrad": gemm_dgrad,
    "gemm_wgrad": gemm_wgrad,
    "gemm_bias_wgrad": gemm_wgrad,
}


def read_arrays(folder: Path, names: list[str]) -> Results:
    return {name: torch.from_numpy(np.load(folder / f"{name}.npy")) for name in names}


def read_case(folder: Path) -> Case:
    written_case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    written = [name for name, is_written in written_case["written"].items() if is_written]
    return Case(
        written_case["kernel"],
        written_case["arguments"],
        read_arrays(folder / "before", list(written_case["written"])),
        read_arrays(folder / "after", written),
    )


@pytest.fixture(scope="session")
def cases(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("references")
    dump = programs.folder.parent / "tests" / "kernel_reference_dump"
    subprocess.run([str(dump), str(folder)], check=True, timeout=60)
    return [read_case(line) for line in sorted(folder.iterdir())]


def differences(case: Case, results: Results) -> list[str]:
    """Results of our reference that differ from PyTorch's or are missing there."""
    found = []
    for name, ours in case.after.items():
        if name not in results:
            found.append(f"{case.kernel}: {name} is not computed here")
            continue
        theirs = results[name].detach().flatten()
        allowed = RELATIVE * max(1.0, theirs.nan_to_num().abs().max().item())
        worst = (ours - theirs).nan_to_num().abs().max().item()
        if not (worst <= allowed and torch.equal(ours.isnan(), theirs.isnan())):
            found.append(f"{case.kernel}: {name} differs by {worst:.3g}; allowed {allowed:.3g}")
    return found


@pytest.mark.parametrize("kernel", sorted(BY_KERNEL))
def test_reference_agrees_with_autograd(kernel: str, cases: list[Case]) -> None:
    of_kernel = [case for case in cases if case.kernel == kernel]
    assert of_kernel, f"kernel_reference_dump has no case of {kernel}"
    for case in of_kernel:
        assert differences(case, BY_KERNEL[kernel](case)) == []


def test_every_dumped_kernel_is_computed_here(cases: list[Case]) -> None:
    assert {case.kernel for case in cases} - set(BY_KERNEL) == set()


def test_a_wrong_gradient_is_found(cases: list[Case]) -> None:
    case = next(case for case in cases if case.kernel == "gelu_bwd")
    results = BY_KERNEL["gelu_bwd"](case)
    results["dx"] = results["dx"].clone()
    results["dx"][3] += 1e-9
    assert len(differences(case, results)) == 1
