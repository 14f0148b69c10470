"""Two runs that write to one place at the same time: either both work and each file is one run's, or the second is refused by one
line that names the place and the process that has it. What a killed run has left keeps nobody out."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Programs, ROOT

USAGE = 6
TRAIN = "mini_train --layers 1 --hidden 32 --length 16 --batch 2 --peak-gflops 100 --gemm packed --threads 1"
SWEEP = "sendrecv_perf --ranks 2 -b 8 -e 8 -w 0 --algo direct"


@dataclass(frozen=True)
class Place:
    """A place that only one run at a time may write to."""

    name: str
    long: str  # a command that writes to {to} for a long time
    short: str  # the same, soon done
    started: str  # file that is there as soon as the place is taken
    refusal: str  # the second run's error; {process} is the first run's


PLACES = (
    Place("suite", "suite --suite {long_suite} --out {to}", "suite --suite {short_suite} --out {to}", "to/long.txt",
          "suite: --out {to}: process {process} is writing to it; allowed: another folder, or this one when it has ended"),
    Place("checkpoints", f"{TRAIN} --steps 1000000 --checkpoint-every 1 --checkpoints {{to}}", f"{TRAIN} --steps 2 --checkpoints {{to}}",
          "to/latest", "mini_train: --checkpoints {to}: process {process} is writing to it; allowed: another folder, or this one when "
          "it has ended"),
    Place("records", f"{SWEEP} -n 1000000000 --json {{to}}.jsonl", f"{SWEEP} -n 2 --json {{to}}.jsonl", "to.partial.jsonl",
          "sendrecv_perf: cannot write {to}.jsonl: process {process} is writing it; allowed: another name"),
    Place("tuning table", "tune --collectives all_reduce --ranks 2 -e 64M --time-budget 100 --output {to}/table",
          "tune --collectives all_reduce --ranks 2 -b 1K -e 1K --time-budget 1 --output {to}/table", "to",
          "tune: --output {to}: process {process} is writing to it; allowed: another folder, or this one when it has ended"),
)


def words_of(command: str, folder: Path, programs: Programs) -> list[str]:
    for length, calls in (("long", "1000000000"), ("short", "2")):
        (folder / f"{length}_suite").write_text(f"{length} 1 {SWEEP} -n {calls}\n")
    words = shlex.split(command.format(to=folder / "to", long_suite=folder / "long_suite", short_suite=folder / "short_suite"))
    return [str(programs.folder / words[0]), *words[1:]]


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_the_second_run_is_refused_and_a_killed_one_keeps_nobody_out(place: Place, programs: Programs, tmp_path: Path) -> None:
    first = subprocess.Popen(words_of(place.long, tmp_path, programs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while not (tmp_path / place.started).exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        second = run(words_of(place.short, tmp_path, programs))
        assert second.stderr == place.refusal.format(to=tmp_path / "to", process=first.pid) + "\n"
        assert second.returncode == USAGE and first.poll() is None
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    third = run(words_of(place.short, tmp_path, programs))
    assert third.returncode == 0, third.stderr


def test_files_that_two_runs_write_are_one_runs(programs: Programs, tmp_path: Path) -> None:
    words = [[str(programs.folder / "pipeline_perf"), "--schedule", "1f1b", "--stages", "4", "--microbatches", str(microbatches), "--trace",
              str(tmp_path / "trace")] for microbatches in (8, 9) * 4]
    with ThreadPoolExecutor(4) as pool:
        assert all(done.returncode == 0 for done in pool.map(run, words))
    assert json.loads((tmp_path / "trace").read_text()) and os.listdir(tmp_path) == ["trace"]


def report(records: Path, to: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "reports", str(records), "-o", str(to)], capture_output=True, text=True, timeout=120,
                          check=False, cwd=ROOT)


def test_of_two_reports_in_one_folder_both_are_whole_and_one_stays(programs: Programs, tmp_path: Path) -> None:
    for name in ("one", "other"):
        assert run([str(programs.folder / "sendrecv_perf"), *SWEEP.split()[1:], "-n", "2", "--json", str(tmp_path / f"{name}.jsonl")]).returncode == 0
    abandoned = tmp_path / f"report.new-{socket.gethostname()}-4194305"  # more than a process number can be: of a writer that was killed
    shutil.copytree(ROOT / "ci" / "gate", abandoned / "figures")
    (abandoned / ".lockstep-report").touch()
    (tmp_path / "report.new-mine").mkdir()
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda name: report(tmp_path / f"{name}.jsonl", tmp_path / "report"), ("one", "other")))
    assert [done.returncode for done in made] == [0, 0], [done.stderr for done in made]
    assert sorted(os.listdir(tmp_path)) == ["one.jsonl", "other.jsonl", "report", "report.new-mine"]
    (copy,) = (tmp_path / "report" / "records").iterdir()
    assert copy.name.removesuffix(".jsonl.gz") in (tmp_path / "report" / "index.html").read_text()


def test_a_second_quick_start_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ci").mkdir()
    script = shutil.copy(ROOT / "ci" / "quickstart.sh", tmp_path / "ci")
    (tmp_path / "ci" / "install.sh").write_text("#!/bin/sh\ntouch build/begun\nexec sleep 30\n")
    (tmp_path / "ci" / "install.sh").chmod(0o755)
    first = subprocess.Popen(["bash", script], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        end = time.monotonic() + 10
        while not (tmp_path / "build" / "begun").exists() and time.monotonic() < end:
            time.sleep(0.01)
        second = run(["bash", script])
        assert second.stderr == (f"ci/quickstart.sh: process {first.pid} is at work in {tmp_path}/out; wait until it has ended, or take "
                                 "another clone\n")
        assert second.returncode == USAGE and second.stdout == ""
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    (tmp_path / "ci" / "install.sh").write_text("exit 3\n")
    assert run(["bash", script]).returncode == 3
