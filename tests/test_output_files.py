"""Files that programs write: on a disk that is full, and by two runs at the same time.

Every writer on a full disk: one line that names the file and the reason, a status that is not 0, no file that is half written under
the name that was asked for, and the older file kept. The disk is full at a number of bytes of a file (RLIMIT_FSIZE, "File too large").
With LOCKSTEP_MOUNT=1, for root, it is also a file system of its own with that many bytes left ("No space left on device").

Two runs that write to one place: either both work and each file is one run's, or the second is refused by one line that names the
place and the process that has it. What a killed run has left keeps nobody out.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Programs, ROOT

USAGE = 6
SWEEP = "all_reduce_perf --ranks 2 -b 8 -e 4K -f 2 -n 2 -w 0"
KERNEL = ("kernels_bench --threads 1 --cache warm --check 0 --ceilings 0 --benchmark_filter=^gelu_fwd/f32/B8_T128 "
          "--benchmark_min_time=0.001 --benchmark_format=json")
TRAIN = "mini_train --layers 1 --hidden 32 --length 16 --microbatch-size 2 --peak-gflops 100 --gemm packed --threads 1"
TWO_STEPS = f"{TRAIN} --steps 2"
REPORTS = f"{sys.executable} -m reports"
GATE = f"{sys.executable} {ROOT / 'ci' / 'gate.py'}"


@dataclass(frozen=True)
class Writer:
    """Files that are there before: `records` (of a sweep) and `suite` (a list of one program), others for the second run, and
    `values` (what gate exact compares)."""

    name: str
    command: str  # {to} is the file or folder to write
    limit: int  # bytes that there is room for: less than it writes
    stays: frozenset[str] = frozenset()  # partial files that a run may leave (docs/method.md)
    lines: int = 1  # on stderr


WRITERS = (
    Writer("records", f"{SWEEP} --json {{to}}.jsonl", 4096, stays=frozenset({"to.partial.jsonl"})),
    Writer("records of a run that is rewritten", f"{TWO_STEPS} --json {{to}}.jsonl", 2048),
    Writer("nccl-tests' JSON", f"{SWEEP} -J {{to}}.json", 512),
    Writer("Google Benchmark's JSON", f"{KERNEL} --benchmark_out={{to}}", 512),
    Writer("trace of a schedule", "pipeline_perf --schedule 1f1b --stages 4 --microbatches 8 --trace {to}", 512),
    Writer("trace of an overlap", "overlap_perf --mode simulated --ranks 2 --zero 1 --bucket-cap-mb 1 --trace {to}", 512),
    Writer("trace of training", f"{TWO_STEPS} --trace {{to}}", 512),
    Writer("trace of a simulated step", "simulate --layout pp=4,batch=8 --trace {to}", 512),
    Writer("schedule as CSV", "pipeline_perf --schedule 1f1b --stages 4 --microbatches 8 --dump-csv {to}", 64),
    Writer("tuning table", "tune --collectives all_reduce --ranks 2 -b 1K -e 1K --time-budget 1 --output {to}", 64),
    Writer("checkpoint", f"{TWO_STEPS} --checkpoints {{to}}", 4096),
    Writer("checkpoint of 2 ranks", f"{TWO_STEPS} --dp 2 --zero 1 --checkpoints {{to}}", 4096),
    Writer("weights in Hugging Face's format", f"{TWO_STEPS} --export {{to}}", 4096),
    Writer("tokens", f"{TWO_STEPS} --data {ROOT / 'README.md'} --tokenize {{to}}", 2048),
    Writer("suite", "suite --suite {suite} --out {to} --time-budget 1", 1024, frozenset({"to/others.partial.jsonl", "to/others.txt"}), 3),
    Writer("report", f"{REPORTS} {{records}} -o {{to}}", 4096),
    Writer("gate's baseline", f"{GATE} exact --suite {{values}} --head {{build}} --base {{to}} --update", 8192),
    Writer("gate's store", f"{GATE} store {{to}} {{records}}", 256),
)


def command_of(writer: Writer, folder: Path, to: Path, programs: Programs, run_name: str = "firsts") -> list[str]:
    names = {"records": folder / run_name, "suite": folder / f"{run_name}.suite", "values": folder / "values"}
    words = shlex.split(writer.command.format(to=to, build=programs.folder.parent, **names))
    return [str(programs.folder / words[0]), *words[1:]] if (programs.folder / words[0]).exists() else words


@pytest.fixture(scope="module")
def inputs(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("firsts", "others"):
        swept = programs.run(*shlex.split(SWEEP), "--json", str(folder / f"{name}.jsonl"))
        assert swept.returncode == 0, swept.stderr
        (folder / f"{name}.jsonl").rename(folder / name)
        (folder / f"{name}.suite").write_text(f"{name} 1 {SWEEP}\n")
    line = "records all_reduce_perf --ranks 2 -b 1K -e 1K --algo ring,tree,two_shot -n 1 -w 0 -c 0"
    (folder / "values").write_text("".join(f"plans-{k} {line}\n" for k in range(12)))
    return folder


@dataclass(frozen=True)
class Full:
    """A run whose disk was full: how it ended, and the files that it left."""

    done: subprocess.CompletedProcess[str]
    after: dict[str, bytes]
    reason: str


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(command: Sequence[str], **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT, **more)


def full_by_limit(writer: Writer, command: Sequence[str], disk: Path) -> Full:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (writer.limit, writer.limit))

    return Full(run(command, preexec_fn=limit), content_of(disk), "File too large")


# $1: room in bytes; $2: the disk, whose files are copied to the one that is mounted over it; $3: where they are in the end.
MOUNTED = """
mkdir "$3" && cp -a "$2/." "$3" && mount -t tmpfs -o "size=$(( ($(du -s -B 4096 "$3" | cut -f 1) + 256) * 4096 ))" none "$2" || exit 99
cp -a "$3/." "$2" && rm -r "$3" && mkdir "$3"
free=$(df --output=avail -B 4096 "$2" | tail -n 1)
head -c $(( (free - $1 / 4096) * 4096 )) /dev/zero >"$2/filler"
disk=$2 left=$3
shift 3
"$@"
status=$?
rm "$disk/filler"
cp -a "$disk/." "$left"
exit $status
"""


def full_by_mount(writer: Writer, command: Sequence[str], disk: Path) -> Full:
    left = disk.with_name("left")
    done = run(["unshare", "--mount", "bash", "-c", MOUNTED, "bash", str(writer.limit), str(disk), str(left), *command])
    return Full(done, content_of(left), "No space left on device")


DISKS = {"limit": full_by_limit, **({"mount": full_by_mount} if "LOCKSTEP_MOUNT" in os.environ else {})}


@pytest.mark.parametrize("fill", DISKS)
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_a_full_disk_is_said_in_one_line_and_the_older_file_stays(writer: Writer, fill: str, programs: Programs, inputs: Path,
                                                                  tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    first = run(command_of(writer, inputs, disk / "to", programs))
    assert first.returncode == 0, first.stderr
    before = content_of(disk)
    full = DISKS[fill](writer, command_of(writer, inputs, disk / "to", programs, "others"), disk)
    assert full.done.returncode not in (0, -signal.SIGXFSZ), full.done.stdout
    messages = [line for line in full.done.stderr.splitlines() if full.reason in line]
    assert messages and all(str(disk / "to") in line for line in messages), full.done.stderr
    assert len(full.done.stderr.splitlines()) == writer.lines, full.done.stderr
    assert {name: full.after.get(name) for name in before} == before, "the older files are as they were"
    assert set(full.after) <= writer.stays | set(before)


@pytest.mark.parametrize("words", [f"{SWEEP}", "simulate", "pipeline_perf --schedule 1f1b", "suite --list", "mini_train --help",
                                   f"{REPORTS} {{records}} --summary", f"{GATE} exact --suite {{values}} --head {{build}} --base {{build}}"], ids=lambda words: shlex.split(words)[0])
def test_a_full_standard_output_is_said_in_one_line(words: str, programs: Programs, inputs: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(command_of(Writer("", words, 0), inputs, inputs, programs), stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=120, check=False, cwd=ROOT)
    assert done.returncode != 0
    assert "standard output: No space left on device" in done.stderr and done.stderr.count("\n") == 1, done.stderr


SENDS = "sendrecv_perf --ranks 2 -b 8 -e 8 -w 0 --algo direct"


@dataclass(frozen=True)
class LockedOutput:
    """A place that only one run at a time may write to."""

    name: str
    long: str  # a command that writes to {to} for a long time
    short: str  # the same, soon done
    started: str  # file that is there as soon as the place is taken
    refusal: str  # the second run's error; {process} is the first run's


LOCKED_OUTPUTS = (
    LockedOutput("suite", "suite --suite {long_suite} --out {to}", "suite --suite {short_suite} --out {to}", "to/long.txt",
          "suite: --out {to}: process {process} is writing to it; allowed: another folder, or this one when it has ended"),
    LockedOutput("checkpoints", f"{TRAIN} --steps 1000000 --checkpoint-every 1 --checkpoints {{to}}", f"{TRAIN} --steps 2 --checkpoints {{to}}",
          "to/latest", "mini_train: --checkpoints {to}: process {process} is writing to it; allowed: another folder, or this one when "
          "it has ended"),
    LockedOutput("records", f"{SENDS} -n 1000000000 --json {{to}}.jsonl", f"{SENDS} -n 2 --json {{to}}.jsonl", "to.partial.jsonl",
          "sendrecv_perf: cannot write {to}.jsonl: process {process} is writing it; allowed: another name"),
    LockedOutput("tuning table", "tune --collectives all_reduce --ranks 2 -e 64M --time-budget 100 --output {to}/table",
          "tune --collectives all_reduce --ranks 2 -b 1K -e 1K --time-budget 1 --output {to}/table", "to",
          "tune: --output {to}: process {process} is writing to it; allowed: another folder, or this one when it has ended"),
)


def words_of(command: str, folder: Path, programs: Programs) -> list[str]:
    for length, calls in (("long", "1000000000"), ("short", "2")):
        (folder / f"{length}_suite").write_text(f"{length} 1 {SENDS} -n {calls}\n")
    words = shlex.split(command.format(to=folder / "to", long_suite=folder / "long_suite", short_suite=folder / "short_suite"))
    return [str(programs.folder / words[0]), *words[1:]]


@pytest.mark.parametrize("output", LOCKED_OUTPUTS, ids=lambda output: output.name)
def test_the_second_run_is_refused_and_a_killed_one_keeps_nobody_out(output: LockedOutput, programs: Programs, tmp_path: Path) -> None:
    first = subprocess.Popen(words_of(output.long, tmp_path, programs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while not (tmp_path / output.started).exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        second = run(words_of(output.short, tmp_path, programs))
        assert second.stderr == output.refusal.format(to=tmp_path / "to", process=first.pid) + "\n"
        assert second.returncode == USAGE and first.poll() is None
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    third = run(words_of(output.short, tmp_path, programs))
    assert third.returncode == 0, third.stderr


def test_files_that_two_runs_write_are_one_runs(programs: Programs, tmp_path: Path) -> None:
    words = [[str(programs.folder / "pipeline_perf"), "--schedule", "1f1b", "--stages", "4", "--microbatches", str(microbatches), "--trace",
              str(tmp_path / "trace")] for microbatches in (8, 9) * 4]
    with ThreadPoolExecutor(4) as pool:
        assert all(done.returncode == 0 for done in pool.map(run, words))
    assert json.loads((tmp_path / "trace").read_text()) and os.listdir(tmp_path) == ["trace"]


def report(records: Path, to: Path) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "reports", str(records), "-o", str(to)])


def test_of_two_reports_in_one_folder_both_are_whole_and_one_stays(programs: Programs, tmp_path: Path) -> None:
    for name in ("one", "other"):
        assert run([str(programs.folder / "sendrecv_perf"), *SENDS.split()[1:], "-n", "2", "--json", str(tmp_path / f"{name}.jsonl")]).returncode == 0
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
