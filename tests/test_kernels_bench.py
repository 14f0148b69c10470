"""kernels_bench as a user runs it: stopped, out of time, listing, with unknown words."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

SMALL = ("--benchmark_filter=^(gelu|residual_add).*B4_T64", "--threads", "1", "--ceilings", "0")


@pytest.fixture
def bench(programs) -> str:
    path = programs.folder / "kernels_bench"
    if not path.exists():
        pytest.fail(f"{path} is not built")
    return str(path)


def records_of(path: Path) -> list[dict]:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n"), "whole lines"
    return [json.loads(line) for line in text.splitlines()]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


def test_a_killed_run_leaves_the_records_of_what_was_done(bench: str, tmp_path: Path) -> None:
    path = tmp_path / "r.partial.jsonl"
    with subprocess.Popen([bench, *SMALL, "--benchmark_min_time=0.2", "--json", tmp_path / "r.jsonl"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and (not path.exists() or path.read_bytes().count(b"\n") < 3):
            time.sleep(0.01)
        running.kill()
    run_line, *kernels = records_of(path)
    assert run_line["record"] == "run"
    assert len(kernels) >= 2 and all(kernel["status"] == "ok" and kernel["samples_us"] for kernel in kernels)


def test_a_time_budget_ends_in_time_leaves_no_kernel_out_and_says_what_else_it_left_out(bench: str, tmp_path: Path) -> None:
    words = (bench, "--benchmark_filter=^(gelu|softmax|layernorm)", "--threads", "1", "--ceilings", "0")
    listed = run(*words, "--benchmark_list_tests").stdout.splitlines()
    before = time.monotonic()
    done = run(*words, "--time-budget", "1", "--json", str(tmp_path / "r.jsonl"))
    assert time.monotonic() - before < 20  # the last benchmark and its check may take long next to other programs
    assert done.returncode == 0
    left_out = int(done.stderr.split("ran out; ")[1].split()[0])
    kernels = records_of(tmp_path / "r.jsonl")[1:]
    assert len(kernels) == len(listed) and left_out == sum(kernel["status"] == "left_out" for kernel in kernels) > 0
    assert {kernel["kernel"] for kernel in kernels if kernel["status"] == "ok"} == {name.split("/")[0] for name in listed}
    assert not any(kernel["samples_us"] for kernel in kernels if kernel["status"] == "left_out")
    assert "ERROR" not in done.stdout


def test_repetitions_are_joined_also_if_only_their_mean_is_shown(bench: str, tmp_path: Path) -> None:
    done = run(bench, *SMALL, "--cache", "warm", "--benchmark_repetitions=2", "--benchmark_report_aggregates_only=true",
               "--benchmark_min_time=0.001", "--json", str(tmp_path / "r.jsonl"))
    _, *kernels = records_of(tmp_path / "r.jsonl")
    assert len(kernels) == done.stdout.count("_mean") == 6
    assert all(kernel["implementation"] for kernel in kernels)


def test_a_list_and_words_that_mean_nothing_leave_no_file(bench: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    assert run(bench, "--benchmark_list_tests", "--json", str(path)).returncode == 0
    done = run(bench, "--benchmark_filter=nothing", "--json", str(path))
    assert done.returncode == 6 and len(done.stderr.splitlines()) == 1
    assert not path.exists()


TINY = ("--model", "nano,layers=1,hidden=32,heads=2,ffn_hidden=128,sequence=16", "--layout",
        "dtype=f32,microbatch=2,batch=4;tp=2,dtype=f32,microbatch=2,batch=4", "--threads", "1", "--ceilings", "0", "--cache", "cold")


def test_the_kernels_of_a_step_are_timed_at_its_shapes_also_with_copies(bench: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    done = run(bench, *TINY, "--copies", "1,2", "--benchmark_min_time=0.0005", "--json", str(path))
    assert done.returncode == 0, done.stderr
    _, *kernels = records_of(path)
    assert all(kernel["status"] == "ok" and kernel["checked"] for kernel in kernels)
    shapes = {(kernel["kernel"], kernel["shape"]) for kernel in kernels}
    # Rows of a microbatch, and the columns that one of two tensor ranks has.
    assert {("gemm_bias_gelu_fwd", "N32_C32_O128"), ("gemm_bias_gelu_fwd", "N32_C32_O64"),
            ("cross_entropy", "R32_V256"), ("cross_entropy_stats", "R32_V128_shard0of2")} <= shapes
    assert len(kernels) == 2 * len(shapes), "each once, alone and with a concurrent copy"
    assert {kernel["copies"] for kernel in kernels} == {1, 2}


@pytest.mark.parametrize("words, expected", [
    (("--model", "nano", "--layout", "tp=3"), "--layout tp=3: tp is 3, and heads is 4; allowed: 1 2 4"),
    (("--layout", "tp=2"), "--layout requires --model"),
    (("--threads", "1", "--copies", "4096"), "--copies 4096"),
])
def test_layouts_and_copies_that_cannot_be_are_refused(bench: str, words: tuple[str, ...], expected: str) -> None:
    done = run(bench, *words)
    assert done.returncode == 6 and len(done.stderr.splitlines()) == 1
    assert expected in done.stderr
