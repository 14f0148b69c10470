"""The verdicts of ci/compare_gemm.py, on stated times."""

from __future__ import annotations

import compare_gemm


def test_own_code_stays_from_fifteen_percent_on() -> None:
    own = {"a": [100.0, 100.0, 300.0], "b": [100.0, 100.0, 100.0]}
    faster = {"a": [120.0, 120.0, 130.0], "b": [120.0, 120.0, 480.0]}
    assert compare_gemm.verdict(own, faster) == "geometric mean 1.20 times oneDNN's speed (rounds 1.20 to 1.44): own code stays"
    slower = {"a": [114.0] * 3, "b": [114.0] * 3}
    assert compare_gemm.verdict(own, slower).endswith(": the library does it")


def test_the_mean_is_over_layers_and_geometric() -> None:
    own = {"a": [100.0], "b": [100.0]}
    assert "mean 1.00 times" in compare_gemm.verdict(own, {"a": [200.0], "b": [50.0]})


def test_what_the_library_cannot_multiply_stays_ours() -> None:
    own = {"a": [100.0]}
    assert "own code stays" in compare_gemm.verdict(own, {})
    assert compare_gemm.table(own, {})[1].split() == ["a", "100", "-", "-"]
