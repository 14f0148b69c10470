"""Reading and printing of studies: Lockstep's records (docs/record_format.md), rows of peers (compare/peers/peers.h), and tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple


def records(path: Path, kind: str) -> list[dict[str, Any]]:
    """The records of a kind; a row or kernel whose data was wrong ends the study."""
    found = [record for line in path.read_text(encoding="utf-8").splitlines() if (record := json.loads(line))["record"] == kind]
    for record in found:
        if record.get("status", "ok") != "ok":
            raise SystemExit(f"{path}: {record.get('algorithm') or record.get('kernel', kind)}: {record['status']}: {record.get('error')}")
    return found


class PeerRow(NamedTuple):
    label: str  # "openmpi default", "gloo ring_chunked", "pytorch", ...
    case: str  # "all_reduce/4/1024": ranks, bytes; or a kernel's case
    calls: int
    median_us: float
    min_us: float


def peer_rows(path: Path) -> Iterator[PeerRow]:
    """Lines label,case,calls,median_us,mean_us,min_us; others are the launcher's."""
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = line.split(",")
        if len(cells) == 6:
            yield PeerRow(cells[0], cells[1], int(cells[2]), float(cells[3]), float(cells[5]))


def time_calls(calls: Sequence[Callable[[], object]], milliseconds: float, warm_up: int = 1, least: int = 1) -> list[float]:
    """Microseconds of each call, in turn, after some that are not timed."""
    for call in calls[:warm_up]:
        call()
    times: list[float] = []
    end = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < end or len(times) < least:
        call = calls[len(times) % len(calls)]
        before = time.perf_counter()
        call()
        times.append((time.perf_counter() - before) * 1e6)
    return times


def print_table(head: list[str], lines: list[list[str]]) -> None:
    widths = [max(len(line[c]) for line in [head, *lines]) for c in range(len(head))]
    for line in [head, *lines]:
        print("  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(line, widths))))


def markdown(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines])
