"""The table of ci/compare_collectives.sh: compare_collectives_table.py FOLDER

A ratio above 1 says that Lockstep is faster by this factor. The limit is the time that the machine needs to move the
bytes of a two-shot all-reduce, measured in the same run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import compare_rows as rows

PEERS = ("openmpi", "mpich", "gloo")
LIMIT = "two-shot limit"
LIMIT_FROM_BYTES = 1 << 20  # below, the limit's own start and end weigh more than its bytes


def row_of(times: rows.Times, ranks: int, size: int) -> list[str] | None:
    at = {label: times.get(rows.Key(label, ranks, size)) for label in ("lockstep ring", "openmpi ring", LIMIT)}
    auto = rows.best(times, ranks, size, "lockstep auto")
    ours = auto or rows.best(times, ranks, size, rows.OURS)
    peers = [found for found in (rows.best(times, ranks, size, peer) for peer in PEERS) if found]
    if ours is None or not peers:
        return None
    best = min(peers, key=lambda found: found[1])
    own_best = rows.best(times, ranks, size, rows.OURS) or ours
    ring = f"{at['openmpi ring'] / at['lockstep ring']:.2f}" if at["openmpi ring"] and at["lockstep ring"] else "-"
    return [
        f"{ranks}",
        rows.size_text(size),
        ours[0].removeprefix(rows.OURS + " "),
        rows.time_text(ours[1]),
        own_best[0].removeprefix(rows.OURS + " "),
        rows.time_text(own_best[1]),
        best[0],
        rows.time_text(best[1]),
        f"{best[1] / ours[1]:.2f}",
        ring,
        f"{100 * at[LIMIT] / ours[1]:.0f} %" if at[LIMIT] and size >= LIMIT_FROM_BYTES else "-",
    ]


def main() -> None:
    times = rows.load(Path(sys.argv[1]))
    lines = []
    for ranks, size in sorted({(key.ranks, key.bytes) for key in times}):
        line = row_of(times, ranks, size)
        if line:
            lines.append(line)
    print("Times of a float sum all-reduce, out of place, median of a call on its slowest rank.\n")
    rows.print_table(
        ["ranks", "size", "ours", "time", "our fastest", "time", "best peer", "time", "peer / ours", "ring / ring", "of limit"],
        lines,
    )


if __name__ == "__main__":
    main()
