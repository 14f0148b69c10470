"""Sweeps, and benchmarks of training steps and layers, on ranks of mpirun."""

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Programs, records_of
from test_mini_train import MPIRUN

LAYERS = ["--turns", "1", "--warmup", "1", "--hidden", "32", "--heads", "4", "--batch", "2", "--length", "16", "--tiles", "2",
          "--vocabulary", "61"]
SMALL_STEP = ["--model", "nano", "--layers", "4", "--length", "16", "--batch", "1", "--steps", "2", "--warmup", "1"]


@pytest.fixture(name="mpi_programs")
def _mpi_programs(programs: Programs) -> Programs:
    if not MPIRUN[0] or "not built in" in programs.run("ddp_overlap_bench", *SMALL_STEP, "--transport", "mpi").stderr:
        pytest.skip("MPI is not here")
    return programs


def under_mpi(programs: Programs, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*MPIRUN, "-n", "2", str(programs.folder / program), "--transport", "mpi", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def sweep(programs: Programs, processes: int, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """No transport is named: that of mpirun's ranks is meant."""
    command = [*MPIRUN, "-n", str(processes), str(programs.folder / program), "-b", "4", "-e", "16K", "-f", "64", "-n", "2", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("processes,threads,gpus,program", [(2, 2, 1, "all_reduce_perf"), (3, 1, 2, "alltoallv_perf")])
def test_ranks_of_sweeps_are_processes_times_threads_times_gpus(mpi_programs: Programs, tmp_path: Path, processes: int,
                                                                threads: int, gpus: int, program: str) -> None:
    file = tmp_path / "sweep.jsonl"
    done = sweep(mpi_programs, processes, program, "-t", str(threads), "-g", str(gpus), "--algo", "all", "-d", "int32",
                 "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    run, *rows = records_of(file)
    ranks = processes * threads * gpus
    assert (run["ranks"], run["mpi_processes"], run["gpus_a_thread"], run["rank_kind"]) == (ranks, processes, gpus, "mpi")
    assert rows and all(row["status"] == "ok" and row["wrong"] == 0 and row["ranks"] == ranks for row in rows)
    assert not any(row["algorithm"] == "library" for row in rows), "of which a process is one rank"
    assert done.stdout.count("Collective test starting") == 1
    assert f"{ranks} ranks ({processes} processes of MPI, {threads * gpus} threads in each)" in done.stdout
    places = [line.split() for line in done.stdout.splitlines() if line.startswith("#  Rank")]
    assert [int(place[2]) for place in places] == list(range(ranks))
    pids = [place[6] for place in places]
    assert len(set(pids)) == processes
    assert pids == [pid for pid in dict.fromkeys(pids) for _ in range(threads * gpus)], "ranks of a process follow each other"


@pytest.mark.parametrize("words,line", [
    (("-t", "2", "--algo", "library"), "--algo library with -t times -g of 2: a process is one rank to MPI's own collectives"),
    (("--ranks", "4"), "--ranks: under mpirun each process is one rank, and there are 2; allowed: 2, or -t for several"),
])
def test_ranks_that_cannot_be_are_refused_by_one_line(mpi_programs: Programs, words: tuple[str, ...], line: str) -> None:
    done = sweep(mpi_programs, 2, "broadcast_perf", *words)
    assert done.returncode == 6 and line in done.stderr and done.stderr.count("allowed:") == 1, done.stderr


def ddp(programs: Programs, *words: str) -> subprocess.CompletedProcess[str]:
    return under_mpi(programs, "ddp_overlap_bench", *SMALL_STEP, *words)


def rows_and_run(done: subprocess.CompletedProcess[str], file: Path) -> tuple[list[list[str]], dict]:
    """Rows of the one rank that prints, and the run of its records."""
    assert done.returncode == 0, done.stderr
    run = next(line for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()) if line["record"] == "run")
    assert run["transport"] == run["rank_kind"] == "mpi" and run["ranks"] == 2
    return [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")], run


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_shards_of_processes_hold_and_send_what_formulas_say(mpi_programs: Programs, tmp_path: Path, threads: str) -> None:
    file = tmp_path / "zero.jsonl"
    done = under_mpi(mpi_programs, "zero_bench", *SMALL_STEP, "--dtype", "f32", "--mpi-threads", threads, "--json", str(file))
    rows, _ = rows_and_run(done, file)
    assert [row[:2] for row in rows] == [["2", stage] for stage in "01233"] and all(row[-1] == "0" for row in rows)


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_layers_of_processes_are_right_and_send_by_formula(mpi_programs: Programs, tmp_path: Path, threads: str) -> None:
    file = tmp_path / "layers.jsonl"
    done = under_mpi(mpi_programs, "tp_linear_bench", *LAYERS, "--mpi-threads", threads, "--json", str(file))
    rows, _ = rows_and_run(done, file)
    assert len(rows) == 5 * 2 * 2 + 1 and all(row[18] == row[19] and row[20] == "0" for row in rows)


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_sequences_that_processes_share_are_one_ranks(mpi_programs: Programs, tmp_path: Path, threads: str) -> None:
    file = tmp_path / "sequences.jsonl"
    done = under_mpi(mpi_programs, "seqpar_bench", "--turns", "1", "--length", "96", "--heads", "4", "--head-columns", "8",
                     "--mpi-threads", threads, "--json", str(file))
    rows, _ = rows_and_run(done, file)
    assert [row[:2] for row in rows] == [[way, "2"] for way in ("ring", "zigzag", "allgather", "ulysses", "lightseq")]
    assert "5 rows give one rank's results and send what the lists say" in done.stdout


def test_stages_of_processes_run_every_schedule_that_is_asked_for(mpi_programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "stages.jsonl"
    done = under_mpi(mpi_programs, "pipeline_perf", "--mode", "real", "--layers", "1", "--hidden", "32", "--microbatches",
                     "4", "--schedule", "1f1b,zb_h1", "--repeat", "1", "--json", str(file))
    rows, _ = rows_and_run(done, file)
    assert [row[:3] for row in rows] == [["1f1b", "2", "4"], ["zb_h1", "2", "4"]]
    done = under_mpi(mpi_programs, "pipeline_perf", "--mode", "real", "--stages", "3")
    assert done.returncode == 6 and not done.stdout and "1f1b is for 3 ranks, and mpirun has started 2" in done.stderr


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_ranks_wait_a_step_and_not_for_all_that_rank_0_times_alone(mpi_programs: Programs, threads: str) -> None:
    done = under_mpi(mpi_programs, "pipeline_perf", "--mode", "real", "--layers", "1", "--hidden", "64", "--microbatches", "1",
                     "--repeat", "200", "--timeout", "1", "--mpi-threads", threads)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_buckets_between_processes_are_right_and_recorded(mpi_programs: Programs, tmp_path: Path, threads: str) -> None:
    file = tmp_path / "ddp.jsonl"
    done = ddp(mpi_programs, "--mpi-threads", threads, "--bucket-cap-mb", "0.25,0", "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
    assert [row[0].rstrip("*") for row in rows] == ["2", "2"] and all(row[-1] == "0" for row in rows)  # none wrong
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    runs = [line for line in lines if line["record"] == "run"]
    assert len(runs) == 2 and {run["transport"] for run in runs} == {run["rank_kind"] for run in runs} == {"mpi"}
    assert all(f"MPI_THREAD_{threads.upper()}" in run["libraries"]["mpi"] for run in runs)


def test_other_numbers_of_replicas_and_emulated_links_are_refused(mpi_programs: Programs) -> None:
    done = ddp(mpi_programs, "--dp", "4")
    assert done.returncode != 0 and "the layout has 4 ranks, mpirun has started 2" in done.stderr
    done = ddp(mpi_programs, "--link", "latency_us=1,gbps=1")
    assert done.returncode != 0 and "--link emulates links between local ranks" in done.stderr
