"""ci/gpu_targets.py on records of a made-up GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_targets


MIB = 1 << 20
RUN = {"record": "run", "run": "sweep", "transport": "cuda", "machine": {"gpus": ["Example GPU"]}}
COPY = {"record": "ceiling", "device": "cuda", "name": "copy", "level": "memory", "value": 4000.0}


def row(ranks: int, size: int, time_us: float, transport: str = "cuda", algorithm: str = "two_shot", **fields) -> dict:
    return {"record": "row", "collective": "all_reduce", "transport": transport, "ranks": ranks, "bytes": size,
            "algorithm": algorithm, "status": "ok", "time_us": 2 * time_us, "stats": {"median": time_us}, **fields}


def test_each_input_is_read_once_and_each_output_written_once():
    # 4 ranks of 64 MiB: 512 MiB at 4000 GB/s.
    assert gpu_targets.least_us(4, 64 * MIB, 4000.0) == pytest.approx(512 * 1.048576 / 4.0)


def test_the_share_is_the_fastest_algorithms_at_its_median():
    least = gpu_targets.least_us(8, 64 * MIB, 4000.0)
    lines = [RUN, COPY, row(8, 64 * MIB, least / 0.5, algorithm="ring"), row(8, 64 * MIB, least / 0.9),
             row(8, 128 * MIB, 2 * least / 0.84), row(8, 32 * MIB, 1.0), row(8, 256 * MIB, 1.0, status="wrong")]
    found = gpu_targets.findings_in(lines)
    assert [(finding.what, finding.met) for finding in found] == [("all-reduce, 8 ranks, 64 MiB, two_shot", True),
                                                      ("all-reduce, 8 ranks, 128 MiB, two_shot", False)]
    assert "90.0 % of a copy at 4000 GB/s" in found[0].found


def test_rows_whose_clocks_changed_are_counted():
    def clocks(repeats, disturbance):
        return {"gpu_clocks": {"before": [], "repeats": repeats, "most_repeats": 2, "most_change": 0.03,
                               "disturbance": disturbance}}

    steady, disturbed = row(2, 64 * MIB, 100.0, **clocks(1, None)), row(2, MIB, 100.0, **clocks(2, "gpu: power cap"))
    assert gpu_targets.clocks([RUN, row(2, MIB, 100.0)]) == []
    found = gpu_targets.clocks([RUN, steady, disturbed])
    assert [finding.found for finding in found] == ["changed during 1 of 2 rows, 3 repetitions; the first: gpu: power cap"]
    assert found[0].met is None


def test_of_ranks_on_several_gpus_and_without_a_ceiling_nothing_is_said():
    rows = [row(2, 64 * MIB, 100.0)]
    assert gpu_targets.findings_in([RUN, *rows]) == []
    several = {**RUN, "machine": {"gpus": ["Example GPU"] * 2}}
    assert gpu_targets.findings_in([several, COPY, *rows]) == []


def test_latency_is_held_against_nccl_of_the_same_size_and_ranks():
    lines = [RUN, row(2, 8, 3.0, algorithm="one_shot"), row(2, 8, 5.0), row(2, 8, 4.0, "nccl", "library"),
             row(2, 32768, 9.0), row(2, 32768, 8.0, "nccl", "library"), row(2, 65536, 9.0), row(8, 8, 1.0),
             row(2, 65536, 8.0, "nccl", "library")]
    found = gpu_targets.findings_in(lines)
    assert [(finding.found, finding.met) for finding in found] == [("3.00 us", True), ("9.00 us", False)]


def model_of(name: str, **other: int) -> dict:
    return {"name": name, "parameters": 1, "numbers": {**gpu_targets.GPT2, **other}}


def training(run: str, speeds: list[float], losses: list[float] | None = None, **fields) -> dict:
    steps = [{"step": k + 1, "tokens_per_s": speed, "skipped": False, "loss": (losses or [3.0] * len(speeds))[k]}
             for k, speed in enumerate(speeds)]
    return {"record": "training", "run": run, "dtype": "bf16", "ranks": 1, "tokens_per_step": 32768, "data": "text",
            "layout": {"text": ""}, "steps": steps, "model": model_of("custom"), **fields}


def trained(run: str, transport: str = "cuda") -> dict:
    return {"record": "run", "run": run, "transport": transport, "machine": {"gpus": ["Example GPU"]}}


def test_the_fastest_batch_is_held_against_the_fastest_of_pytorch():
    lines = [trained("a"), training("a", [1.0, 2.0, 500.0, 520.0]), trained("b"),
             training("b", [1.0, 400.0, 400.0], tokens_per_step=65536, energy={"tokens_per_joule": 640.0})]
    peers = [{"what": "gpt2", "tokens_per_s": 400.0}, {"what": "gpt2", "tokens_per_s": 511.0}]
    assert [finding.met for finding in gpu_targets.findings_in(lines)] == [None, None]
    found = gpu_targets.findings_in([*lines, *peers])
    assert [(finding.found, finding.met) for finding in found] == [("510 tokens/s", False), ("400 tokens/s, 640.0 a joule", None)]
    assert "32 sequences" in found[0].what and "64 sequences" in found[1].what


def test_runs_of_several_ranks_other_models_and_the_cpu_have_no_target():
    peers = [{"what": "gpt2", "tokens_per_s": 400.0}]
    two = training("a", [9.0, 9.0], ranks=2, layout={"text": "dp=2,zero=1"})
    small = training("b", [9.0, 9.0], model=model_of("nano", hidden=128))
    lines = [trained("a"), two, trained("b"), small, trained("c", "local"), training("c", [900.0, 900.0])]
    assert [(finding.wanted, "dp=2,zero=1" in finding.what) for finding in gpu_targets.findings_in([*lines, *peers])] == [
        ("no target", True)]


@pytest.mark.parametrize("last, met", [(2.007, True), (2.01, False)])
def test_losses_on_the_gpu_are_held_against_those_on_the_cpu(last, met):
    small = {"model": model_of("nano", hidden=128)}
    lines = [trained("a", "local"), training("a", [9.0, 9.0], [3.0, 2.0], **small), trained("b"),
             training("b", [9.0, 9.0], [3.0, last], **small), trained("c"), training("c", [9.0], [9.9], **small, dtype="f32")]
    found = gpu_targets.findings_in(lines)
    assert [(finding.what, finding.met) for finding in found] == [("losses of nano, bf16, against the CPU's", met)]
    assert f"{100 * (last - 2) / 2:.3f} % apart at most in 2 steps" == found[0].found


def test_kernels_by_their_bound_and_attention_by_pytorch():
    kernel = {"record": "kernel", "device": "cuda", "dtype": "bf16", "cache": "cold", "timing": "events", "stats":
              {"median": 11.0}}
    lines = [{**kernel, "kernel": "gelu_fwd", "shape": "N1", "bound": "memory", "share": 0.91},
             {**kernel, "kernel": "cast", "shape": "N1", "bound": "memory", "share": 0.5},
             {**kernel, "kernel": "attention_fwd", "shape": "B1_H12_T1024_D64_S2304", "bound": "compute", "share": 0.5},
             {"what": "attention_fwd", "shape": "B1_H12_T1024_D64", "us": 10.0}]
    assert [finding.met for finding in gpu_targets.findings_in(lines)] == [True, False, True]
    faster = {**lines[-1], "backend": "flash", "us": 9.0}
    assert [finding.met for finding in gpu_targets.findings_in([*lines, faster])] == [True, False, False]
    assert gpu_targets.findings_in([faster, *lines])[-1].found.endswith("PyTorch's 9.0 us, flash")


def test_a_folder_with_a_line_that_was_cut_off(tmp_path):
    lines = "".join(json.dumps(line) + "\n" for line in (RUN, COPY, row(2, 64 * MIB, 100.0)))
    (tmp_path / "a.jsonl").write_text(lines + '{"rec')
    done = subprocess.run([sys.executable, Path(gpu_targets.__file__), tmp_path], capture_output=True, text=True)
    assert done.returncode == 0
    assert "a.jsonl has a line that is cut off" in done.stderr
    assert done.stdout.startswith("missed all-reduce, 2 ranks, 64 MiB, two_shot")
