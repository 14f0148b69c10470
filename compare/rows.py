"""Times of one all-reduce by Lockstep (records) and by peers (CSV of compare/peers), and tables of text.

A folder holds one file per run of a program: Lockstep's *.jsonl (docs/record_format.md; *@auto@*: run with --algo auto), peers' *.csv
with lines label,ranks,bytes,calls,median_us,mean_us,min_us. Runs of several rounds of the same row are joined by their median.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

OURS = "lockstep"


@dataclass(frozen=True)
class Key:
    label: str  # "lockstep ring", "openmpi default", "gloo ring_chunked", ...
    ranks: int
    bytes: int


Times = dict[Key, float]  # median time of a call, us


def rows_of_records(path: Path) -> list[tuple[Key, float]]:
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["record"] != "row" or record["in_place"]:
            continue
        if record["status"] != "ok":
            raise SystemExit(f"{path}: {record['algorithm']} at {record['bytes']} bytes: {record['status']}")
        auto = "auto " if "@auto@" in path.name else ""  # records name what auto chose
        key = Key(f"{OURS} {auto}{record['algorithm']}", record["ranks"], record["bytes"])
        rows.append((key, record["stats"]["median"]))
    return rows


def rows_of_csv(path: Path) -> list[tuple[Key, float]]:
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = line.split(",")
        if len(cells) != 7:  # a line printed by the launcher
            continue
        rows.append((Key(cells[0], int(cells[1]), int(cells[2])), float(cells[4])))
    return rows


def load(folder: Path) -> Times:
    rounds: dict[Key, list[float]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        rows = rows_of_records(path) if path.suffix == ".jsonl" else rows_of_csv(path) if path.suffix == ".csv" else []
        for key, time_us in rows:
            rounds[key].append(time_us)
    if not rounds:
        raise SystemExit(f"{folder}: no results")
    return {key: statistics.median(times) for key, times in rounds.items()}


def is_ours(label: str) -> bool:
    return label.split()[0] == OURS


def best(times: Times, ranks: int, size: int, prefix: str) -> tuple[str, float] | None:
    """The fastest row whose label begins with the prefix."""
    found = [(t, k.label) for k, t in times.items() if (k.ranks, k.bytes) == (ranks, size) and k.label.startswith(prefix)]
    return (min(found)[1], min(found)[0]) if found else None


def size_text(size: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def time_text(time_us: float) -> str:
    if time_us >= 1e4:
        return f"{time_us / 1e3:.1f} ms"
    return f"{time_us:.1f} us" if time_us < 1e3 else f"{time_us / 1e3:.2f} ms"


def print_table(head: list[str], lines: list[list[str]]) -> None:
    widths = [max(len(line[c]) for line in [head, *lines]) for c in range(len(head))]
    for line in [head, *lines]:
        print("  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(line, widths))))


PEERS = ("openmpi", "mpich", "gloo")
LIMIT = "two-shot limit"
LIMIT_FROM_BYTES = 1 << 20  # below, the limit's own start and end weigh more than its bytes
WIRE_MB_S = 125.0  # 1 Gbit/s


def wire_limit_us(ranks: int, size: int, mb_s: float) -> float:
    """Bytes that each port must carry in each direction: 2 (p-1)/p of the bytes."""
    return 2 * (ranks - 1) / ranks * size / mb_s
