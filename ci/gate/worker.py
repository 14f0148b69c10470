"""A benchmark that stays in a process and runs what it is told: the other end of bench/serve/orders.h."""
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import CouldNotRun

START_DEADLINE_S = 120  # to make cases ready
ORDER_DEADLINE_S = 60


class Worker:
    """One process of one build. Between orders it sleeps in a read."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None,
                 core: int | None = None):
        self._command = [str(word) for word in command]
        self._errors = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd=folder,
                env={**os.environ, **(environment or {})}, start_new_session=True,
                preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}))
        except OSError as error:
            raise CouldNotRun(f"{self._command[0]}: cannot be started: {error.strerror}") from error
        self._unread = b""
        try:
            hello = self._answer(START_DEADLINE_S)
            if hello.get("serve") != 1:
                raise CouldNotRun(f"{self._name()}: does not serve (no --serve in this build?)")
            self.cases: list[str] = hello["cases"]
        except BaseException:
            self.stop()
            raise

    def run(self, case: int, calls: int, runs: int = 1) -> list[float]:
        """The mean time of a call in each run, in microseconds."""
        order = json.dumps({"case": case, "runs": runs, "calls": calls}) + "\n"
        try:
            self._process.stdin.write(order.encode())
            self._process.stdin.flush()
        except OSError as error:
            raise CouldNotRun(f"{self._name()}: has ended{self._last_words()}") from error
        answer = self._answer(ORDER_DEADLINE_S)
        if "us" not in answer:
            raise CouldNotRun(f"{self._name()}: {answer.get('error', answer)}")
        return answer["us"]

    def stop(self) -> None:
        """Ends the process, with all that it has started, and waits for it."""
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()
            except OSError:  # it has ended already, with an order unread
                pass
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._errors.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _name(self) -> str:
        return " ".join([Path(self._command[0]).name, *self._command[1:]])

    def _answer(self, deadline_s: float) -> dict:
        end = time.monotonic() + deadline_s
        while b"\n" not in self._unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise CouldNotRun(f"{self._name()}: no answer within {deadline_s:g} s{self._last_words()}")
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                raise CouldNotRun(f"{self._name()}: has ended{self._last_words()}")
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
        """What it wrote on stderr last, as ": text"."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""
