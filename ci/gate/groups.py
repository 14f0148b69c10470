"""Processes that end with all that they have started: each leads a session, and so a group, of its own."""
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

TERMINATE_S = 5  # for tools to remove what they have half written


@contextmanager
def uninterrupted() -> Iterator[set[signal.Signals]]:
    """Signals that end the gate wait until a process that is being started has a name to be ended by. Gives the mask that a
    child must set for itself, as it inherits this one."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(process: subprocess.Popen, patience_s: float) -> None:
    """As Popen.wait() with a timeout, which looks every 50 ms, but awake at once when it ends."""
    if process.poll() is not None:
        return
    ends = os.pidfd_open(process.pid)
    try:
        select.select([ends], [], [], patience_s)
    finally:
        os.close(ends)


def end_group(process: subprocess.Popen, patience_s: float) -> None:
    """Waits so long for it to end by itself; then nothing of its group lives on."""
    try:
        _wait(process, patience_s)
    finally:  # it may also have ended, and left others
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_in_group(command: Sequence[str], deadline_s: float, **options: Any) -> int:
    """The status. Raises subprocess.TimeoutExpired; then, and where this is interrupted, the whole group is ended."""
    process = None
    try:
        with uninterrupted() as mask:
            process = subprocess.Popen(command, start_new_session=True, **options,
                                       preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask))
        return process.wait(timeout=deadline_s)
    except BaseException:
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            end_group(process, TERMINATE_S)
        raise
