#!/usr/bin/env python3
"""Compiles each source and each header by itself, without making code. CI's builds compile several sources as one, and do not
see that one lacks an include which another has, or hides a name (-Wshadow). A header that some source
includes first is checked with that source; headers that show third-party headers (ci/includes.txt) are left out. Skips sources
that passed before and have not changed, nor any header of ours that they include. Prints the compiler's errors; exits with 1 if
there are any.

    ci/check_alone.py --build build/dev [--jobs N] [FILE ...]
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_includes import Table
from source_tree import SOURCES, SourceTree, Stamps, compile_commands

# Flags that only matter when code is generated, and the compiler cache, which caches nothing without code.
CODE = re.compile(r"^\S*ccache | -(?:O\S+|g\S*)(?= )| -o \S+(?= )| -c(?= )")
# A header is included by an empty source, so that it is not the main file.
HEADER = "g++ -fsyntax-only -std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror -I {root} -I {build}/made -include {path} -x c++ /dev/null"


def parsing(command: str) -> str:
    """A compile command that only reads its source."""
    compiler, options = CODE.sub("", command).split(" ", 1)
    return f"{compiler} -fsyntax-only {options}"


def headers_of_none(tree: SourceTree, table: Table) -> list[str]:
    """Headers that no source includes before all else."""
    first = {includes[0].name for path in tree.files(*SOURCES) if (includes := tree.includes(path)) and includes[0].quoted}
    return [path for path in tree.files(".h") if path not in first and path not in table.shows]


def errors_of(root: Path, path: str, command: str) -> str | None:
    done = subprocess.run(shlex.split(command), cwd=root, capture_output=True, text=True)
    return None if done.returncode == 0 else f"{path}:1: does not compile alone: {command}\n{done.stderr.rstrip()}"


def main() -> int:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=here.parent)
    parser.add_argument("--table", type=Path, default=here / "includes.txt")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*", help="only these; paths from the root")
    options = parser.parse_args()
    root, build = options.root.resolve(), options.build.resolve()

    tree, stamps = SourceTree(root), Stamps(root / "build" / "lint" / "alone")
    commands = {path: parsing(entry["command"]) for path, entry in compile_commands(root, build).items()}
    commands |= {path: HEADER.format(root=root, build=build, path=path) for path in headers_of_none(tree, Table.read(options.table))}
    if unknown := sorted(set(options.files) - set(commands)):
        raise SystemExit(f"neither a source that {build} compiles alone nor a header that needs it: {' '.join(unknown)}")
    chosen = options.files or sorted(commands)
    digests = {path: tree.digest(path, commands[path]) for path in chosen}
    waiting = [path for path in chosen if not stamps.has(digests[path])]

    findings = []
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        for path, found in zip(waiting, pool.map(lambda path: errors_of(root, path, commands[path]), waiting)):
            if found:
                findings.append(found)
            else:
                stamps.add(digests[path])
    print("\n".join(findings + [f"compiled alone: {len(chosen)} files, {len(chosen) - len(waiting)} unchanged since they "
                                f"passed, {len(findings)} with errors"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
