"""Tests of what calls PyTorch: torch_kernel_calls.py computes what our kernels do, by automatic differentiation."""

from __future__ import annotations

import pytest
from compare.kernels import KernelCase, Operand

torch = pytest.importorskip("torch", reason="Debian's python3-torch is not installed")
from compare import torch_kernels as program  # noqa: E402
from compare import torch_kernel_calls as calls  # noqa: E402

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int32: "i32"}


def case_of(kernel: str, shape: str, tensors: dict[str, object], declared: float = 0) -> KernelCase:
    operands = tuple(
        Operand(name, "read", DTYPES[t.dtype], t.numel() * t.element_size()) for name, t in tensors.items()
    )
    whole = declared or float(sum(operand.bytes for operand in operands))
    return KernelCase(kernel, "f32", shape, "warm", 1, 1.0, whole, 1.0, 1.0, operands)


def result_of(kernel: str, shape: str, tensors: dict[str, object], way: str = "") -> object:
    case = case_of(kernel, shape, tensors)
    with torch.no_grad():
        return calls.makers_of(case)[way](case, tensors)()


def close(got: object, wanted: object) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_norms_backward_is_that_of_their_forward() -> None:
    x, dy, dsum = (torch.randn(6, 8) for _ in range(3))
    gamma = torch.randn(8)
    for norm in ("layernorm", "rmsnorm"):
        leaf, weight = x.clone().requires_grad_(), gamma.clone().requires_grad_()
        t = {"x": leaf.view(-1), "gamma": weight, "beta": torch.zeros(8)}
        case = case_of(f"{norm}_fwd", "R6_C8", t)
        _, result, *rest = calls.ONE_WAY[f"{norm}_fwd"](case, t)()
        y, mean, rstd = result if norm == "layernorm" else (result, torch.zeros(6), rest[0])
        (y * dy).sum().backward()
        sums = {"dgamma": torch.ones(8), "dbeta": torch.ones(8)}
        inputs = {"x": x.view(-1), "dy": dy.view(-1), "gamma": gamma}
        inputs |= {"mean": mean.detach().view(-1), "rstd": rstd.detach().view(-1)}
        close(result_of(f"{norm}_bwd", "R6_C8", {**inputs, **sums}), leaf.grad)
        close(sums["dgamma"], 1 + weight.grad)
        with_residual = result_of(f"residual_{norm}_bwd", "R6_C8", {**inputs, **sums, "dsum": dsum.view(-1)})
        close(with_residual, leaf.grad + dsum)


def test_decoding_is_the_last_row_of_attention() -> None:
    heads, group, keys, columns = 4, 2, 7, 8
    q, k, v = torch.randn(heads, columns), torch.randn(heads // group, keys, columns), torch.randn(heads // group, keys, columns)
    t = {"q": q.view(-1), "k": k.view(-1), "v": v.view(-1), "lengths": torch.zeros(1, dtype=torch.int32)}
    got = result_of("attention_decode", f"S1_H{heads}_D{columns}_K{keys}_G{group}", t).view(heads, columns)
    for head in range(heads):
        weights = torch.softmax(k[head // group] @ q[head] / columns**0.5, 0)
        close(got[head], weights @ v[head // group])


@pytest.mark.parametrize("mask", ["", "_full"])
@pytest.mark.parametrize("fused", {calls.FUSED_ATTENTION, None})
def test_attention_backward_is_that_of_its_forward(monkeypatch: pytest.MonkeyPatch, fused: object, mask: str) -> None:
    monkeypatch.setattr(calls, "FUSED_ATTENTION", fused)
    batch, heads, length, columns = 2, 3, 5, 4
    row, stride = heads * columns, 3 * heads * columns
    fused = torch.randn(batch * length * stride, requires_grad=True)
    t = {name: fused[k * row : k * row + (batch * length - 1) * stride + row] for k, name in enumerate("qkv")}
    shape = f"B{batch}_H{heads}_T{length}_D{columns}{mask}_S{stride}"
    case = case_of("attention_fwd", shape, t)
    o = calls.attention_fwd(case, t)()
    d_o = torch.randn(batch, length, heads, columns)
    (o * d_o.transpose(1, 2)).sum().backward()
    wanted = fused.grad.view(batch, length, 3, heads, columns).permute(2, 0, 3, 1, 4)
    got = result_of("attention_bwd", shape, {**{name: x.detach() for name, x in t.items()}, "d_o": d_o.reshape(-1)})
    for k in range(3):
        close(got[k], wanted[k])


def test_attention_without_a_mask_may_have_other_keys_than_queries() -> None:
    q, k, v = torch.randn(2, 5, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)  # heads, rows, columns
    t = {name: x.transpose(0, 1).reshape(-1) for name, x in {"q": q, "k": k, "v": v}.items()}
    close(result_of("attention_fwd", "B1_H2_T5_D4_K3_full", t)[0], torch.softmax(q @ k.transpose(1, 2) / 2, -1) @ v)


def test_both_ways_of_the_embeddings_backward_are_its_gradient() -> None:
    ids, dy = torch.tensor([3, 1, 3, 0], dtype=torch.int32), torch.randn(4, 2)
    table, positions = torch.zeros(6, 2, requires_grad=True), torch.zeros(2, 2, requires_grad=True)
    t = {"ids": ids, "table": table, "positions": positions}
    y = calls.embedding_fwd(case_of("embedding_fwd", "N4_T2_V6_C2", t), t)()
    (y.reshape(4, 2) * dy).sum().backward()
    for way in ("dense", "index_add"):
        sums = {"dtable": torch.ones(12), "dpositions": torch.ones(4)}
        result_of("embedding_bwd", "N4_T2_V6_C2", {"ids": ids, "dy": dy.view(-1), **sums}, way)
        close(sums["dtable"].view(6, 2), 1 + table.grad)
        close(sums["dpositions"].view(2, 2), 1 + positions.grad)


def test_a_shard_of_the_vocabulary_has_its_part_of_the_gradient() -> None:
    logits, targets = torch.randn(4, 6, requires_grad=True), torch.tensor([0, 2, 1, 2])
    torch.nn.functional.cross_entropy(logits, targets, reduction="sum").backward()
    halves = [half.detach().contiguous() for half in logits.split(3, 1)]
    ids = targets.to(torch.int32)
    stats = []
    for half in halves:
        largest, total, target = result_of("cross_entropy_stats", "R4_V3", {"targets": ids, "logits": half.view(-1)})
        stats.append(torch.cat([largest, total, target if half is halves[0] else 0 * target], 1))
    t = {"targets": ids, "stats": torch.stack(stats).view(-1), "logits": halves[0].view(-1)}
    losses, gradient = result_of("cross_entropy_finish", "R4_V3", t)
    close(losses, torch.nn.functional.cross_entropy(logits.detach(), targets, reduction="none"))
    close(gradient, logits.grad[:, :3])
    whole = result_of("cross_entropy", "R4_V6", {"targets": ids, "logits": logits.detach().view(-1)})
    close(4 * whole, logits.grad)  # gradient of the mean


def test_sums_and_buckets() -> None:
    sources = {f"source{k}": torch.randn(9) for k in range(4)}
    wanted = sum(sources.values())
    for way in ("stack", "add"):
        close(result_of("reduction", "sum_k4_36B", sources, way), wanted)
    pieces = {"piece0": torch.randn(3), "piece1": torch.randn(5)}
    bucket = torch.cat(list(pieces.values()))
    close(result_of("pack_bucket", "two", pieces), bucket)
    close(result_of("pack_bucket", "two_scaled", pieces), bucket / 8)
    for shape, factor in (("two", 1), ("two_scaled", 0.125)):
        written = {"piece0": torch.zeros(3), "piece1": torch.zeros(5)}
        result_of("unpack_bucket", shape, {**written, "bucket": bucket})
        close(torch.cat(list(written.values())), factor * bucket)


def test_optimizers_step_and_copy_narrow_weights() -> None:
    for kernel in ("sgd", "momentum", "rmsprop", "adam", "adamw"):
        t = {"grad": torch.ones(4).bfloat16(), "clip": torch.ones(1), "master": torch.ones(4)}
        t["weights"] = torch.zeros(4).bfloat16()
        result_of(kernel, "N4", t)
        assert (t["master"] < 1).all()
        close(t["weights"], t["master"].bfloat16())


def test_a_case_that_fails_is_reported_and_the_others_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    with torch.no_grad():
        for shape in ("R3_C5", "R2_C4"):  # 8 elements are no rows of 5
            program.print_case(case_of("softmax_fwd", shape, {"x": torch.zeros(8), "y": torch.zeros(8)}), 0, 0.1)
    printed = capsys.readouterr()
    assert printed.out.startswith("pytorch,softmax_fwd/f32/R2_C4/warm,")
    assert printed.err.startswith("pytorch, softmax_fwd/f32/R3_C5/warm: ") and len(printed.err.splitlines()) == 1


def test_there_is_no_fp8() -> None:
    operand = Operand("x", "read", "e4m3", 8)
    assert calls.makers_of(KernelCase("cast", "e4m3", "N8", "warm", 1, 8.0, 8.0, 1.0, 1.0, (operand,))) == {}


def test_sets_share_a_table_and_name_other_rows() -> None:
    tensors = {"ids": torch.zeros(2, dtype=torch.int32), "table": torch.zeros(4000)}
    tensors |= {"positions": torch.zeros(8), "y": torch.zeros(8)}
    case = case_of("embedding_fwd", "N2_T2_V1000_C4", tensors, declared=8 + 3 * 32)
    first, second = program.sets_of(case, 2)
    assert first["table"] is second["table"] and first["y"] is not second["y"]
    assert first["ids"].tolist() != second["ids"].tolist()
