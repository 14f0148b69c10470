"""A benchmark that stays in a process and runs what it is told: the other end of bench/serve/orders.h."""
import json
import math
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from gate.errors import CouldNotRun
from gate.groups import end_group, uninterrupted

START_DEADLINE_S = 120  # to make cases ready
ORDER_DEADLINE_S = 60  # seconds for each run: no case's call may take longer
STOP_DEADLINE_S = 2  # to end by itself, once nothing more will be said


def _begin(core: int | None, mask: set[signal.Signals]) -> None:
    """In the child, before its program."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if core is not None:
        os.sched_setaffinity(0, {core})


class Worker:
    """One process of one build, which makes its cases ready while its driver does other things, until ready(). Between
    orders it sleeps in a read."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None,
                 core: int | None = None, side: str = ""):
        """`side`: whose program it is, for messages."""
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
        """Its cases, once it has said them."""
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
        """Nothing more will be said to it: it ends by itself. stop() has yet to come."""
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                with suppress(OSError):  # it has ended already, with an order unread
                    stream.close()

    def stop(self) -> None:
        """Ends the process, with all that it has started, and waits for it."""
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
