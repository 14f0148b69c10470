"""The line of progress, with a clock and a terminal of the test."""

import io

from reports.progress import Progress


class Terminal(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def test_one_line_with_done_elapsed_and_left():
    now = [100.0]
    terminal = Terminal(True)
    progress = Progress("pages", 8, terminal, lambda: now[0])
    progress("kernels", 0)
    assert terminal.getvalue() == ""  # short work needs no line
    now[0] = 110
    progress("kernels", 2)
    assert terminal.getvalue() == "\r\033[K2 of 8 pages, 10 s, about 30 s left: kernels"
    progress("x" * 100, 1, 9)
    assert len(terminal.getvalue().rsplit("\033[K", 1)[1]) == 79
    progress.wipe()
    progress.wipe()
    assert terminal.getvalue().endswith("x\r\033[K")


def test_nothing_without_a_terminal():
    pipe = Terminal(False)
    now = [0.0]
    progress = Progress("pages", 8, pipe, lambda: now[0])
    now[0] = 1000
    progress("kernels", 1)
    progress.wipe()
    assert pipe.getvalue() == ""
