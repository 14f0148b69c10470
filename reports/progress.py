"""How far long work is, on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Callable, Optional, TextIO

FIRST_S = 5  # shorter work needs no line
WIDTH = 79  # a longer line would not be overwritten


def duration_text(seconds: float) -> str:
    """"45 s", "3 min 20 s", "2 h 05 min": as the programs in C++ write it (bench/program/progress.cpp)."""
    whole = int(max(0.0, seconds) + 0.5)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60:02} min"


class Progress:
    """One line on stderr, rewritten in place from the sixth second on: what is done of all, the time so far, an estimate of the rest.
    Nothing if stderr is no terminal. `stream` and `seconds` are for tests."""

    def __init__(self, unit: str, total: int, stream: Optional[TextIO] = None, seconds: Callable[[], float] = time.monotonic) -> None:
        self.unit, self.total, self.seconds = unit, total, seconds
        self.stream = sys.stderr if stream is None else stream
        self.begin, self.is_shown = seconds(), False

    def __call__(self, now: str, done: int, total: Optional[int] = None) -> None:
        """`now`: what is worked on next."""
        self.total = self.total if total is None else total
        elapsed = self.seconds() - self.begin
        if elapsed < FIRST_S or not self.stream.isatty():
            return
        line = f"{done} of {self.total} {self.unit}, {duration_text(elapsed)}"
        if 0 < done <= self.total:
            line += f", about {duration_text(elapsed * (self.total - done) / done)} left"
        self.is_shown = True
        print(f"\r\033[K{f'{line}: {now}'[:WIDTH]}", end="", file=self.stream, flush=True)

    def wipe(self) -> None:
        """Before any other output."""
        if self.is_shown:
            print("\r\033[K", end="", file=self.stream, flush=True)
        self.is_shown = False
