#!/usr/bin/env python3
"""CPU seconds that it takes to build revisions from nothing, two compilers at a time and without a compiler cache: by folder, of
nvcc, and in all.

    python3 -m compare build_cost [--preset release] [--target programs] [-D NAME=VALUE ...] BASE HEAD
"""

from __future__ import annotations

import argparse
import collections
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOG = "LOCKSTEP_BUILD_COST"  # the file to which compilers' costs are appended; set: this is the compiler's launcher


def children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def launch(command: list[str], log: str) -> int:
    status = subprocess.run(command, check=False).returncode
    group = "nvcc" if command[0].endswith("nvcc") else command[command.index("-o") + 1].split("/", maxsplit=1)[0]
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{group} {children_s():.2f}\n")
    return status


def build(revision: str, flags: argparse.Namespace, folder: Path) -> dict[str, float]:
    source, log = folder / "source", folder / "costs"
    source.mkdir()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", revision], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    begin_s = children_s()
    environment = {**os.environ, "CCACHE_DISABLE": "1", LOG: str(log)}
    for words in (["--preset", flags.preset, f"-DLOCKSTEP_CCACHE={Path(__file__).resolve()}", *(f"-D{given}" for given in flags.D)],
                  ["--build", "--preset", flags.preset, "-j2", *(["--target", flags.target] if flags.target else [])]):
        subprocess.run(["cmake", *words], cwd=source, env=environment, stdout=subprocess.DEVNULL, check=True)
    costs: dict[str, float] = collections.defaultdict(float)
    for line in log.read_text(encoding="utf-8").splitlines():
        group, seconds = line.split()
        costs[group] += float(seconds)
    nvcc = costs.get("nvcc", 0.0)
    return costs | {"all but nvcc": children_s() - begin_s - nvcc}  # with CMake, links and everything else


TARGETS: list[str] = []


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", default="release", help="preset of CMake (default: release)")
    parser.add_argument("--target", default="programs", help="what to build; '': everything (default: programs)")
    parser.add_argument("-D", action="append", default=[], metavar="NAME=VALUE", help="setting of CMake, such as LOCKSTEP_CUDA=OFF")
    parser.add_argument("revisions", nargs="+", metavar="REVISION", help="what git calls it: 0489b01, HEAD")


def run(options: argparse.Namespace) -> None:
    found = {}
    for revision in options.revisions:
        with tempfile.TemporaryDirectory() as folder:
            found[revision] = build(revision, options, Path(folder))
    print("CPU s".ljust(16), *(f"{revision[:12]:>12}" for revision in found))
    for group in sorted({group for costs in found.values() for group in costs} - {"all but nvcc"}) + ["all but nvcc"]:
        print(group.ljust(16), *(f"{costs.get(group, 0.0):12.1f}" for costs in found.values()))


if __name__ == "__main__":  # as the launcher of the builds' compilers
    sys.exit(launch(sys.argv[1:], os.environ[LOG]))
