"""Reads a sweep's output as scripts read nccl-tests': by the shape of its lines, without knowledge of Lockstep."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    time_us: float
    algbw: float
    busbw: float
    wrong: int | None  # None for N/A


@dataclass(frozen=True)
class Row:
    size: int
    count: int
    dtype: str
    op: str
    root: int
    out_of_place: Placement
    in_place: Placement


def _placement(cells: list[str]) -> Placement:
    time_us, algbw, busbw, wrong = cells
    return Placement(float(time_us), float(algbw), float(busbw), None if wrong == "N/A" else int(float(wrong)))


def rows(text: str) -> list[Row]:
    """Every line that begins with a number; the first 13 columns are nccl-tests'."""
    found = []
    for line in text.splitlines():
        if not re.match(r"\s*\d+\s+\d+\s", line):
            continue
        cells = line.split()
        found.append(Row(int(cells[0]), int(cells[1]), cells[2], cells[3], int(cells[4]),
                         _placement(cells[5:9]), _placement(cells[9:13])))
    return found


def average_bus_bandwidth(text: str) -> float:
    return float(re.search(r"^# Avg bus bandwidth\s*:\s*([0-9.eE+-]+)", text, re.MULTILINE).group(1))


def out_of_bounds(text: str) -> tuple[int, str]:
    match = re.search(r"^# Out of bounds values\s*:\s*(\d+) (OK|FAILED)", text, re.MULTILINE)
    return int(match.group(1)), match.group(2)
