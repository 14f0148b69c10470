"""The *_perf programs on described machines: --transport simulated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Programs
from test_sweeps import ALL_PROGRAMS

SIMULATED = ("--transport", "simulated", "--machine", "dgx-h100")
SIZES = ("-b", "1K", "-e", "16M", "-f", "16")


def records(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("program", [name for name in ALL_PROGRAMS if name != "alltoallv_perf"])
def test_every_algorithm_of_every_collective_is_simulated_and_says_so(programs: Programs, tmp_path: Path,
                                                                      program: str) -> None:
    file = tmp_path / "r.jsonl"
    done = programs.run(program, *SIMULATED, "--ranks", "8,16", *SIZES, "--algo", "all", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("# SIMULATED: ") == 2
    lines = records(file)
    runs, rows = ([line for line in lines if line["record"] == kind] for kind in ("run", "row"))
    assert {run["simulated_machine"] for run in runs} == {"dgx-h100"}
    assert {run["rank_kind"] for run in runs} == {"simulated"}
    assert {(row["basis"], row["executor"], row["transport"], row["wrong"]) for row in rows} == {
        ("simulated", "simulated", "simulated", None)}
    assert {row["ranks"] for row in rows} == {8, 16}
    for row in rows:
        assert row["time_us"] >= 3, row  # at least one kernel launch


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
    done = programs.run(*words, *SIMULATED, *SIZES, "--plan", str(file), "--algo", "ring")
    assert done.returncode == 0, done.stderr
    times = [line.split()[5] for line in done.stdout.splitlines() if not line.startswith("#")]
    assert times[0::2] == times[1::2] and len(times) == 8


@pytest.mark.parametrize(("words", "why"), [
    (("--transport", "simulated"), "--transport simulated needs --machine"),
    (("--machine", "dgx-h100"), "--machine dgx-h100: describes simulated ranks"),
    (("--ranks", "2000"), "--ranks 2000: allowed: 1 to 1024, or 4096 with --transport simulated"),
    (("--transport", "simulated,local", "--machine", "dgx-h100"), "--transport simulated together with others"),
    ((*SIMULATED, "--explain"), "--explain with --transport simulated"),
    ((*SIMULATED, "--link", "gbps=1"), "--link with --transport simulated"),
    ((*SIMULATED, "--processes"), "--processes with --transport simulated"),
    (("--transport", "simulated", "--machine", "nope"), "machine: 'nope' is not known"),
])
def test_what_has_no_meaning_is_refused_in_a_line(programs: Programs, words: tuple[str, ...], why: str) -> None:
    done = programs.run("all_reduce_perf", *words)
    assert done.returncode == 6 and why in done.stderr and len(done.stderr.splitlines()) == 1
