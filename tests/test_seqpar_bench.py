"""seqpar_bench as a user runs it: rows that equal one rank's, bytes of the lists, emulated links, records, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Programs
from reports.load import load

SMALL_LAYER = ("--turns", "1", "--length", "96", "--heads", "4", "--head-columns", "8")
WAY, CP, LENGTH = range(3)


def seqpar_rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def seqpar_run(programs: Programs, *words: str) -> list[list[str]]:
    done = programs.run("seqpar_bench", *SMALL_LAYER, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one rank's results" in done.stdout.splitlines()[-1]
    return seqpar_rows(done.stdout)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("causal", ["1", "0"])
def test_every_way_gives_one_ranks_results(programs: Programs, dtype: str, causal: str) -> None:
    rows = seqpar_run(programs, "--cp", "2,4", "--dtype", dtype, "--causal", causal, "--batch", "2")
    ways = ["ring", "zigzag", "allgather", "ulysses", "lightseq" if causal == "1" else "colossal"]
    assert [row[WAY] for row in rows] == ways * 2
    assert [row[CP] for row in rows] == ["2"] * 5 + ["4"] * 5


def test_ulysses_sends_a_share_of_what_a_ring_sends(programs: Programs, tmp_path: Path) -> None:
    seqpar_run(programs, "--cp", "4", "--json", str(tmp_path / "c.jsonl"))
    one = {line.way: line for line in load([str(tmp_path / "c.jsonl")]).contexts}
    whole = 96 * 32 * 4  # N h elements of f32
    assert one["ring"].sent_bytes["forward"] == 2 * whole * 3 / 4
    assert one["ring"].sent_bytes["backward"] == 4 * whole * 3 / 4
    assert one["ulysses"].sent_bytes["forward"] == 4 * whole / 4 * 3 / 4
    assert one["ring"].load == 1.75 and one["zigzag"].load == 1
    assert all(line.sent_bytes == line.listed_bytes and line.difference <= 1e-5 for line in one.values())


def test_emulated_links_are_said_to_be_and_simulated(programs: Programs, tmp_path: Path) -> None:
    file = str(tmp_path / "c.jsonl")
    done = programs.run("seqpar_bench", *SMALL_LAYER, "--way", "ring,ulysses", "--link", "latency_us=200,gbps=1", "--json", file)
    assert done.returncode == 0, done.stderr
    assert "EMULATED" in done.stdout
    forward_comm = 4
    assert all(float(row[forward_comm]) >= 0.2 for row in seqpar_rows(done.stdout))
    ring, ulysses = load([file]).contexts
    assert 0 <= ring.simulated_exposed_us["forward"] <= ring.simulated_exposed_us["backward"]
    assert min(ulysses.simulated_exposed_us.values()) >= 600, "three all-to-alls, and nothing to hide them behind"


@pytest.mark.parametrize(("words", "told"), [
    (("--way", "ring", "--cp", "5"), "cp is 5, and sequence is 96"),
    (("--way", "zigzag", "--cp", "32"), "2 x cp (cp_way=zigzag) is 64, and sequence is 96"),
    (("--way", "ulysses", "--cp", "8"), "heads / tp is 4; allowed: 1 2 4"),
    (("--way", "lightseq", "--causal", "0"), "balances a causal mask"),
    (("--way", "colossal"), "allowed: --causal 0"),
    (("--way", "star"), "not a form of context parallelism"),
])
def test_impossible_sequences_are_refused_in_one_line(programs: Programs, words: tuple[str, ...], told: str) -> None:
    done = programs.run("seqpar_bench", *SMALL_LAYER, *words)
    assert done.returncode == 6 and done.stdout == ""
    assert told in done.stderr and done.stderr.count("\n") == 1


def test_more_ranks_train_longer_sequences(programs: Programs) -> None:
    done = programs.run("seqpar_bench", *SMALL_LAYER, "--way", "ring,zigzag", "--cp", "2,4", "--fit", "gpt3-1.3b,dropout=no",
                        "--fit-layout", "dtype=bf16,zero=1", "--fit-gb", "40")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if "longest sequence" in line)
    told = [line.split()[1:] for line in lines[first + 2:]]
    tokens = {(way, int(ranks)): int(length) for way, ranks, length, _ in told}
    assert tokens["-", 1] > 0
    for way in ("ring", "zigzag"):
        assert tokens["-", 1] < tokens[way, 2] < tokens[way, 4]
