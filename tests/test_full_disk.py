"""Every writer on a disk that is full: one line that names the file and the reason, a status that is not 0, no file that is half
written under the name that was asked for, and the older file kept.

The disk is full at LIMIT bytes of a file (RLIMIT_FSIZE, "File too large"), and, where a test may mount, at that many bytes of a
file system of its own ("No space left on device").
"""

from __future__ import annotations

import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import MPIRUN, Programs, ROOT

SWEEP = "all_reduce_perf --ranks 2 -b 8 -e 4K -f 2 -n 2 -w 0"
TRAIN = "mini_train --layers 1 --hidden 32 --length 16 --batch 2 --steps 2 --peak-gflops 100 --gemm packed --threads 1"
REPORTS = f"{sys.executable} -m reports"
GATE = f"{sys.executable} {ROOT / 'ci' / 'gate.py'}"


@dataclass(frozen=True)
class Writer:
    """Files that are there before: `records` (of a sweep), `suite` (a list of one program), `values` (what gate exact compares)."""

    name: str
    command: str  # with {to}, what is written
    limit: int  # bytes that there is room for: less than it writes
    stays: str = ""  # what a run leaves beside its file, and says so (docs/method.md)
    folder: bool = False  # {to} is a folder
    lines: int = 1  # on stderr


WRITERS = (
    Writer("records", f"{SWEEP} --json {{to}}.jsonl", 4096, stays="to.partial.jsonl"),
    Writer("records of a run that is rewritten", f"{TRAIN} --json {{to}}.jsonl", 2048),
    Writer("nccl-tests' JSON", f"{SWEEP} -J {{to}}", 512),
    Writer("trace of a schedule", "pipeline_perf --schedule 1f1b --stages 4 --microbatches 8 --trace {to}", 512),
    Writer("trace of an overlap", "overlap_perf --mode simulated --ranks 2 --zero 1 --bucket-cap-mb 1 --trace {to}", 512),
    Writer("trace of training", f"{TRAIN} --trace {{to}}", 512),
    Writer("trace of a simulated step", "simulate --layout pp=4,batch=8 --trace {to}", 512),
    Writer("schedule as CSV", "pipeline_perf --schedule 1f1b --stages 4 --microbatches 8 --dump-csv {to}", 64),
    Writer("machine description", "simulate --calibrate {records} --output {to}", 64),
    Writer("tuning table", "tune --collectives all_reduce --ranks 2 -b 1K -e 1K --time-budget 1 --output {to}", 64),
    Writer("checkpoint", f"{TRAIN} --checkpoints {{to}}", 4096, folder=True),
    Writer("checkpoint of 2 ranks", f"{TRAIN} --dp 2 --zero 1 --checkpoints {{to}}", 4096, folder=True),
    Writer("weights as Hugging Face has them", f"{TRAIN} --export {{to}}", 4096),
    Writer("tokens", f"{TRAIN} --data {ROOT / 'README.md'} --tokenize {{to}}", 2048),
    Writer("suite", "suite --suite {suite} --out {to} --time-budget 1", 1024, folder=True, lines=4),
    Writer("report", f"{REPORTS} {{records}} -o {{to}}", 4096, folder=True),
    Writer("gate's baseline", f"{GATE} exact --suite {{values}} --head {{build}} --base {{to}} --update", 256),
    Writer("gate's page", f"{GATE} exact --suite {{values}} --head {{build}} --base {{build}} --html {{to}}", 4096),
    Writer("gate's records", f"{GATE} exact --suite {{values}} --head {{build}} --base {{build}} --records {{to}}", 256),
    Writer("gate's store", f"{GATE} store {{to}} {{records}}", 256, folder=True),
)


def command_of(writer: Writer, folder: Path, to: Path, programs: Programs) -> list[str]:
    names = {name: folder / name for name in ("records", "suite", "values")}
    words = shlex.split(writer.command.format(to=to, build=programs.folder.parent, **names))
    return [str(programs.folder / words[0]), *words[1:]] if (programs.folder / words[0]).exists() else words


@pytest.fixture(scope="module")
def inputs(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    swept = programs.run(*shlex.split(SWEEP), "--json", str(folder / "records.jsonl"))
    assert swept.returncode == 0, swept.stderr
    (folder / "records.jsonl").rename(folder / "records")
    (folder / "suite").write_text(f"sums 1 {SWEEP}\n")
    (folder / "values").write_text("plans records all_reduce_perf --ranks 2 -b 1K -e 1K --algo ring,tree -n 1 -w 0 -c 0\n")
    return folder


def full_by_limit(writer: Writer, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails with a reason instead of ending the program
        resource.setrlimit(resource.RLIMIT_FSIZE, (writer.limit, writer.limit))

    return subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=limit, check=False, cwd=ROOT)


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("older", [False, True], ids=["new", "older"])
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_a_full_disk_is_said_in_one_line_and_the_older_file_stays(writer: Writer, older: bool, programs: Programs, inputs: Path,
                                                                  tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = command_of(writer, inputs, disk / "to", programs)
    if older:
        first = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
        assert first.returncode == 0, first.stderr
    before = content_of(disk)
    done = full_by_limit(writer, command)
    assert done.returncode not in (0, -signal.SIGXFSZ), done.stdout
    told = [line for line in done.stderr.splitlines() if "File too large" in line]
    assert told and all(str(disk / "to") in line for line in told), done.stderr
    assert len(done.stderr.splitlines()) == writer.lines, done.stderr
    after = content_of(disk)
    assert {name: after.get(name) for name in before} == before
    assert set(after) - set(before) <= {writer.stays}
