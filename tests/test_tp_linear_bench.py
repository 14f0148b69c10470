"""tp_linear_bench and seqpar_bench as a user runs them: rows that equal one rank's, bytes by formula, emulated links, records, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Programs

from reports.analysis.training.layers import load_of
from reports.load import load


SMALL = ("--rounds", "1", "--warmup", "1", "--hidden", "32", "--heads", "4", "--batch", "2", "--length", "16")
LAYER, TP, SP, TILES = range(4)
SENT, FORMULA, WRONG, UNLIKE = range(18, 22)
ROWS, HIDDEN = 32, 32


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def rows_run(programs: Programs, *words: str) -> list[list[str]]:
    done = programs.run("tp_linear_bench", *SMALL, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("# 0 of ")
    return rows_of(done.stdout)


def transfers(layer: str, sequence_parallel: bool) -> int:
    """Bytes per rank, forward and backward: b s h (t-1)/t elements each; an all-reduce counts twice."""
    again = 1 if sequence_parallel and layer in ("column", "mlp", "attention") else 0
    return {"column": 2, "row": 2, "embedding": 2, "mlp": 4, "attention": 4}[layer] + again


@pytest.mark.parametrize(("dtype", "size"), [("f32", 4), ("bf16", 2)])
def test_every_layer_is_right_and_sends_by_formula(programs: Programs, dtype: str, size: int) -> None:
    rows = rows_run(programs, "--tp", "2,4", "--dtype", dtype, "--tiles", "1,2,4", "--vocabulary", "61")
    assert len(rows) == 2 * (5 * 2 * 3 + 1)  # ranks x (layers x sequence parallel x tiles + cross-entropy)
    for row in rows:
        t = int(row[TP])
        assert row[WRONG] == "0", row
        assert row[SENT] == row[FORMULA], row
        if row[LAYER] == "cross-entropy":
            assert int(row[SENT]) == 3 * 4 * ROWS * (t - 1), row
        else:
            assert int(row[SENT]) == transfers(row[LAYER], row[SP] == "1") * ROWS * HIDDEN * size * (t - 1) / t, row


def test_tiles_have_the_bits_of_one_where_sums_have_their_order(programs: Programs) -> None:
    of_two = rows_run(programs, "--tp", "2", "--tiles", "4", "--sequence-parallel", "0")
    shares_of_rows = rows_run(programs, "--tp", "4", "--tiles", "4", "--sequence-parallel", "1", "--block", "embedding")
    assert {row[TILES] for row in of_two} == {"1", "4"} == {row[TILES] for row in shares_of_rows}
    assert all(row[UNLIKE] == "0" for row in of_two + shares_of_rows)
    # A weight's gradient is a sum over rows in the order of tiles: only it may have other bits, in each of four passes.
    (_, tiles) = rows_run(programs, "--tp", "2", "--tiles", "4", "--sequence-parallel", "1", "--block", "row")
    assert 0 < int(tiles[UNLIKE]) <= 4 * (4 * HIDDEN * HIDDEN + 2 * HIDDEN)


def test_an_indivisible_vocabulary_gives_the_loss_of_one_rank(programs: Programs) -> None:
    rows = rows_run(programs, "--tp", "2,4", "--vocabulary", "50257", "--block", "cross-entropy,embedding",
                    "--tiles", "1", "--sequence-parallel", "0")
    assert len(rows) == 4 and all(row[WRONG] == "0" for row in rows)


def test_emulated_links_are_said_to_be(programs: Programs) -> None:
    done = programs.run("tp_linear_bench", *SMALL, "--block", "row", "--link", "latency_us=50,gbps=1")
    assert done.returncode == 0, done.stderr
    assert "EMULATED" in done.stdout
    forward_comm = 6
    assert all(float(row[forward_comm]) >= 0.05 for row in rows_of(done.stdout))


def test_records_are_the_rows(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "layers.jsonl"
    rows = rows_run(programs, "--tiles", "1,2", "--vocabulary", "61", "--json", str(file))
    layers = load([str(file)]).steps_of("layer")
    assert len(layers) == len(rows) == 21
    for row, layer in zip(rows, layers):
        assert [layer.layer, str(layer.ranks), str(int(layer.sequence_parallel)), str(layer.tiles)] == row[:4]
        assert f"{layer.sent_bytes:.0f}" == row[SENT] and f"{layer.formula_bytes:.0f}" == row[FORMULA]
        assert layer.status == "ok" and layer.checked_passes == 4 and layer.sizes["vocabulary"] == 61
        for first, direction in ((TILES + 1, "forward"), (TILES + 8, "backward")):
            medians = [layer.time(direction, way).stats.median for way in ("kernels", "communication", "serial", "async")]
            assert [f"{us / 1e3:.3f}" for us in medians] == row[first + 1:first + 5]
            for way in ("serial", "async"):  # the parts of a way add up to its time
                time = layer.time(direction, way)
                assert sum(time.parts_us.values()) == pytest.approx(time.samples_us[0])
    assert all(layer.time("forward", "kernels").parts_us["products"] == 0
               for layer in layers if layer.layer in ("embedding", "cross-entropy"))


def grid_records(programs: Programs, tmp_path: Path, hidden: int, rows: int, *words: str) -> list:
    file = tmp_path / f"{rows}.jsonl"
    done = programs.run("tp_linear_bench", "--rounds", "1", "--warmup", "1", "--hidden", str(hidden), "--batch", "1", "--length",
                        str(rows), "--block", "mlp", "--sequence-parallel", "0", "--tiles", "1", "--json", str(file), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return load([str(file)]).steps


def test_grids_send_what_their_papers_say(programs: Programs, tmp_path: Path) -> None:
    """2-D crosses 1-D, forward, at M = 8 h on 4 ranks; 3-D on 8 ranks sends less than 1-D there."""
    hidden = 16
    line, one_of_8, two, three = grid_records(programs, tmp_path, hidden, 8 * hidden, "--tp", "4,8", "--grid", "2x2,2x2x2")
    assert [layer.grid for layer in (line, one_of_8, two, three)] == ["none", "none", "2x2", "2x2x2"]
    rows = 8 * hidden
    assert two.forward_sent_bytes == line.forward_sent_bytes == 4 * 1.5 * rows * hidden
    assert two.sent_bytes == 3 * two.forward_sent_bytes
    assert three.forward_sent_bytes == 4 / 8 * (10 * rows * hidden + 8 * hidden**2) < one_of_8.forward_sent_bytes
    assert all(layer.status == "ok" for layer in (line, one_of_8, two, three))


def test_an_algorithm_that_sends_more_says_so_and_is_right(programs: Programs) -> None:
    rows = rows_run(programs, "--tp", "4", "--block", "row,mlp", "--sequence-parallel", "0", "--tiles", "1,2", "--algo",
                    "recursive_doubling")
    # Recursive doubling sends the whole payload in each of log2(4) steps, a ring 2 x 3/4 of it.
    assert all(int(row[SENT]) * 3 == int(row[FORMULA]) * 4 and row[WRONG] == "0" for row in rows) and len(rows) == 4
    rows_run(programs, "--tp", "2,4", "--algo", "auto")


@pytest.mark.parametrize(("words", "refusal"), [
    (("--heads", "6", "--hidden", "24", "--tp", "4"), "--block attention --tp 4: tp is 4, and heads is 6; allowed: 1 2 3 6"),
    (("--heads", "5"), "--heads 5: does not divide --hidden 32; allowed: 1 2 4 8 16 32"),
    (("--tiles", "3"), "--tiles 3: does not divide the 32 rows (--batch 2 x --length 16); allowed: 1 2 4 8 16 32"),
    (("--tiles", "32"), "--tiles 32: does not divide the 16 rows (--batch 2 x --length 16) of a share of 2 "
                        "sequence-parallel ranks; allowed: 1 2 4 8 16"),
    (("--tp", "1"), "--tp 1: out of range; allowed: an integer from 2 to 64"),
    (("--block", "conv"), "--block conv: not a layer; allowed: all column row mlp attention embedding cross-entropy"),
    (("--dtype", "f16"), "--dtype f16: not a dtype of layers here; allowed: f32 bf16"),
    (("--algo", "one_shot"), "--algo: all_gather has no algorithm 'one_shot'; allowed: ring recursive_doubling bruck pat "
                             "direct"),
    (("--hidden", "65536", "--batch", "4096", "--length", "4096", "--block", "mlp"),
     "--block mlp on 2 ranks needs about "),
    (("--link", "gbps=0"), "--link gbps=0: out of range; allowed: a number from 1e-06 to 1e+06"),
    (("--json", "/nonexistent/r.jsonl"), "cannot write /nonexistent/r.jsonl: "),
    (("--grid", "2x3"), "--grid 2x3: not a grid; allowed: QxQ for 2-D, QxQxQ for 3-D, 2.5d:QxQxD with D at most "
                        "Q; Q from 2 to 8"),
    (("--grid", "3x3"), "--grid 3x3: --batch x --length is 32, and blocks need a multiple of 3; allowed: another --grid or size"),
    (("--grid", "2x2", "--block", "attention"), "--grid together with --block attention: grids do not support it; allowed: "
                                                "column row mlp"),
    (("--wat",), "unknown argument '--wat'; allowed: what --help lists"),
])
def test_what_cannot_be_is_refused_in_one_line(programs: Programs, words: tuple[str, ...], refusal: str) -> None:
    done = programs.run("tp_linear_bench", *SMALL, *words)
    assert done.returncode == 6
    assert done.stdout == ""
    assert done.stderr.startswith(f"tp_linear_bench: {refusal}") and done.stderr.count("\n") == 1


def test_a_suite_takes_it(programs: Programs, tmp_path: Path) -> None:
    suite = tmp_path / "suite.txt"
    suite.write_text("layers 1 tp_linear_bench " + " ".join(SMALL) + " --block row,embedding --tiles 2\n", encoding="utf-8")
    done = programs.run("suite", "--suite", str(suite), "--out", str(tmp_path / "records"), "--time-budget", "1")
    assert done.returncode == 0, done.stderr
    assert len(load([str(tmp_path / "records" / "layers.jsonl")]).steps) == 8


# ---- seqpar_bench

SMALL_LAYER = ("--rounds", "1", "--length", "96", "--heads", "4", "--head-columns", "8")
WAY, CP = range(2)


def seqpar_run(programs: Programs, *words: str) -> list[list[str]]:
    done = programs.run("seqpar_bench", *SMALL_LAYER, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one rank's results" in done.stdout.splitlines()[-1]
    return rows_of(done.stdout)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("causal", ["1", "0"])
def test_every_way_gives_one_ranks_results(programs: Programs, dtype: str, causal: str) -> None:
    rows = seqpar_run(programs, "--cp", "2,4", "--dtype", dtype, "--causal", causal, "--batch", "2")
    ways = ["ring", "zigzag", "allgather", "ulysses", *(["lightseq"] if causal == "1" else []), "colossal"]
    assert [row[WAY] for row in rows] == ways * 2
    assert [row[CP] for row in rows] == ["2"] * len(ways) + ["4"] * len(ways)


def test_ulysses_sends_a_share_of_what_a_ring_sends(programs: Programs, tmp_path: Path) -> None:
    seqpar_run(programs, "--cp", "4", "--json", str(tmp_path / "c.jsonl"))
    by_way = {line.way: line for line in load([str(tmp_path / "c.jsonl")]).steps}
    whole = 96 * 32 * 4  # N h elements of f32
    assert by_way["ring"].sent_bytes["forward"] == 2 * whole * 3 / 4
    assert by_way["ring"].sent_bytes["backward"] == 4 * whole * 3 / 4
    assert by_way["ulysses"].sent_bytes["forward"] == 4 * whole / 4 * 3 / 4
    assert load_of(by_way["ring"]) == 1.75 and load_of(by_way["zigzag"]) == 1
    assert all(line.sent_bytes == line.formula_bytes and line.difference <= 1e-5 for line in by_way.values())


def test_emulated_links_are_said_to_be_and_simulated(programs: Programs, tmp_path: Path) -> None:
    file = str(tmp_path / "c.jsonl")
    done = programs.run("seqpar_bench", *SMALL_LAYER, "--way", "ring,ulysses", "--link", "latency_us=200,gbps=1", "--json", file)
    assert done.returncode == 0, done.stderr
    assert "EMULATED" in done.stdout
    forward_comm = 4
    assert all(float(row[forward_comm]) >= 0.2 for row in rows_of(done.stdout))
    ring, ulysses = load([file]).steps
    assert 0 <= ring.simulated_exposed_us["forward"] <= ring.simulated_exposed_us["backward"]
    assert min(ulysses.simulated_exposed_us.values()) >= 600, "three all-to-alls, and nothing to hide them behind"


@pytest.mark.parametrize(("words", "expected"), [
    (("--way", "ring", "--cp", "5"), "cp is 5, and sequence is 96"),
    (("--way", "zigzag", "--cp", "32"), "2 x cp (cp_way=zigzag) is 64, and sequence is 96"),
    (("--way", "ulysses", "--cp", "8"), "heads / tp is 4; allowed: 1 2 4"),
    (("--way", "lightseq", "--causal", "0"), "balances a causal mask"),
    (("--way", "star"), "not known"),
])
def test_impossible_sequences_are_refused_in_one_line(programs: Programs, words: tuple[str, ...], expected: str) -> None:
    done = programs.run("seqpar_bench", *SMALL_LAYER, *words)
    assert done.returncode == 6 and done.stdout == ""
    assert expected in done.stderr and done.stderr.count("\n") == 1


def test_more_ranks_train_longer_sequences(programs: Programs) -> None:
    done = programs.run("seqpar_bench", *SMALL_LAYER, "--way", "ring,zigzag", "--cp", "2,4", "--fit", "gpt3-1.3b,dropout=no",
                        "--fit-layout", "dtype=bf16,zero=1", "--fit-gb", "40")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if "longest sequence" in line)
    rows = [line.split()[1:] for line in lines[first + 2:]]
    tokens = {(way, int(ranks)): int(length) for way, ranks, length, _ in rows}
    assert tokens["-", 1] > 0
    for way in ("ring", "zigzag"):
        assert tokens["-", 1] < tokens[way, 2] < tokens[way, 4]
