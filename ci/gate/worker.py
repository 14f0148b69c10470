"""Workers: programs that stay and run the cases that they are asked for; the suites that name them; and how they end."""

import json
import math
import os
import select
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gate.model import CouldNotRun, UsageError


# ---- A suite: the lines of its file, each the command of a worker

CORES = ("one", "all")


@dataclass(frozen=True)
class Line:
    name: str
    kind: str  # the word in the middle; of `ab`: the cores of the worker, one of CORES
    command: tuple[str, ...]  # the program first

    @property
    def one_core(self) -> bool:
        """The worker has one thread: both of a pair use the same core."""
        return self.kind == "one"


def load_suite(path: Path, what: str = "CORES", allowed: Sequence[str] = CORES) -> list[Line]:
    """A file of lines "NAME CORES COMMAND", or with another word in the middle: `what` names it, `allowed` has its values. '#' begins a
    comment. Raises UsageError."""
    form = f"NAME {what} COMMAND, {what} one of {', '.join(allowed)}"
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"--suite {path}: {error.strerror}; allowed: a file of lines {form}") from error
    lines: dict[str, Line] = {}
    for number, row in enumerate(text.splitlines(), start=1):
        where = f"--suite {path}, line {number}"
        try:
            words = shlex.split(row, comments=True)
        except ValueError as error:  # an unbalanced quotation mark
            raise UsageError(f"{where}: {error}; allowed: {form}") from error
        if not words:
            continue
        if len(words) < 3 or words[1] not in allowed:
            raise UsageError(f"{where}: '{row.strip()}'; allowed: {form}")
        if words[0] in lines:
            raise UsageError(f"{where}: a second '{words[0]}'; allowed: each name once")
        lines[words[0]] = Line(words[0], words[1], tuple(words[2:]))
    if not lines:
        raise UsageError(f"--suite {path}: no line; allowed: at least one {form}")
    return list(lines.values())


# Processes that end together with all processes that they have started: each leads a session, and so a group, of its own.

TERMINATE_S = 5  # seconds for tools to remove half-written files


@contextmanager
def uninterrupted() -> Iterator[set[signal.Signals]]:
    """Delays signals that end the gate until a process that is being started has a known id, by which it can be ended. Yields the mask
    that a child must set for itself, as it inherits this one."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(process: subprocess.Popen, patience_s: float) -> None:
    """Waits until the process ends or the time is up. Unlike Popen.wait() it does not poll every 50 ms, and raises nothing."""
    if process.poll() is not None:
        return
    ends = os.pidfd_open(process.pid)
    try:
        select.select([ends], [], [], patience_s)
    finally:
        os.close(ends)


def end_group(process: subprocess.Popen, patience_s: float) -> None:
    """Waits this long for it to end by itself, then kills its whole group."""
    try:
        _wait(process, patience_s)
    finally:  # it may have ended itself, but left others
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_in_group(command: Sequence[str], deadline_s: float, **options: Any) -> int:
    """Exit status. Raises subprocess.TimeoutExpired; then, and on an interruption, the whole group is ended."""
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


# A benchmark that stays in a process and runs the cases that it is asked for: the counterpart of bench/serve/orders.h.

START_DEADLINE_S = 120  # seconds to prepare cases
ORDER_DEADLINE_S = 60  # seconds for each run: no case's call may take longer
STOP_DEADLINE_S = 2  # seconds to end by itself after its input is closed


def _begin(core: int | None, mask: set[signal.Signals]) -> None:
    """Runs in the child, before its program."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if core is not None:
        os.sched_setaffinity(0, {core})


class Worker:
    """One process of one build, which prepares its cases while its driver does other things, until ready(). Between
    orders it sleeps in a read."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None,
                 core: int | None = None, side: str = ""):
        """`side` names the build, for messages."""
        self._command = [str(word) for word in command]
        self._side = side
        self._errors = tempfile.TemporaryFile()
        self._unread = b""
        self._process: subprocess.Popen | None = None
        self.cases: list[str] = []
        self._is_ready = False
        try:
            with uninterrupted() as mask:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd=folder,
                    env={**os.environ, **(environment or {})}, start_new_session=True, preexec_fn=partial(_begin, core, mask))
        except OSError as error:
            self.stop()
            raise CouldNotRun(f"{self._name()}: cannot be started: {error.strerror}") from error
        except BaseException:
            self.stop()
            raise

    def ready(self) -> list[str]:
        """Its cases, once it has printed them. Raises CouldNotRun if it does not serve, or misses START_DEADLINE_S."""
        if not self._is_ready:
            hello = self._answer(START_DEADLINE_S)
            cases = hello.get("cases")
            if hello.get("serve") != 1 or not isinstance(cases, list) or not all(isinstance(case, str) for case in cases):
                raise CouldNotRun(f"{self._name()}: does not serve (no --serve in this build?): {str(hello)[:80]}")
            if len(set(cases)) < len(cases):
                raise CouldNotRun(f"{self._name()}: two cases have one name; allowed: each once")
            self.cases, self._is_ready = cases, True
        return self.cases

    def run(self, case: int, calls: int, runs: int = 1) -> list[float]:
        """The mean time of a call in each run, in microseconds."""
        order = json.dumps({"case": case, "runs": runs, "calls": calls}) + "\n"
        at = f" in {self.cases[case]}"
        try:
            self._process.stdin.write(order.encode())
            self._process.stdin.flush()
        except OSError as error:
            raise CouldNotRun(f"{self._name()}: has ended{at}{self._last_words()}") from error
        answer = self._answer(ORDER_DEADLINE_S * runs, at)
        if "error" in answer:
            raise CouldNotRun(f"{self._name()}: an error{at}: {answer['error']}")
        times = answer.get("us")
        if not isinstance(times, list) or len(times) != runs or not all(_is_time(us) for us in times):
            raise CouldNotRun(f"{self._name()}: not the times of {runs} runs{at}: {str(answer)[:80]}")
        return times

    def dismiss(self) -> None:
        """Closes its input, so that it ends by itself. stop() must still be called."""
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                with suppress(OSError):  # it has ended already, without reading an order
                    stream.close()

    def stop(self) -> None:
        """Ends the process and all processes that it has started, and waits for it."""
        self.dismiss()
        if self._process is not None:
            end_group(self._process, STOP_DEADLINE_S)
        self._errors.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _name(self) -> str:
        command = " ".join([Path(self._command[0]).name, *self._command[1:]])
        return f"{self._side}: {command}" if self._side else command

    def _answer(self, deadline_s: float, at: str = "") -> dict:
        end = time.monotonic() + deadline_s
        while b"\n" not in self._unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise CouldNotRun(f"{self._name()}: no answer{at} within {deadline_s:g} s{self._last_words()}")
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                raise CouldNotRun(f"{self._name()}: has ended{at}{self._last_words()}")
            self._unread += piece
        line, self._unread = self._unread.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise CouldNotRun(f"{self._name()}: does not serve (no --serve in this build?): {line[:80]!r}")
        return answer

    def _last_words(self) -> str:
        """Last line that it wrote on stderr, as ": text"."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def _is_time(us: object) -> bool:
    return isinstance(us, (int, float)) and math.isfinite(us) and us >= 0
