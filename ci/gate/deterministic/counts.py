"""Instructions of a call, counted by callgrind (valgrind.org/docs/manual/cl-manual.html).

A worker runs under it, and only what is within lockstep_served_run (bench/serve/orders.cpp) is counted; each order leaves a
dump of its own. A case is asked for one call to make it ready, then for 1 and for 1 + CALLS: the difference is the calls' own.
Counts repeat exactly for code of one thread that asks no clock what to do; code that waits for another thread does not belong
here. valgrind shows programs a processor without AVX-512, so that counts are those of the AVX2 code."""
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..builds import Build
from ..errors import CouldNotRun
from ..toolchain import made_with
from ..worker import Worker

CALLS = 2
# glibc keeps what is freed in lists of a size each, so that malloc need not search: otherwise how long it searches depends on all
# that the process allocated before, and one allocation more anywhere moved counts of code without a change by up to 2.4 %.
MALLOC = "glibc.malloc.tcache_count=65535"
OPTIONS = ("--tool=callgrind", "--collect-atstart=no", "--toggle-collect=lockstep_served_run", "--dump-after=lockstep_served_run")


def why_it_cannot_count() -> str | None:
    return None if shutil.which("valgrind") else "valgrind is not installed (package valgrind)"


def counted_with(build: Build) -> dict[str, str]:
    """What counts depend on beside the source."""
    tool = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    made = made_with(build.folder)
    return {"tool": tool, "compiler": made["compiler"], "flags": made["flags"], "libc": f"{' '.join(platform.libc_ver())} {MALLOC}",
            "processor": _features()}


def count(build: Build, command: Sequence[str]) -> dict[str, float]:
    """Instructions of a call, by case of the worker."""
    with tempfile.TemporaryDirectory(prefix="lockstep_counts_") as name:
        folder = Path(name)
        under = ["valgrind", *OPTIONS, f"--callgrind-out-file={folder}/dump", str(build.program(command[0])), *command[1:], "--serve"]
        with Worker(under, {"GLIBC_TUNABLES": MALLOC}) as worker:
            cases = worker.ready()
            for index in range(len(cases)):
                for calls in (1, 1, 1 + CALLS):
                    worker.run(index, calls)
        dumps = [_total(folder / f"dump.{number}") for number in range(1, 3 * len(cases) + 1)]
    return {case: (dumps[3 * i + 2] - dumps[3 * i + 1]) / CALLS for i, case in enumerate(cases)}


def _total(path: Path) -> int:
    try:
        found = re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE)
    except OSError as error:
        raise CouldNotRun(f"valgrind wrote no dump for an order ({path.name}); does the program export lockstep_served_run?") from error
    if not found:
        raise CouldNotRun(f"valgrind: {path.name} has no totals")
    return int(found.group(1))


def _features() -> str:
    """What of the processor decides which code runs under valgrind: instruction sets of ours, string functions of libc's."""
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    has = set(flags.group(1).split()) if flags else set()
    return " ".join(name for name in ("avx2", "fma", "bmi2", "f16c", "erms", "fsrm") if name in has)
