#!/usr/bin/env python3
"""Compiles each source by itself, without making code. CI's builds compile several sources as one, and do not see that one
lacks an include which another has, or hides a name (-Wshadow). Skips those that passed and have not changed, nor any header
of ours that they see. Prints the compiler's errors; exits with 1 if there are any.

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

from source_tree import SourceTree, Stamps, chosen_sources, compile_commands

# What makes code, and the compiler cache, which keeps none of this.
CODE = re.compile(r"^\S*ccache | -(?:O\S+|g\S*)(?= )| -o \S+(?= )| -c(?= )")


def parsing(command: str) -> str:
    """A compile command that only reads its source."""
    compiler, options = CODE.sub("", command).split(" ", 1)
    return f"{compiler} -fsyntax-only {options}"


def errors_of(directory: str, command: str) -> str | None:
    done = subprocess.run(shlex.split(command), cwd=directory, capture_output=True, text=True)
    return None if done.returncode == 0 else f"{done.stderr.rstrip()}\nrepeat with: {command}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*", help="only these; paths from the root")
    options = parser.parse_args()
    root, build = options.root.resolve(), options.build.resolve()

    tree, stamps = SourceTree(root), Stamps(root / "build" / "lint" / "alone")
    entries = compile_commands(root, build)
    chosen = chosen_sources(entries, options.files, build)
    commands = {path: parsing(entries[path]["command"]) for path in chosen}
    digests = {path: tree.digest(path, commands[path]) for path in chosen}
    waiting = [path for path in chosen if not stamps.has(digests[path])]

    findings = []
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        results = pool.map(lambda path: errors_of(entries[path]["directory"], commands[path]), waiting)
        for path, found in zip(waiting, results):
            if found:
                findings.append(found)
            else:
                stamps.add(digests[path])
    print("\n".join(findings + [f"compiled alone: {len(chosen)} sources, {len(chosen) - len(waiting)} unchanged since they "
                                f"passed, {len(findings)} with errors"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
