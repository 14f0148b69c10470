#!/usr/bin/env python3
"""Writes docs/gpu_kernels.md: which kernels were executed without a GPU, and which deliberate mistakes were found.

    testing/ptx/page.py BUILD [--runs FILE] [--mutants FILE] [--count N]

Runs `ptx_check run` and `ptx_check mutants` of a build folder with CUDA, unless files with their output are given.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import textwrap
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "testing/ptx/entries.txt"
EQUAL = ROOT / "testing/ptx/equal_mutants.txt"
PAGE = ROOT / "docs/gpu_kernels.md"
RUN = re.compile(r"(right|WRONG) +[\d.]+ s  ([^:\n]+)")
VERDICTS = {"found": "found", "SURVIVED": "survived", "equal": "equal", "not run": "not reached"}


@dataclass
class Mutant:
    verdict: str
    kind: str
    what: str
    place: str
    entry: str
    case: str
    text: str

    @staticmethod
    def read(line: str) -> "Mutant | None":
        parts = [part.strip() for part in line.split(" | ", 6)]
        if len(parts) < 6 or parts[0] not in VERDICTS:
            return None
        return Mutant(VERDICTS[parts[0]], *parts[1:6], text=parts[6].strip("| ") if len(parts) > 6 else "")


@dataclass
class Row:
    right: int = 0
    cases: int = 0
    entries: set[str] = field(default_factory=set)
    mutants: Counter = field(default_factory=Counter)


def class_of(shape: str) -> str:
    """ "R3_C17,shifted" is "ragged, shifted"; with sizes of multiples of 8, every access can be 16 bytes wide."""
    sizes, *setting = shape.split(",")
    numbers = [int(number) for number in re.findall(r"\d+", sizes) if int(number) >= 8]
    whole = numbers and all(number % 8 == 0 for number in numbers)
    return ", ".join(["whole accesses" if whole else "ragged", *setting]).replace("_", " ")


def row_of(case: str) -> tuple[str, str, str]:
    family, _, dtype, shape = (case.split("/") + [""] * 3)[:4]
    return family, dtype, class_of(shape)


def rows_of(runs: str, mutants: list[Mutant]) -> dict[tuple[str, str, str], Row]:
    rows: dict[tuple[str, str, str], Row] = defaultdict(Row)
    for verdict, case in RUN.findall(runs):
        row = rows[row_of(case.strip())]
        row.cases += 1
        row.right += verdict == "right"
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            entry, case = line.split("\t")
            rows[row_of(case)].entries.add(entry)
    for mutant in mutants:
        rows[row_of(mutant.case)].mutants[mutant.verdict] += 1
    return rows


def table(head: list[str], rows: list[list[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def listed(mutants: list[Mutant], verdict: str) -> str:
    chosen = [mutant for mutant in mutants if mutant.verdict == verdict]
    names = subprocess.run(["c++filt"], input="\n".join(m.entry for m in chosen), capture_output=True, text=True, check=True)
    items = []
    for mutant, name in zip(chosen, names.stdout.splitlines()):
        short = re.sub(r"lockstep::|kernels::|executors::|\(anonymous namespace\)::|^void ", "", name)
        short = short[: short.index(">(") + 1] if ">(" in short else short.partition("(")[0]
        reason = f": {mutant.text}" if mutant.text else ""
        text = f"- `{short}`: {mutant.kind}, {mutant.what} ({mutant.place}){reason}"
        items.append(textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
    return "\n".join(items) + "\n" if items else "None.\n"


def page_of(runs: str, mutants: list[Mutant]) -> str:
    rows = rows_of(runs, mutants)
    verdicts = Counter(mutant.verdict for mutant in mutants)
    kinds: dict[str, Counter] = defaultdict(Counter)
    for mutant in mutants:
        kinds[mutant.kind][mutant.verdict] += 1
    order = list(VERDICTS.values())
    could_be = verdicts["found"] + verdicts["survived"]
    share = 100 * verdicts["found"] / max(1, could_be)
    by_row = [[*name, f"{row.right} of {row.cases}", len(row.entries), *(row.mutants[v] for v in order[:3])]
              for name, row in sorted(rows.items())]  # fmt: skip
    entries = len({line.split("\t")[0] for line in TABLE.read_text().splitlines() if not line.startswith("#")})
    return f"""# Kernels without a GPU: what was executed
Written by `testing/ptx/page.py`; [gpu.md](gpu.md) describes the interpreter and the mistakes.

- {sum(row.right for row in rows.values())} of {sum(row.cases for row in rows.values())} cases were right. They run all {entries} entries of the table (`testing/ptx/entries.txt`).
- {verdicts["found"]} of {could_be} mutants that ran and change something were found: {share:.1f} %. {verdicts["equal"]} change nothing, and
  {verdicts["not reached"]} are at instructions that no case reaches.

A mutant is counted in the row of the case that showed it, or of the first case that ran it. Shapes of whole accesses have
sizes of multiples of 8; shifted operands begin one element past an aligned address.

{table(["family", "dtype", "shapes", "cases right", "entries", *order[:3]], by_row)}
## Mistakes by kind
{table(["mistake", *order], [[kind, *(counts[v] for v in order)] for kind, counts in sorted(kinds.items())])}
## Mutants that survived
{listed(mutants, "survived")}
## Mutants that change nothing
{listed(mutants, "equal")}"""


def output_of(build: Path, command: list[str]) -> str:
    """Returns what ptx_check prints. It may fail: the page shows that."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(build / "stand_in"), "STAND_IN_PRODUCTS": "ours"}
    program = [str(build / "tests/ptx_check"), command[0], str(build / "ptx"), "--table", str(TABLE), *command[1:]]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=False).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--runs", type=Path, help="output of ptx_check run")
    parser.add_argument("--mutants", type=Path, help="output of ptx_check mutants")
    parser.add_argument("--count", default="300", help="number of mutants")
    given = parser.parse_args()
    runs = given.runs.read_text() if given.runs else output_of(given.build, ["run"])
    text = (given.mutants.read_text() if given.mutants
            else output_of(given.build, ["mutants", "--count", given.count, "--equal", str(EQUAL)]))  # fmt: skip
    PAGE.write_text(page_of(runs, [mutant for mutant in map(Mutant.read, text.splitlines()) if mutant]))


if __name__ == "__main__":
    main()
