#!/usr/bin/env python3
"""An MPI run with a rank that fails ends in time, non-zero, with a line that says why, and leaves no process behind.
Called by ctest: mpi_failures.py CASE PROGRAM MPIRUN [ARGUMENTS OF MPIRUN...]"""

import os
import signal
import subprocess
import sys
import time

RANKS = 4
DEADLINE_S = 3.0  # kDeadline of mpi_ranks.cpp
GRACE_S = 15.0  # for mpirun to clean up, on a busy machine


def start(mpirun: list[str], program: str, mode: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*mpirun, "-np", str(RANKS), program, mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def read_processes(run: subprocess.Popen) -> list[int]:
    processes: list[int] = []
    while len(processes) < RANKS:
        line = run.stdout.readline()
        if not line:
            raise SystemExit(f"mpirun ended early with status {run.wait()}")
        if "process " in line:
            processes.append(int(line.split("process ")[1]))
    return processes


def is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def finish(run: subprocess.Popen) -> tuple[int, str]:
    try:
        output, _ = run.communicate(timeout=DEADLINE_S + GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        raise SystemExit(f"the run did not end within {DEADLINE_S + GRACE_S} s") from None
    return run.returncode, output


def expect(truth: bool, what: str, output: str) -> None:
    if not truth:
        raise SystemExit(f"{what}\n{output}")


def hurt_a_rank(mpirun: list[str], program: str, what: signal.Signals) -> None:
    run = start(mpirun, program, "loop")
    processes = read_processes(run)
    time.sleep(0.5)  # within the collectives
    os.kill(processes[1], what)
    status, output = finish(run)
    expect(status != 0, "the run ended with status 0", output)
    end = time.monotonic() + GRACE_S
    while any(map(is_running, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    left = [process for process in processes if is_running(process)]
    expect(not left, f"processes stayed behind: {left}", output)


def fail_by_itself(mpirun: list[str], program: str, mode: str, status: int, text: str) -> None:
    run = start(mpirun, program, mode)
    code, output = finish(run)
    expect(code == status, f"the run ended with status {code}, not {status}", output)
    expect(text in output, f"the output does not say: {text}", output)


def main() -> None:
    case, program, *mpirun = sys.argv[1:]
    if case == "kill":
        hurt_a_rank(mpirun, program, signal.SIGKILL)
    elif case == "stop":
        hurt_a_rank(mpirun, program, signal.SIGSTOP)
    elif case == "throw":
        fail_by_itself(mpirun, program, "throw", 7, "error: rank 1: rank 1 has seen enough")
    elif case == "silent":
        fail_by_itself(mpirun, program, "silent", 4, "no message for 3000 ms; waits for")
    elif case in ("mesh_silent", "mesh_waits"):
        text = "rank 3: no message for 3000 ms; waits for 20000 bytes from rank 1"
        fail_by_itself(mpirun, program, case.removeprefix("mesh_"), 4, text)
    elif case == "mesh_throws":
        fail_by_itself(mpirun, program, "throws", 7, "error: rank 1: the weights are lost")
    elif case == "silent_library":
        fail_by_itself(mpirun, program, "silent_library", 4, "a collective of MPI is not done after 3000 ms")
    else:
        raise SystemExit(f"unknown case {case}")


if __name__ == "__main__":
    main()
