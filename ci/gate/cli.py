"""The command line of ci/gate.py."""
import argparse
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from gate import ab, deterministic, drift, history, store, stored
from gate.model import GateError, Report, UsageError, Verdict
from gate.outputs import add_arguments as add_output_arguments, prepare_outputs
from gate.builds import wipe

PASS, REGRESSION, USAGE, UNDECIDED, COULD_NOT_RUN = 0, 1, 2, 3, 4
JUDGES = (
    ("ab", ab, "two builds, whose runs alternate now"),
    ("exact", deterministic, "values that repeat exactly: counted instructions, bytes, steps, simulated times"),
    ("compare", stored, "stored measurements of two sides, or of one and a baseline store"),
    ("history", history, "a series of measurements: where did a level change?"),
)
TOOLS = (
    ("calibrate", drift, "measure the machine's speed now, as records for compare"),
    ("store", store, "add measurements to a baseline store"),
)
UNDECIDED_MEANS = {"pass": PASS, "fail": REGRESSION, "status": UNDECIDED}


def exit_status(report: Report, undecided: str) -> int:
    """Exit status of a report. A regression takes precedence; undecided and gone cases count as `undecided` sets."""
    if report.of(Verdict.SLOWER):
        return REGRESSION
    return UNDECIDED_MEANS[undecided] if report.of(Verdict.UNDECIDED) or report.of(Verdict.GONE) else PASS


class OneLineParser(argparse.ArgumentParser):
    """Reports errors as one line, without the usage above it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; allowed: what {self.prog} --help lists")


def parser() -> argparse.ArgumentParser:
    whole = OneLineParser(prog="gate.py", description="Decides whether a change made something slower. docs/gate.md describes how.",
                                    epilog="status: 0 pass, 1 regression, 2 usage, 3 undecided, 4 could not run")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module, summary in JUDGES:
        command = commands.add_parser(name, help=summary, description=module.__doc__)
        module.add_arguments(command)
        add_output_arguments(command)
        command.add_argument("--undecided", choices=sorted(UNDECIDED_MEANS), default="status",
                             help="meaning of undecided and gone cases if nothing is slower: pass, fail, or status 3 (default: status)")
        command.set_defaults(run=module.run)
    for name, module, summary in TOOLS:
        command = commands.add_parser(name, help=summary, description=module.__doc__)
        module.add_arguments(command)
        command.set_defaults(tool=module.run)
    return whole


def main(words: Sequence[str] | None = None) -> int:
    """Exit status in all events: Python's own status of an error, 1, would mean a regression."""
    words = sys.argv[1:] if words is None else words
    words = ["--head" if word == "--" else word for word in words]  # compare BASE... -- HEAD...
    try:
        return _run(words)
    except GateError as error:
        return _failed(str(error), error.status)
    except OSError as error:  # a failure outside the program: a full disk, no git
        return _failed(f"{error.filename or 'the system'}: {error.strerror or error}", COULD_NOT_RUN)
    except KeyboardInterrupt:
        return _failed("interrupted; nothing was written", COULD_NOT_RUN)
    except Exception:  # a bug of ours
        return _failed(traceback.format_exc().rstrip(), COULD_NOT_RUN)


def _run(words: Sequence[str]) -> int:
    arguments = parser().parse_args(words)
    if "tool" in arguments:  # has no verdict: it prints its own result
        return arguments.tool(arguments)
    outputs = prepare_outputs(arguments, words)
    report = arguments.run(arguments)
    outputs.write(report)
    return exit_status(report, arguments.undecided)


def _failed(why: str, status: int) -> int:
    wipe()
    print(f"gate.py: {why}", file=sys.stderr)
    return status
