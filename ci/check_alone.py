#!/usr/bin/env python3
"""Compiles each source and each header by itself, without making code. CI's builds compile several sources as one, and do not
see that one lacks an include which another has, or hides a name (-Wshadow). A header that some source
includes first is checked with that source; headers that show third-party headers (ci/includes.txt) are left out. Skips sources
that passed before and have not changed, nor any header of ours that they include. Prints the compiler's errors; exits with 1 if
there are any.

    ci/check_alone.py --build build/dev [--jobs N] [FILE ...]
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from check_includes import Table
from source_tree import SOURCES, SourceTree, check_changed, check_parser, compile_commands

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


def errors_of(root: Path, path: str, command: str) -> dict[str, str | None]:
    done = subprocess.run(shlex.split(command), cwd=root, capture_output=True, text=True)
    return {path: f"{path}:1: does not compile alone: {command}\n{done.stderr.rstrip()}" if done.returncode else None}


def main() -> int:
    parser = check_parser(__doc__)
    parser.add_argument("--table", type=Path, default=Path(__file__).resolve().parent / "includes.txt")
    options = parser.parse_args()
    root, build = options.root.resolve(), options.build.resolve()

    tree = SourceTree(root)
    commands = {path: parsing(entry["command"]) for path, entry in compile_commands(root, build).items()}
    commands |= {path: HEADER.format(root=root, build=build, path=path) for path in headers_of_none(tree, Table.read(options.table))}
    if unknown := sorted(set(options.files) - set(commands)):
        raise SystemExit(f"neither a source that {build} compiles alone nor a header that needs it: {' '.join(unknown)}")
    digests = {path: tree.digest(path, commands[path]) for path in options.files or sorted(commands)}
    unchanged, findings = check_changed(root / "build" / "lint" / "alone", digests, lambda paths: [[path] for path in paths],
                                        lambda group: errors_of(root, group[0], commands[group[0]]), options.jobs)
    print("\n".join(findings + [f"compiled alone: {len(digests)} files, {unchanged} unchanged since they passed, {len(findings)} with errors"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
