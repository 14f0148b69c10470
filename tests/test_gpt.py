"""The loss and every gradient of GPT-2 and of Llama against the same models in PyTorch, in f64.

tests/gpt_dump runs our stages on random values of all parameters and writes inputs and results.
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

# Allowed errors relative to the largest element of a gradient. f32: (n - 1) u of the longest sum, which is over the 192
# inner columns of the MLP, u = 2**-24. Narrow dtypes round each activation and its gradient, some 20 times in sequence,
# by u at most: 2**-9 and 2**-12.
LLAMAS = ["llama", "llama_neighbours", "llama_spread"]
ALLOWED = {
    "f32": 191 * 2.0**-24,
    "f32_spread": 191 * 2.0**-24,
    "bf16": 20 * 2.0**-9,
    "f16": 20 * 2.0**-12,
    **{name: 191 * 2.0**-24 for name in LLAMAS},
}
ALLOWED_LOSS = {"f32": 1e-6, "f32_spread": 1e-6, "bf16": 2.0**-9, "f16": 2.0**-12, **{name: 1e-6 for name in LLAMAS}}


@dataclass(frozen=True)
class Case:
    name: str
    layers: int
    heads: int
    kv_heads: int
    rope_theta: int
    length: int
    loss: float
    weights: Tensors
    gradients: Tensors
    tokens: "torch.Tensor"  # [sequences of all microbatches, length]
    targets: "torch.Tensor"


def array(path: Path) -> "torch.Tensor":
    return torch.from_numpy(np.load(path))


def read_case(folder: Path) -> Case:
    written_case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    parameters: dict[str, list[int]] = written_case["parameters"]

    def of_parameters(kind: str) -> Tensors:
        return {name: array(folder / kind / f"{name}.npy").reshape(shape) for name, shape in parameters.items()}

    def ids(name: str) -> "torch.Tensor":
        parts = [array(folder / f"{name}{m}.npy") for m in range(written_case["microbatches"])]
        return torch.cat(parts).long().reshape(-1, written_case["length"])

    return Case(
        written_case["name"],
        written_case["layers"],
        written_case["heads"],
        written_case["kv_heads"],
        written_case["rope_theta"],
        written_case["length"],
        written_case["loss"],
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


def rms_norm(x: "torch.Tensor", weight: "torch.Tensor") -> "torch.Tensor":
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def frequencies(theta: float, half: int) -> "torch.Tensor":
    return theta ** (-torch.arange(half).double() / half)


def slowed(plain: "torch.Tensor", factor: float, low: float, high: float, positions: int) -> "torch.Tensor":
    """Llama 3.1's scaling, as in transformers' modeling_rope_utils.py: by wavelengths."""
    wavelengths = 2 * torch.pi / plain
    smooth = (positions / wavelengths - low) / (high - low)
    between = (1 - smooth) * plain / factor + smooth * plain
    long = torch.where(wavelengths > positions / low, plain / factor, between)
    return torch.where(wavelengths < positions / high, plain, long)


def rotated(x: "torch.Tensor", turns: "torch.Tensor", neighbours: bool) -> "torch.Tensor":
    """[batch, heads, length, columns] as complex numbers, rotated by their positions."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2]).double(), turns)
    turn = torch.polar(torch.ones_like(angles), angles)
    if neighbours:
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (half, 2)).contiguous()) * turn).flatten(-2)
    turned = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([turned.real, turned.imag], -1)


def grouped_attention(
    x: "torch.Tensor", projections: list["torch.Tensor"], heads: int, kv_heads: int, turns: "torch.Tensor", neighbours: bool
) -> "torch.Tensor":
    """Query head h reads key and value head h // (heads // kv_heads)."""
    batch, length, _ = x.shape
    wq, wk, wv, wo = projections
    q, k, v = ((x @ w.T).reshape(batch, length, n, -1).transpose(1, 2) for w, n in ((wq, heads), (wk, kv_heads), (wv, kv_heads)))
    q, k = rotated(q, turns, neighbours), rotated(k, turns, neighbours)
    outputs = []
    for h in range(heads):
        of = h // (heads // kv_heads)
        scores = q[:, h] @ k[:, of].transpose(-1, -2) / q.shape[-1] ** 0.5
        unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
        outputs.append(torch.softmax(scores.masked_fill(unseen, float("-inf")), -1) @ v[:, of])
    return torch.cat(outputs, -1) @ wo.T


def llama_loss_of(case: Case, w: Tensors) -> "torch.Tensor":
    """Llama: RMSNorm, rotary positions, grouped queries, SwiGLU, an untied head, no biases."""
    x = F.embedding(case.tokens, w["wte.weight"])
    for layer in range(case.layers):
        h = f"h.{layer}."
        out = w[h + "attn.c_proj.weight"]
        keys = out.shape[1] * case.kv_heads // case.heads
        qkv = list(w[h + "attn.c_attn.weight"].split([out.shape[1], keys, keys]))
        x = x + grouped_attention(
            rms_norm(x, w[h + "ln_1.weight"]),
            [*qkv, out],
            case.heads,
            case.kv_heads,
            frequencies(case.rope_theta, out.shape[1] // case.heads // 2),
            case.name == "llama_neighbours",
        )
        gate, up = (rms_norm(x, w[h + "ln_2.weight"]) @ w[h + "mlp.c_fc.weight"].T).chunk(2, -1)
        x = x + (gate * torch.sigmoid(gate) * up) @ w[h + "mlp.c_proj.weight"].T
    logits = rms_norm(x, w["ln_f.weight"]) @ w["lm_head.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), case.targets.flatten())


def loss_of(case: Case, w: Tensors) -> "torch.Tensor":
    """GPT-2: pre-norm blocks, learned positions, the word embedding as the head's matrix."""
    if case.name in LLAMAS:
        return llama_loss_of(case, w)
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
    return {line.name: read_case(line) for line in folder.iterdir()}


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
    expected = 6 * case.layers + 3 if name in LLAMAS else 12 * case.layers + 4
    assert set(case.gradients) == set(case.weights) and len(case.weights) == expected
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


# ---- a file as Hugging Face's transformers writes it

LLAMA = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "head_size": 8, "ffn_hidden": 48, "vocabulary": 61}
LENGTH = 20
LLAMA_TEXT = ",".join(f"{name}={value}" for name, value in LLAMA.items()) + (
    f",sequence={LENGTH},dropout=no,gated=yes,norm=rms,biases=no,learned_positions=no,rope_theta=500000"
)


def random_llama(tied: bool) -> Tensors:
    """With the names of LlamaForCausalLM, in f32."""
    size = LLAMA
    q, kv = size["heads"] * size["head_size"], size["kv_heads"] * size["head_size"]
    shapes = {"model.embed_tokens.weight": (size["vocabulary"], size["hidden"]), "model.norm.weight": (size["hidden"],)}
    if not tied:
        shapes["lm_head.weight"] = shapes["model.embed_tokens.weight"]
    for layer in range(size["layers"]):
        shapes |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "self_attn.q_proj": (q, size["hidden"]),
                "self_attn.k_proj": (kv, size["hidden"]),
                "self_attn.v_proj": (kv, size["hidden"]),
                "self_attn.o_proj": (size["hidden"], q),
                "mlp.gate_proj": (size["ffn_hidden"], size["hidden"]),
                "mlp.up_proj": (size["ffn_hidden"], size["hidden"]),
                "mlp.down_proj": (size["hidden"], size["ffn_hidden"]),
                "input_layernorm": (size["hidden"],),
                "post_attention_layernorm": (size["hidden"],),
            }.items()
        }
    generator = torch.Generator().manual_seed(5)
    return {name: torch.randn(shape, generator=generator) * shape[-1] ** -0.5 for name, shape in shapes.items()}


def llama_logits(tokens: "torch.Tensor", weights: Tensors, turns: "torch.Tensor") -> "torch.Tensor":
    w = {name: value.double() for name, value in weights.items()}
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(LLAMA["layers"]):
        h = f"model.layers.{layer}."
        projections = [w[f"{h}self_attn.{p}_proj.weight"] for p in "qkvo"]
        normed = rms_norm(x, w[h + "input_layernorm.weight"])
        x = x + grouped_attention(normed, projections, LLAMA["heads"], LLAMA["kv_heads"], turns, neighbours=False)
        normed = rms_norm(x, w[h + "post_attention_layernorm.weight"])
        inner = F.silu(normed @ w[h + "mlp.gate_proj.weight"].T) * (normed @ w[h + "mlp.up_proj.weight"].T)
        x = x + inner @ w[h + "mlp.down_proj.weight"].T
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return rms_norm(x, w["model.norm.weight"]) @ head.T


@pytest.mark.parametrize(("tied", "factor"), [(False, 1), (True, 1), (False, 8)])
def test_logits_of_hugging_faces_llama_are_pytorchs(programs: Programs, tmp_path: Path, tied: bool, factor: int) -> None:
    weights = random_llama(tied)
    header, data = {}, b""
    for name, value in weights.items():
        raw = value.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    dump = programs.folder.parent / "tests" / "gpt_dump"
    scaling = "" if factor == 1 else f",rope_factor={factor},rope_original_positions=8"  # one pair is between
    model = LLAMA_TEXT + f",tied_embeddings={'yes' if tied else 'no'}" + scaling
    subprocess.run([str(dump), model, str(file), str(tmp_path)], check=True, timeout=60)
    tokens = array(tmp_path / "tokens.npy").long().reshape(-1, LENGTH)
    plain = frequencies(500000, LLAMA["head_size"] // 2)
    theirs = llama_logits(tokens, weights, plain if factor == 1 else slowed(plain, factor, 1, 4, 8))
    ours = array(tmp_path / "logits.npy").reshape(theirs.shape)
    assert (ours - theirs).abs().max() <= 1e-6 * theirs.abs().max()
