"""gate.py ab: compares two builds, whose runs alternate now."""
import argparse
import time
from functools import partial
from pathlib import Path

from gate.ab import Budget, measure
from gate.builds import Build, differences, left_out, resolve, say
from gate.model import Report, UsageError
from gate.pairs import Pairing
from gate.rule import Rule
from gate.worker import Line, load_suite

ROOT = Path(__file__).resolve().parents[3]
SUITE = ROOT / "ci" / "gate_suite.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", required=True, metavar="REV|BUILD", help="the side to compare with: a revision, or a build folder")
    parser.add_argument("--head", required=True, metavar="REV|BUILD", help="the side that gets a verdict")
    parser.add_argument("--suite", default="gate", metavar="gate|FILE", help="lines NAME CORES COMMAND (default: ci/gate_suite.txt)")
    parser.add_argument("--budget", default="2m", metavar="TIME", help="time for measuring, without builds: 90s, 5m (default: 2m)")
    parser.add_argument("--threshold", default="2%", metavar="PERCENT", help="smaller changes do not matter (default: 2%%)")
    parser.add_argument("--build-cache", type=Path, default=ROOT / "out" / "gate", metavar="DIR",
                        help="folder of builds (default: out/gate)")
    parser.add_argument("--cmake", action="append", default=[], metavar="FLAG",
                        help="flag for builds of revisions, such as -DLOCKSTEP_CUDA=OFF; may be repeated")


def seconds_of(text: str, flag: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{flag} {text}; allowed: a time above 0, as 90, 90s, 2m or 1h")
    return seconds


def threshold_of(text: str, flag: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0.1 <= percent <= 100:
        raise UsageError(f"{flag} {text}; allowed: 0.1% to 100%")
    return percent / 100


def run(arguments: argparse.Namespace) -> Report:
    rule = Rule(threshold=threshold_of(arguments.threshold, "--threshold"))
    seconds = seconds_of(arguments.budget, "--budget")
    lines = load_suite(SUITE if arguments.suite == "gate" else Path(arguments.suite))
    programs = sorted({line.command[0] for line in lines})
    base, head = (resolve(text, flag, programs, ROOT, arguments.build_cache, arguments.cmake)
                  for text, flag in ((arguments.base, "--base"), (arguments.head, "--head")))
    return compare_builds(lines, base, head, rule, seconds)


def compare_builds(lines: list[Line], base: Build, head: Build, rule: Rule, seconds: float) -> Report:
    start = time.monotonic()
    pairings = {line.name: Pairing(partial(base.start, line.command, {}), partial(head.start, line.command, {}),
                                   line.one_core) for line in lines}
    results = measure(pairings, rule, Budget(seconds), progress=say)
    notes = [*left_out((base.side, head.side), ROOT), *differences(base.folder, head.folder)]
    return Report("ab", base.side, head.side, rule.threshold, 1 - 2 * rule.error, tuple(results), time.monotonic() - start, tuple(notes))
