#!/usr/bin/env python3
"""Runs clang-tidy on the sources that a build folder compiles; skips those that were clean and have not changed, nor any
header of ours that they see. Prints the findings; exits with 1 if there are any. Sources that ci/source_groups.py puts
together are first checked as one, in half the time; only if that has findings, each is checked alone, and that counts.

    ci/tidy.py --build build/dev [--tests] [--jobs N] [FILE ...]
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from source_groups import groups
from source_tree import SourceTree, check_changed, check_parser, compile_commands

CLANG_TIDY = "clang-tidy-14"
# Warnings that groups cause: members are headers to clang-tidy, although they are named .cpp and hide names.
GROUP_OPTIONS = ("--quiet", "--checks=-bugprone-suspicious-include", "--extra-arg=-Wno-shadow")
# Sources that Highway compiles once for each instruction set are read once: the text is the same.
ONE_INSTRUCTION_SET = " -DHWY_COMPILE_ONLY_STATIC "
LARGEST_GROUP = 20  # larger than in builds, as no code is generated
HEADER_FILTER = re.compile(r"^HeaderFilterRegex: *'(.*)'", re.MULTILINE)


def compiled_sources(root: Path, build: Path, ours: Path) -> dict[str, str]:
    """The build's C++ sources: path from the root -> command as clang-tidy takes it. Writes these to
    `ours`/compile_commands.json."""
    entries = {}
    for path, entry in compile_commands(root, build).items():
        compiler, options = entry["command"].split(" ", 1)
        entries[path] = {**entry, "command": compiler + ONE_INSTRUCTION_SET + options}
    ours.mkdir(parents=True, exist_ok=True)
    (ours / "compile_commands.json").write_text(json.dumps(list(entries.values()), indent=1), encoding="utf-8")
    return {path: entry["command"] for path, entry in entries.items()}


def tidy(root: Path, database: Path, path: str) -> str | None:
    """clang-tidy's findings in one source; nothing if there are none."""
    command = [CLANG_TIDY, "--quiet", "-p", str(database), path]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return f"{done.stdout.rstrip()}\n{path}: repeat with: {' '.join(command)}"


def flags(command: str) -> list[str]:
    """A compile command's options, without the compiler, the source and the object."""
    words = shlex.split(command)
    first = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    last = next((i for i, word in enumerate(words) if word in ("-o", "-c")), len(words))
    return words[first:last]


def grouped(root: Path, sources: dict[str, str], paths: list[str]) -> list[list[str]]:
    """The paths in groups of one folder and one set of flags, the largest groups first."""
    alike: dict[tuple, list[Path]] = {}
    for path in paths:
        alike.setdefault((os.path.dirname(path), *flags(sources[path])), []).append(root / path)
    found = [[str(path.relative_to(root)) for path in group]
             for members in alike.values() for group in groups(members, LARGEST_GROUP)]
    return sorted(found, key=lambda group: -sum((root / path).stat().st_size for path in group))


def group_is_clean(root: Path, command: str, group: list[str]) -> bool:
    rules = root / ".clang-tidy"
    headers = HEADER_FILTER.search(rules.read_text(encoding="utf-8"))
    shown = "|".join([*(headers.groups() if headers else ()), r"\.cpp$"])
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "unit.cpp"
        unit.write_text("".join(f'#include "{root / path}"\n' for path in group), encoding="utf-8")
        call = [CLANG_TIDY, f"--config-file={rules}", f"--header-filter={shown}", *GROUP_OPTIONS, str(unit), "--"]
        return subprocess.run([*call, *flags(command)], cwd=root, capture_output=True).returncode == 0


def tidy_group(root: Path, database: Path, sources: dict[str, str], group: list[str]) -> dict[str, str | None]:
    """Findings of tidy() for each source of a group."""
    if len(group) > 1 and group_is_clean(root, sources[group[0]], group):
        return dict.fromkeys(group)
    return {path: tidy(root, database, path) for path in group}


def main() -> int:
    parser = check_parser(__doc__)
    parser.add_argument("--tests", action="store_true", help="*_test.cpp too")
    options = parser.parse_args()
    root, build = options.root.resolve(), options.build.resolve()

    tree, database = SourceTree(root), root / "build" / "lint"
    rules = (root / ".clang-tidy").read_text(encoding="utf-8")
    sources = compiled_sources(root, build, database)
    if unknown := sorted(set(options.files) - set(sources)):
        raise SystemExit(f"ci/tidy.py: not among the C++ sources that {build} compiles alone: {' '.join(unknown)}")
    chosen = options.files or sorted(s for s in sources if options.tests or not s.endswith("_test.cpp"))
    digests = {path: tree.digest(path, rules, sources[path]) for path in chosen}
    unchanged, findings = check_changed(database / "tidy", digests, lambda paths: grouped(root, sources, paths),
                                        lambda group: tidy_group(root, database, sources, group), options.jobs)
    print("\n".join(findings + [f"clang-tidy: {len(chosen)} files, {unchanged} unchanged since they were clean, {len(findings)} with findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
