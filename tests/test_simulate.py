"""simulate, from its command line to its records: consistent predictions, searches, calibration, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import conftest

SMALL = ("--model", "gpt3-1.3b", "--machine", "dgx-a100")
USAGE = 6


def records_of(path: Path, kind: str = "simulation") -> list[dict]:
    lines = conftest.records_of(path)
    assert lines[0]["record"] == "run" and lines[0]["basis"] == "simulated"
    return [line for line in lines if line["record"] == kind]


def test_a_prediction_adds_up(programs, tmp_path):
    out = tmp_path / "one.jsonl"
    done = programs.run("simulate", *SMALL, "--layout", "tp=2,pp=4,dp=2,batch=32", "--json", str(out))
    assert done.returncode == 0, done.stderr
    (one,) = records_of(out)
    assert sum(one["parts_ms"].values()) == pytest.approx(one["step_ms"])
    kinds = dict(one["memory_bytes"])
    total = kinds.pop("total")
    assert sum(kinds.values()) == pytest.approx(total)
    assert one["fits"] == (total <= one["capacity_bytes"])
    assert one["ranks"] == 16
    tokens = 32 * one["model"]["numbers"]["sequence"]
    assert one["tokens_per_s"] == pytest.approx(tokens / one["step_ms"] * 1e3)
    peak_tflops = one["model_tflops_per_gpu"] / one["mfu"]
    assert peak_tflops == pytest.approx(312)
    # The peak of its memory over time equals its memory by kind, except for buffers, which a timeline does not show.
    most = 0.0
    for rank in one["memory"]["of_rank"]:
        for at in sorted({point[0] for points in rank.values() for point in points}):
            most = max(most, sum(next((v for t, v in reversed(points) if t <= at), 0) for points in rank.values()))
    assert total - kinds["buffers"] <= most * 1.001 <= total * 1.05
    last = max(task[6] for rank in one["timeline"]["ranks"] for task in rank)
    assert last == pytest.approx(one["step_ms"])


def test_a_pipeline_of_stages_alike_has_the_bubble_of_1f1b(programs, tmp_path):
    out = tmp_path / "alike.jsonl"
    model = "gpt3-1.3b,vocabulary=128"  # embedding and head are negligible
    done = programs.run("simulate", "--model", model, "--layout", "pp=4,batch=16", "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert records_of(out)[0]["bubbles"]["of_ideal"] == pytest.approx(3 / 16, rel=0.02)


def test_all_ranks_take_as_long_as_one_pipeline(programs, tmp_path):
    steps = []
    for extra in ([], ["--all-ranks"]):
        out = tmp_path / f"{len(extra)}.jsonl"
        layout = "tp=2,pp=2,dp=4,batch=32,zero=2,schedule=interleaved,chunks=2"
        done = programs.run("simulate", *SMALL, "--layout", layout, "--json", str(out), *extra)
        assert done.returncode == 0, done.stderr
        steps.append(records_of(out)[0])
    assert steps[0]["step_ms"] == steps[1]["step_ms"]
    assert steps[1]["events"] > 7 * steps[0]["events"]


def test_a_sweep_is_a_row_for_each_combination(programs, tmp_path):
    out = tmp_path / "sweep.jsonl"
    done = programs.run("simulate", *SMALL, "--layout", "pp=2,batch=32", "--sweep", "tp=1:2,microbatch=1:2", "--json", str(out))
    assert done.returncode == 0, done.stderr
    found = {(r["layout"]["numbers"]["tp"], r["layout"]["numbers"]["microbatch"]) for r in records_of(out)}
    assert found == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_a_sweep_says_which_layouts_are_impossible(programs):
    done = programs.run("simulate", *SMALL, "--layout", "pp=2,batch=32", "--sweep", "tp=1:5")
    assert done.returncode == 0
    assert "tp is 5" in done.stdout


def test_a_trace_has_a_process_a_rank(programs, tmp_path):
    trace = tmp_path / "trace.json"
    done = programs.run("simulate", *SMALL, "--layout", "tp=1,pp=4,dp=1,batch=8", "--trace", str(trace))
    assert done.returncode == 0, done.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    assert len({event["pid"] for event in events if event["ph"] == "X"}) == 4


def test_plan_shows_the_best_first_and_says_why(programs, tmp_path):
    out = tmp_path / "plan.jsonl"
    done = programs.run("simulate", "plan", *SMALL, "--gpus", "16", "--batch", "32", "--top", "4", "--json", str(out))
    assert done.returncode == 0, done.stderr
    best = records_of(out)
    assert len(best) == 4
    steps = [record["step_ms"] for record in best]
    assert steps == sorted(steps)
    assert all(record["ranks"] == 16 and record["fits"] for record in best)
    assert "cannot be among the best" in done.stdout
    assert done.stdout.count(" ms, ") >= 3  # the reason: the two parts that differ most


def test_plan_says_what_the_smallest_layout_needs(programs):
    done = programs.run("simulate", "plan", "--model", "gpt3-175b", "--gpus", "8", "--batch", "8")
    assert done.returncode == USAGE
    assert "needs" in done.stderr and "GB per device" in done.stderr
    assert done.stderr.count("\n") == 1


def test_sweeps_of_nccl_calibrate_a_machine(programs, tmp_path):
    sweep = tmp_path / "sweep.jsonl"
    row = {"record": "row", "run": "r", "collective": "all_reduce", "algorithm": "library", "executor": "library",
           "transport": "nccl", "ranks": 8, "status": "ok", "basis": "measured", "plan": None}
    sizes = [2**power for power in range(20, 31, 2)]
    lines = [row | {"bytes": size, "time_us": 100 + size / 60e3} for size in sizes]
    sweep.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "here.json"
    done = programs.run("simulate", "--calibrate", str(sweep), "--machine", "dgx-a100", "--output", str(out))
    assert done.returncode == 0, done.stderr
    made = json.loads(out.read_text())
    # 60 GB/s of payload are 105 GB/s of bus bandwidth, and a port has 300 GB/s.
    assert made["levels"][0]["collective_efficiency"] == pytest.approx(0.36, rel=0.1)
    assert "fitted to 6 rows of NCCL's collectives" in made["sources"][-1]
    assert programs.run("simulate", *SMALL[:2], "--machine", str(out), "--layout", "tp=8,batch=4").returncode == 0
    sweep.write_text(json.dumps(lines[0]) + "\n")
    refused = programs.run("simulate", "--calibrate", str(sweep), "--machine", "dgx-a100")
    assert refused.returncode == USAGE and "at 1 sizes within one node" in refused.stderr


def test_a_machine_of_our_own_file(programs, tmp_path):
    """--calibrate writes the format that --machine reads: a built-in description, changed by hand."""
    source = conftest.ROOT / "simulator" / "machine" / "machines" / "dgx-a100.json"
    half = tmp_path / "half.json"
    text = source.read_text()
    description = json.loads(text)
    half.write_text(text)
    layout = ("--layout", "tp=1,pp=1,dp=1,batch=4")
    built_in = programs.run("simulate", *SMALL, *layout)
    own = programs.run("simulate", "--model", SMALL[1], "--machine", str(half), *layout)
    assert own.returncode == 0, own.stderr
    rows = [[line for line in done.stdout.splitlines() if line.startswith(" ")][0] for done in (built_in, own)]
    assert rows[0] == rows[1]
    del description["levels"]
    half.write_text(json.dumps(description))
    refused = programs.run("simulate", "--machine", str(half))
    assert refused.returncode == USAGE
    assert "levels" in refused.stderr and "half.json" in refused.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "nope"], "'nope' is not known; allowed: nano"),
        (["--machine", "nope"], "allowed: a100-pcie dgx-a100"),
        (["--machine", "./missing.json"], "missing.json: cannot be read"),
        (["--machine", "./"], "./: cannot be read; allowed: a JSON file"),
        (["--calibrate", "."], ".: cannot be read; allowed: records"),
        (["--layout", "tp=x"], "tp=x: not a whole number; allowed"),
        (["--layout", "tp=5"], "tp is 5"),
        (["--layout", "pp=97"], "layers is 96, and there are 97 stages"),
        (["--layout", "dp=3,batch=64"], "not a multiple of dp x microbatch"),
        (["--layout", "schedule=nope"], "schedule 'nope' is not known; allowed: naive"),
        (["--layout", "pp=8,batch=12,schedule=dualpipe_v"], "microbatches is 12; allowed"),
        (["--layout", "zap=1"], "zap"),
        (["--sweep", "tp"], "not a field with values"),
        (["--gpus", "8"], "--gpus without plan"),
        (["plan", "--gpus", "0"], "--gpus 0"),
        (["plan", "--schedules", "nope"], "schedule 'nope' is not known"),
        (["plan", "--sweep", "tp=1:2"], "--sweep, --trace or --chakra with plan"),
        (["--calibrate", "missing.jsonl"], "missing.jsonl: cannot be read"),
        (["--output", "x.json"], "--output without --calibrate"),
        (["--json", "/nonexistent/x.jsonl"], "cannot write /nonexistent/x.jsonl"),
        (["--zap"], "--zap"),
    ],
)
def test_what_is_wrong_is_one_line(programs, words, says):
    done = programs.run("simulate", *words)
    assert done.returncode == USAGE, done.stdout
    assert says in done.stderr
    assert done.stderr.startswith("simulate: ") and done.stderr.count("\n") == 1


def test_a_refusal_leaves_the_old_file(programs, tmp_path):
    out = tmp_path / "kept.jsonl"
    out.write_text("old\n")
    done = programs.run("simulate", *SMALL, "--layout", "tp=5", "--json", str(out))
    assert done.returncode == USAGE
    assert out.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [out]


def test_a_suite_predicts_beside_what_it_measures(programs, tmp_path):
    suite = tmp_path / "suite.txt"
    suite.write_text("plan 1 simulate plan --model gpt3-1.3b --gpus 8 --batch 8 --top 2\nstep 1 simulate --layout pp=8,batch=8\n")
    done = programs.run("suite", "--suite", str(suite), "--out", str(tmp_path / "records"), "--time-budget", "1")
    assert done.returncode == 0, done.stderr
    assert [len(records_of(tmp_path / "records" / f"{name}.jsonl")) for name in ("plan", "step")] == [2, 1]
