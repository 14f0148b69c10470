#!/usr/bin/env python3
"""Runs clang-tidy on the sources that a build folder compiles; skips those that were clean and have not changed, nor any
header of ours that they see. Prints the findings; exits with 1 if there are any.

    ci/tidy.py --build build/ci [--tests] [--jobs N] [FILE ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from source_tree import FOLDERS, SourceTree, Stamps

CLANG_TIDY = "clang-tidy-14"


def compiled_sources(root: Path, build: Path) -> dict[str, str]:
    """Our C++ sources in the build's compile_commands.json: path from the root -> command."""
    database = build / "compile_commands.json"
    if not database.is_file():
        raise SystemExit(f"ci/tidy.py: {database} is not there; configure first: cmake --preset {build.name}")
    sources = {}
    for entry in json.loads(database.read_text(encoding="utf-8")):
        path = os.path.relpath(entry["file"], root)
        if path.split(os.sep)[0] in FOLDERS and path.endswith(".cpp"):
            sources[path] = entry["command"]
    return sources


def tidy(root: Path, build: Path, path: str) -> str | None:
    """clang-tidy's findings in one source; nothing if there are none."""
    command = [CLANG_TIDY, "--quiet", "-p", str(build), path]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return f"{done.stdout.rstrip()}\n{path}: repeat with: {' '.join(command)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--tests", action="store_true", help="*_test.cpp too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*", help="only these; paths from the root")
    options = parser.parse_args()
    root, build = options.root.resolve(), options.build.resolve()

    tree = SourceTree(root)
    stamps = Stamps(root / "build" / "lint" / "tidy")
    rules = (root / ".clang-tidy").read_text(encoding="utf-8")
    sources = compiled_sources(root, build)
    if unknown := sorted(set(options.files) - set(sources)):
        raise SystemExit(f"ci/tidy.py: not among the C++ sources that {build} compiles: {' '.join(unknown)}")
    chosen = options.files or sorted(s for s in sources if options.tests or not s.endswith("_test.cpp"))
    digests = {path: tree.digest(path, rules, sources[path]) for path in chosen}
    waiting = [path for path in chosen if not stamps.has(digests[path])]

    findings = []
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        for path, finding in zip(waiting, pool.map(lambda p: tidy(root, build, p), waiting)):
            if finding:
                findings.append(finding)
            else:
                stamps.add(digests[path])
    print("\n".join(findings + [f"clang-tidy: {len(chosen)} files, {len(chosen) - len(waiting)} unchanged since they "
                                f"were clean, {len(findings)} with findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
