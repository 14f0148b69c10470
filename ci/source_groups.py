#!/usr/bin/env python3
"""Finds sources of a target that can be compiled as one: the presets release, ci, asan and tsan, and clang-tidy, take several at a time, as
most of their time goes into headers. Names of unnamed namespaces must differ within a group; a source that Highway compiles
once for each instruction set stays alone.

    ci/source_groups.py FILE ...      prints "GROUP FILE" for each that is not alone in its group
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LARGEST_GROUP = 10
_TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:(?:struct|class|enum class|enum|union|concept)\s+(\w+)|using\s+(\w+)\s*=)")
_VALUE = re.compile(r"[\w:<>,*&\[\]\s]*?\b(\w+)(?:<[^()]*>)?\s*[({=\[;]")
_TEST = re.compile(r"TEST(?:_[FP])?\((\w+), (\w+)\)")
_SKIPPED = ("//", "/*", "*", "}", "{", "#", ":", "namespace", "using", "static_assert", "TEST", "INSTANTIATE", "template")
_LITERAL = re.compile(r"""\"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'|//.*""")
_ALONE = "hwy/foreach_target.h"


def local_names(text: str) -> set[str]:
    """Names that a source defines at the outermost level of its unnamed namespaces, and its tests."""
    names = {"_".join(match) for match in _TEST.findall(text)}
    depth, opened_at = 0, None
    for line in text.splitlines():
        if opened_at is None and line.startswith("namespace {"):
            opened_at = depth
        elif opened_at is not None and depth == opened_at + 1 and line and not line[0].isspace():
            match = _TYPE.match(line) or (None if line.startswith(_SKIPPED) else _VALUE.match(line))
            if match:
                names.add(next(filter(None, match.groups())))
        line = _LITERAL.sub("", line)
        depth += line.count("{") - line.count("}")
        if opened_at is not None and depth <= opened_at:
            opened_at = None
    return names


def groups(paths: list[Path], largest: int = LARGEST_GROUP) -> list[list[Path]]:
    """Groups the sources in their order, each in the first group that has room and shares none of its names."""
    made: list[tuple[list[Path], set[str]]] = []
    alone: list[list[Path]] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if _ALONE in text:
            alone.append([path])
            continue
        names = local_names(text)
        for members, taken in made:
            if len(members) < largest and not names & taken:
                break
        else:
            members, taken = [], set()
            made.append((members, taken))
        members.append(path)
        taken |= names
    return [members for members, _ in made] + alone


def main() -> int:
    for number, members in enumerate(groups([Path(argument) for argument in sys.argv[1:]])):
        for path in members if len(members) > 1 else ():
            print(f"{number} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
