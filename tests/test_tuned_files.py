"""Tuning files that `tune` writes, read by the real library: Open MPI's rules. That of NCCL's plugin: bench/tuned_files_test.cpp.

Which algorithm Open MPI runs is seen without timing: by the number of messages between each two ranks, which its component
pml/monitoring counts, and by a rule for an algorithm that does not exist, which Open MPI refuses as it reaches that rule."""
from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import Programs
from test_mini_train import MPIRUN

DYNAMIC = ("--mca", "coll_tuned_use_dynamic_rules", "1")
LARGE_BIN = 8  # pml/monitoring's histogram of sizes: from 128 bytes on, past the messages with which ranks meet


@pytest.fixture(name="openmpi", scope="module")
def _openmpi(programs: Programs) -> Programs:
    version = subprocess.run([MPIRUN[0] or "false", "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    if "Open MPI" not in version or "not built in" in programs.run("all_reduce_perf", "--transport", "mpi").stderr:
        pytest.skip("Open MPI is not here")
    return programs


def mpirun(programs: Programs, ranks: int, words: tuple[str, ...], mca: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*MPIRUN, *mca, "-n", str(ranks), str(programs.folder / words[0]), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def tune(programs: Programs, ranks: int, folder: Path, collectives: str) -> None:
    words = ("tune", "--transport", "mpi", "--collectives", collectives, "-b", "64", "-e", "64", "--time-budget",
             "1", "--output", str(folder / "table.json"), "--openmpi-rules", str(folder / "rules.conf"))
    done = mpirun(programs, ranks, words)
    assert done.returncode == 0, done.stderr
    assert "skipped: all_to_all_v: Open MPI's rules cannot choose its algorithm by size" in done.stdout


def with_rules(folder: Path, name: str = "rules.conf") -> tuple[str, ...]:
    return (*DYNAMIC, "--mca", "coll_tuned_dynamic_rules_filename", str(folder / name))


@pytest.fixture(name="tuned", scope="module")
def _tuned(openmpi: Programs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a rules file with ring for 4 ranks from 724 bytes to 1448: entries as of a run with 4 ranks at 1 KiB are put
    into the table that 2 ranks have measured, and those of 2 ranks measured again."""
    folder = tmp_path_factory.mktemp("tuned")
    tune(openmpi, 2, folder, "reduce_scatter,all_to_all_v")
    table = json.loads((folder / "table.json").read_text())
    measured = table["library_entries"]
    assert {(line["collective"], line["ranks"], line["hosts"]) for line in measured} == {("reduce_scatter", 2, 1), ("all_to_all_v", 2, 1)}
    assert all(line["algorithm"].split("=")[0] in ("library", "library:algorithm") for line in measured)
    assert not [line for line in table["entries"] if line["algorithm"].startswith("library")]  # those are for auto
    table["library_entries"] += [{"transport": "mpi", "collective": collective, "ranks": 4, "hosts": 1, "bytes": 1024,
                                  "algorithm": "library:algorithm=" + algorithm}
                                 for collective, algorithm in (("all_reduce", "ring"), ("reduce_scatter", "recursive_halving"))]
    (folder / "table.json").write_text(json.dumps(table))
    tune(openmpi, 2, folder, "all_to_all_v")
    return folder


def large_messages(programs: Programs, folder: Path, mca: tuple[str, ...], size: int = 1024) -> dict[tuple[int, int], int]:
    """Number of messages of 128 bytes and more from rank to rank, in one run of MPI's own all-reduce with 50 calls a placement."""
    folder.mkdir(exist_ok=True)
    monitoring = ("--mca", "pml_monitoring_enable", "2", "--mca", "pml_monitoring_enable_output", "3",
                  "--mca", "pml_monitoring_filename", str(folder / "m"))
    words = ("all_reduce_perf", "--transport", "mpi", "--algo", "library", "-b", str(size), "-e", str(size), "-n", "50", "-w", "0",
             "-c", "0")
    done = mpirun(programs, 4, words, (*mca, *monitoring))
    assert done.returncode == 0, done.stderr
    found = {}
    for file in folder.glob("m.*.prof"):
        for pair in re.finditer(r"(?m)^I\t(\d+)\t(\d+)\t.*\t([\d,]+)$", file.read_text()):
            sizes = [int(number) for number in pair.group(3).split(",")]
            found[int(pair.group(1)), int(pair.group(2))] = sum(sizes[LARGE_BIN:])
        file.unlink()
    return {pair: number // 50 for pair, number in found.items() if number >= 50}  # a call's messages, without those of the start


def test_open_mpi_runs_the_algorithm_of_the_rules_and_of_no_other_size(openmpi: Programs, tuned: Path) -> None:
    def messages(mca: tuple[str, ...], size: int = 1024) -> dict[tuple[int, int], int]:
        return large_messages(openmpi, tuned / "monitoring", mca, size)

    ring = messages((*DYNAMIC, "--mca", "coll_tuned_allreduce_algorithm", "4"))
    assert set(ring) == {(rank, (rank + 1) % 4) for rank in range(4)}
    own, own_of_large = messages(()), messages((), 4096)
    assert own != ring != own_of_large
    assert messages(with_rules(tuned)) == ring
    assert messages(with_rules(tuned), 4096) == own_of_large  # not measured: Open MPI's own decision


@pytest.mark.parametrize("program, algorithm", [("all_reduce_perf", "4"), ("reduce_scatter_perf", "3")])
def test_rules_hold_for_the_sizes_and_ranks_that_were_measured(openmpi: Programs, tuned: Path, program: str, algorithm: str) -> None:
    """With a number that no algorithm has in the place of tune's, calls that reach the rule fail, and others do not."""
    text = (tuned / "rules.conf").read_text()
    assert f"\n724 {algorithm} 4 0  #" in text
    (tuned / "bad.conf").write_text(text.replace(f"\n724 {algorithm} 4 0  #", "\n724 99 4 0  #"))

    def fails(ranks: int, size: int) -> bool:
        words = (program, "--transport", "mpi", "--algo", "library", "-b", str(size), "-e", str(size), "-n", "2", "-w", "0")
        assert mpirun(openmpi, ranks, words, with_rules(tuned)).returncode == 0
        bad = mpirun(openmpi, ranks, words, with_rules(tuned, "bad.conf"))
        assert bad.returncode == 0 or "MPI_ERR_ARG" in bad.stderr
        return bad.returncode != 0

    assert [fails(4, size) for size in (512, 1024, 2048)] == [False, True, False]
    assert not fails(3, 1024)


def test_an_algorithm_is_chosen_by_name(openmpi: Programs, tmp_path: Path) -> None:
    names = ("library:algorithm=ring", "library:algorithm=recursive_doubling")
    words = ("all_reduce_perf", "--transport", "mpi", "--algo", ",".join(names), "-b", "1K", "-e", "1K", "-n", "5", "--json")
    done = mpirun(openmpi, 4, (*words, str(tmp_path / "r.jsonl")), DYNAMIC)
    assert done.returncode == 0, done.stderr
    rows = [line for line in map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines()) if line["record"] == "row"]
    assert {(row["algorithm"], row["executor"], row["status"]) for row in rows} == {(name, "library", "ok") for name in names}


def test_choices_that_cannot_be_are_refused_in_one_line(openmpi: Programs, tmp_path: Path) -> None:
    def refused(algorithm: str, mca: tuple[str, ...]) -> str:
        done = mpirun(openmpi, 2, ("all_reduce_perf", "--transport", "mpi", "--algo", algorithm, "-b", "8", "-e", "8"), mca)
        assert done.returncode != 0
        return done.stderr

    assert ("--algo library:algorithm=ring: Open MPI ignores the choice of an algorithm; allowed: with mpirun --mca "
            "coll_tuned_use_dynamic_rules 1\n") in refused("library:algorithm=ring", ())
    assert "ranks; allowed: library, or library:algorithm= with one of basic_linear" in refused("library:algorithm=none", DYNAMIC)
    for words, expected in (
            (("--openmpi-rules", "x"), "tune: --openmpi-rules x: --transport is local; allowed: with --transport mpi\n"),
            (("--nccl-tuner", "x"), "tune: --nccl-tuner x: --transport is local; allowed: with --transport nccl\n"),
            (("--nccl-choices", "ring/x"), "tune: --nccl-choices ring/x: not an algorithm and a protocol of NCCL; allowed: ring, tree"),
            (("--nccl-choices", "ring"), "tune: --nccl-choices ring: not an algorithm and a protocol; allowed: for instance ring/ll128")):
        done = openmpi.run("tune", *words, "--output", str(tmp_path / "table.json"))
        assert done.returncode != 0 and done.stderr.startswith(expected), done.stderr
    nowhere = tmp_path / "none" / "rules.conf"
    done = mpirun(openmpi, 2, ("tune", "--transport", "mpi", "--output", str(tmp_path / "table.json"), "--openmpi-rules", str(nowhere)))
    assert done.returncode != 0 and f"{nowhere}: " in done.stderr and "No such file or directory" in done.stderr
    assert not list(tmp_path.iterdir())
