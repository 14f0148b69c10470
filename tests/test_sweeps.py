"""The *_perf programs end to end: output as nccl-tests' scripts read it, records, refusals, lost ranks."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Programs, records_of, ROOT


ALL_PROGRAMS = ["all_reduce_perf", "reduce_scatter_perf", "all_gather_perf", "broadcast_perf", "reduce_perf",
                "alltoall_perf", "alltoallv_perf", "sendrecv_perf", "gather_perf", "scatter_perf", "hypercube_perf"]
FACTORS = {"all_reduce_perf": lambda n: 2 * (n - 1) / n, "all_gather_perf": lambda n: (n - 1) / n,
           "broadcast_perf": lambda n: 1.0}


# Reads a sweep's output as scripts read nccl-tests': by the shape of its lines, without knowledge of Lockstep.

@dataclass(frozen=True)
class Placement:
    time_us: float
    algbw: float
    busbw: float
    wrong: int | None  # None for N/A


@dataclass(frozen=True)
class Row:
    size: int
    count: int
    dtype: str
    op: str
    root: int
    out_of_place: Placement
    in_place: Placement


def _placement(cells: list[str]) -> Placement:
    time_us, algbw, busbw, wrong = [cell.replace("N/A", "nan") for cell in cells[:3]] + cells[3:]
    return Placement(float(time_us), float(algbw), float(busbw), None if wrong == "N/A" else int(float(wrong)))


def table_rows(text: str) -> list[Row]:
    """Every line that begins with a number; the first 13 columns are nccl-tests'."""
    found = []
    for line in text.splitlines():
        if not re.match(r"\s*\d+\s+\d+\s", line):
            continue
        cells = line.split()
        found.append(Row(int(cells[0]), int(cells[1]), cells[2], cells[3], int(cells[4]),
                         _placement(cells[5:9]), _placement(cells[9:13])))
    return found


def average_bus_bandwidth(text: str) -> float:
    return float(re.search(r"^# Avg bus bandwidth\s*:\s*([0-9.eE+-]+)", text, re.MULTILINE).group(1))


def out_of_bounds(text: str) -> tuple[int, str]:
    match = re.search(r"^# Out of bounds values\s*:\s*(\d+) (OK|FAILED)", text, re.MULTILINE)
    return int(match.group(1)), match.group(2)


@pytest.mark.parametrize("program", ALL_PROGRAMS)
def test_every_program_gives_verified_rows(programs: Programs, program: str) -> None:
    printed = programs.output(program, "-b", "8", "-e", "64K", "-f", "16", "--ranks", "4", "-n", "5", "--algo", "all")
    rows = table_rows(printed)
    assert len({row.size for row in rows}) >= 3
    assert all(row.out_of_place.wrong == 0 for row in rows)
    if program != "alltoallv_perf":
        assert all(row.in_place.wrong == 0 for row in rows)
    assert out_of_bounds(printed) == (0, "OK")
    assert average_bus_bandwidth(printed) >= 0


@pytest.mark.parametrize("program", sorted(FACTORS))
def test_bandwidths_follow_from_size_and_time(programs: Programs, program: str) -> None:
    result = programs.run(program, "-b", "1M", "-e", "1M", "--ranks", "3", "-n", "5")
    (row,) = table_rows(result.stdout)
    algbw = row.size / row.out_of_place.time_us / 1e3
    assert row.out_of_place.algbw == pytest.approx(algbw, abs=0.006, rel=0.01)
    assert row.out_of_place.busbw == pytest.approx(algbw * FACTORS[program](3), abs=0.011, rel=0.01)


def test_counts_below_the_rank_count_and_all_types(programs: Programs) -> None:
    printed = programs.output("all_reduce_perf", "-b", "1", "-e", "32", "-f", "2", "--ranks", "5", "-d", "all", "-o", "all",
                              "-n", "2", "--algo", "ring,two_shot")
    rows = table_rows(printed)
    assert len({row.dtype for row in rows}) == 12
    assert len({row.op for row in rows}) == 5
    assert all(row.out_of_place.wrong == 0 and row.in_place.wrong == 0 for row in rows)


def test_processes_give_the_same_rows_as_threads(programs: Programs) -> None:
    words = ["all_reduce_perf", "-b", "4K", "-e", "256K", "-f", "8", "--ranks", "3", "-n", "3", "--algo", "all"]
    threads = programs.run(*words)
    processes = programs.run(*words, "--processes")
    assert threads.returncode == processes.returncode == 0, processes.stderr
    def shape(text: str) -> list[tuple[int, int, int]]:
        return [(row.size, row.count, row.out_of_place.wrong) for row in table_rows(text)]
    assert shape(threads.stdout) == shape(processes.stdout)


def test_records_follow_the_schema_and_repeat_the_table(programs: Programs, tmp_path: Path) -> None:
    target = tmp_path / "records.jsonl"
    programs.output("all_reduce_perf", "-b", "8", "-e", "1K", "-f", "128", "--ranks", "2", "--algo", "ring,one_shot",
                    "--explain", "--json", str(target))
    run, *rows = records_of(target)
    assert run["record"] == "run" and run["ranks"] == 2 and run["machine"]["cores"] >= 1
    assert len(rows) == 2 * 2 * 2  # sizes, algorithms, placements
    for row in rows:
        assert row["status"] == "ok" and row["wrong"] == 0 and row["iterations"] == len(row["samples_us"]) == 20
        assert row["plan"]["steps"] == {"ring": 2, "one_shot": 1}[row["algorithm"]]
        assert row["plan"]["predicted_us"] > 0
    assert str(tmp_path) not in json.dumps(run), "a folder of this machine got into the record"


def test_nccl_tests_json_repeats_the_table_and_replaces_nothing(programs: Programs, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("mine")
    words = ["all_reduce_perf", "-b", "1K", "-e", "4K", "-f", "4", "--ranks", "2", "-n", "4", "-I", "1", "-K", "1"]
    printed = programs.output(*words, "-J", str(target))
    assert target.read_text() == "mine"
    document = json.loads((tmp_path / "out.json.0").read_text())
    assert document["version"] == 3 and document["env"] == []
    assert str(tmp_path) not in json.dumps(document["args"])
    assert document["config"]["step_factor"] == 4 and len(document["config"]["devices"]) == 2
    for written, row in zip(document["results"], table_rows(printed), strict=True):
        assert (written["size"], written["type"], written["redop"], written["root"]) == (row.size, "float", "sum", "    -1")
        assert written["out_of_place"]["time"] == pytest.approx(row.out_of_place.time_us, abs=0.006)
        assert written["in_place"]["nwrong"] == 0
        assert len(written["out_of_place_per_iter"]["times_us"]) == 3
    assert document["out_of_bounds"] == {"count": 0, "okay": "true"}
    assert document["average_bus_bandwidth"]["okay"] == "unchecked"


def test_emulated_links_are_labelled_and_slow(programs: Programs, tmp_path: Path) -> None:
    target = tmp_path / "records.jsonl"
    printed = programs.output("sendrecv_perf", "-b", "1M", "-e", "1M", "--ranks", "2", "-n", "5", "--link",
                              "latency_us=300,gbps=1", "--json", str(target))
    assert "EMULATED" in printed
    (row,) = table_rows(printed)
    assert row.out_of_place.time_us > 300 + (1 << 20) / 1e3  # the emulated link cannot be beaten
    assert {json.loads(line)["basis"] for line in target.read_text().splitlines()} == {"emulated"}


def test_on_emulated_links_the_prediction_comes_from_the_stated_numbers(programs: Programs) -> None:
    printed = programs.output("sendrecv_perf", "-b", "1M", "-e", "1M", "--ranks", "2", "-n", "3", "--explain", "--link",
                              "latency_us=300,gbps=1")
    heading = next(line for line in printed.splitlines() if line.split()[:2] == ["#", "size"]).split()[1:]
    row = next(line for line in printed.splitlines() if line.split()[:1] == [str(1 << 20)]).split()
    cell = lambda name: float(row[heading.index(name)])  # noqa: E731
    assert cell("links") == pytest.approx(300 + (1 << 20) / 1e3, rel=1e-4)
    assert cell("predict") >= cell("links") and cell("memory") > 0


@pytest.mark.parametrize(("words", "named", "allowed"), [
    (["--frobnicate"], "--frobnicate", ""),
    (["-d", "float128"], "float128", "bfloat16"),
    (["-o", "xor"], "xor", "sum"),
    (["--ranks", "0"], "--ranks", ""),
    (["--algo", "rign"], "rign", "ring"),
    (["--algo", "ring:lanes=900"], "lanes", "8"),
    (["--algo", "hierarchical:group=3", "--ranks", "4"], "group", ""),
    (["--transport", "pigeon"], "pigeon", "local"),
    (["--link", "latency=3"], "--link", "latency_us"),
    (["-b", "2M", "-e", "1M"], "-b", ""),
    (["-b", "12Q"], "12Q", ""),
    (["-b", "8E", "-e", "8E"], "-b", ""),
    (["-e", "900G", "-b", "900G"], "-e", "available"),
    (["-G", "3"], "-G", ""),
    (["--json", "/nonexistent/folder/file.jsonl"], "/nonexistent/folder/file.jsonl", ""),
])
def test_bad_input_gets_one_line_and_leaves_nothing(programs: Programs, tmp_path: Path, words: list[str], named: str,
                                                    allowed: str) -> None:
    target = tmp_path / "records.jsonl"
    extra = [] if "--json" in words else ["--json", str(target)]
    result = programs.run("all_reduce_perf", *words, *extra)
    assert result.returncode != 0
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert named in lines[0] and allowed in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_whole_rows_that_fitted(programs: Programs, tmp_path: Path) -> None:
    target = tmp_path / "records.jsonl"
    command = [str(programs.folder / "all_reduce_perf"), "-b", "8", "-e", "1K", "-f", "2", "--ranks", "2", "--algo", "all",
               "--json", str(target)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    result = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=limit, check=False)
    assert result.returncode != 0
    assert str(target) in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["records.partial.jsonl"]
    rows_of_a_stopped_run(tmp_path / "records.partial.jsonl")


def rows_of_a_stopped_run(path: Path) -> list[dict]:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n"), "whole lines"
    run, *rows = [json.loads(line) for line in text.splitlines()]
    assert run["record"] == "run" and rows and all(row["record"] == "row" and row["samples_us"] for row in rows)
    return rows


def test_a_killed_sweep_leaves_its_rows_under_a_name_that_says_partial(programs: Programs, tmp_path: Path) -> None:
    path = tmp_path / "r.partial.jsonl"
    command = [str(programs.folder / "all_reduce_perf"), "-b", "8", "-e", "16M", "-f", "2", "-n", "200", "--ranks", "2",
               "--json", str(tmp_path / "r.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (not path.exists() or path.read_bytes().count(b"\n") < 3):
            time.sleep(0.01)
        running.kill()
    assert not (tmp_path / "r.jsonl").exists()
    assert len(rows_of_a_stopped_run(path)) >= 2
    page = subprocess.run([sys.executable, "-m", "reports", str(path), "--summary"], capture_output=True, text=True,
                          cwd=Path(__file__).resolve().parent.parent, timeout=60, check=False)
    assert page.returncode == 0 and "has a partial record" in page.stdout, page.stdout + page.stderr


def test_minimum_bandwidth_fails_the_run_as_in_nccl_tests(programs: Programs) -> None:
    words = ["all_reduce_perf", "-b", "64K", "-e", "64K", "--ranks", "2"]
    assert programs.run(*words, env={"NCCL_TESTS_MIN_BW": "0.000001"}).returncode == 0
    failed = programs.run(*words, env={"NCCL_TESTS_MIN_BW": "1000000"})
    assert failed.returncode == 7
    assert "FAILED" in failed.stdout


def test_the_records_of_a_suite_make_a_report(programs: Programs, tmp_path: Path) -> None:
    suite = tmp_path / "small.suite"
    suite.write_text("# name weight command\n"
                     "shift 1 sendrecv_perf --ranks 2 -b 64 -e 1M -f 4 -n 5 --algo direct\n"
                     "sums  2 all_reduce_perf --ranks 2 -b 64 -e 1M -f 16 -n 5 --explain --algo ring,tree\n")
    programs.output("suite", "--suite", str(suite), "--out", str(tmp_path / "records"), "--time-budget", "3")
    records = sorted(str(path) for path in (tmp_path / "records").glob("*.jsonl"))
    assert len(records) == 2
    made = subprocess.run(["/usr/bin/python3", "-m", "reports", *records, "-o", str(tmp_path / "report")], cwd=ROOT,
                          capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr
    page = (tmp_path / "report" / "index.html").read_text()
    assert "ring" in page and "alpha" in page


def test_tune_writes_a_table_that_auto_follows(programs: Programs, tmp_path: Path) -> None:
    table = tmp_path / "tuning.json"
    programs.output("tune", "--collectives", "all_reduce", "--ranks", "2", "-b", "1K", "-e", "1K", "--time-budget", "2",
                    "--output", str(table))
    (entry,) = json.loads(table.read_text())["entries"]
    swept = programs.run("all_reduce_perf", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "2", "--algo", "auto",
                         env={"LOCKSTEP_TUNING": str(table)})
    assert entry["algorithm"] in swept.stdout and "measured table" in swept.stdout


# The *_perf programs on described machines: --transport simulated.

SIMULATED = ("--transport", "simulated", "--machine", "dgx-h100")
SIZES = ("-b", "1K", "-e", "16M", "-f", "16")


@pytest.mark.parametrize("program", [name for name in ALL_PROGRAMS if name != "alltoallv_perf"])
def test_every_algorithm_of_every_collective_is_simulated_and_says_so(programs: Programs, tmp_path: Path,
                                                                      program: str) -> None:
    file = tmp_path / "r.jsonl"
    printed = programs.output(program, *SIMULATED, "--ranks", "8,16", *SIZES, "--algo", "all", "--json", str(file))
    assert printed.count("# SIMULATED: ") == 2
    lines = records_of(file)
    runs, rows = ([line for line in lines if line["record"] == kind] for kind in ("run", "row"))
    assert {run["simulated_machine"] for run in runs} == {"dgx-h100"}
    assert {run["rank_kind"] for run in runs} == {"simulated"}
    assert {(row["basis"], row["executor"], row["transport"], row["wrong"]) for row in rows} == {
        ("simulated", "simulated", "simulated", None)}
    assert {row["ranks"] for row in rows} == {8, 16}
    for row in rows:
        assert row["time_us"] >= 3, row  # at least one kernel launch


def test_a_simulated_row_is_explained_by_its_plan(programs: Programs) -> None:
    words = ("all_reduce_perf", "--ranks", "8", "-b", "1M", "-e", "1M", "--algo", "ring,double_tree", "--explain")
    simulated, run = (programs.run(*words, *more) for more in (SIMULATED, ("-n", "1", "-w", "0")))
    assert simulated.returncode == run.returncode == 0, simulated.stderr
    assert "predict, m/p: N/A" in simulated.stdout
    explained = [[line.split()[-6:] for line in done.stdout.splitlines() if not line.startswith("#")] for done in (simulated, run)]
    for of_plan, measured in zip(*explained, strict=True):
        assert of_plan[:3] == measured[:3] and of_plan[3:] == ["N/A"] * 3  # algorithm, steps and wire bytes; nothing is predicted again


def test_a_placement_that_a_collective_lacks_is_not_available(programs: Programs, tmp_path: Path) -> None:
    printed = programs.output("alltoallv_perf", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "2", "-I", "1", "--stats")
    row = next(line for line in printed.splitlines() if not line.startswith("#")).split()
    assert row[13:21] == ["N/A"] * 8 and row[-3:] == ["N/A"] * 3, row
    (tmp_path / "t.txt").write_text(printed)
    done = subprocess.run([sys.executable, "-m", "reports", str(tmp_path / "t.txt"), "--summary"], capture_output=True, text=True,
                          timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_sweep_repeats_exactly(programs: Programs) -> None:
    words = ("all_reduce_perf", *SIMULATED, "--ranks", "64", *SIZES, "--algo", "ring,double_tree,hierarchical")
    assert programs.run(*words).stdout == programs.run(*words).stdout


def test_groups_of_hierarchical_are_nodes_unless_the_user_says_otherwise(programs: Programs) -> None:
    words = ("all_reduce_perf", *SIMULATED, "-b", "1G", "-e", "1G")
    table = programs.run(*words, "--ranks", "64,12", "--algo", "hierarchical,hierarchical:group=4").stdout
    assert table.count("hierarchical:group=8") == 1  # 12 ranks are not whole nodes
    assert table.count("hierarchical:group=4") == 2


def test_a_users_own_plan_is_simulated(programs: Programs, tmp_path: Path) -> None:
    words = ("all_reduce_perf", "--ranks", "8")
    printed = programs.run(*words, "--algo", "ring", "--print-plan").stdout
    file = tmp_path / "mine.plan"
    file.write_text(printed, encoding="utf-8")
    printed = programs.output(*words, *SIMULATED, *SIZES, "--plan", str(file), "--algo", "ring")
    times = [line.split()[5] for line in printed.splitlines() if not line.startswith("#")]
    assert times[0::2] == times[1::2] and len(times) == 8


@pytest.mark.parametrize(("words", "why"), [
    (("--transport", "simulated"), "--transport simulated needs --machine"),
    (("--machine", "dgx-h100"), "--machine dgx-h100: describes simulated ranks"),
    (("--ranks", "2000"), "--ranks 2000: allowed: 1 to 1024, or 4096 with --transport simulated"),
    (("--transport", "simulated,local", "--machine", "dgx-h100"), "--transport simulated together with others"),
    ((*SIMULATED, "--link", "gbps=1"), "--link with --transport simulated"),
    ((*SIMULATED, "--processes"), "--processes with --transport simulated"),
    (("--transport", "simulated", "--machine", "nope"), "machine: 'nope' is not known"),
])
def test_what_has_no_meaning_is_refused_in_a_line(programs: Programs, words: tuple[str, ...], why: str) -> None:
    assert why in programs.refusal("all_reduce_perf", *words)
