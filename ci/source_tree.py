"""The C++ sources of this repository and what they include: shared by the include check and the linter.

    /usr/bin/python3 ci/source_tree.py     prints the paths of all C++ and CUDA sources and headers, from the root, one per line
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FOLDERS = ("core", "kernels", "collectives", "parallel", "schedules", "simulator", "trainer", "workload", "bench", "compare", "testing", "tests")
HEADERS = (".h", ".cuh")
SOURCES = (".cpp", ".cu")
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def compile_commands(root: Path, build: Path) -> dict[str, dict[str, str]]:
    """Our C++ sources in a build folder's compile_commands.json, which must compile each alone: path from the root -> entry."""
    database = build / "compile_commands.json"
    if not database.is_file():
        raise SystemExit(f"{database} is not there; configure first: cmake --preset {build.name}")
    entries = {os.path.relpath(entry["file"], root): entry for entry in json.loads(database.read_text(encoding="utf-8"))}
    return {path: e for path, e in entries.items() if path.split(os.sep)[0] in FOLDERS and path.endswith(".cpp")}


@dataclass(frozen=True)
class Include:
    line: int
    name: str
    quoted: bool  # "ours", as against <theirs>


class SourceTree:
    def __init__(self, root: Path):
        self.root = root

    def files(self, *suffixes: str) -> list[str]:
        """Paths from the root, sorted."""
        found = (path for folder in FOLDERS for path in (self.root / folder).rglob("*") if path.suffix in suffixes)
        return sorted(str(path.relative_to(self.root)) for path in found)

    @lru_cache(maxsize=None)
    def includes(self, path: str) -> tuple[Include, ...]:
        lines = (self.root / path).read_text(encoding="utf-8").splitlines()
        matches = ((number, _INCLUDE.match(line)) for number, line in enumerate(lines, start=1))
        return tuple(Include(number, m.group(2), m.group(1) == '"') for number, m in matches if m)

    def closure(self, path: str) -> list[str]:
        """The file and all of our headers that it sees, sorted."""
        seen: set[str] = set()
        waiting = [path]
        while waiting:
            current = waiting.pop()
            if current in seen or not (self.root / current).is_file():
                continue
            seen.add(current)
            waiting.extend(include.name for include in self.includes(current) if include.quoted)
        return sorted(seen)

    def digest(self, path: str, *salt: str) -> str:
        """Changes when the file, a header of ours that it sees, or the salt changes."""
        text = hashlib.sha256("\0".join(salt).encode())
        for name in self.closure(path):
            text.update(name.encode() + b"\0" + (self.root / name).read_bytes())
        return text.hexdigest()


def check_parser(doc: str) -> argparse.ArgumentParser:
    """Flags of a program that checks the sources of a build."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*", help="only these; paths from the root")
    return parser


def check_changed(passed: Path, digests: dict[str, str], groups: Callable[[list[str]], list[list[str]]],
                  check: Callable[[list[str]], dict[str, str | None]], jobs: int) -> tuple[int, list[str]]:
    """Checks the files whose digests are not in the folder `passed`, a group at a time: `check` returns each file's findings. Adds those
    without any. Returns the number of files that were not checked, and the findings."""
    passed.mkdir(parents=True, exist_ok=True)
    waiting = [path for path, digest in digests.items() if not (passed / digest).exists()]
    findings = []
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for found in pool.map(check, groups(waiting)):
            for path, finding in found.items():
                if finding:
                    findings.append(finding)
                else:
                    (passed / digests[path]).touch()
    return len(digests) - len(waiting), findings


if __name__ == "__main__":
    print("\n".join(SourceTree(Path(__file__).resolve().parent.parent).files(*HEADERS, *SOURCES)))
