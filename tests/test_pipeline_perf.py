"""pipeline_perf and overlap_perf as a user runs them: tables, records, exports and imports, refusals, deadlocks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from conftest import Programs, records_of


def pipeline(programs: Programs, *words: str) -> subprocess.CompletedProcess[str]:
    return programs.run("pipeline_perf", *words)


def rows_of(text: str) -> dict[str, dict[str, str]]:
    """{schedule: {column: cell}}."""
    names = next(line for line in text.splitlines() if line.startswith("#schedule")).split()[1:]
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: dict(zip(names, cells)) for name, *cells in rows}


def channels(row: dict[str, str]) -> list[str]:
    return [row[name] for name in ("blocking", "batched", "slots")]


def test_every_schedule_meets_its_closed_form(programs: Programs) -> None:
    done = pipeline(programs, "--schedule", "all", "--stages", "4", "--microbatches", "8")
    assert done.returncode == 0, done.stderr
    rows = rows_of(done.stdout)
    listed = {line.split()[0] for line in pipeline(programs, "--list").stdout.splitlines()}
    assert set(rows) == listed and {"1f1b", "zb_search", "dualpipe", "zb_1p", "zb_2p"} <= set(rows)
    # (m + p - 1)(f + b) without deviation; with 1F1B's memory ZB-H1 is optimal, m (f + b) + (p - 1)(f + i - w)
    expected = {"makespan": "33.000", "own_span": "33.000", "bound": "27.000", "closed": "33.000", "diff": "0.000"}
    assert expected.items() <= rows["1f1b"].items()
    assert rows["zb_h1"]["own_span"] == rows["zb_h1"]["bound"] == "27.000" and rows["zb_v"]["bound"] == "N/A"
    with_form = [row for row in rows.values() if row["closed"] != "N/A"]
    assert len(with_form) >= 15 and all(row["diff"] == "0.000" for row in with_form)
    assert all(float(row["own_span"]) >= float(row["bound"]) for row in rows.values() if row["bound"] != "N/A")


def test_lists_are_swept_and_what_does_not_fit_is_said(programs: Programs) -> None:
    done = pipeline(programs, "--schedule", "all", "--stages", "3,4", "--microbatches", "4,8")
    assert done.returncode == 0, done.stderr
    assert "# skipped: chimera at 3 ranks, 4 microbatches: ranks is 3; allowed: multiples of 2, such as 2 or 4" in done.stdout
    shapes = {tuple(line.split()[1:3]) for line in done.stdout.splitlines() if line and not line.startswith("#")}
    assert shapes == {("3", "4"), ("3", "8"), ("4", "4"), ("4", "8")}


def test_a_record_holds_what_the_table_shows(programs: Programs, tmp_path: Path) -> None:
    done = pipeline(programs, "--schedule", "zb_h2", "--stages", "4", "--microbatches", "8", "--t-f", "2", "--t-i", "2",
                    "--t-w", "1", "--json", str(tmp_path / "r.jsonl"))
    assert done.returncode == 0, done.stderr
    run, line = records_of(tmp_path / "r.jsonl")
    assert run["basis"] == line["basis"] == "simulated" and run["run"] == line["run"]
    assert line["times_ms"] == {"forward": 2, "input_gradient": 2, "weight_gradient": 1, "message": 0}
    work = 8 * 5
    assert line["work_ms"] == work and line["closed_form_ms"] == {"cost": work + 3 * 2, "of": "own_span"}
    assert line["own_span_ms"] == pytest.approx(work + 3 * 2)
    assert max(line["own_span_ms_of_rank"]) == line["own_span_ms"] and len(line["own_span_ms_of_rank"]) == 4
    bubbles = line["bubbles"]
    assert bubbles["of_ideal"] == pytest.approx(line["makespan_ms"] / work - 1)
    assert bubbles["of_makespan"] == pytest.approx(1 - work / line["makespan_ms"])
    assert bubbles["of_own_span"] == pytest.approx(1 - work / line["own_span_ms"])
    assert bubbles["own_of_ideal"] == pytest.approx(line["own_span_ms"] / work - 1)
    assert line["peak_activations"]["until_w"] == [7, 7, 7, 7]  # 2p - 1 on every rank
    assert line["sends"] == [8, 16, 16, 8] and line["weight_versions"] == [1, 1, 1, 1]
    assert line["hangs"]["buffered_1"] is None and "2SEND_F1 to rank 3" in line["hangs"]["blocking"]
    assert line["late_us"] is None and line["simulated_ms"] is None and line["samples_ms"] == [line["makespan_ms"]]


def test_a_record_says_if_the_trainer_can_run_the_order(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    assert pipeline(programs, "--schedule", "all", "--stages", "4", "--microbatches", "8", "--json", str(file)).returncode == 0
    trained = {line["schedule"]: line["trained"] for line in records_of(file) if line["record"] == "schedule"}
    assert all(trained.values()) and {"zb_v", "seq1f1b", "bpipe"} <= set(trained)


def test_the_timeline_is_a_legal_step(programs: Programs, tmp_path: Path) -> None:
    pipeline(programs, "--schedule", "1f1b", "--stages", "2", "--microbatches", "3", "--t-comm", "0.5", "--json",
             str(tmp_path / "r.jsonl"))
    _, line = records_of(tmp_path / "r.jsonl")
    ends = {}
    for rank, tasks in enumerate(line["timeline"]["ranks"]):
        computed = [task for task in tasks if task[0] == "compute"]
        assert len(computed) == 6  # F and B of three microbatches
        for before, task in zip(computed, computed[1:]):
            assert task[5] >= before[6]
        for _, op, _, microbatch, _, start, end in computed:
            assert end - start == pytest.approx({"F": 1, "B": 2}[op])
            ends[rank, op, microbatch] = (start, end)
    for microbatch in range(3):
        assert ends[1, "F", microbatch][0] >= ends[0, "F", microbatch][1] + 0.5 - 1e-9
        assert ends[0, "B", microbatch][0] >= ends[1, "B", microbatch][1] + 0.5 - 1e-9
    # 1F1B, p = 2: 2 (p-1) c, and c (p-1) more for every further pair of microbatches (the latency law).
    assert line["makespan_ms"] == pytest.approx((3 + 1) * 3 + 2 * 0.5 * (1 + (3 - 1) // 2))
    assert line["exposed_ms"][1] == pytest.approx(1.0) and line["closed_form_ms"] is None


def test_memory_over_time_ends_empty_and_peaks_where_counted(programs: Programs, tmp_path: Path) -> None:
    pipeline(programs, "--schedule", "zb_h1", "--stages", "3", "--microbatches", "6", "--json", str(tmp_path / "r.jsonl"))
    _, line = records_of(tmp_path / "r.jsonl")
    for rank, kinds in enumerate(line["memory"]["of_rank"]):
        assert max(value for _, value in kinds["until_b"]) == line["peak_activations"]["until_b"][rank]
        assert kinds["until_b"][-1][1] == kinds["until_w"][-1][1] == 0


def test_a_schedule_goes_out_as_csv_and_comes_in_again(programs: Programs, tmp_path: Path) -> None:
    for name, pipes, lowered in (("zb_v", 1, False), ("interleaved", 1, True), ("dualpipe", 2, True)):
        csv = tmp_path / f"{name}.csv"
        words = ["--schedule", name, "--stages", "4", "--microbatches", "8"]
        out = pipeline(programs, *words, "--dump-csv", str(csv), *(["--lowered"] if lowered else []))
        assert out.returncode == 0, out.stderr
        assert ("SEND_F" in csv.read_text(encoding="utf-8")) == lowered
        back = pipeline(programs, "--csv", str(csv), "--pipes", str(pipes))
        if pipes == 2:
            assert pipeline(programs, "--csv", str(csv)).stderr.endswith("one half of the stages; allowed: --pipes 2\n")
        assert back.returncode == 0, back.stderr
        named, read = rows_of(out.stdout)[name], rows_of(back.stdout)[csv.name]
        for row in (named, read):  # a file has no closed form
            row.pop("closed"), row.pop("diff")
        assert named == read


def test_a_trace_has_every_task_of_every_rank(programs: Programs, tmp_path: Path) -> None:
    done = pipeline(programs, "--stages", "2", "--microbatches", "4", "--trace", str(tmp_path / "t.json"))
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    computed = [e for e in events if e["ph"] == "X" and e["name"].lstrip("0123456789")[:1] in "FB"]
    assert len(computed) == 2 * 4 * 2


def test_the_search_obeys_its_memory_and_others_are_marked(programs: Programs) -> None:
    done = pipeline(programs, "--schedule", "zb_search,zb_h2", "--stages", "4", "--microbatches", "12", "--memory-limit", "5")
    rows = rows_of(done.stdout)
    assert float(rows["zb_search"]["peak_W"]) <= 5
    assert rows["zb_h2"]["peak_W"] == "7.00!"


# The 1.5B model of Qi et al. 2023 (arXiv:2401.10241), table 9, in the memory of ZB-2p; schedules_test has all their rows.
PAPER = ["--stages", "8", "--microbatches", "24", "--t-f", "18.522", "--t-i", "18.086", "--t-w", "9.337", "--t-comm", "0.601",
         "--memory-limit", "16"]


def test_what_w_needs_is_counted_and_searched_for(programs: Programs, tmp_path: Path) -> None:
    share = 32 * 2304 / (34 * 2304 + 5 * 24 * 1024)
    done = pipeline(programs, "--schedule", "zb_search", *PAPER, "--w-memory", f"{share}", "--json", str(tmp_path / "r.jsonl"))
    assert done.returncode == 0, done.stderr
    _, line = records_of(tmp_path / "r.jsonl")
    assert line["bubbles"]["of_own_span"] == pytest.approx(0.0433, abs=1e-3)  # as published
    assert line["own_span_ms"] == pytest.approx(line["bound_ms"]), "no schedule of this memory is shorter"
    assert line["w_memory"] == pytest.approx(share) and max(line["peak_activations"]["until_w"]) <= 16
    for rank, kinds in enumerate(line["memory"]["of_rank"]):
        times = sorted({t for points in kinds.values() for t, _ in points})
        value = {kind: dict(map(tuple, points)) for kind, points in kinds.items()}
        now = dict.fromkeys(kinds, 0.0)
        held = [sum(now.values()) for t in times if now.update({k: value[k].get(t, now[k]) for k in kinds}) is None]
        assert max(held) == pytest.approx(line["peak_activations"]["until_w"][rank])
    whole = rows_of(pipeline(programs, "--schedule", "zb_search", *PAPER).stdout)["zb_search"]
    assert float(whole["of_own"]) > 10, "whole activations until W leave more than twice the bubble"


def test_zb_1p_and_zb_2p_are_the_search_within_once_and_twice_the_memory_of_1f1b(programs: Programs) -> None:
    times = PAPER[:-2]
    share = ["--w-memory", f"{32 * 2304 / (34 * 2304 + 5 * 24 * 1024)}"]
    rows = rows_of(pipeline(programs, "--schedule", "zb_1p,zb_2p,zb_search", *times, *share).stdout)
    assert rows["zb_1p"] == rows["zb_search"], "8 microbatches are the search's own limit at 8 ranks"
    assert float(rows["zb_1p"]["peak_W"]) <= 8 < float(rows["zb_2p"]["peak_W"]) <= 16
    twice = rows_of(pipeline(programs, "--schedule", "zb_search", *PAPER, *share).stdout)["zb_search"]
    assert rows["zb_2p"]["own_span"] == twice["own_span"] and float(rows["zb_2p"]["of_own"]) == pytest.approx(4.33, abs=0.1)


def test_with_real_kernels_the_share_is_what_stages_keep(programs: Programs, tmp_path: Path) -> None:
    done = pipeline(programs, "--mode", "real", "--schedule", "zb_search", "--stages", "2", "--microbatches", "4", "--repeat", "1",
                    "--hidden", "32", "--length", "16", "--layers", "1", "--json", str(tmp_path / "r.jsonl"))
    assert done.returncode == 0, done.stderr
    _, line = records_of(tmp_path / "r.jsonl")
    kept = 16 * 32 * 4  # bytes per token: f32; of 16 h elements until W, and 16 + 4 a bytes of sums only until I
    assert line["w_memory"] == pytest.approx(kept / (kept + 16 + 4 * 4))


def test_list_names_every_schedule_with_its_source(programs: Programs) -> None:
    done = pipeline(programs, "--list")
    assert done.returncode == 0
    assert "DeepSeek-AI 2024 (arXiv:2412.19437)" in done.stdout and done.stdout.count("\n") >= 19


def test_emulated_runs_say_so_and_have_the_simulation(programs: Programs, tmp_path: Path) -> None:
    done = pipeline(programs, "--mode", "emulated", "--schedule", "1f1b,zb_v", "--stages", "4", "--microbatches", "6",
                    "--t-comm", "0.2", "--repeat", "3", "--json", str(tmp_path / "r.jsonl"))
    assert done.returncode == 0, done.stderr
    assert "EMULATED" in done.stdout and "# emulated off simulated, 2 rows: median" in done.stdout
    run, *lines = records_of(tmp_path / "r.jsonl")
    assert run["basis"] == "emulated" and [line["schedule"] for line in lines] == ["1f1b", "zb_v"]
    for line in lines:
        assert len(line["samples_ms"]) == 3 and line["late_us"] >= 0
        # Kernels take the time that is set, on any machine; a test must not judge how much more it took.
        assert min(line["samples_ms"]) >= line["simulated_ms"] - 1e-3
        assert sum(len(tasks) for tasks in line["timeline"]["ranks"]) > 4 * 6 * 2


CYCLE = "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"
BAD_INPUT = [
    (["--stages", "0"], "--stages 0: out of range; allowed: an integer from 1 to"),
    (["--schedule", "1g1b"], "--schedule 1g1b: not known; allowed: all, naive, gpipe"),
    (["--schedule", "chimera", "--stages", "3"], "ranks is 3; allowed: multiples of 2, such as 2 or 4"),
    (["--schedule", "dualpipe", "--stages", "4", "--microbatches", "6"], "microbatches is 6; allowed: at least 8"),
    (["--schedule", "interleaved", "--chunks", "1"], "chunks is 1; allowed: at least 2"),
    (["--schedule", "interleaved", "--stages", "4", "--microbatches", "9"], "9 microbatches cannot be split into 2 equal groups of at least 4; try 8 or 10"),
    (["--schedule", "1f1b", "--chunks", "2"], "chunks is 2; allowed: 1"),
    (["--schedule", "zb_search", "--chunks", "2"], "chunks is 2; allowed: 1"),
    (["--t-f", "-1"], "--t-f -1: out of range; allowed: a number above 0"),
    (["--t-comm", "-0.5"], "--t-comm -0.5: out of range; allowed: a number from 0"),
    (["--t-w", "soon"], "--t-w soon: not a number"),
    (["--memory-limit", "0.5"], "--memory-limit 0.5: below one microbatch, which any schedule holds; allowed: numbers of at least 1"),
    (["--w-memory", "1.5"], "--w-memory 1.5: out of range; allowed: a number from 0 to 1"),
    (["--mode", "real", "--t-f", "2"], "--t-f together with --mode real"),
    (["--mode", "real", "--schedule", "dualpipe", "--stages", "3", "--microbatches", "8"], "allowed: multiples of 2, such as 2 or 4"),
    (["--mode", "imagined"], "--mode imagined: not known; allowed: simulated emulated real"),
    (["--frobnicate"], "unknown argument '--frobnicate'; allowed: what --help lists"),
    (["--csv", "/nonexistent.csv"], "--csv /nonexistent.csv: cannot be read: No such file or directory; allowed: a CSV file"),
    (["--csv", "x.csv", "--stages", "4"], "--stages together with --csv"),
    (["--pipes", "2"], "--pipes requires --csv"),
    (["--lowered"], "--lowered requires --dump-csv"),
    (["--json", "/nonexistent/r.jsonl"], "/nonexistent/r.jsonl"),
    (["--trace", "/nonexistent/t.json"], "/nonexistent/t.json"),
    (["--schedule", "1f1b,gpipe", "--trace", "t.json"], "--trace t.json: there are 2 schedules; allowed: one"),
]


@pytest.mark.parametrize(("words", "text"), BAD_INPUT, ids=[" ".join(words) for words, _ in BAD_INPUT])
def test_bad_input_gets_one_line(programs: Programs, words: list[str], text: str) -> None:
    done = pipeline(programs, *words)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("pipeline_perf: ")
    assert text in done.stderr, done.stderr


BAD_FILES = [
    ("0F0,0B0\n1F0,1Z0\n", 1, ":2:5: '1Z0' is not an action; allowed:"),
    ("0F0,0B0\n0F1,0B1\n", 1, ":2:1: stage 0 belongs to rank 0"),
    ("", 1, "the file has no action"),
    ("0F0,0B0\n2F0,2B0\n", 1, "stage 1 has no action"),
    ("0F0,0B0\n1F0,1B0\n", 3, "2 stages on 2 ranks in 3 pipes"),
    ("0F0,0F0,0B0\n1F0,1B0\n", 1, "0F0 appears a second time"),
    ("0F0\n1F0,1B0\n", 1, "no backward of microbatch 0 at stage 0"),
    ("0B0,0F0\n1F0,1B0\n", 1, "the backward comes before the forward"),
    (CYCLE, 1, "deadlock: rank 0 at 0B0 needs the gradient of stage 1, rank 1 at 1F1 needs the "
               "activations of stage 0"),
]


@pytest.mark.parametrize(("content", "pipes", "text"), BAD_FILES)
@pytest.mark.parametrize("mode", ["simulated", "emulated"])
def test_a_wrong_list_is_refused_where_it_is_wrong(programs: Programs, tmp_path: Path, content: str, pipes: int, text: str,
                                                   mode: str) -> None:
    csv = tmp_path / "s.csv"
    csv.write_text(content, encoding="utf-8")
    done = pipeline(programs, "--mode", mode, "--csv", str(csv), "--pipes", str(pipes), "--json", str(tmp_path / "r.jsonl"))
    assert done.returncode == 6 and text in done.stderr, done.stderr
    assert not (tmp_path / "r.jsonl").exists(), "a refused run leaves no record"


def test_the_grid_around_a_wrong_action_is_printed(programs: Programs, tmp_path: Path) -> None:
    csv = tmp_path / "s.csv"
    csv.write_text(CYCLE, encoding="utf-8")
    done = pipeline(programs, "--csv", str(csv))
    assert "rank 0     0F0 [0B0] 0F1  0B1" in done.stderr and "rank 1     1F0  1F1  1B0  1B1" in done.stderr


def test_lists_that_hang_over_narrow_channels_are_told(programs: Programs, tmp_path: Path) -> None:
    done = pipeline(programs, "--schedule", "interleaved", "--stages", "4", "--microbatches", "8")
    cells = rows_of(done.stdout)["interleaved"]
    assert channels(cells) == ["hang", "hang", "1"]
    assert "# interleaved hangs over batched channels: rank 0 at 4SEND_B0 to rank 3; rank 1 at" in done.stdout
    # Two ranks that send first and then receive: right in itself, a deadlock if a send waits for its receive.
    csv = tmp_path / "s.csv"
    csv.write_text("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
                   encoding="utf-8")
    done = pipeline(programs, "--csv", str(csv))
    assert done.returncode == 0, done.stderr
    assert channels(rows_of(done.stdout)["s.csv"]) == ["hang", "ok", "1"]
    assert "# s.csv hangs over blocking channels: rank 0 at 0SEND_F1 to rank 1; rank 1 at 1SEND_B0 to rank 0" in done.stdout


def test_buckets_meet_the_recurrence_and_zero_sends_what_it_should(programs: Programs, tmp_path: Path) -> None:
    done = programs.run("overlap_perf", "--bucket-cap-mb", "1,25,1000", "--zero", "0,1,2,3", "--layers", "8", "--json",
                        str(tmp_path / "r.jsonl"))
    assert done.returncode == 0, done.stderr
    run, *lines = records_of(tmp_path / "r.jsonl")
    assert run["link"] == {"latency_us": 20, "gbps": 12.5} and len(lines) == 3 * 3 + 1
    for line in lines:
        overlap = line["overlap"]
        exposed = line["makespan_ms"] - overlap["compute_alone_ms"]
        assert overlap["efficiency"] == pytest.approx(1 - exposed / overlap["communication_alone_ms"])
        if line["schedule"] == "ddp":
            assert line["makespan_ms"] == pytest.approx(line["closed_form_ms"]["cost"], abs=1e-5)
        else:
            assert line["closed_form_ms"] is None
    # Fewer and larger buckets cost less latency; a single one hides almost nothing.
    small, middle, large = lines[:3]
    assert small["overlap"]["communication_alone_ms"] > large["overlap"]["communication_alone_ms"]
    assert middle["overlap"]["efficiency"] > large["overlap"]["efficiency"]


def test_emulated_overlap_is_labelled(programs: Programs, tmp_path: Path) -> None:
    done = programs.run("overlap_perf", "--mode", "emulated", "--zero", "0,3", "--layers", "4", "--repeat", "2", "--json",
                        str(tmp_path / "r.jsonl"))
    assert done.returncode == 0, done.stderr
    for line in records_of(tmp_path / "r.jsonl")[1:]:
        assert line["basis"] == "emulated" and len(line["samples_ms"]) == 2
        assert line["makespan_ms"] >= line["overlap"]["compute_alone_ms"]


@pytest.mark.parametrize(("words", "text"), [
    (["--zero", "4"], "--zero 4: out of range; allowed: an integer from 0 to 3"),
    (["--algo", "pigeon"], "--algo pigeon: "),
    (["--algo", "double_tree"], "--algo double_tree: its plan has 4 lanes; allowed here: one"),
    (["--algo", "two_shot", "--zero", "3"], "--algo two_shot: "),
    (["--link", "latency=3"], "--link latency=3: no such field; nearest: latency_us; allowed: latency_us gbps"),
    (["--bytes-a-layer", "many"], "--bytes-a-layer many: not a size"),
    (["--t-b", "0"], "--t-b 0: out of range"),
    (["--bucket-cap-mb", "0"], "--bucket-cap-mb 0: out of range"),
    (["--mode", "real"], "ddp_overlap_bench"),
    (["--zero", "0,3", "--trace", "t.json"], "--trace t.json: there are 2 rows; allowed: one"),
])
def test_overlap_perf_refuses_in_one_line(programs: Programs, words: list[str], text: str) -> None:
    done = programs.run("overlap_perf", *words)
    assert done.returncode == 6 and len(done.stderr.splitlines()) == 1 and done.stdout == ""
    assert done.stderr.startswith("overlap_perf: ") and text in done.stderr, done.stderr


def test_a_suite_runs_schedules_and_sweeps(programs: Programs, tmp_path: Path) -> None:
    suite = tmp_path / "suite.txt"
    suite.write_text("a 1 pipeline_perf --schedule gpipe,1f1b --microbatches 4\nb 1 overlap_perf --layers 2\n"
                     "c 1 sendrecv_perf --ranks 2 -b 8 -e 8 -n 2 --algo direct\n", encoding="utf-8")
    done = programs.run("suite", "--suite", str(suite), "--out", str(tmp_path / "records"), "--time-budget", "1")
    assert done.returncode == 0, done.stderr
    kinds = {name: [line["record"] for line in records_of(tmp_path / "records" / f"{name}.jsonl")] for name in "abc"}
    assert kinds == {"a": ["run", "schedule", "schedule"], "b": ["run", "schedule"], "c": ["run", "row", "row"]}


def test_actions_on_parameters_are_said_to_be_left_out(programs: Programs, tmp_path: Path) -> None:
    csv = tmp_path / "sharded.csv"
    csv.write_text("0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD\n1F0,1B0,1F1,1B1\n", encoding="utf-8")
    done = programs.run("pipeline_perf", "--csv", str(csv))
    assert done.returncode == 0, done.stderr
    assert "# skipped: 2 UNSHARD, RESHARD or REDUCE_GRAD of sharded.csv" in done.stdout


def test_real_kernels_run_the_schedule_that_was_asked_for(programs: Programs, tmp_path: Path) -> None:
    """The trainer ran each schedule; its simulation has the times of one rank alone."""
    done = pipeline(programs, "--mode", "real", "--schedule", "1f1b,zb_v,chimera,dualpipe", "--stages", "2", "--microbatches", "4",
                    "--repeat", "3", "--hidden", "32", "--length", "16", "--json", str(tmp_path / "real.jsonl"))
    assert done.returncode == 0, done.stderr
    run, *rows = records_of(tmp_path / "real.jsonl")
    assert run["basis"] == "measured" and [row["schedule"] for row in rows] == ["1f1b", "zb_v", "chimera", "dualpipe"]
    for row in rows:
        assert row["basis"] == "measured" and len(row["samples_ms"]) == 3
        assert min(row["times_ms"][kind] for kind in ("forward", "input_gradient", "weight_gradient")) > 0
        ops = [task[1] for rank in row["timeline"]["ranks"] for task in rank]
        assert ops.count("F") == 4 * 2 * row["chunks"]
    assert "MEASURED" in done.stdout and "real/sim" in done.stdout
