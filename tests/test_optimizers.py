"""Training with each optimizer against PyTorch in f64: the losses of 20 steps, with clipping, warm-up and decay of matrices.

The model is that of test_gpt.py; it starts from the weights of a run whose learning rate is nothing, and sees the sequences
that trainer/data/corpus.h draws.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from conftest import Programs, records_of
from test_checkpoint import read_safetensors

torch = pytest.importorskip("torch", reason="PyTorch is missing: ci/install.sh test (python3-torch)")

from test_gpt import Case, loss_of
from torch_optimizers import OPTIMIZERS, USUAL, optimizer_of

STEPS, LENGTH, BATCH, LAYERS, HEADS = 20, 16, 8, 2, 2
WARMUP = STEPS // 10
RELATIVE = 1e-6  # losses of f32, whose sums are exact to some 1e-7
RATES = {"sgd": 0.1, "momentum": 0.02, "rmsprop": 3e-4, "adam": 2e-3, "adamw": 2e-3}
OTHERS = {
    "sgd": {"weight-decay": 0.02},
    "momentum": {"weight-decay": 0.02, "momentum": 0.8},
    "rmsprop": {"weight-decay": 0.02, "alpha": 0.9, "eps": 1e-6},
    "adam": {"weight-decay": 0.02, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6},
    "adamw": {"weight-decay": 0.3, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6},
}
MASK = 2**64 - 1


def mix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def sequences(text: bytes, step: int) -> tuple["torch.Tensor", "torch.Tensor"]:
    training = text[: len(text) - len(text) // 10]
    drawn = (mix64(mix64(mix64(1) ^ step) ^ sample) % (len(training) - LENGTH) for sample in range(BATCH))
    rows = torch.tensor([list(training[begin : begin + LENGTH + 1]) for begin in drawn])
    return rows[:, :-1], rows[:, 1:]


def rate_at(peak: float, step: int) -> float:
    if step <= WARMUP:
        return peak * step / WARMUP
    share = (step - WARMUP) / (STEPS - WARMUP)
    return peak / 10 + (peak - peak / 10) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class World:
    programs: Programs
    folder: Path
    text: Path

    def train(self, *words: str) -> list[float]:
        """The losses of a run."""
        record = self.folder / "run.jsonl"
        done = self.programs.run(
            "mini_train", "--model", f"layers={LAYERS},hidden=32,heads={HEADS},vocabulary=256,sequence={LENGTH},dropout=no",
            "--data", str(self.text), "--batch", str(BATCH), "--peak-gflops", "1", "--validation-sequences", "1", "--gemm",
            "packed", "--json", str(record), *words,
        )
        assert done.returncode == 0, done.stderr
        [training] = [line for line in records_of(record) if line["record"] == "training"]
        return [step["loss"] for step in training["steps"]]

    def first_weights(self) -> dict[str, "torch.Tensor"]:
        file = self.folder / "first.safetensors"
        self.train("--steps", "1", "--optimizer", "sgd", "--lr", "1e-30", "--export", str(file))
        arrays, _ = read_safetensors(file)
        return {name: torch.from_numpy(np.array(value)).double() for name, value in arrays.items()}


@pytest.fixture(scope="module")
def world(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("optimizers")
    text = folder / "text"
    generator = np.random.default_rng(3)
    words = [bytes(generator.integers(97, 123, size=n).tolist()) for n in (2, 3, 4, 5, 6)]
    text.write_bytes(b" ".join(words[k] for k in generator.integers(0, len(words), size=900)))
    return World(programs, folder, text)


def torch_losses(world: World, kind: str, numbers: dict[str, float], clip: float) -> list[float]:
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # Hugging Face's Conv1D has [inputs, outputs]
    weights = {
        name: (value.T if name.endswith(turned) else value).contiguous().requires_grad_()
        for name, value in world.first_weights().items()
    }
    matrices = [w for w in weights.values() if w.dim() > 1]
    vectors = [w for w in weights.values() if w.dim() == 1]
    fields = {**USUAL[kind], **numbers}
    optimizers = [
        optimizer_of(kind, matrices, RATES[kind], fields),
        optimizer_of(kind, vectors, RATES[kind], {**fields, "weight-decay": 0.0}),
    ]
    losses = []
    for step in range(1, STEPS + 1):
        tokens, targets = sequences(world.text.read_bytes(), step)
        case = Case("f32", LAYERS, HEADS, HEADS, 0, LENGTH, 0.0, {}, {}, tokens, targets)
        loss = loss_of(case, weights)
        for optimizer in optimizers:
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] = rate_at(RATES[kind], step)
        loss.backward()
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(list(weights.values()), clip)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def words_of(kind: str, numbers: dict[str, float], clip: float) -> list[str]:
    words = ["--optimizer", kind, "--lr", str(RATES[kind]), "--steps", str(STEPS), "--clip", str(clip)]
    for name, number in numbers.items():
        words += [f"--{name}", str(number)]
    return words


def worst(ours: list[float], theirs: list[float]) -> float:
    assert len(ours) == len(theirs) == STEPS
    return max(abs(a / b - 1) for a, b in zip(ours, theirs))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_twenty_steps_are_pytorchs(world: World, kind: str) -> None:
    for numbers, clip in (({}, 1.0), (OTHERS[kind], 0.0)):
        theirs = torch_losses(world, kind, numbers, clip)
        ours = world.train(*words_of(kind, numbers, clip))
        assert theirs[-1] < theirs[0] - 0.1, "something is learned"
        assert worst(ours, theirs) <= RELATIVE, (numbers, list(zip(ours, theirs)))
    for layout in (("--update", "per_bucket"), ("--dp", "2", "--microbatch-size", "4", "--zero", "3")):
        assert worst(world.train(*words_of(kind, OTHERS[kind], 0.0), *layout), theirs) <= RELATIVE, layout


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_resumed_run_is_pytorchs(world: World, kind: str) -> None:
    folder = world.folder / f"half-{kind}"
    words = words_of(kind, OTHERS[kind], 1.0)
    # The first half of the schedule of 20 steps: a run that keeps the checkpoint of its tenth step.
    whole = world.train(*words, "--checkpoints", str(folder), "--checkpoint-every", "10")
    rest = world.train(*words, "--resume", str(folder / "step-00000010"), "--dp", "2", "--microbatch-size", "4", "--zero", "1")
    theirs = torch_losses(world, kind, OTHERS[kind], 1.0)
    assert len(rest) == 10 and worst(whole[:10] + rest, theirs) <= RELATIVE


def test_a_wrong_decay_is_found(world: World) -> None:
    numbers = {"weight-decay": 0.02}
    ours = world.train(*words_of("adam", {"weight-decay": 0.04}, 0.0))
    assert worst(ours, torch_losses(world, "adam", numbers, 0.0)) > 10 * RELATIVE


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--optimizer", "lion"), "--optimizer lion: "),
        (("--optimizer", "sgd", "--momentum", "0.9"), "--momentum 0.9: --optimizer sgd has no such number; allowed: --optimizer momentum"),
        (("--beta2", "1"), "--beta2 1: out of range; allowed: 0 to below 1"),
        (("--alpha", "0.9"), "--alpha 0.9: --optimizer adamw has no such number; allowed: --optimizer rmsprop"),
        (("--optimizer", "momentum", "--eps", "1"), "allowed: --optimizer rmsprop or adam or adamw"),
    ],
)
def test_numbers_that_an_optimizer_does_not_have_are_refused(programs: Programs, words: tuple[str, ...], expected: str) -> None:
    done = programs.run("mini_train", *words)
    assert done.returncode == 6 and done.stdout == "" and expected in done.stderr and done.stderr.count("\n") == 1, done.stderr
