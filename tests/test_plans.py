"""Plans in and out of the *_perf programs: --print-plan and --draw show what would run, --plan runs the user's own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from conftest import Programs
from test_mini_train import MPIRUN
from test_sweeps import ALL_PROGRAMS

USAGE = 6


def printed_plans(programs: Programs, *words: str) -> list[str]:
    done = programs.run(*words, "--print-plan")
    assert done.returncode == 0, done.stderr
    return re.split(r"\n(?=plan )", done.stdout)


def files_of(folder: Path, plans: list[str]) -> str:
    files = [folder / f"{i}.plan" for i in range(len(plans))]
    for file, plan in zip(files, plans):
        file.write_text(plan, encoding="utf-8")
    return ",".join(map(str, files))


def records(file: Path, kind: str = "row") -> list[dict]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["record"] == kind]


# A hypercube needs a power of two of ranks.
@pytest.mark.parametrize(("program", "ranks"), [(program, ranks) for program in ALL_PROGRAMS for ranks in ("3", "4")
                                                if (program, ranks) != ("hypercube_perf", "3")])
def test_a_printed_plan_of_every_algorithm_comes_back_and_gives_the_same(programs: Programs, tmp_path: Path,
                                                                         program: str, ranks: str) -> None:
    words = [program, "--ranks", ranks, "-b", "512K", "-e", "512K", "--algo", "all"]
    plans = printed_plans(programs, *words)
    names = [plan.split()[2] for plan in plans]
    done = programs.run(*words, "-n", "2", "--plan", files_of(tmp_path, plans), "--json", str(tmp_path / "r.jsonl"))
    assert done.returncode == 0, done.stderr
    rows = {(row["algorithm"], row["in_place"]): row for row in records(tmp_path / "r.jsonl")}
    placements = [False] if program == "alltoallv_perf" else [False, True]
    assert set(rows) == {(prefix + name, in_place) for name in names for prefix in ("", "plan:") for in_place in placements}
    for name in names:
        for in_place in placements:
            ours, own = rows[name, in_place], rows["plan:" + name, in_place]
            assert own["wrong"] == ours["wrong"] == 0
            assert own["plan"] == ours["plan"] and own["executor"] == ours["executor"] and own["bytes"] == ours["bytes"]
    again = programs.run(program, "--plan", str(tmp_path / "0.plan"), "--print-plan").stdout
    assert again == plans[0].rstrip("\n").replace(names[0], "plan:" + names[0], 1) + "\n"


def test_a_plan_with_one_mistake_is_refused_where_it_is(programs: Programs, tmp_path: Path) -> None:
    (good,) = printed_plans(programs, "all_reduce_perf", "--ranks", "3", "-b", "4K", "-e", "4K", "--algo", "ring")
    lines = good.splitlines()
    file = tmp_path / "mine.plan"
    mistakes: list[list[str]] = []
    for i, line in enumerate(lines):
        if not line.startswith("  "):
            continue
        mistakes.append(lines[:i] + lines[i + 1:])
        mistakes.append(lines[:i] + [re.sub(r"\[(\d)\]", lambda m: f"[{(int(m[1]) + 1) % 3}]", line, count=1)] + lines[i + 1:])
        mistakes.append(lines[:i] + [line.replace("recv_reduce", "recv").split(" + ")[0]] + lines[i + 1:])
    refused = 0
    for mistake in mistakes:
        if mistake == lines:
            continue
        file.write_text("\n".join(mistake) + "\n", encoding="utf-8")
        done = programs.run("all_reduce_perf", "--plan", str(file), "-b", "4K", "-e", "4K")
        assert done.returncode == USAGE, (mistake, done.stdout)
        (complaint,) = done.stderr.splitlines()
        said = re.match(rf"all_reduce_perf: {re.escape(str(file))}(?::(\d+))?: rank \d+(?: lane \d+ step \d+: ([^:]*))?: ",
                        complaint)
        assert said, complaint
        assert said[2] is None or mistake[int(said[1]) - 1].strip() == said[2]
        refused += 1
    assert refused > 20


def test_refusals_name_the_file_and_what_is_allowed(programs: Programs, tmp_path: Path) -> None:
    def complaint(text: str, *words: str) -> str:
        (tmp_path / "a.plan").write_text(text, encoding="utf-8")
        done = programs.run(*words, "--plan", str(tmp_path / "a.plan"))
        assert done.returncode == USAGE and len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr.replace(str(tmp_path) + "/", "").strip()

    gather = printed_plans(programs, "gather_perf", "--ranks", "2", "-r", "1", "-b", "1K", "-e", "1K")[0]
    assert complaint(gather, "all_reduce_perf") == (
        "all_reduce_perf: a.plan: is a plan of gather; allowed: all_reduce, which all_reduce_perf measures")
    assert complaint(gather, "gather_perf", "-r", "1", "--ranks", "4").endswith(
        "is for 2 ranks, and there are 4; allowed: --ranks 2")
    assert complaint(gather, "gather_perf").endswith("has the root 1, and -r,--root asks for 0; allowed: -r 1")
    assert complaint("plan gather x ranks=2 root=0 chunks=1 scratch=0\nrank 0 lane 0\n  shout input[0] -> 1\n",
                     "gather_perf").startswith("gather_perf: a.plan:3:3: found 'shout'; allowed: ")
    assert complaint(gather, "gather_perf", "-r", "1", "--print-plan", "--json", "x").endswith("allowed: one of the two")
    missing = programs.run("gather_perf", "--plan", str(tmp_path))
    assert missing.returncode == USAGE and missing.stderr.endswith("cannot be read; allowed: a file with a plan, as text or MSCCL XML\n")
    twice = programs.run("gather_perf", "-r", "1", "--plan", f"{tmp_path / 'a.plan'},{tmp_path / 'a.plan'}")
    assert twice.returncode == USAGE and "allowed: another name" in twice.stderr


def test_plans_are_drawn(programs: Programs) -> None:
    drawing = ["all_reduce ring, 3 ranks, 3 chunks per block: 4 rounds", "rank  1     2     3    4",
               "   0  2+>1  1+>1  0>1  2>1", "   1  0+>2  2+>2  1>2  0>2", "   2  1+>0  0+>0  2>0  1>0"]
    words = ["all_reduce_perf", "--ranks", "3", "-b", "1K", "-e", "4K", "-f", "2", "--algo", "ring", "--draw"]
    assert programs.run(*words).stdout.splitlines() == drawing
    both = programs.run(*words, "--print-plan").stdout
    assert both.startswith("plan all_reduce ring ranks=3 ") and both.endswith("\n".join("# " + d for d in drawing) + "\n")


# Both ranks send three chunks before they receive any: more than a channel of one message holds, and every executor can
# run it.
EAGER = """
plan all_reduce eager ranks=2 root=0 chunks=6 scratch=0   # comments are free
rank 0 lane 0
  copy output[0..2] <- input[0..2]
  send input[3] -> 1
  send input[4] -> 1
  send input[5] -> 1
  recv_reduce output[0] <- 1 + output[0]
  recv_reduce output[1] <- 1 + output[1]
  recv_reduce output[2] <- 1 + output[2]
  send output[0..2] -> 1
  recv output[3..5] <- 1
rank 1 lane 0
  copy output[3..5] <- input[3..5]
  send input[0] -> 0
  send input[1] -> 0
  send input[2] -> 0
  recv_reduce output[3] <- 0 + output[3]
  recv_reduce output[4] <- 0 + output[4]
  recv_reduce output[5] <- 0 + output[5]
  send output[3..5] -> 0
  recv output[0..2] <- 0
"""


@pytest.mark.parametrize("extra", [[], ["--processes"], ["--explain"], ["--stats", "--algo", "ring,two_shot"],
                                   ["--explain", "--link", "latency_us=20,gbps=1"]])
def test_a_plan_of_ones_own_runs_in_every_way(programs: Programs, tmp_path: Path, extra: list[str]) -> None:
    file = tmp_path / "eager.plan"
    file.write_text(EAGER, encoding="utf-8")
    done = programs.run("all_reduce_perf", "--plan", str(file), "-b", "8", "-e", "1M", "-f", "128", "-n", "3", *extra,
                        "--json", str(tmp_path / "r.jsonl"))
    assert done.returncode == 0, done.stderr
    assert "# plan:eager: the user's own plan, proved" in done.stdout
    rows = [row for row in records(tmp_path / "r.jsonl") if row["algorithm"] == "plan:eager"]
    assert len(rows) == 2 * 3 and all(row["wrong"] == 0 and row["plan"]["steps"] == 2 for row in rows)
    assert all((row["plan"]["predicted_us"] is not None) == ("--explain" in extra) for row in rows)


@pytest.mark.skipif(not MPIRUN[0], reason="no mpirun here")
def test_a_plan_of_ones_own_runs_over_mpi(programs: Programs, tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*MPIRUN, "-n", "2", str(programs.folder / "all_reduce_perf"), "--transport", "mpi", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    file = tmp_path / "eager.plan"
    file.write_text(EAGER, encoding="utf-8")
    done = run("--plan", str(file), "--algo", "ring", "--explain", "-b", "8", "-e", "1M", "-f", "128", "-n", "3", "--json",
               str(tmp_path / "r.jsonl"))
    if "not built in" in done.stderr:
        pytest.skip("MPI is not built in")
    assert done.returncode == 0, done.stderr
    rows = records(tmp_path / "r.jsonl")
    assert {row["algorithm"] for row in rows} == {"ring", "plan:eager"} and all(row["wrong"] == 0 for row in rows)
    file.write_text(EAGER.replace("send input[5] -> 1", "send input[4] -> 1"), encoding="utf-8")
    wrong = run("--plan", str(file))
    assert wrong.returncode == USAGE and wrong.stderr.count("eager.plan:20: rank 1 lane 0 step 6: ") == 1, wrong.stderr
    shown = run("--algo", "ring", "--print-plan", "-b", "1K", "-e", "1K")
    assert shown.stdout.startswith("plan all_reduce ring ranks=2 ") and shown.stdout.count("plan") == 1
