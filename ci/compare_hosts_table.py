"""The table of ci/compare_hosts.sh: compare_hosts_table.py FOLDER RANKS GOODPUT_MB_S"""

from __future__ import annotations

import sys
from pathlib import Path

import compare_rows as rows

WIRE_MB_S = 125.0  # 1 Gbit/s


def wire_limit_us(ranks: int, size: int, mb_s: float) -> float:
    """Bytes that each port must carry in each direction: 2 (p-1)/p of the bytes."""
    return 2 * (ranks - 1) / ranks * size / mb_s


def main() -> None:
    folder, ranks, goodput = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    times = rows.load(folder)
    labels = sorted({key.label for key in times}, key=lambda label: (not rows.is_ours(label), label))
    sizes = sorted({key.bytes for key in times})
    print(f"Times of a float sum all-reduce, {ranks} hosts, median of a call on its slowest rank.\n")
    at = lambda label, size: times.get(rows.Key(label, ranks, size))  # noqa: E731
    rows.print_table(
        ["", *map(rows.size_text, sizes)],
        [[label, *(rows.time_text(at(label, s)) if at(label, s) else "-" for s in sizes)] for label in labels],
    )
    print(f"\nBest of Lockstep's plans; the wire carries {goodput:.1f} MB/s each way (measured), 125 at the most.\n")
    lines = []
    for size in sizes:
        ours = rows.best(times, ranks, size, rows.OURS)
        ompi = rows.best(times, ranks, size, "openmpi")
        gloo = rows.best(times, ranks, size, "gloo")
        if ours is None or ompi is None:
            continue
        lines.append([
            rows.size_text(size),
            ours[0].removeprefix(rows.OURS + " "),
            rows.time_text(ours[1]),
            ompi[0].removeprefix("openmpi "),
            f"{ompi[1] / ours[1]:.2f}",
            f"{gloo[1] / ours[1]:.2f}" if gloo else "-",
            f"{100 * wire_limit_us(ranks, size, goodput) / ours[1]:.1f} %",
            f"{100 * wire_limit_us(ranks, size, WIRE_MB_S) / ours[1]:.1f} %",
        ])
    rows.print_table(
        ["size", "best plan", "time", "best of Open MPI", "Open MPI / ours", "Gloo / ours", "of goodput", "of 1 Gbit/s"],
        lines,
    )


if __name__ == "__main__":
    main()
