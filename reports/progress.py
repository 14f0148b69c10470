"""How far long work is, on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Callable, Optional, TextIO

FIRST_S = 5  # shorter work needs no line
WIDTH = 79  # a longer line would not be overwritten


def time_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


class Progress:
    """One line on stderr, rewritten in place from the sixth second on: what is done of all, the time so far, an estimate of the rest.
    Nothing if stderr is no terminal. `stream` and `seconds` are for tests."""

    def __init__(self, unit: str, total: int, stream: Optional[TextIO] = None, seconds: Callable[[], float] = time.monotonic) -> None:
        self.unit, self.total, self.stream, self.seconds = unit, total, stream or sys.stderr, seconds
        self.begin, self.is_shown = seconds(), False

    def __call__(self, now: str, done: int, total: Optional[int] = None) -> None:
        """`now`: what is worked on next."""
        elapsed, total = self.seconds() - self.begin, self.total if total is None else total
        if elapsed < FIRST_S or not self.stream.isatty():
            return
        left = f", about {time_text(elapsed * (total - done) / done)} left" if done > 0 else ""
        line = f"{done} of {total} {self.unit}, {time_text(elapsed)}{left}: {now}"
        print(f"\r\033[K{line[:WIDTH]}", end="", file=self.stream, flush=True)
        self.is_shown = True

    def wipe(self) -> None:
        """Before any other output."""
        if self.is_shown:
            print("\r\033[K", end="", file=self.stream, flush=True)
        self.is_shown = False
