"""PyTorch's optimizers under the names and with the numbers of `mini_train --optimizer`."""

from __future__ import annotations

import torch

OPTIMIZERS = ("sgd", "momentum", "rmsprop", "adam", "adamw")
# The defaults as docs/training.md has them.
USUAL: dict[str, dict[str, float]] = {
    "sgd": {"weight-decay": 0.0},
    "momentum": {"momentum": 0.9, "weight-decay": 0.0},
    "rmsprop": {"alpha": 0.99, "eps": 1e-8, "weight-decay": 0.0},
    "adam": {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight-decay": 0.0},
    "adamw": {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight-decay": 0.1},
}


def optimizer_of(kind: str, weights: list[torch.Tensor], rate: float, n: dict[str, float]) -> torch.optim.Optimizer:
    decay = n["weight-decay"]
    if kind == "sgd":
        return torch.optim.SGD(weights, lr=rate, weight_decay=decay)
    if kind == "momentum":
        return torch.optim.SGD(weights, lr=rate, momentum=n["momentum"], weight_decay=decay)
    if kind == "rmsprop":
        return torch.optim.RMSprop(weights, lr=rate, alpha=n["alpha"], eps=n["eps"], weight_decay=decay)
    made = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    return made(weights, lr=rate, betas=(n["beta1"], n["beta2"]), eps=n["eps"], weight_decay=decay)
