"""How far it is, on a terminal only: one line of stderr that is written over, and wiped before anything else is said."""
import sys


def say(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def wipe() -> None:
    say("")
