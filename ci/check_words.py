#!/usr/bin/env python3
"""Finds wording that makes a reader guess, in sources, scripts, pages and docs:

- a comment or docstring whose first word is one of OPENINGS: an answer without its question. "Returns ...", "Number of ...", "True if ..."
  name the subject. A comment that asks ("What if ...?") is fine.
- a rate without "per": "tokens" or "bytes" followed by an article and "rank", "GPU", "second". Write "tokens per second", "bytes per rank".
- a line of docs (*.md) over MAX_DOCS_COLUMNS characters.

Prints file:line, the words and what to write; exits with 1 if anything is found.

    ci/check_words.py [--root FOLDER] [FILE...]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Iterator

from source_tree import FOLDERS

SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".md", ".html", ".css", ".js", ".txt")
SLASHES = (".h", ".cpp", ".cu", ".cuh", ".js")
OPENINGS = "of|what|who|whose|whom"
MAX_DOCS_COLUMNS = 140

UNITS = (
    r"[KMGT]?i?B|bytes?|bits?|[KMGT]?FLOPs?|TFLOP/s|[mun]s|(?:micro|milli)?seconds|J|W|joules|watts|tokens|words|sequences|samples"
    r"|elements|elems|messages|microbatches|layers|chunks|rows|records|parameters|weights|experts|heads|kernels|buckets|operations"
    r"|instructions|iterations|threads|cores|GPUs|processes|ranks|one|two|three|four|once|twice"
)
PER = (
    "rank|GPU|SM|device|node|machine|host|socket|process|thread|warp|lane|core|step|microbatch|iteration|call|run|round|cycle|launch"
    "|kernel|layer|stage|sequence|head|expert|bucket|block|chunk|message|token|element|parameter|weight|word|row|column|line|link|direction"
    "|sample|case|tensor|file|page|collective|algorithm|size|key"
)
CLAUSE = r"(?!'s| (?:that|may|must|can|will|has|holds|is|gets|needs|sends|takes|waits|does|whose)\b)"  # not a rate: "that a rank sends"
RATE = re.compile(rf"(?<![\w%'-])(?:{UNITS})(?: an? (?:{PER})\b{CLAUSE}|(?<!one)(?<!two)(?<!three) a second\b(?! (?:time|pass|copy|call|run)))"
                  r"|\(an? (?:rank|GPU|device|node|second)\)")
EACH = re.compile(rf"\b(?<!such )an? [a-z]+ an? (?:{PER})\b{CLAUSE}(?! second)")
OPENS = re.compile(rf"(?:{OPENINGS})\b", re.IGNORECASE)
FREQUENCY = re.compile(r"(?:once|twice) a ")  # good English: "once a step"


def comment_starts(path: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Line number and text of each comment's or docstring's first line; comments on consecutive lines are one."""
    mark = "//" if path.suffix in SLASHES else "#"
    whole = re.compile(rf"\s*{mark}[/!#]?<?\s*(.*)")
    trailing = re.compile(rf"""[^"'`]*\s{mark}[/!]?<?\s+(.*)""")
    inside = False
    for number, line in enumerate(lines, start=1):
        if m := whole.match(line):
            if not inside:
                yield number, m.group(1)
            inside = m.group(1) != ""
            continue
        inside = False
        if path.suffix == ".py" and (m := re.match(r'\s*r?"""\s*(\w.*)', line)):
            yield number, m.group(1)
        elif m := trailing.match(line):
            yield number, m.group(1)


def openings(path: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    if path.suffix in (".md", ".html", ".css", ".txt"):
        return
    for number, text in comment_starts(path, lines):
        if OPENS.match(text) and "?" not in text:
            yield number, f'the comment begins with "{text.split()[0]}": name its subject first ("Returns ...", "Number of ...", "True if ...")'


def rates(lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        if " a " not in line and " an " not in line and "(a " not in line:
            continue
        for m in [*RATE.finditer(line), *EACH.finditer(line)]:
            if not FREQUENCY.match(m.group()):
                per = re.sub(r"\ban? (\w+\)?)$", r"per \1", m.group())
                yield number, f'"{m.group()}" is a rate: write "{per}"'


def long_lines(path: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        if path.suffix == ".md" and len(line) > MAX_DOCS_COLUMNS:
            yield number, f"{len(line)} characters; a line of docs has at most {MAX_DOCS_COLUMNS}"


def check_file(root: Path, path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = sorted([*openings(path, lines), *rates(lines), *long_lines(path, lines)])
    return [f"{path.relative_to(root)}:{number}: {what}" for number, what in found]


def files(root: Path) -> list[Path]:
    below = (path for folder in (*FOLDERS, "ci", "cmake", "docs", "reports") for path in (root / folder).rglob("*"))
    return sorted(path for path in (*below, *root.glob("*.md"), root / "CMakeLists.txt") if path.suffix in SUFFIXES and path.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("files", nargs="*", type=Path, help="only these files")
    options = parser.parse_args()

    root = options.root.resolve()
    paths = [path.resolve() for path in options.files] or files(root)
    findings = [finding for path in paths for finding in check_file(root, path)]
    print("\n".join([*findings, f"words: {len(paths)} files, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
