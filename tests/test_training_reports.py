"""Records of mini_train, scaling, pipeline_perf, overlap_perf and simulate: consistent, and shown by the report as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import records_of

from reports.report import report_of
from reports.analysis.steps.schedules import cases_of
from reports.analysis.steps.overlap import lanes_of
from reports.__main__ import main
from reports.load import load
from reports.plots.gantt import total_of
from reports.records import ScheduleLine


SMALL = ("--layers", "2", "--hidden", "32", "--heads", "2", "--length", "16")
USAGE = 6


def written(programs, path: Path, *words: str) -> list[dict]:
    done = programs.run(*words, "--json", str(path))
    assert done.returncode == 0, done.stderr
    return records_of(path)


def end_of(timeline: dict) -> float:
    return max(task[6] for rank in timeline["ranks"] for task in rank)


@pytest.fixture(scope="module")
def training(programs, tmp_path_factory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("training") / "t.jsonl"
    text = path.with_name("text.txt")
    text.write_bytes(b"the quick brown fox jumps over the lazy dog; " * 400)
    words = ("--dp", "2", "--zero", "1", "--steps", "12", "--validate-every", "5", "--data", str(text))
    run, line = written(programs, path, "mini_train", *SMALL, *words)
    assert run["basis"] == "measured" and run["ranks"] == 2
    return path, line


def test_a_training_record_adds_up(training) -> None:
    _, line = training
    assert [step["step"] for step in line["steps"]] == list(range(1, 13))
    assert line["steps"][-1]["loss"] < line["steps"][0]["loss"]
    for step in line["steps"]:
        assert step["tokens_per_s"] == pytest.approx(line["tokens_per_step"] / step["ms"] * 1e3)
    assert [at for at, _ in line["validation"]["curve"]] == [5, 10, 12]
    assert line["validation"]["loss"] == line["validation"]["curve"][-1][1]
    assert line["validation"]["bigram"] < line["validation"]["unigram"]
    # Ranks begin at slightly different times: each one's parts add up to the time from the first start to the last end.
    assert sum(line["parts_ms"].values()) == pytest.approx(end_of(line["timeline"]))
    kinds = dict(line["memory_bytes"])
    assert kinds.pop("total") == sum(kinds.values())
    assert len(line["timeline"]["ranks"]) == 2 == line["layout"]["numbers"]["dp"]
    assert line["layout"]["text"] == "dp=2,zero=1"
    assert line["data"] == "text.txt", "no folders"


def test_scaling_tells_three_times_of_the_same_tasks(programs, tmp_path) -> None:
    path = tmp_path / "s.jsonl"
    layouts = "dp=2,zero=3;pp=2,microbatches=2,schedule=zb_h1;tp=2,sp=yes;dp=4"
    words = ("--batch", "4", "--mode", "both", "--steps", "2", "--layouts", layouts)
    run, *lines = written(programs, path, "scaling", *SMALL, *words)
    assert run["ranks"] == 4 and run["basis"] == "measured"
    assert [line["choices"]["mode"] for line in lines] == ["weak"] * 5 + ["strong"] * 5
    concurrent = set()
    for line in lines:
        times = {step["mode"]: step for step in line["times"]}
        assert list(times) == ["isolated", "contended", "measured"]
        tasks = [[task[:5] for task in rank] for rank in times["measured"]["timeline"]["ranks"]]
        for kind in ("isolated", "contended"):
            assert [[task[:5] for task in rank] for rank in times[kind]["timeline"]["ranks"]] == tasks
            step_us = times[kind]["samples_us"][0]
            assert step_us == pytest.approx(1e3 * end_of(times[kind]["timeline"]))
            assert sum(times[kind]["parts_us"].values()) == pytest.approx(step_us)
        measured = times["measured"]
        within = [measured["stats"]["min"] * (1 - 1e-9), measured["stats"]["max"] * (1 + 1e-9)]
        assert within[0] <= sum(measured["parts_us"].values()) <= within[1]
        assert line["sizes"]["sequences_per_step"] == 4 * (line["ranks"] if line["choices"]["mode"] == "weak" else 1)
        # A single rank has no other rank to slow it down.
        if line["ranks"] == 1:
            assert "slowdowns" not in line and times["isolated"]["samples_us"] == times["contended"]["samples_us"]
        concurrent |= {slow["beside"] for slow in line.get("slowdowns", [])}
    # On a busy machine the ranks of one line may have run sequentially; but not of all lines.
    assert "kernels of other ranks" in concurrent
    assert load([str(path)]).steps[1].layout.text == "dp=2,zero=3"


def test_what_was_simulated_is_in_a_run_of_its_own(programs, tmp_path) -> None:
    path = tmp_path / "b.jsonl"
    words = ("--steps", "1", "--layouts", "dp=1", "--simulate", "dp=8,zero=1")
    lines = written(programs, path, "scaling", *SMALL, *words)
    assert [line["basis"] for line in lines] == ["measured", "measured", "simulated", "simulated"]
    beyond = lines[-1]
    assert beyond["ranks"] == 8 and beyond["times"][0]["mode"] == "isolated"
    assert beyond["figures"]["tokens_per_s"] == pytest.approx(beyond["sizes"]["tokens_per_step"] / beyond["times"][-1]["samples_us"][0] * 1e6)
    assert load([str(path)]).steps[1].basis == "simulated"


def test_a_curve_is_measured_in_rounds_and_simulated_beyond(programs, tmp_path) -> None:
    path = tmp_path / "c.jsonl"
    words = ("--ranks", "1,2", "--mode", "both", "--batch", "2", "--rounds", "6", "--steps", "1", "--simulate-to", "64")
    lines = [line for line in written(programs, path, "scaling", *SMALL, *words) if line["record"] == "step"]
    measured = [line for line in lines if line["basis"] == "measured"]
    single, two, *beyond = lines[len(measured):]
    assert [(line["choices"]["mode"], line["ranks"]) for line in measured] == [("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)]
    for line in measured:
        (step,), rounds_ms = line["times"], line["series"]["rounds_ms"]
        assert step["mode"] == "measured" and len(rounds_ms) == 6
        assert step["samples_us"] == pytest.approx([1e3 * ms for ms in rounds_ms])
        if line["ranks"] > 1:
            efficiency = line["efficiency"]
            assert sum(loss["share"] for loss in efficiency["losses"]) + efficiency["value"] == pytest.approx(1)
            assert efficiency["interval"]["low"] <= efficiency["value"] <= efficiency["interval"]["high"]
            assert ("undecided" in efficiency) == (efficiency["verdict"] == "undecided")
            assert line["choices"]["mode"] == "strong" or efficiency["verdict"] != "superlinear"
    assert measured[0]["series"] == measured[2]["series"], "one rank's step is the same in both modes"
    assert {line["basis"] for line in (single, two, *beyond)} == {"simulated"} and single["efficiency"]["value"] == pytest.approx(1)
    weak = [line["ranks"] for line in (single, two, *beyond) if line["choices"]["mode"] == "weak"]
    assert weak == [1, 2, 4, 8, 16, 32, 64]
    assert [line["ranks"] for line in beyond if line["choices"]["mode"] == "strong"] == [1, 2], "two sequences"
    result, = report_of(load([str(path)])).results("scaling")
    assert [(curve.name, len(curve.measured), len(curve.simulated)) for curve in result.curves] == [
        ("data parallel, weak", 1, 6), ("data parallel, strong", 1, 1)], "of more than one rank"


def test_a_curve_on_a_described_machine(programs, tmp_path) -> None:
    path = tmp_path / "m.jsonl"
    words = ("--ranks", "1,2", "--batch", "2", "--rounds", "1", "--machine", "dgx-h100", "--simulate-to", "16")
    *_, last = written(programs, path, "scaling", *SMALL, *words)
    assert last["choices"]["machine"] == "dgx-h100" and last["ranks"] == 16 and [step["mode"] for step in last["times"]] == ["predicted"]
    assert 0 < last["efficiency"]["value"] <= 1


def test_the_first_page_tells_of_one_step(programs, training, tmp_path) -> None:
    path = tmp_path / "s.jsonl"
    written(programs, path, "scaling", *SMALL, "--steps", "1", "--layouts", "dp=2", "--link", "latency_us=20,gbps=1")
    assert main([str(training[0]), str(path), "-o", str(tmp_path / "report")]) == 0
    index, other = ((tmp_path / "report" / name).read_text(encoding="utf-8") for name in ("index.html", "scaling.html"))
    assert "One training step" in index and "counting pairs of tokens" in index
    assert "pieces timed alone give" in index or "an idle machine would decide it" in index  # beside other programs nothing is told
    assert "One training step" not in other
    assert "emulated" in other, "a link of a stated speed is no measurement of this machine"
    for figure in re.findall(r'src="(figures/[^"]+)"', index + other):
        assert (tmp_path / "report" / figure).stat().st_size > 1000


@pytest.mark.parametrize(("words", "expected"), [
    (("--layouts", "dp=2;qp=3"), ["--layouts qp=3", "qp=3: no such field", "tp pp dp"]),
    (("--layouts", "dp=2,zero=7"), ["--layouts dp=2,zero=7", "zero=7: "]),
    (("--layouts", "tp=3"), ["--layouts tp=3", "3"]),
    (("--layouts", "dp=2,batch=4"), ["--layouts dp=2,batch=4: batch=4: ", "--batch", "microbatches=.."]),
    (("--mode", "strong", "--batch", "2", "--layouts", "dp=4"), ["--layouts dp=4", "2 sequences", "multiple"]),
    (("--model", "huge"), ["--model huge"]),
    (("--simulate", "tp=2"), ["--simulate", "dp=2 and more"]),
    (("--mode", "sideways"), ["--mode sideways", "weak strong both"]),
    (("--ranks", "3", "--layouts", "tp=2"), ["--ranks 3 of --layouts tp=2", "multiples of 2"]),
    (("--simulate-to", "8"), ["--simulate-to without --ranks"]),
    (("--machine", "dgx-h100"), ["--machine: nothing is simulated", "--simulate-to or --simulate"]),
    (("--ranks", "1,2", "--machine", "none"), ["--machine none"]),
])
def test_what_is_wrong_is_said_in_one_line(programs, words, expected) -> None:
    done = programs.run("scaling", *words)
    assert done.returncode == USAGE
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    for part in expected:
        assert part in done.stderr


TINY = "nano,layers=2,hidden=32,heads=2,ffn_hidden=128,sequence=16"
LAYOUT = "dp=2,zero=1,dtype=f32,microbatch=2,batch=8"


@pytest.fixture(scope="module")
def calibrated(programs, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated")
    kernels = ("--model", TINY, "--layout", LAYOUT, "--threads", "1", "--copies", "1,2", "--cache", "cold",
               "--benchmark_min_time=0.0005", "--gemm", "packed")
    written(programs, folder / "k.jsonl", "kernels_bench", *kernels)
    written(programs, folder / "r.jsonl", "all_reduce_perf", "--ranks", "2", "-b", "1K", "-e", "1M", "-f", "32", "-n", "5", "-w", "1",
            "--algo", "ring")
    done = programs.run("simulate", "--calibrate", f"{folder / 'k.jsonl'},{folder / 'r.jsonl'}", "--output", str(folder / "m.json"))
    assert done.returncode == 0, done.stderr
    return folder / "m.json"


def test_a_curve_goes_on_over_as_many_calibrated_hosts_as_it_needs(programs, calibrated: Path, tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    words = ("--model", TINY, "--ranks", "1,2", "--batch", "4", "--rounds", "1", "--machine", str(calibrated), "--simulate-to", "64")
    lines = [line for line in written(programs, path, "scaling", *words) if "model" in line and line["basis"] == "simulated"]
    assert [line["ranks"] for line in lines] == [1, 2, 4, 8, 16, 32, 64] and not any(line["oversubscribed"] for line in lines)
    computing = [sum(line["times"][0]["parts_us"][part] for part in ("forward", "backward")) for line in lines]
    assert computing[-1] == pytest.approx(computing[1], rel=0.01), "no host is fuller than this one"
    done = programs.run("scaling", "--model", TINY, "--ranks", "1", "--threads", "2", "--machine", str(calibrated), "--simulate-to", "2")
    assert done.returncode == USAGE and done.stdout == "" and "was measured with 1 thread(s) per rank" in done.stderr


def test_a_step_is_predicted_before_it_runs_from_times_of_all_its_kernels(programs, calibrated: Path, tmp_path: Path) -> None:
    words = ("--model", TINY, "--layout", LAYOUT, "--gemm", "packed", "--steps", "5", "--predict", str(calibrated))
    done = programs.run("mini_train", *words, "--json", str(tmp_path / "t.jsonl"))
    assert done.returncode == 0, done.stderr
    line = records_of(tmp_path / "t.jsonl")[1]
    predicted = line["predicted"]
    assert predicted["kernels"] == predicted["measured_kernels"] > 20
    assert sum(dict(predicted["parts_ms"]).values()) == pytest.approx(predicted["step_ms"])
    assert dict(predicted["parts_ms"]).keys() == dict(predicted["measured_parts_ms"]).keys()
    for name, ms in line["parts_ms"].items():
        assert predicted["measured_parts_ms"][name] == pytest.approx(ms)
    assert predicted["error"] == pytest.approx(predicted["step_ms"] / predicted["measured_step_ms"] - 1)
    before, after = done.stdout.index("# predicted with calibrated:"), done.stdout.index("# predicted and measured")
    assert before < done.stdout.index("step      1") < after < done.stdout.index("# largest gap: ")
    # simulate prints the same.
    simulated = written(programs, tmp_path / "s.jsonl", "simulate", "--model", TINY, "--layout", LAYOUT, "--machine", str(calibrated))
    assert simulated[1]["step_ms"] == pytest.approx(predicted["step_ms"])


def test_kernels_that_were_not_measured_and_other_threads_are_told(programs, calibrated: Path) -> None:
    words = ("mini_train", "--model", TINY, "--predict", str(calibrated), "--gemm", "packed", "--steps", "1")
    done = programs.run(*words, "--batch", "4")
    assert done.returncode == 0 and "the other times are computed from the device's peaks" in done.stdout
    done = programs.run(*words, "--threads", "2")
    assert done.returncode == USAGE
    assert "measured with 1 thread(s) per rank, but --threads is 2; allowed: the same" in done.stderr


# The report reads, draws and describes the records of pipeline_perf, overlap_perf and simulate.

STEP = ("--stages", "4", "--microbatches", "8", "--t-f", "2", "--t-i", "2.5", "--t-w", "1.5", "--t-comm", "0.3")


def written_steps(programs, path: Path, *words: str) -> str:
    done = programs.run(*words, "--json", str(path))
    assert done.returncode == 0, done.stderr
    return str(path)


@pytest.fixture(scope="module")
def schedules(programs, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("steps") / "schedules.jsonl"
    return written_steps(programs, path, "pipeline_perf", "--schedule", "all", *STEP)


def exposed_by_chart(line: ScheduleLine) -> list[float]:
    return [sum(end - start for start, end in lanes.exposed) for lanes in lanes_of(line.timeline)]


def test_charts_hatch_what_the_program_counts_as_exposed(schedules: str) -> None:
    lines = load([schedules]).schedules
    assert len(lines) >= 18
    for line in lines:
        for drawn, counted in zip(exposed_by_chart(line), line.exposed_ms):
            assert drawn == pytest.approx(counted), line.schedule


def test_what_is_drawn_is_what_is_counted(schedules: str) -> None:
    for line in load([schedules]).schedules:
        computed = [[t for t in rank if t.lane == "compute"] for rank in line.timeline]
        assert max(t.end for rank in computed for t in rank) == pytest.approx(line.makespan_ms)
        assert max(sum(t.end - t.start for t in rank) for rank in computed) == pytest.approx(line.work_ms)
        held = [max(value for _, value in total_of(kinds.values())) for kinds in line.memory.of_rank]
        assert held == pytest.approx(line.peak_activations.until_w), line.schedule


def test_simulated_and_emulated_of_one_schedule_stand_in_one_chart(programs, schedules: str, tmp_path: Path) -> None:
    emulated = written_steps(programs, tmp_path / "e.jsonl", "pipeline_perf", "--mode", "emulated", "--repeat", "1", *STEP)
    (cases,) = cases_of(load([schedules, emulated]).schedules).values()
    assert [[line.basis for line in case.lines] for case in cases if case.name == "1f1b"] == [["simulated", "emulated"]]


def test_pages_of_all_programs(programs, tmp_path: Path) -> None:
    trace = tmp_path / "zb.json"
    files = [
        written_steps(programs, tmp_path / "p.jsonl", "pipeline_perf", "--schedule", "zb_h1", *STEP, "--trace", str(trace)),
        written_steps(programs, tmp_path / "o.jsonl", "overlap_perf", "--bucket-cap-mb", "1,25", "--layers", "4"),
        written_steps(programs, tmp_path / "s.jsonl", "simulate", "--layout", "tp=8,pp=8,dp=2,batch=64", "--sweep",
                "microbatch=1:2"),
    ]
    assert main([*files, "-o", str(tmp_path / "report")]) == 0
    page, other = (tmp_path / "report" / name for name in ("schedules.html", "simulations.html"))
    text = page.read_text(encoding="utf-8")
    assert "zb_h1" in text and "overlap-1" in text and 'href="traces/zb.json"' in text
    assert "microbatch=2" in other.read_text(encoding="utf-8")
