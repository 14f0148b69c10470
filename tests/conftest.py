"""Shared by the tests of programs: their folder (LOCKSTEP_BIN, or the first build folder that has them), runs with a deadline, MPI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # for tests that are also programs, which pytest does not start

from reports.schema import kind_schema, problem_in

MPIRUN = (shutil.which("mpirun") or "", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "--mca",
          "mpi_yield_when_idle", "1")


def find_binaries() -> Path | None:
    chosen = os.environ.get("LOCKSTEP_BIN")
    folders = [Path(chosen)] if chosen else [ROOT / "build" / preset / "bin" for preset in ("ci", "release", "dev")]
    return next((folder for folder in folders if (folder / "all_reduce_perf").exists()), None)


def records_of(path: Path) -> list[dict]:
    """All lines; each must follow the schema and have no other field."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        assert problem_in(line, line["record"]) is None
        assert set(line) <= set(kind_schema(line["record"])["properties"])
        if line["record"] == "step":
            assert not {name for name in names_of_step(line) if not any(fnmatchcase(name, known) for known in documented_names(line["part"]))}
    return lines


def names_of_step(line: dict) -> set[str]:
    return {f"{group} {name}" for group in ("choices", "sizes", "counts", "figures", "series") for name in line[group]}


def documented_names(part: str) -> set[str]:
    """Names of the part's numbers and texts, with * where the page has KIND or NAME."""
    groups = next(case["then"]["properties"] for case in kind_schema("step")["allOf"] if case["if"]["properties"]["part"]["const"] == part)
    return {f"{group} {name}".replace("KIND", "*").replace("NAME", "*") for group, names in groups.items()
            for listed in names.get("properties", {}) for name in listed.split(", ")}


class Programs:
    """Runs built programs; every run has a deadline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *words: str, env: dict[str, str] | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        command = [str(self.folder / words[0]), *words[1:]]
        whole_env = {**os.environ, "LOCKSTEP_TUNING": "/dev/null/tuning.json", **(env or {})}
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=whole_env, check=False)

    def output(self, *words: str) -> str:
        """Text that a run prints, which must succeed."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refusal(self, *words: str) -> str:
        """The one line with which a program refuses its input."""
        done = self.run(*words)
        assert done.returncode == 6, done.stdout + done.stderr
        assert done.stderr.startswith(words[0] + ": ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr.rstrip("\n")


@pytest.fixture(scope="session")
def programs() -> Programs:
    folder = find_binaries()
    if folder is None:
        pytest.fail("no built programs: build a preset first, or set LOCKSTEP_BIN")
    return Programs(folder)


def has_mpi(programs: Programs) -> bool:
    """Whether the programs can run under MPIRUN."""
    probe = ("sendrecv_perf", "--transport", "mpi", "-b", "8", "-e", "8", "-n", "1")
    return bool(MPIRUN[0]) and "not built in" not in programs.run(*probe).stderr


@pytest.fixture(scope="session")
def mpi_programs(programs: Programs) -> Programs:
    if not has_mpi(programs):
        pytest.skip("MPI is not here")
    return programs
