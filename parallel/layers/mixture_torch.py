"""Writes mixture_torch.h: a mixture of experts and its gradients as PyTorch has them in f64, for mixture_test.cpp.

    python parallel/layers/mixture_torch.py > parallel/layers/mixture_torch.h

Inputs follow from their names and indices (value() here and in the test), so that only results are written down.
"""
import math

import torch

TOKENS, HIDDEN, INNER, EXPERTS, TOP_K = 7, 4, 6, 4, 2
BALANCE, Z = 0.3, 0.2


def value(stream: int, index: int) -> float:
    return math.sin(1.0 + 0.7 * stream + 1.3 * index * (1 + 0.01 * stream))


def tensor(stream: int, *shape: int) -> torch.Tensor:
    count = math.prod(shape)
    return torch.tensor([value(stream, i) for i in range(count)], dtype=torch.float64).reshape(shape).requires_grad_()


def mixture(sigmoid: bool, capacity: int) -> dict[str, torch.Tensor]:
    x = tensor(0, TOKENS, HIDDEN)
    router = tensor(1, EXPERTS, HIDDEN)
    up = [(tensor(10 + e, INNER, HIDDEN), tensor(20 + e, INNER)) for e in range(EXPERTS)]
    down = [(tensor(30 + e, HIDDEN, INNER), tensor(40 + e, HIDDEN)) for e in range(EXPERTS)]
    logits = x @ router.T
    scores = torch.sigmoid(logits) if sigmoid else torch.softmax(logits, -1)
    chosen, choices = torch.topk(scores, TOP_K, dim=-1)
    gates = chosen / chosen.sum(-1, keepdim=True)
    taken = [0] * EXPERTS
    y = [torch.zeros(HIDDEN, dtype=torch.float64) for _ in range(TOKENS)]
    for j in range(TOP_K):
        for t in range(TOKENS):
            e = int(choices[t, j])
            taken[e] += 1
            if capacity and taken[e] > capacity:
                continue
            inner = torch.nn.functional.gelu(x[t] @ up[e][0].T + up[e][1], approximate="tanh")
            y[t] = y[t] + gates[t, j] * (inner @ down[e][0].T + down[e][1])
    out = torch.stack(y)
    loss = (out * tensor(2, TOKENS, HIDDEN).detach()).sum()
    if not sigmoid:
        share = torch.tensor(taken, dtype=torch.float64) / (TOKENS * TOP_K)
        loss = loss + BALANCE * EXPERTS * (share * scores.mean(0)).sum()
        loss = loss + Z * torch.logsumexp(logits, -1).square().mean()
    loss.backward()
    named = {"y": out.detach(), "dx": x.grad, "d_router": router.grad}
    for name, layers in (("up", up), ("down", down)):
        for place, part in ((0, "weight"), (1, "bias")):
            grads = [torch.zeros_like(layer[place]) if layer[place].grad is None else layer[place].grad for layer in layers]
            named[f"d_{name}_{part}"] = torch.stack(grads)
    return named


def main() -> None:
    print("// Written by mixture_torch.py.\n#pragma once\n\n#include <map>\n#include <string>\n#include <vector>\n")
    print("namespace lockstep::parallel {\n\nusing TorchResults = std::map<std::string, std::vector<double>>;\n")
    for name, sigmoid, capacity in (("kSoftmax", False, 0), ("kSigmoidCapacity2", True, 2)):
        print(f"inline const TorchResults {name}{{")
        for key, values in mixture(sigmoid, capacity).items():
            numbers = [f"{v:.10g}" for v in values.flatten().tolist()]
            print(f'    {{"{key}",\n     {{', end="")
            lines = [", ".join(numbers[i:i + 8]) for i in range(0, len(numbers), 8)]
            print((",\n      ").join(lines) + "}},")
        print("};\n")
    print("}  // namespace lockstep::parallel")


if __name__ == "__main__":
    main()
