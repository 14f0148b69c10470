"""GPT-2's loss and every gradient against the same model in PyTorch, in f64.

tests/gpt_dump runs our stages on random values of all parameters and writes what went in and what came out.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from conftest import Programs

torch = pytest.importorskip("torch", reason="PyTorch is missing: ci/install.sh test (python3-torch)")
F = torch.nn.functional

Tensors = dict[str, "torch.Tensor"]

# Of the largest element of a gradient. f32: (n - 1) u of the longest sum, which is over the 192 inner columns of the
# MLP, u = 2**-24. Narrow dtypes round each activation and its gradient, some 20 times one after the other, by u at most:
# 2**-9 and 2**-12.
ALLOWED = {"f32": 191 * 2.0**-24, "f32_spread": 191 * 2.0**-24, "bf16": 20 * 2.0**-9, "f16": 20 * 2.0**-12}
ALLOWED_LOSS = {"f32": 1e-6, "f32_spread": 1e-6, "bf16": 2.0**-9, "f16": 2.0**-12}


@dataclass(frozen=True)
class Case:
    name: str
    layers: int
    heads: int
    length: int
    loss: float
    weights: Tensors
    gradients: Tensors
    tokens: "torch.Tensor"  # [sequences of all microbatches, length]
    targets: "torch.Tensor"


def array(path: Path) -> "torch.Tensor":
    return torch.from_numpy(np.load(path))


def read_case(folder: Path) -> Case:
    told = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    parameters: dict[str, list[int]] = told["parameters"]

    def of_parameters(kind: str) -> Tensors:
        return {name: array(folder / kind / f"{name}.npy").reshape(shape) for name, shape in parameters.items()}

    def ids(name: str) -> "torch.Tensor":
        parts = [array(folder / f"{name}{m}.npy") for m in range(told["microbatches"])]
        return torch.cat(parts).long().reshape(-1, told["length"])

    return Case(
        told["name"],
        told["layers"],
        told["heads"],
        told["length"],
        told["loss"],
        of_parameters("weights"),
        of_parameters("gradients"),
        ids("tokens"),
        ids("targets"),
    )


def attention(case: Case, x: "torch.Tensor", w: Tensors, prefix: str) -> "torch.Tensor":
    batch, length, hidden = x.shape
    qkv = F.linear(x, w[prefix + "c_attn.weight"], w[prefix + "c_attn.bias"])
    q, k, v = (part.reshape(batch, length, case.heads, -1).transpose(1, 2) for part in qkv.split(hidden, -1))
    scores = q @ k.transpose(-1, -2) / (hidden // case.heads) ** 0.5
    unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
    o = torch.softmax(scores.masked_fill(unseen, float("-inf")), -1) @ v
    merged = o.transpose(1, 2).reshape(batch, length, hidden)
    return F.linear(merged, w[prefix + "c_proj.weight"], w[prefix + "c_proj.bias"])


def mlp(x: "torch.Tensor", w: Tensors, prefix: str) -> "torch.Tensor":
    inner = F.gelu(F.linear(x, w[prefix + "c_fc.weight"], w[prefix + "c_fc.bias"]), approximate="tanh")
    return F.linear(inner, w[prefix + "c_proj.weight"], w[prefix + "c_proj.bias"])


def norm(x: "torch.Tensor", w: Tensors, name: str) -> "torch.Tensor":
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)


def loss_of(case: Case, w: Tensors) -> "torch.Tensor":
    """GPT-2: pre-norm blocks, learned positions, the word embedding as the head's matrix."""
    x = F.embedding(case.tokens, w["wte.weight"]) + w["wpe.weight"][: case.length]
    for layer in range(case.layers):
        h = f"h.{layer}."
        x = x + attention(case, norm(x, w, h + "ln_1"), w, h + "attn.")
        x = x + mlp(norm(x, w, h + "ln_2"), w, h + "mlp.")
    logits = norm(x, w, "ln_f") @ w["wte.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), case.targets.flatten())


@pytest.fixture(scope="session")
def cases(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    folder = tmp_path_factory.mktemp("gpt")
    dump = programs.folder.parent / "tests" / "gpt_dump"
    subprocess.run([str(dump), str(folder)], check=True, timeout=60)
    return {one.name: read_case(one) for one in folder.iterdir()}


def differences(case: Case, loss: float, gradients: Tensors) -> list[str]:
    found = []
    if abs(case.loss / loss - 1) > ALLOWED_LOSS[case.name]:
        found.append(f"loss {case.loss!r} for {loss!r}")
    for name, theirs in gradients.items():
        worst = ((case.gradients[name] - theirs).abs().max() / theirs.abs().max()).item()
        if not worst <= ALLOWED[case.name]:
            found.append(f"{name}: {worst:.3g} of its largest; allowed {ALLOWED[case.name]:.3g}")
    return found


def autograd(case: Case) -> tuple[float, Tensors]:
    w = {name: value.clone().requires_grad_() for name, value in case.weights.items()}
    loss = loss_of(case, w)
    return loss.item(), dict(zip(w, torch.autograd.grad(loss, list(w.values()))))


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_loss_and_gradients_agree_with_autograd(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    assert set(case.gradients) == set(case.weights) and len(case.weights) == 12 * case.layers + 4
    assert differences(case, *autograd(case)) == []


def test_positions_beyond_the_sequences_get_no_gradient(cases: dict[str, Case]) -> None:
    case = cases["f32"]
    assert case.gradients["wpe.weight"].shape[0] > case.length
    assert not case.gradients["wpe.weight"][case.length :].any()


def test_a_wrong_gradient_is_found(cases: dict[str, Case]) -> None:
    loss, gradients = autograd(cases["f32"])
    wrong = gradients["h.1.attn.c_attn.bias"].clone()
    wrong[5] += 1e-3 * wrong.abs().max()
    assert len(differences(cases["f32"], loss, {**gradients, "h.1.attn.c_attn.bias": wrong})) == 1
    assert len(differences(cases["f32"], loss * 1.0001, gradients)) == 1
