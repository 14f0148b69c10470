"""mini_train --sync as a user runs it: losses, records, lines about stragglers, refusals, ranks under mpirun."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conftest import Programs, records_of
from test_mini_train import MPIRUN, SMALL, _mpi_programs, losses_of, mini_train  # noqa: F401 (a fixture)


def training_of(programs: Programs, path: Path, *words: str) -> dict:
    mini_train(programs, "--dp", "2", "--json", str(path), *words)
    return next(line for line in records_of(path) if line["record"] == "training")


def test_summed_gradients_print_the_losses_of_the_all_reduce(programs: Programs) -> None:
    wanted = losses_of(mini_train(programs, "--dp", "2", "--gemm", "packed"))
    for way in ("root", "server:servers=2"):
        assert losses_of(mini_train(programs, "--dp", "2", "--gemm", "packed", "--sync", way)) == wanted


def test_records_say_how_replicas_agreed_and_what_they_sent(programs: Programs, tmp_path: Path) -> None:
    within = training_of(programs, tmp_path / "1.jsonl")
    average = training_of(programs, tmp_path / "2.jsonl", "--sync", "average:every=2")
    assert "sync" not in within and within["basis"] == average["basis"] == "measured"
    assert average["sync"] == {"way": "average:every=2", "every": 2}
    sent = [step["sent_bytes"] for step in average["steps"]]
    assert sent == [0, sent[1], sent[1], 2 * sent[1]], "after steps 2 and 4"
    assert sent[1] == pytest.approx(within["steps"][0]["sent_bytes"], rel=1e-3), "as much as the gradients of a step"


def test_a_straggler_is_emulated_and_predicted(programs: Programs, tmp_path: Path) -> None:
    words = ("--sync", "async:staleness=1", "--straggler", "replica=1,factor=2,step_ms=10")
    text = mini_train(programs, "--dp", "2", *words).stdout
    assert "# EMULATED straggler: replica=1,factor=2,step_ms=10; these times alone give " in text
    assert "the server on rank 2; a gradient misses " in text
    one = training_of(programs, tmp_path / "1.jsonl", *words)
    assert one["basis"] == "emulated" and one["ranks"] == 3
    assert 10 <= one["sync"]["predicted_ms"] <= 20 and one["sync"]["missed_most"] <= 3
    # Sleeps are no shorter; but a server that gets no core may start its clock late in the first step.
    assert sum(step["ms"] for step in one["steps"]) >= 3 * one["sync"]["predicted_ms"]


@pytest.mark.parametrize(("words", "text"), [
    (["--dp", "2", "--sync", "ring"], "--sync ring"), (["--dp", "2", "--sync", "average:every=0"], "every=0"),
    (["--sync", "root"], "--dp 2 or more"), (["--dp", "2", "--sync", "root", "--zero", "1"], "--zero 0"),
    (["--dp", "2", "--sync", "server:servers=3"], "servers=1 to --dp"),
    (["--dp", "2", "--tp", "2", "--sync", "async"], "--tp 1"), (["--dp", "2", "--straggler", "replica=0,factor=2"], "--sync"),
    (["--dp", "2", "--sync", "root", "--straggler", "replica=2,factor=2"], "replica=0 to 1"),
    (["--dp", "2", "--sync", "root", "--predict", "one-switch"], "--predict"),
])
def test_refusals_of_sync_are_one_line(programs: Programs, words: list[str], text: str) -> None:
    done = programs.run("mini_train", *SMALL, *words)
    assert done.returncode == 6 and len(done.stderr.splitlines()) == 1 and text in done.stderr, done.stderr


@pytest.mark.parametrize(("ranks", "way"), [(2, "diloco:every=2"), (3, "async:staleness=1")])
def test_ranks_of_mpirun_print_the_losses_of_threads(mpi_programs: Programs, ranks: int, way: str) -> None:
    words = ("--dp", "2", "--gemm", "packed", "--sync", way)
    done = subprocess.run([*MPIRUN, "-n", str(ranks), str(mpi_programs.folder / "mini_train"), "--transport", "mpi", *SMALL,
                           *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert losses_of(done) == losses_of(mini_train(mpi_programs, *words))
