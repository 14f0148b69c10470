#!/usr/bin/env python3
"""Stops or kills one rank of a collective that runs, in every collective and on every executor whose ranks are processes: the run
ends in time, with an error that names the rank, and leaves no process, no segment of shared memory and no file.

As a test, each way and signal once. As a program, all collectives, and the tables of docs/method.md:

    python3 tests/test_lost_ranks.py --bin build/release/bin --runs 3
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import find_binaries, has_mpi, MPIRUN, Programs, ROOT

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "alltoall", "alltoallv", "sendrecv", "gather",
               "scatter", "hypercube")
RANKS = 4
TIMEOUT_S = 2  # -T of the programs
GRACE_S = 20  # mpirun kills what does not end by itself after some seconds, and the machine may be busy
LOOP = ("-b", "64K", "-e", "64K", "-n", "1000000000", "-T", str(TIMEOUT_S))
TRAINING = "training"  # stands for the collectives and messages of a training step
TRAIN = ("--layers", "2", "--hidden", "32", "--length", "16", "--microbatch-size", "4", "--steps", "1000000000", "--peak-gflops", "100", "--gemm",
         "packed", "--dp", "2", "--pp", "2", "--microbatches", "2", "--zero", "1", "--transport", "mpi", "--timeout", str(TIMEOUT_S))
MARK = "LOCKSTEP_LOST_RANK_RUN"  # variable by which a run's processes are known


@dataclass(frozen=True)
class Way:
    """How ranks run: the executor, and what carries their bytes."""

    name: str
    launcher: tuple[str, ...]
    words: tuple[str, ...]
    threads: int = 1  # ranks of a process
    collectives: tuple[str, ...] = COLLECTIVES

    def command(self, folder: Path, collective: str) -> list[str]:
        program, words = ("mini_train", TRAIN) if collective == TRAINING else (f"{collective}_perf", LOOP)
        return [*self.launcher, str(folder / program), *words, *self.words]

    def processes(self) -> int:
        return RANKS // self.threads


def mpirun(*words: str, processes: int = RANKS) -> tuple[str, ...]:
    return (*MPIRUN, *words, "-n", str(processes))


HOSTS = str(ROOT / "ci" / "hosts" / "namespaces.sh")


def between_hosts() -> tuple[str, ...]:
    """Two ranks on each of two hosts, which are network namespaces."""
    return (HOSTS, "run", "2", *mpirun("--host", "10.78.0.10:2,10.78.0.11:2", "-x", MARK))


def has_hosts() -> bool:
    return subprocess.run([HOSTS, "run", "1", "true"], capture_output=True, timeout=60, check=False).returncode == 0


FORKED = ("--ranks", str(RANKS), "--processes")
WAYS = (
    Way("forked, shared memory", (), FORKED),
    Way("forked, emulated links", (), (*FORKED, "--link", "latency_us=20,gbps=1.25")),
    Way("MPI messages, shared memory", mpirun(), ()),
    Way("MPI messages, TCP", mpirun("--mca", "pml", "ob1", "--mca", "btl", "self,tcp"), ()),
    Way("MPI messages, 2 threads each", mpirun(processes=2), ("-t", "2"), threads=2),
    Way("MPI's own collectives", mpirun(), ("--algo", "library"), collectives=COLLECTIVES[:-1]),  # without hypercube
    Way("training, MPI for several threads", mpirun(), ("--mpi-threads", "multiple"), collectives=(TRAINING,)),
    Way("MPI messages, 2 hosts", between_hosts(), ()),
    Way("training, 2 hosts", between_hosts(), (), collectives=(TRAINING,)),
    Way("training, MPI for one thread", mpirun(), ("--mpi-threads", "funneled"), collectives=(TRAINING,)),
)
SIGNALS = (signal.SIGSTOP, signal.SIGKILL)


@dataclass(frozen=True)
class Case:
    way: Way
    collective: str
    signal: signal.Signals
    rank: int | None = None  # None: any


@dataclass
class Outcome:
    case: Case
    rank: int
    seconds: float  # from the signal to the end of the run
    status: int | None  # None: it did not end
    output: str
    left: list[str] = field(default_factory=list)

    def in_time(self) -> bool:
        return self.status is not None and self.seconds < TIMEOUT_S + GRACE_S

    def names_the_rank(self) -> bool:
        """The rank itself, not one that waited for it. Rank 0 of forked ranks is the program: if it is killed, nobody can speak."""
        if self.case.signal == signal.SIGKILL and self.rank == 0 and not self.case.way.launcher:
            return self.status == -signal.SIGKILL
        lost = r"(is stopped|is gone|does not answer|was killed by signal 9|exited on signal 9)"
        if self.case.way.threads == 1:
            return re.search(rf"rank {self.rank}\b((?!rank ).)*{lost}", self.output) is not None
        first, last = self.rank * self.case.way.threads, (self.rank + 1) * self.case.way.threads - 1
        ours, mpiruns = rf"ranks {first} to {last} \(process \d+\) are (stopped|gone)", rf"process rank {self.rank} .* signal 9"
        return re.search(f"{ours}|{mpiruns}", self.output) is not None

    def faults(self) -> list[str]:
        checks = {"it does not end in time": self.in_time(), "it ends with status 0": self.status != 0,
                  f"it does not name rank {self.rank}": self.names_the_rank(), f"left: {self.left}": not self.left}
        return [fault for fault, holds in checks.items() if not holds]

    def __str__(self) -> str:
        return (f"{self.case.collective}, {self.case.way.name}, {self.case.signal.name} of rank {self.rank}: "
                f"{'; '.join(self.faults()) or 'as promised'} ({self.seconds:.1f} s, status {self.status})")


def processes_of(mark: str) -> dict[int, dict[str, str]]:
    """Process -> its environment, of the processes that run; zombies have none."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if not folder.name.isdecimal():
                continue
            words = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if f"{MARK}={mark}" in words:
            found[int(folder.name)] = dict(word.partition("=")[::2] for word in words)
    return found


def ranks_of(case: Case, mark: str, program: int) -> list[int]:
    """[rank] process; empty as long as they have not all started. Forked ranks start in their order."""
    running = processes_of(mark)
    if not case.way.launcher:
        return [program, *sorted(set(running) - {program})] if len(running) == RANKS else []
    by_rank = {int(environment["OMPI_COMM_WORLD_RANK"]): process for process, environment in running.items()
               if "OMPI_COMM_WORLD_RANK" in environment}
    return [by_rank[rank] for rank in sorted(by_rank)] if len(by_rank) == case.way.processes() else []


def segments_of(processes: list[int]) -> set[str]:
    """Shared memory with a name that the processes use."""
    found = set()
    for process in processes:
        try:
            maps = Path(f"/proc/{process}/maps").read_text(encoding="utf-8")
        except OSError:
            continue
        found |= {path for path in re.findall(r"(/dev/shm/\S+)$", maps, re.MULTILINE)}
        found |= {f"SysV {key}" for key in re.findall(r"/SYSV(\w+)", maps)}
    return found


def segments_left(segments: set[str]) -> list[str]:
    keys = {f"SysV {int(line.split()[0]) & 0xffffffff:08x}" for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
    return sorted(name for name in segments if name in keys or (name.startswith("/") and Path(name).exists()))


def is_started(output: str) -> bool:
    """The heading of a sweep's table, or a line for a step of training."""
    return "\n#  " in output or "\nstep " in output


def wait_until(holds, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def run(case: Case, folder: Path, rng: random.Random) -> Outcome:
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="lost-") as home:  # short: Open MPI puts sockets below it
        environment = {**os.environ, MARK: mark, "TMPDIR": home, "LOCKSTEP_TUNING": "/dev/null/tuning.json"}
        output = Path(home).with_suffix(".out")
        with output.open("wb") as file:
            program = subprocess.Popen(case.way.command(folder, case.collective), stdout=file, stderr=file, env=environment)
        try:
            return _hurt(case, program, mark, Path(home), output, rng)
        finally:
            for process in processes_of(mark):
                os.kill(process, signal.SIGKILL)
            program.wait()
            output.unlink()


def _hurt(case: Case, program: subprocess.Popen, mark: str, home: Path, output: Path, rng: random.Random) -> Outcome:
    started = wait_until(lambda: program.poll() is not None or (is_started(output.read_text()) and ranks_of(case, mark, program.pid)), 60)
    if not started or program.poll() is not None:
        return Outcome(case, -1, 0, None, output.read_text(), ["the collectives did not start"])
    time.sleep(rng.uniform(0.2, 0.8))  # somewhere within them
    ranks = ranks_of(case, mark, program.pid)
    rank = rng.randrange(len(ranks)) if case.rank is None else case.rank
    segments = segments_of(ranks)
    begun = time.monotonic()
    os.kill(ranks[rank], case.signal)
    ended = wait_until(lambda: program.poll() is not None, TIMEOUT_S + GRACE_S)
    outcome = Outcome(case, rank, time.monotonic() - begun, program.poll(), output.read_text())
    if ended:
        wait_until(lambda: not processes_of(mark) and not segments_left(segments) and not list(home.iterdir()), 3)
        outcome.left = [f"process {process}" for process in processes_of(mark)] + segments_left(segments)
        outcome.left += [str(path) for path in home.rglob("*") if not path.is_dir()]
    return outcome


def table(outcomes: list[Outcome], head: str, row_of: Callable[[Outcome], str]) -> str:
    """A row for each value of row_of: runs that ended as promised, of all, by signal."""
    rows: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault(row_of(outcome), []).append(outcome)
    lines = [f"| {head} | stopped | killed | slowest end after the signal | left behind |", "| --- | --- | --- | --- | --- |"]
    for name, those in rows.items():
        by_signal = [[outcome for outcome in those if outcome.case.signal == sent] for sent in SIGNALS]
        counts = [f"{sum(not outcome.faults() for outcome in some)} of {len(some)}" for some in by_signal]
        left = sum(len(outcome.left) for outcome in those)
        lines.append(f"| {name} | {' | '.join(counts)} | {max(outcome.seconds for outcome in those):.1f} s | {left or 'nothing'} |")
    return "\n".join(lines)


# Ranks of mpirun that fail or hang by themselves: program, mode, exit status, and texts of the error.
FAILURES = (
    ("mpi_ranks", "throw", 7, ("error: rank 1: rank 1 has seen enough",)),
    ("mpi_ranks", "silent", 4, ("no message for 3000 ms; waits for", "; rank 1 does not answer")),
    ("mpi_ranks", "silent_library", 4, ("a collective of MPI is not done after 3000 ms",)),
    ("mpi_mesh", "silent", 4, ("rank 3: no message for 3000 ms; waits for 20000 bytes from rank 1",)),
    ("mpi_mesh", "waits", 4, ("rank 3: no message for 3000 ms; waits for 20000 bytes from rank 1",)),
    ("mpi_mesh", "throws", 7, ("error: rank 1: the weights are lost",)),
)


@pytest.mark.parametrize("program,mode,status,texts", FAILURES)
def test_a_rank_that_fails_ends_all(program: str, mode: str, status: int, texts: tuple[str, ...], mpi_programs: Programs) -> None:
    command = [*mpirun(), str(mpi_programs.folder.parent / "tests" / program), mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    assert all(text in done.stderr for text in texts), done.stderr
    assert "; rank 0 does not answer" not in done.stderr


def refusal(*words: str) -> list[str]:
    """Lines by which our programs refuse what mpirun starts."""
    done = subprocess.run([*MPIRUN, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 6, done.stderr
    return [line for line in done.stderr.splitlines() if re.match(r"\w+_perf: |error: ", line)]


def test_what_all_ranks_refuse_is_said_by_one_of_them(mpi_programs: Programs) -> None:
    lines = refusal("-n", "3", str(mpi_programs.folder / "sendrecv_perf"), "--algo", "nosuch")
    assert [line.split(";")[0] for line in lines if ": rank " not in line] == ["error: --algo: send_recv has no algorithm 'nosuch'"]


def test_a_file_that_rank_0_cannot_write_ends_all_ranks_at_once(mpi_programs: Programs) -> None:
    lines = refusal("-n", "2", str(mpi_programs.folder / "sendrecv_perf"), "-b", "8", "-e", "8", "-T", "50", "--json", "/nowhere/x.jsonl")
    assert lines == ["error: cannot write /nowhere/x.jsonl: No such file or directory; allowed: a file in an existing, writable folder"]


def test_what_one_rank_alone_refuses_is_said_with_its_number(mpi_programs: Programs) -> None:
    program = str(mpi_programs.folder / "sendrecv_perf")
    lines = refusal("-n", "1", program, "-b", "8", "-e", "8", ":", "-n", "1", program, "--nosuch")
    assert len(lines) == 1 and lines[0].startswith("sendrecv_perf: rank 1: unknown argument '--nosuch'")


def revision_of(program: Path) -> str:
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return re.search(r"^revision (\w+)", version, re.MULTILINE).group(1)


def test_ranks_of_two_builds_or_with_other_arguments_are_refused(mpi_programs: Programs, tmp_path: Path) -> None:
    program, other, words = mpi_programs.folder / "sendrecv_perf", tmp_path / "sendrecv_perf", ("-b", "8", "-e", "8", "-n", "1")
    revision = revision_of(program)
    other.write_bytes(program.read_bytes().replace(revision[:8].encode(), b"x" * 8))  # compilers keep texts as words of 8 bytes
    other.chmod(0o755)
    assert revision_of(other) != revision
    builds = refusal("-n", "1", str(program), *words, ":", "-n", "1", str(other), *words)
    assert re.fullmatch(rf"error: rank 1 on (\S+) runs revision {revision_of(other)}, but rank 0 on \1 runs {revision}; allowed: the same build on all hosts",
                        builds[0])
    arguments = refusal("-n", "1", str(program), *words, ":", "-n", "1", str(program), *words, "-w", "2")
    assert re.fullmatch(r"error: rank 1 on (\S+) has other arguments than rank 0 on \1; allowed: the same on all ranks", arguments[0])


@pytest.fixture(scope="module")
def outcomes(programs: Programs) -> dict[str, list[Outcome]]:
    """For each way, one run with a stopped rank and one with a killed rank; of forked ranks, also with rank 0, the program. Runs mostly
    wait, so several run at once."""
    rng = random.Random(1)
    mpi, hosts = has_mpi(programs), has_mpi(programs) and has_hosts()
    ways = [way for way in WAYS if not way.launcher or (hosts if way.launcher[0] == HOSTS else mpi)]
    cases = [Case(way, rng.choice(way.collectives), sent) for way in ways for sent in SIGNALS]
    cases += [Case(way, "all_reduce", sent, rank=0) for way in ways if not way.launcher for sent in SIGNALS]
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda case: run(case, programs.folder, rng), cases))
    return {way.name: [outcome for outcome in made if outcome.case.way == way] for way in ways}


@pytest.mark.parametrize("way", [way.name for way in WAYS])
def test_a_lost_rank_is_named_in_time_and_leaves_nothing(way: str, outcomes: dict[str, list[Outcome]]) -> None:
    if way not in outcomes:
        pytest.skip("MPI, or what makes network namespaces, is not here")
    assert not any(outcome.faults() for outcome in outcomes[way]), "\n".join(f"{outcome}\n{outcome.output}" for outcome in outcomes[way])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=find_binaries(), help="folder of the programs")
    parser.add_argument("--runs", type=int, default=1, help="runs of each collective, way and signal")
    parser.add_argument("--only", default="", help="expression that 'WAY COLLECTIVE SIGNAL' must contain")
    parser.add_argument("--jobs", type=int, default=3, help="runs at a time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cases = [Case(way, collective, sent) for way in WAYS for collective in way.collectives for sent in SIGNALS
             if re.search(options.only, f"{way.name} {collective} {sent.name}")] * options.runs
    rng = random.Random(options.seed)
    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda case: run(case, options.bin, rng), cases):
            outcomes.append(outcome)
            if outcome.faults():
                print(f"{outcome}\n{outcome.output}", file=sys.stderr, flush=True)
    print(table(outcomes, "ranks and what carries their bytes", lambda outcome: outcome.case.way.name))
    print()
    print(table(outcomes, "collective", lambda outcome: outcome.case.collective))
    return int(any(outcome.faults() for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
