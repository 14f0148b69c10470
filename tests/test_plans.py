"""Plans in and out of the *_perf programs: --print-plan and --draw show what would run, --plan runs the user's own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from conftest import Programs, records_of
from test_mini_train import MPIRUN
from test_sweeps import ALL_PROGRAMS

USAGE = 6


def printed_plans(programs: Programs, *words: str) -> list[str]:
    return re.split(r"\n(?=plan )", programs.output(*words, "--print-plan"))


def files_of(folder: Path, plans: list[str]) -> str:
    files = [folder / f"{i}.plan" for i in range(len(plans))]
    for file, plan in zip(files, plans):
        file.write_text(plan, encoding="utf-8")
    return ",".join(map(str, files))


def records(file: Path, kind: str = "row") -> list[dict]:
    return [line for line in records_of(file) if line["record"] == kind]


# A hypercube needs a power of two of ranks.
@pytest.mark.parametrize(("program", "ranks"), [(program, ranks) for program in ALL_PROGRAMS for ranks in ("3", "4")
                                                if (program, ranks) != ("hypercube_perf", "3")])
def test_a_printed_plan_of_every_algorithm_comes_back_and_gives_the_same(programs: Programs, tmp_path: Path,
                                                                         program: str, ranks: str) -> None:
    words = [program, "--ranks", ranks, "-b", "512K", "-e", "512K", "--algo", "all"]
    plans = printed_plans(programs, *words)
    names = [plan.split()[2] for plan in plans]
    programs.output(*words, "-n", "2", "--plan", files_of(tmp_path, plans), "--json", str(tmp_path / "r.jsonl"))
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
        complaint = programs.refusal("all_reduce_perf", "--plan", str(file), "-b", "4K", "-e", "4K")
        match = re.match(rf"all_reduce_perf: {re.escape(str(file))}(?::(\d+))?: rank \d+(?: lane \d+ step \d+: ([^:]*))?: ",
                        complaint)
        assert match, complaint
        assert match[2] is None or mistake[int(match[1]) - 1].strip() == match[2]
        refused += 1
    assert refused > 20


def test_refusals_name_the_file_and_what_is_allowed(programs: Programs, tmp_path: Path) -> None:
    def complaint(text: str, *words: str) -> str:
        (tmp_path / "a.plan").write_text(text, encoding="utf-8")
        return programs.refusal(*words, "--plan", str(tmp_path / "a.plan")).replace(str(tmp_path) + "/", "")

    gather = printed_plans(programs, "gather_perf", "--ranks", "2", "-r", "1", "-b", "1K", "-e", "1K")[0]
    assert complaint(gather, "all_reduce_perf") == (
        "all_reduce_perf: a.plan: is a plan of gather; allowed: all_reduce, which all_reduce_perf measures")
    assert complaint(gather, "gather_perf", "-r", "1", "--ranks", "4").endswith(
        "is for 2 ranks, and there are 4; allowed: --ranks 2")
    assert complaint(gather, "gather_perf").endswith("has the root 1, and -r,--root asks for 0; allowed: -r 1")
    assert complaint("plan gather x ranks=2 root=0 chunks=1 scratch=0\nrank 0 lane 0\n  shout input[0] -> 1\n",
                     "gather_perf").startswith("gather_perf: a.plan:3:3: found 'shout'; allowed: ")
    assert complaint(gather, "gather_perf", "-r", "1", "--print-plan", "--json", "x").endswith("allowed: one of the two")
    assert programs.refusal("gather_perf", "--plan", str(tmp_path)).endswith(
        "cannot be read: Is a directory; allowed: a file with a plan, as text or MSCCL XML")
    assert "allowed: another name" in programs.refusal("gather_perf", "-r", "1", "--plan", f"{tmp_path / 'a.plan'},{tmp_path / 'a.plan'}")


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
    printed = programs.output("all_reduce_perf", "--plan", str(file), "-b", "8", "-e", "1M", "-f", "128", "-n", "3", *extra,
                              "--json", str(tmp_path / "r.jsonl"))
    assert "# plan:eager: the user's own plan, proved" in printed
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


def step(index: int, kind: str, src: str, dst: str, count: int = 1, after: tuple[int, int] = (-1, -1)) -> str:
    return (f'<step s="{index}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" dstoff="{dst[1:]}" cnt="{count}" '
            f'depid="{after[0]}" deps="{after[1]}" hasdep="1"/>\n')


def hierarchical_all_reduce(channels: int) -> str:
    """All-reduce of 2 hosts of 2 ranks as MSCCL XML: halves are summed within a host, then across, then come back. In place, and with
    thread blocks of several channels that wait for each other (depid, nop); each channel has its part of the data."""
    text = (f'<algo name="two step" proto="LL" nchannels="{2 * channels}" nchunksperloop="{2 * channels}" ngpus="4" coll="allreduce" '
            'inplace="1" outofplace="0" minBytes="0" maxBytes="0">\n')
    for rank in range(4):
        neighbour, across, half = rank ^ 1, rank ^ 2, rank % 2
        text += f'<gpu id="{rank}" i_chunks="{2 * channels}" o_chunks="0" s_chunks="{channels}">\n'
        for c in range(channels):
            mine, other, slot, first = f"i{2 * c + half}", f"i{2 * c + 1 - half}", f"s{c}", 2 * c
            text += f'<tb id="{first}" send="{neighbour}" recv="{neighbour}" chan="{2 * c}">\n'
            text += step(0, "s", other, other) + step(1, "rrc", mine, mine)
            text += step(2, "nop", "i-1", "o-1", 0, (first + 1, 0)) + step(3, "s", mine, mine, 1, (first + 1, 2))
            text += step(4, "r", other, other) + "</tb>\n"
            text += f'<tb id="{first + 1}" send="{across}" recv="{across}" chan="{2 * c + 1}">\n'
            text += step(0, "s", mine, slot, 1, (first, 1)) + step(1, "r", mine, slot) + step(2, "re", slot, mine) + "</tb>\n"
        text += "</gpu>\n"
    return text + "</algo>\n"


@pytest.mark.parametrize("extra", [[], ["--processes"], ["--explain"], ["--explain", "--link", "latency_us=20,gbps=1"],
                                   ["--transport", "simulated", "--machine", "dgx-h100"]])
def test_an_algorithm_as_msccl_xml_runs_in_every_way(programs: Programs, tmp_path: Path, extra: list[str]) -> None:
    file = tmp_path / "two.xml"
    file.write_text(hierarchical_all_reduce(2), encoding="utf-8")
    programs.output("all_reduce_perf", "--plan", str(file), "-b", "8", "-e", "1M", "-f", "128", "-n", "3", *extra,
                    "--json", str(tmp_path / "r.jsonl"))
    rows = records(tmp_path / "r.jsonl")
    assert len(rows) >= 3 and {row["algorithm"] for row in rows} == {"plan:two_step"}
    assert "simulated" in extra or all(row["wrong"] == 0 and row["plan"]["steps"] == 3 for row in rows)
    drawing = programs.run("all_reduce_perf", "--plan", str(file), "-b", "64K", "-e", "64K", "--draw").stdout
    assert drawing.startswith("all_reduce plan:two_step, 4 ranks, 4 chunks per block: 6 rounds\n")


@pytest.mark.skipif(not MPIRUN[0], reason="no mpirun here")
def test_an_algorithm_as_msccl_xml_runs_over_mpi(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "two.xml"
    file.write_text(hierarchical_all_reduce(3), encoding="utf-8")
    command = [*MPIRUN, "-n", "4", str(programs.folder / "all_reduce_perf"), "--transport", "mpi", "--plan", str(file), "-b", "8", "-e",
               "1M", "-f", "128", "-n", "3", "--json", str(tmp_path / "r.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "not built in" in done.stderr:
        pytest.skip("MPI is not built in")
    assert done.returncode == 0, done.stderr
    rows = records(tmp_path / "r.jsonl")
    assert len(rows) == 6 and all(row["wrong"] == 0 for row in rows)


@pytest.mark.parametrize("program", [name for name in ALL_PROGRAMS if name not in ("alltoallv_perf", "sendrecv_perf")])
def test_every_algorithm_is_written_as_msccl_xml_and_runs(programs: Programs, tmp_path: Path, program: str) -> None:
    words = ["--ranks", "4", "-b", "64K", "-e", "64K"]
    names = [plan.split()[2] for plan in printed_plans(programs, program, *words, "--algo", "all")]
    files = []
    for number, name in enumerate(names):
        done = programs.run(program, *words, "--algo", name, "--print-msccl")
        assert done.returncode == 0 and done.stdout.startswith("<algo "), done.stderr
        files.append(tmp_path / f"{number}.xml")
        files[-1].write_text(done.stdout, encoding="utf-8")
    reader = "all_gather_perf" if program == "hypercube_perf" else program  # which is what a hypercube does
    programs.output(reader, "-b", "64K", "-e", "64K", "-n", "2", "--plan", ",".join(map(str, files)), "--json", str(tmp_path / "r.jsonl"))
    rows = records(tmp_path / "r.jsonl")
    assert {row["algorithm"] for row in rows} == {"plan:" + name for name in names}
    assert len(rows) == 2 * len(names) and all(row["wrong"] == 0 for row in rows)


def test_msccl_xml_is_refused_with_one_line(programs: Programs, tmp_path: Path) -> None:
    def complaint(text: str, *words: str) -> str:
        (tmp_path / "a.xml").write_text(text, encoding="utf-8")
        refusal = programs.refusal("all_reduce_perf", "--plan", str(tmp_path / "a.xml"), *words)
        return refusal.replace(str(tmp_path) + "/", "").removeprefix("all_reduce_perf: ")

    good = hierarchical_all_reduce(1)
    assert complaint(good.replace('coll="allreduce"', 'coll="custom"')).startswith('a.xml:1: <algo> has coll="custom"; allowed: allreduce, ')
    assert complaint(good.replace('type="rrc"', 'type="put"', 1)) == (
        'a.xml:5: <step> has type="put"; allowed: s, r, rcs, rrc, rrs, rrcs, cpy, re, nop')
    assert complaint(good.replace('depid="0" deps="1"', 'depid="-1" deps="-1"', 1)) == (
        "a.xml:11: gpu 0 tb 1: send input[0] -> 2: reads input[0], which lane 0 step 1 writes, and no `after` orders the two (race) "
        "(in place; a lane is a tb here)")
    assert complaint(good.replace("</algo>", "")) == (
        "a.xml:58:1: Start-end tags mismatch at the end of the file; allowed: one element of XML, with attributes, elements and comments "
        "(no text, DOCTYPE, CDATA, <?)")
    assert complaint(hierarchical_all_reduce(33)) == 'a.xml:387: <tb> has chan="64"; allowed: -1 to 63'
    lanes = "".join(f"rank 0 lane {lane}\ncopy output[{lane}] <- input[{lane}]\n" for lane in range(65))
    assert complaint("plan all_reduce x ranks=1 root=0 chunks=65 scratch=0\n" + lanes) == "a.xml: has 65 lanes; allowed: up to 64"
    gather = programs.run("all_gather_perf", "--algo", "ring", "--ranks", "3", "-b", "1K", "-e", "1K", "--print-msccl").stdout
    assert complaint(gather) == "a.xml: is a plan of all_gather; allowed: all_reduce, which all_reduce_perf measures"

    several = programs.refusal("all_reduce_perf", "--algo", "all", "--ranks", "4", "--print-msccl")
    assert "plans would run, and MSCCL XML holds one; allowed: " in several
    assert programs.refusal("all_reduce_perf", "--draw", "--print-msccl").endswith("allowed: one of these flags")
    none = programs.refusal("sendrecv_perf", "--algo", "direct", "--print-msccl", "-b", "1K", "-e", "1K")
    assert "send_recv has no form in MSCCL XML; allowed: " in none
