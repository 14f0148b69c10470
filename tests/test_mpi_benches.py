"""Benchmarks of training steps on ranks of mpirun."""

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Programs
from test_mini_train import MPIRUN

SMALL = ["--model", "nano", "--layers", "4", "--length", "16", "--batch", "1", "--steps", "2", "--warmup", "1"]


@pytest.fixture(name="mpi_programs")
def _mpi_programs(programs: Programs) -> Programs:
    if not MPIRUN[0] or "not built in" in programs.run("ddp_overlap_bench", *SMALL, "--transport", "mpi").stderr:
        pytest.skip("MPI is not here")
    return programs


def ddp(programs: Programs, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*MPIRUN, "-n", "2", str(programs.folder / "ddp_overlap_bench"), *SMALL, "--transport", "mpi", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


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
    assert done.returncode != 0 and "--link together with --transport mpi" in done.stderr
