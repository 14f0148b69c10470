"""Rows of ci/compare_*.sh: times of one all-reduce by Lockstep (records) and by peers (CSV of bench/peers), and tables:

    compare_rows.py collectives FOLDER               the table of ci/compare_collectives.sh
    compare_rows.py hosts FOLDER RANKS GOODPUT_MB_S  the table of ci/compare_hosts.sh

A folder holds one file per run of a program: Lockstep's *.jsonl (docs/record_format.md; *@auto@*: run with --algo auto),
peers' *.csv with lines
label,ranks,bytes,calls,median_us,mean_us,min_us. Runs of several rounds of the same row are joined by their median.
"""

from __future__ import annotations

import json
import statistics
import sys
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


# ---- The table of ci/compare_collectives.sh. A ratio above 1 says that Lockstep is faster by this factor. The limit is the time that
# the machine needs to move the bytes of a two-shot all-reduce, measured in the same run.

PEERS = ("openmpi", "mpich", "gloo")
LIMIT = "two-shot limit"
LIMIT_FROM_BYTES = 1 << 20  # below, the limit's own start and end weigh more than its bytes


def collectives_row(times: Times, ranks: int, size: int) -> list[str] | None:
    at = {label: times.get(Key(label, ranks, size)) for label in ("lockstep ring", "openmpi ring", LIMIT)}
    auto = best(times, ranks, size, "lockstep auto")
    ours = auto or best(times, ranks, size, OURS)
    peers = [found for found in (best(times, ranks, size, name) for name in PEERS) if found]
    if ours is None or not peers:
        return None
    peer = min(peers, key=lambda found: found[1])
    own_best = best(times, ranks, size, OURS) or ours
    ring = f"{at['openmpi ring'] / at['lockstep ring']:.2f}" if at["openmpi ring"] and at["lockstep ring"] else "-"
    return [
        f"{ranks}",
        size_text(size),
        ours[0].removeprefix(OURS + " "),
        time_text(ours[1]),
        own_best[0].removeprefix(OURS + " "),
        time_text(own_best[1]),
        peer[0],
        time_text(peer[1]),
        f"{peer[1] / ours[1]:.2f}",
        ring,
        f"{100 * at[LIMIT] / ours[1]:.0f} %" if at[LIMIT] and size >= LIMIT_FROM_BYTES else "-",
    ]


def print_collectives(folder: Path) -> None:
    times = load(folder)
    lines = []
    for ranks, size in sorted({(key.ranks, key.bytes) for key in times}):
        line = collectives_row(times, ranks, size)
        if line:
            lines.append(line)
    print("Times of a float sum all-reduce, out of place, median of a call on its slowest rank.\n")
    print_table(
        ["ranks", "size", "ours", "time", "our fastest", "time", "best peer", "time", "peer / ours", "ring / ring", "of limit"],
        lines,
    )


# ---- The table of ci/compare_hosts.sh

WIRE_MB_S = 125.0  # 1 Gbit/s


def wire_limit_us(ranks: int, size: int, mb_s: float) -> float:
    """Bytes that each port must carry in each direction: 2 (p-1)/p of the bytes."""
    return 2 * (ranks - 1) / ranks * size / mb_s


def print_hosts(folder: Path, ranks: int, goodput: float) -> None:
    times = load(folder)
    labels = sorted({key.label for key in times}, key=lambda label: (not is_ours(label), label))
    sizes = sorted({key.bytes for key in times})
    print(f"Times of a float sum all-reduce, {ranks} hosts, median of a call on its slowest rank.\n")
    at = lambda label, size: times.get(Key(label, ranks, size))  # noqa: E731
    print_table(
        ["", *map(size_text, sizes)],
        [[label, *(time_text(at(label, s)) if at(label, s) else "-" for s in sizes)] for label in labels],
    )
    print(f"\nBest of Lockstep's plans; the wire carries {goodput:.1f} MB/s each way (measured), 125 at the most.\n")
    lines = []
    for size in sizes:
        ours = best(times, ranks, size, OURS)
        ompi = best(times, ranks, size, "openmpi")
        gloo = best(times, ranks, size, "gloo")
        if ours is None or ompi is None:
            continue
        lines.append([
            size_text(size),
            ours[0].removeprefix(OURS + " "),
            time_text(ours[1]),
            ompi[0].removeprefix("openmpi "),
            f"{ompi[1] / ours[1]:.2f}",
            f"{gloo[1] / ours[1]:.2f}" if gloo else "-",
            f"{100 * wire_limit_us(ranks, size, goodput) / ours[1]:.1f} %",
            f"{100 * wire_limit_us(ranks, size, WIRE_MB_S) / ours[1]:.1f} %",
        ])
    print_table(
        ["size", "best plan", "time", "best of Open MPI", "Open MPI / ours", "Gloo / ours", "of goodput", "of 1 Gbit/s"],
        lines,
    )


def main() -> None:
    match sys.argv[1:]:
        case ["collectives", folder]:
            print_collectives(Path(folder))
        case ["hosts", folder, ranks, goodput]:
            print_hosts(Path(folder), int(ranks), float(goodput))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
