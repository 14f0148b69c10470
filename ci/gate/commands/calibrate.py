"""gate.py calibrate: measures the speed of the machine now, as records. Add them to those of each session that is compared later, so that
`compare` can separate changes of the machine from changes of the code. Any build will do, but use the same for all sessions."""
import argparse
from pathlib import Path

from gate.builds import resolve
from gate.drift import RUN_LINE_PROGRAM, calibrate
from gate.model import UsageError
from gate.inputs.files_for_tests import text_of
from gate.inputs.records import CALIBRATION_PROGRAM
from gate.outputs.records import check_writable, write_whole
from gate.commands.ab import ROOT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--build", required=True, metavar="REV|BUILD", help="a build folder, or a revision")
    parser.add_argument("--json", required=True, type=Path, metavar="FILE", help="file for the records")
    parser.add_argument("--processes", type=int, default=8, metavar="N",
                        help="number of fresh processes of each case: only processes are independent (default: 8)")
    parser.add_argument("--build-cache", type=Path, default=ROOT / "out" / "gate", metavar="DIR",
                        help="folder of builds (default: out/gate)")
    parser.add_argument("--cmake", action="append", default=[], metavar="FLAG",
                        help="flag for the build, such as -DLOCKSTEP_CUDA=OFF; may be repeated")


def run(arguments: argparse.Namespace) -> int:
    if arguments.processes < 1:
        raise UsageError(f"--processes {arguments.processes}; allowed: at least 1")
    check_writable(arguments.json, "--json")
    programs = [CALIBRATION_PROGRAM, RUN_LINE_PROGRAM]
    build = resolve(arguments.build, "--build", programs, ROOT, arguments.build_cache, arguments.cmake)
    lines = calibrate(build, arguments.processes)
    write_whole(arguments.json, text_of(lines), "--json")
    print(f"{arguments.json}: {arguments.processes} runs of each of the calibration cases")
    return 0
