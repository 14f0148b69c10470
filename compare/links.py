"""Emulated links against their prediction: every algorithm of the catalogue, measured over simulated on the same links.

Runs `*_perf --algo all --link LINK --explain` for each collective, number of ranks and link, once with the links and once without,
and prints the tables of docs/emulated_links.md. Where other guests share the machine's processors, use --rounds 2 or 3: their bursts
last longer than a row, so that some round of each row is undisturbed. Runs that are already in the output folder are not repeated,
so that a long matrix can be measured in slices.

A row is bound by the links unless one of two criteria shows that it is bound by the machine:
  memory      all bytes that the ranks' passes read and write, counted, over the bandwidth that all ranks reach together, measured
              (column `memory` of --explain), take more than 80 % of the prediction;
  scheduling  the same call takes more than 80 % of the prediction without any emulated link; with more ranks than cores most of that
              is threads that wait for a core.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from compare.rows import markdown
from compare.runner import fail, flag, output_of
from reports.units import bytes_text, time_text

TARGETS = ["collective_perf"]
PROGRAMS = {"all_reduce": "all_reduce_perf", "reduce_scatter": "reduce_scatter_perf", "all_gather": "all_gather_perf",
            "all_to_all": "alltoall_perf"}
LINKS = ("latency_us=50,gbps=1.25", "latency_us=10,gbps=5", "latency_us=2,gbps=12.5")
SIZES = ("64K", "16M", "4")  # from, to, factor
BOUND_SHARE = 0.8  # share of the prediction from which on the machine is measured, not the links
WANTED = 0.05


@dataclass(frozen=True)
class LinkRow:
    collective: str
    ranks: int
    link: str
    algorithm: str
    size: int
    median_us: float
    predicted_us: float
    links_us: float
    memory_us: float
    alone_us: float  # the same without links

    @property
    def ratio(self) -> float:
        return self.median_us / self.predicted_us

    @property
    def bound(self) -> str:
        if self.memory_us > BOUND_SHARE * self.predicted_us:
            return "memory"
        return "scheduling" if self.alone_us > BOUND_SHARE * self.predicted_us else "links"

    @property
    def is_close(self) -> bool:
        return abs(self.ratio - 1) <= WANTED


def measure(build: Path, target: Path, collective: str, ranks: int, link: str) -> None:
    """Leaves the program's table in `target`; an interrupted run leaves nothing."""
    if target.exists():
        return
    first, last, factor = SIZES
    command = [str(build / "bin" / PROGRAMS[collective]), "--algo", "all", "--ranks", str(ranks), "-b", first, "-e", last, "-f",
               factor, "-n", "9", "-w", "2", "--explain", "--stats", *(["--link", link] if link else [])]
    print("#", *command, file=sys.stderr)
    printed = output_of(command, seconds=7200)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(printed, encoding="utf-8")


def table(path: Path) -> list[dict[str, str]]:
    """Rows as dictionaries by heading; of nccl-tests' columns, whose names occur twice, the first."""
    names: list[str] = []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = line.split()
        if cells[:3] == ["#", "size", "count"]:
            names = cells[1:]
        elif names and cells and cells[0].isdigit():
            rows.append({name: cell for name, cell in reversed(list(zip(names, cells)))})
    return rows


def path_of(out: Path, collective: str, ranks: int, link: str) -> Path:
    return out / f"{collective}@{ranks}@{link or 'none'}.txt"


def load(out: Path, collective: str, ranks: int, link: str) -> list[LinkRow]:
    alone = {(row["algorithm"], row["size"]): float(row["p50"]) for row in table(path_of(out, collective, ranks, ""))}
    return [LinkRow(collective, ranks, link, row["algorithm"], int(row["size"]), float(row["p50"]), float(row["predict"]),
                float(row["links"]), float(row["memory"]), alone[row["algorithm"], row["size"]])
            for row in table(path_of(out, collective, ranks, link))]


def link_text(link: str) -> str:
    fields = dict(part.split("=") for part in link.split(","))
    return ", ".join(f"{fields[name]} {unit}" for name, unit in (("gbps", "GB/s"), ("latency_us", "us")) if name in fields)


def summary(rows: list[LinkRow]) -> str:
    groups: dict[tuple[str, int, str], list[LinkRow]] = defaultdict(list)
    for row in rows:
        groups[row.link, row.ranks, row.collective].append(row)
    lines = []
    for (link, ranks, collective), of in groups.items():
        bound = [row for row in of if row.bound == "links"]
        ratios = sorted(row.ratio for row in bound)
        count = lambda kind: str(sum(row.bound == kind for row in of))  # noqa: E731
        lines.append([link_text(link), str(ranks), collective, str(len(of)), count("memory"), count("scheduling"), str(len(bound)),
                      str(sum(row.is_close for row in bound)),
                      f"{ratios[0]:.3f} to {ratios[-1]:.3f}, {statistics.median(ratios):.3f}" if ratios else "-"])
    return markdown(["link", "ranks", "collective", "rows", "memory", "scheduling", "links", "of these within 5 %",
                           "measured / predicted: range, median"], lines)


def by_algorithm(rows: list[LinkRow]) -> str:
    """One line per algorithm and link: the ratio at each size, for all numbers of ranks; in parentheses where the machine is the bound."""
    sizes = sorted({row.size for row in rows})
    groups: dict[tuple[str, str, str, int], dict[int, LinkRow]] = defaultdict(dict)
    for row in rows:
        groups[row.collective, row.algorithm, row.link, row.ranks][row.size] = row
    lines = []
    for (collective, algorithm, link, ranks), of in sorted(groups.items()):
        cells = []
        for size in sizes:
            row = of.get(size)
            text = f"{row.ratio:.2f}" if row else "-"
            cells.append(text if row is None or row.bound == "links" else f"({text} {row.bound})")
        lines.append([collective, algorithm, link_text(link), str(ranks), *cells])
    return markdown(["collective", "algorithm", "link", "ranks", *map(bytes_text, sizes)], lines)


def misses(rows: list[LinkRow]) -> str:
    far = sorted((row for row in rows if row.bound == "links" and not row.is_close), key=lambda row: -abs(row.ratio - 1))
    lines = [[row.collective, row.algorithm, link_text(row.link), str(row.ranks), bytes_text(row.size),
              *map(time_text, (row.median_us, row.predicted_us, row.links_us, row.memory_us, row.alone_us)),
              f"{row.ratio:.3f}"] for row in far]
    return markdown(["collective", "algorithm", "link", "ranks", "size", "measured", "predicted", "links", "memory",
                           "without links", "ratio"], lines)


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--rounds", 1, "runs of the matrix; a row counts as in its quickest round")
    flag(parser, "--ranks", "2,4,8", "numbers of ranks")
    flag(parser, "--links", ";".join(LINKS), "links as --link takes them, separated by ;")
    flag(parser, "--collectives", ",".join(PROGRAMS), "collectives")


def run(flags: argparse.Namespace) -> None:
    links = flags.links.split(";")
    rows: list[LinkRow] = []
    for collective in flags.collectives.split(","):
        if collective not in PROGRAMS:
            fail(f"--collectives {collective}: unknown; allowed: {', '.join(PROGRAMS)}")
        for ranks in map(int, flags.ranks.split(",")):
            outs = [flags.out / str(number + 1) for number in range(flags.rounds)]
            for out in outs:
                for link in ["", *links]:
                    measure(flags.build, path_of(out, collective, ranks, link), collective, ranks, link)
            for link in links:
                rounds = zip(*(load(out, collective, ranks, link) for out in outs), strict=True)
                rows += [min(same, key=lambda row: row.ratio) for same in rounds]
    rows.sort(key=lambda row: (links.index(row.link), row.ranks, row.collective, row.algorithm, row.size))
    print("## Summary\n" + summary(rows))
    print("\n## Bound by the links, and farther than 5 % from the prediction\n" + misses(rows))
    print("\n## Measured over predicted, row by row\n" + by_algorithm(rows))

