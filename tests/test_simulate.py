"""simulate, from its command line to its records: consistent predictions, searches, calibration, refusals; and its commands that make
a study, with the report of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import conftest
from reports.analysis.steps.layouts import analyse_studies
from reports.__main__ import main
from reports.pages.studies import points_table
from reports.load import load

SMALL_MODEL = ("--model", "gpt3-1.3b")
SMALL = (*SMALL_MODEL, "--machine", "dgx-a100")


def records_of(path: Path, kind: str = "simulation") -> list[dict]:
    lines = conftest.records_of(path)
    assert lines[0]["record"] == "run" and lines[0]["basis"] == "simulated"
    return [line for line in lines if line["record"] == kind]


def test_a_prediction_adds_up(programs, tmp_path):
    out = tmp_path / "one.jsonl"
    programs.output("simulate", *SMALL, "--layout", "tp=2,pp=4,dp=2,batch=32", "--json", str(out))
    (line,) = records_of(out)
    assert sum(line["parts_ms"].values()) == pytest.approx(line["step_ms"])
    kinds = dict(line["memory_bytes"])
    total = kinds.pop("total")
    assert sum(kinds.values()) == pytest.approx(total)
    assert line["fits"] == (total <= line["capacity_bytes"])
    assert line["ranks"] == 16
    tokens = 32 * line["model"]["numbers"]["sequence"]
    assert line["tokens_per_s"] == pytest.approx(tokens / line["step_ms"] * 1e3)
    peak_tflops = line["model_tflops_per_gpu"] / line["mfu"]
    assert peak_tflops == pytest.approx(312)
    # The peak of its memory over time equals its memory by kind, except for buffers, which a timeline does not show.
    most = 0.0
    for rank in line["memory"]["of_rank"]:
        for at in sorted({point[0] for points in rank.values() for point in points}):
            most = max(most, sum(next((v for t, v in reversed(points) if t <= at), 0) for points in rank.values()))
    assert total - kinds["buffers"] <= most * 1.001 <= total * 1.05
    last = max(task[6] for rank in line["timeline"]["ranks"] for task in rank)
    assert last == pytest.approx(line["step_ms"])


def test_a_pipeline_of_stages_alike_has_the_bubble_of_1f1b(programs, tmp_path):
    out = tmp_path / "alike.jsonl"
    model = "gpt3-1.3b,vocabulary=128"  # embedding and head are negligible
    programs.output("simulate", "--model", model, "--layout", "pp=4,batch=16", "--json", str(out))
    assert records_of(out)[0]["bubbles"]["of_ideal"] == pytest.approx(3 / 16, rel=0.02)


def test_all_ranks_take_as_long_as_one_pipeline(programs, tmp_path):
    steps = []
    for extra in ([], ["--all-ranks"]):
        out = tmp_path / f"{len(extra)}.jsonl"
        layout = "tp=2,pp=2,dp=4,batch=32,zero=2,schedule=interleaved,chunks=2"
        programs.output("simulate", *SMALL, "--layout", layout, "--json", str(out), *extra)
        steps.append(records_of(out)[0])
    assert steps[0]["step_ms"] == steps[1]["step_ms"]
    assert steps[1]["events"] > 7 * steps[0]["events"]


def test_a_sweep_is_a_row_for_each_combination(programs, tmp_path):
    out = tmp_path / "sweep.jsonl"
    programs.output("simulate", *SMALL, "--layout", "pp=2,batch=32", "--sweep", "tp=1:2,microbatch=1:2", "--json", str(out))
    found = {(r["layout"]["numbers"]["tp"], r["layout"]["numbers"]["microbatch"]) for r in records_of(out)}
    assert found == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_a_sweep_says_which_layouts_are_impossible(programs):
    assert "tp is 5" in programs.output("simulate", *SMALL, "--layout", "pp=2,batch=32", "--sweep", "tp=1:5")


def test_a_trace_has_a_process_a_rank(programs, tmp_path):
    trace = tmp_path / "trace.json"
    programs.output("simulate", *SMALL, "--layout", "tp=1,pp=4,dp=1,batch=8", "--trace", str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    assert len({event["pid"] for event in events if event["ph"] == "X"}) == 4


def test_plan_shows_the_best_first_and_says_why(programs, tmp_path):
    out = tmp_path / "plan.jsonl"
    printed = programs.output("simulate", "plan", *SMALL, "--gpus", "16", "--batch", "32", "--top", "4", "--json", str(out))
    best = records_of(out)
    assert len(best) == 4
    steps = [record["step_ms"] for record in best]
    assert steps == sorted(steps)
    assert all(record["ranks"] == 16 and record["fits"] for record in best)
    assert "cannot be among the best" in printed
    assert printed.count(" ms, ") >= 3  # the reason: the two parts that differ most


def test_plan_says_what_the_smallest_layout_needs(programs):
    refusal = programs.refusal("simulate", "plan", "--model", "gpt3-175b", "--gpus", "8", "--batch", "8")
    assert "needs" in refusal and "GB per device" in refusal


def test_sweeps_of_nccl_calibrate_a_machine(programs, tmp_path):
    sweep = tmp_path / "sweep.jsonl"
    row = {"record": "row", "run": "r", "collective": "all_reduce", "algorithm": "library", "executor": "library",
           "transport": "nccl", "ranks": 8, "status": "ok", "basis": "measured", "plan": None}
    sizes = [2**power for power in range(20, 31, 2)]
    lines = [row | {"bytes": size, "time_us": 100 + size / 60e3} for size in sizes]
    sweep.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "here.json"
    programs.output("simulate", "--calibrate", str(sweep), "--machine", "dgx-a100", "--output", str(out))
    made = json.loads(out.read_text())
    # 60 GB/s of payload are 105 GB/s of bus bandwidth, and a port has 300 GB/s.
    assert made["levels"][0]["collective_efficiency"] == pytest.approx(0.36, rel=0.1)
    assert "fitted to 6 rows of NCCL's collectives" in made["sources"][-1]
    assert programs.run("simulate", *SMALL[:2], "--machine", str(out), "--layout", "tp=8,batch=4").returncode == 0
    sweep.write_text(json.dumps(lines[0]) + "\n")
    assert "at 1 sizes within one node" in programs.refusal("simulate", "--calibrate", str(sweep), "--machine", "dgx-a100")


def test_a_machine_of_our_own_file(programs, tmp_path):
    """--calibrate writes the format that --machine reads: a built-in description, changed by hand."""
    source = conftest.ROOT / "simulator" / "machine" / "machines" / "dgx-a100.json"
    half = tmp_path / "half.json"
    text = source.read_text()
    description = json.loads(text)
    half.write_text(text)
    layout = ("--layout", "tp=1,pp=1,dp=1,batch=4")
    built_in = programs.output("simulate", *SMALL, *layout)
    own = programs.output("simulate", "--model", SMALL[1], "--machine", str(half), *layout)
    rows = [[line for line in printed.splitlines() if line.startswith(" ")][0] for printed in (built_in, own)]
    assert rows[0] == rows[1]
    del description["levels"]
    half.write_text(json.dumps(description))
    refusal = programs.refusal("simulate", "--machine", str(half))
    assert "levels" in refusal and "half.json" in refusal


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model", "nope"], "'nope' is not known; allowed: nano"),
        (["--machine", "nope"], "allowed: a100-pcie dgx-a100"),
        (["--machine", "./missing.json"], "missing.json: cannot be read"),
        (["--machine", "./"], "./: cannot be read: Is a directory; allowed: a JSON file"),
        (["--calibrate", "."], ".: cannot be read: Is a directory; allowed: records"),
        (["--layout", "tp=x"], "tp=x: not an integer; allowed"),
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
        (["--output", "x.json"], "--output requires --calibrate"),
        (["--json", "/nonexistent/x.jsonl"], "cannot write /nonexistent/x.jsonl"),
        (["--zap"], "--zap"),
        (["scaling", "--gpus", "0"], "--gpus 0"),
        (["scaling", "--grow", "zero"], "--grow zero: not known; allowed: dp tp pp cp"),
        (["scaling", "--published", "nope"], "is not a published table; allowed: sc21-weak sc21-strong"),
        (["scaling", "--published", "sc21-weak", "--gpus", "8"], "--published with other flags"),
        (["scaling", "--published", "nanotron-tp"], "allowed: simulate tp-boundary"),
        (["map", "--links", "0"], "--links 0"),
        (["map", "--level", "7"], "--level 7: DGX A100"),
        (["map", "--models", "nope"], "'nope' is not known"),
        (["memory", "--parameters", "-1"], "--parameters -1"),
        (["tp-boundary", "--tp", "2"], "require --model"),
        (["tp-boundary", "--model", "gpt3-1.3b", "--tp", "5"], "--tp 5: tp is 5"),
        (["order", "--layout", "tp=7"], "tp is 7"),
        (["sensitivity", "--percent", "100"], "--percent 100"),
        (["recompute", "--sweep", "tp=1"], "--sweep"),
        (["--sweep", "machine.nope=1"], "'nope' is not a number of DGX A100"),
        (["--sweep", "machine.levels.0.gbps=fast"], "--sweep machine.levels.0.gbps=fast"),
        (["--sweep", "model.nope=1"], "nope"),
        (["--layout", "order=tp-dp,pp=2"], "order=tp-dp lacks pp, which has 2 ranks"),
    ],
)
def test_what_is_wrong_is_one_line(programs, words, expected):
    assert expected in programs.refusal("simulate", *words)


def test_a_refusal_leaves_the_old_file(programs, tmp_path):
    out = tmp_path / "kept.jsonl"
    out.write_text("old\n")
    programs.refusal("simulate", *SMALL, "--layout", "tp=5", "--json", str(out))
    assert out.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [out]


def test_a_suite_predicts_and_measures(programs, tmp_path):
    suite = tmp_path / "suite.txt"
    suite.write_text("plan 1 simulate plan --model gpt3-1.3b --gpus 8 --batch 8 --top 2\nstep 1 simulate --layout pp=8,batch=8\n")
    programs.output("suite", "--suite", str(suite), "--out", str(tmp_path / "records"), "--time-budget", "1")
    assert [len(records_of(tmp_path / "records" / f"{name}.jsonl")) for name in ("plan", "step")] == [2, 1]


def points_of(programs, path: Path, *words: str) -> list[dict]:
    programs.output("simulate", *words, "--json", str(path))
    run, *points = conftest.records_of(path)
    assert run["record"] == "run" and run["basis"] == "simulated"
    assert points and all(point["record"] == "study" for point in points)
    return points


def test_scaling_adds_up_and_weak_work_grows(programs, tmp_path):
    points = points_of(programs, tmp_path / "s.jsonl", "scaling", *SMALL_MODEL, "--layout", "tp=2,batch=4", "--gpus", "2,4,8,16",
                       "--batch", "16")
    weak, strong = ([point for point in points if point["series"] == name] for name in ("weak", "strong"))
    assert [point["at"]["gpus"] for point in weak] == [2, 4, 8, 16] and len(strong) == 4
    assert [point["values"]["batch"] for point in weak] == [4, 8, 16, 32]
    assert {point["values"]["batch"] for point in strong} == {16}
    for series in (weak, strong):
        assert series[0]["values"]["efficiency"] == pytest.approx(1)
        for line in series:
            assert sum(line["parts_ms"].values()) == pytest.approx(line["values"]["step_ms"])
            a_gpu = line["values"]["tokens_per_s"] / line["at"]["gpus"]
            first = series[0]["values"]["tokens_per_s"] / series[0]["at"]["gpus"]
            assert line["values"]["efficiency"] == pytest.approx(a_gpu / first)


def test_scaling_says_where_there_is_no_layout(programs, tmp_path):
    points = points_of(programs, tmp_path / "s.jsonl", "scaling", "--strong", *SMALL_MODEL, "--layout", "tp=2", "--gpus", "2,3,64",
                       "--batch", "8")
    assert [bool(point["values"]) for point in points] == [True, False, False]
    assert "not a multiple of 2" in points[1]["note"] and "not a multiple of dp x microbatch" in points[2]["note"]


@pytest.mark.parametrize(("table", "runs"), [("sc21-weak", 10), ("sc21-strong", 9)])
def test_published_runs_are_shown_and_not_mixed(programs, tmp_path, table, runs):
    points = points_of(programs, tmp_path / "p.jsonl", "scaling", "--published", table)
    published = [point for point in points if point["basis"] == "published"]
    simulated = [point for point in points if point["basis"] == "simulated"]
    assert len(published) == len(simulated) == runs
    assert all("arXiv:2104.04473" in point["source"] and not point["parts_ms"] for point in published)
    assert not any(point["source"] for point in simulated)


def test_memory_is_table_one_of_zero(programs, tmp_path):
    points = points_of(programs, tmp_path / "m.jsonl", "memory")
    cells = {(point["at"]["parameters"], point["at"]["ranks"], point["series"]): point for point in points}
    assert len(cells) == 54 + 18 and {point["basis"] for point in points} == {"counted"}
    assert cells[7.5e9, 64, "ZeRO-3"]["values"]["total_gb"] == pytest.approx(1.875)
    assert cells[1e12, 1024, "ZeRO-1"]["values"]["total_gb"] == pytest.approx(4011.72, rel=1e-6)
    assert not cells[7.5e9, 1, "ZeRO-3"]["fits"] and cells[7.5e9, 4, "ZeRO-1"]["fits"]


def test_the_largest_model_is_that_of_zeros_table_two(programs, tmp_path):
    """arXiv:1910.02054, table 2, one GPU of 32 GB per model-parallel rank: 64 ranks hold 2 to 128 billion."""
    points = points_of(programs, tmp_path / "m.jsonl", "memory", "--ranks", "64", "--parameters", "1e9")
    found = {point["series"]: point["values"]["largest_parameters"] * 32 / point["values"]["capacity_gb"] for point in points}
    assert found == {name: pytest.approx(billions * 1e9, abs=0.05e9) for name, billions in
                     {"replicas": 2, "ZeRO-1": 7.6, "ZeRO-2": 14.4, "ZeRO-3": 128}.items()}
    away = points_of(programs, tmp_path / "o.jsonl", "memory", "--ranks", "1", "--parameters", "1e9",
                     "--layout", "grad_dtype=bf16,offload=file")
    assert away[0]["values"]["largest_parameters"] == pytest.approx(away[0]["values"]["capacity_gb"] * 1e9 / 4)
    assert away[0]["values"]["optimizer_gb"] == 0


def test_recomputation_trades_memory_for_time(programs, tmp_path):
    points = {program["series"]: program for program in points_of(programs, tmp_path / "r.jsonl", "recompute")}
    none, selective, full = points["none"], points["selective"], points["full"]
    assert none["best"] and selective["best"] and full["best"]
    for name in ("step_ms", "memory_gb"):
        values = [line["values"][name] for line in (none, selective, full)]
        assert values == sorted(values, reverse=name == "memory_gb")
    # Inputs kept every 48 layers: one layer's worth of inputs, and 48 layers recomputed at once.
    last = points["full, 48 layers at a time"]
    assert not last["best"] and last["values"]["activations_gb"] < full["values"]["activations_gb"]


def test_tensor_ranks_beyond_the_node_lose(programs, tmp_path):
    points = points_of(programs, tmp_path / "t.jsonl", "tp-boundary")
    simulated = [point["values"]["tflops_per_gpu"] for point in points if point["basis"] == "simulated"]
    published = [point["values"]["tflops_per_gpu"] for point in points if point["basis"] == "published"]
    assert published == [363.66, 345.51, 279.5, 158.1, 92.66]
    assert simulated == sorted(simulated, reverse=True)
    assert simulated[3] < 0.75 * simulated[2]
    own = points_of(programs, tmp_path / "o.jsonl", "tp-boundary", *SMALL_MODEL, "--tp", "1,2,4", "--machine", "dgx-a100")
    assert [line["at"]["tp"] for line in own] == [1, 2, 4] and all(line["basis"] == "simulated" for line in own)


def test_tensor_ranks_belong_inside_a_node(programs, tmp_path):
    points = points_of(programs, tmp_path / "o.jsonl", "order", *SMALL_MODEL, "--layout", "tp=8,dp=4,pp=2,batch=32")
    assert len(points) == 6
    assert points[0]["best"] and points[0]["series"].startswith("tp-")
    assert points[-1]["values"]["slower_percent"] > 50 and "exposed_tensor" in points[-1]["note"]
    # The layout's text gives the same step in the program that predicts one layout.
    done = programs.run("simulate", *SMALL_MODEL, "--layout", points[-1]["layout"])
    assert f"{points[-1]['values']['step_ms']:.2f}" in done.stdout


def test_sensitivity_is_sorted_and_has_signs(programs, tmp_path):
    points = points_of(programs, tmp_path / "s.jsonl", "sensitivity", *SMALL_MODEL, "--layout", "tp=8,dp=4,batch=32")
    moved = [max(abs(point["values"].get(name, 0)) for name in ("more_percent", "less_percent")) for point in points]
    assert moved == sorted(moved, reverse=True) and moved[0] > 1
    figures = {point["series"]: point["values"] for point in points}
    assert figures["machine.device.matrix_tflops"]["more_percent"] < 0 < figures["machine.device.matrix_tflops"]["less_percent"]
    assert figures["machine.device.launch_us"]["more_percent"] > 0 > figures["machine.device.launch_us"]["less_percent"]
    assert "less_percent" not in figures["machine.levels.1.oversubscription"]  # below 1 there is none
    assert not any(name.endswith(("ranks", "bytes")) for name in figures)
    # --sweep takes these names, and has the same change.
    moved = next(point for point in points if "more_percent" in point["values"])
    value = moved["at"]["value"]
    out = tmp_path / "swept.jsonl"
    programs.output("simulate", *SMALL_MODEL, "--layout", "tp=8,dp=4,batch=32", "--sweep",
                    f"{moved['series']}={value!r}:{1.1 * value!r}", "--json", str(out))
    before, after = (line["step_ms"] for line in records_of(out))
    assert 100 * (after / before - 1) == pytest.approx(moved["values"]["more_percent"], rel=1e-6)


def test_the_map_has_a_winner_in_each_cell_and_says_why(programs, tmp_path):
    points = points_of(programs, tmp_path / "m.jsonl", "map", "--models", "gpt3-1.3b,gpt3-13b,megatron-39.1b", "--links", "0.5,25",
                       "--gpus", "4,16", "--batch", "32")
    assert len(points) == 3 * 2 * 2
    for point in points:
        assert point["note"]
        if point["best"]:
            assert point["layout"] and point["values"]["step_ms"] > 0
        else:
            assert point["values"]["least_gb"] > 85 and "does not fit" in point["note"]
    assert any(not point["best"] for point in points if point["at"]["gpus"] == 4)


def test_sweeps_go_over_the_model_and_the_machine(programs, tmp_path):
    out = tmp_path / "s.jsonl"
    programs.output("simulate", *SMALL_MODEL, "--layout", "tp=2,dp=8,batch=16", "--sweep",
                    "machine.levels.1.gbps=5:50,model.layers=12:24", "--json", str(out))
    found = [line for line in conftest.records_of(out) if line["record"] == "simulation"]
    assert [(line["machine"].rsplit("=", 1)[1], line["model"]["numbers"]["layers"]) for line in found] == [
        ("5", 12), ("5", 24), ("50", 12), ("50", 24)]
    assert found[0]["step_ms"] > found[2]["step_ms"] and found[0]["step_ms"] < found[1]["step_ms"]


@pytest.mark.parametrize("command", ["scaling", "map", "memory", "recompute", "tp-boundary", "order", "sensitivity"])
def test_each_command_has_help(programs, command):
    done = programs.run("simulate", command, "--help")
    assert done.returncode == 0 and f"simulate {command}: " in done.stdout
    assert f"simulate {command}: " in programs.run("simulate", "--help").stdout


def test_the_report_draws_and_answers_each_study(programs, tmp_path, capsys):
    files = []
    for name, words in {
        "scaling": ["--published", "sc21-weak"], "map": ["--models", "gpt3-1.3b,gpt3-6.7b", "--links", "1,25", "--gpus", "8"],
        "memory": [], "recompute": [], "tp-boundary": [], "order": [], "sensitivity": []}.items():
        files.append(str(tmp_path / f"{name}.jsonl"))
        points_of(programs, Path(files[-1]), name, *words)
    results = analyse_studies(load(files))
    assert len(results) == 9  # a figure for each of the three sizes of memory
    for result in results:
        assert len(points_table(result).lines) == len(result.lines) and result.answer.endswith(".")
    assert main([*files, "-o", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    drawn = {path.stem.split("-", 2)[2] for path in (tmp_path / "report" / "figures").glob("*.svg")}
    assert drawn == {"efficiency", "parts", "map", "memory", "pareto", "boundary", "order", "tornado"}
    assert "Narayanan et al. 2021" in page and "nanotron" in page
    assert "tensor ranks, beyond a node of 8" in capsys.readouterr().out
