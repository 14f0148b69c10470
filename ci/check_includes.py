#!/usr/bin/env python3
"""Checks the includes of the C++ sources:
- a folder includes only the folders that ci/includes.txt allows it;
- folders do not include each other in a cycle, also below one row of ci/includes.txt (tests aside);
- headers include the standard library and our own headers only. Headers of CUDA sources (.cuh) may also include CUDA's
  and headers of Highway sources (-inl.h) Highway's; no other .h may include those two kinds.
Prints file:line, what is wrong and what is allowed; exits with 1 if anything is wrong.

    ci/check_includes.py [--root FOLDER] [--table FILE]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from source_tree import HEADERS, SOURCES, SourceTree

STANDARD_HEADER = re.compile(r"[a-z_]+")  # no other header has a name without an ending


@dataclass
class Table:
    """The contents of ci/includes.txt."""

    allowed: dict[str, set[str]] = field(default_factory=dict)  # folder -> folders
    allowed_in_tests: dict[str, set[str]] = field(default_factory=dict)
    shows: dict[str, set[str]] = field(default_factory=dict)  # header -> third-party headers that it may include
    made: dict[str, str] = field(default_factory=dict)  # header that the build makes -> script that makes it

    @staticmethod
    def read(path: Path) -> "Table":
        table = Table()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            if m := re.fullmatch(r"(\S+) shows (\S+)", line.strip()):
                table.shows.setdefault(m.group(1), set()).add(m.group(2))
            elif m := re.fullmatch(r"(\S+) made by (\S+)", line.strip()):
                table.made[m.group(1)] = m.group(2)
            elif m := re.fullmatch(r"(\S+)( \(tests\))?:(.*)", line.strip()):
                rows = table.allowed_in_tests if m.group(2) else table.allowed
                rows[m.group(1)] = set(m.group(3).split())
            else:
                raise SystemExit(f"{path}:{number}: neither 'folder: folders', 'header shows header' nor 'header made by script': {line}")
        return table

    def row_of(self, path: str) -> str | None:
        """The row that covers a file: its folder, or the nearest one above."""
        for folder in Path(path).parents:
            if str(folder) in self.allowed:
                return str(folder)
        return None

    def allowed_for(self, path: str, row: str) -> set[str]:
        in_tests = self.allowed_in_tests.get(row, set()) | self.allowed_in_tests.get("*", set())
        return self.allowed[row] | {row} | (in_tests if is_test(path) else set())


def is_test(path: str) -> bool:
    return re.search(r"_(test|cases)\.\w+$", path) is not None


def cycle_in(edges: Mapping[str, Iterable[str]]) -> list[str] | None:
    """The nodes of a cycle of the graph, with the first one repeated at the end; None if there is no cycle."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str] | None:
        if node in path:
            return path[path.index(node) :] + [node]
        if node in done:
            return None
        for following in sorted(edges.get(node, ())):
            if found := visit(following, path + [node]):
                return found
        done.add(node)
        return None

    return next((found for node in edges if (found := visit(node, []))), None)


def folder_cycle(tree: SourceTree, files: list[str]) -> str | None:
    """A cycle of folders that include each other, with a file:line for each step. Tests may include any folder."""
    edges: dict[str, dict[str, str]] = {}  # folder -> folder that it includes -> the first such line
    for path in files:
        for include in tree.includes(path):
            here, there = str(Path(path).parent), str(Path(include.name).parent)
            if include.quoted and here != there and not is_test(path):
                edges.setdefault(here, {}).setdefault(there, f'{path}:{include.line} includes "{include.name}"')
    if not (cycle := cycle_in(edges)):
        return None
    steps = [f"  {edges[here][there]}" for here, there in zip(cycle, cycle[1:])]
    return "\n".join([f"folders include each other in a cycle: {' -> '.join(cycle)}; allowed: one direction", *steps])


def is_for_highway(path: str) -> bool:
    return path.endswith("-inl.h")


def check_edge(tree: SourceTree, table: Table, path: str, row: str, name: str) -> str | None:
    """Explains why `path` may not include our header `name`; None if it may."""
    if not (tree.root / name).is_file() and name not in table.made:
        return f'"{name}" is not in this repository; write its path from the root, or <> around a third-party header'
    if Path(path).suffix == ".h" and Path(name).suffix == ".cuh":
        return f'"{name}" is for CUDA sources; only .cu and .cuh files may include it'
    if Path(path).suffix == ".h" and is_for_highway(name) and not is_for_highway(path):
        return f'"{name}" is for Highway sources; only .cpp and -inl.h files may include it'
    if Path(path).suffix in HEADERS and name in table.shows:
        return f'"{name}" shows {", ".join(sorted(table.shows[name]))}; only sources may include it'
    target = table.row_of(name)
    allowed = table.allowed_for(path, row)
    if target not in allowed:
        return f'{row} may not include "{name}"; allowed: {" ".join(sorted(allowed))} (ci/includes.txt)'
    return None


def check_third_party(table: Table, path: str, name: str) -> str | None:
    """Explains why `path` may not include the third-party header `name`; None if it may."""
    if Path(path).suffix != ".h" or STANDARD_HEADER.fullmatch(name) or name in table.shows.get(path, set()):
        return None
    if is_for_highway(path) and name.startswith("hwy/"):
        return None
    return f"<{name}> in a header; allowed: the C++ standard library and our own headers (move it to the source)"


def check_file(tree: SourceTree, table: Table, path: str) -> list[str]:
    row = table.row_of(path)
    if row is None:
        return [f"{path}:1: its folder has no row in ci/includes.txt"]
    problems = []
    for include in tree.includes(path):
        if include.quoted:
            problem = check_edge(tree, table, path, row, include.name)
        else:
            problem = check_third_party(table, path, include.name)
        if problem:
            problems.append(f"{path}:{include.line}: {problem}")
    return problems


def main() -> int:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=here.parent)
    parser.add_argument("--table", type=Path, default=here / "includes.txt")
    options = parser.parse_args()

    tree = SourceTree(options.root.resolve())
    table = Table.read(options.table)
    problems = [f"{options.table}: the table has a cycle: {' -> '.join(cycle)}"] if (cycle := cycle_in(table.allowed)) else []
    files = tree.files(*HEADERS, *SOURCES)
    for path in files:
        problems += check_file(tree, table, path)
    if not problems and (cycle := folder_cycle(tree, files)):  # a forbidden include often closes a cycle, too: report it once
        problems.append(cycle)
    print("\n".join(problems + [f"include check: {len(files)} files, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
