"""Compares Lockstep's all-reduce among threads with Open MPI (its own choice, and each algorithm forced), MPICH, Gloo and the
machine's limit. Runs alternate, round by round, so that drift affects all alike. Runs of several rounds of a row are joined by
their median. Run `tune` before, so that --algo auto has a table."""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compare.kernels import cold_bytes
from compare.rows import peer_rows, print_table, records
from compare.runner import attempt, fail, flag, folder_of_results, output_of
from reports.units import bytes_text, time_text

TARGETS = ["all_reduce_perf", "peers"]
# Ranges of sizes for us (from, to, factor), sizes for peers, and calls of each size.
GROUPS = {
    "small": ((("8", "8", "2"), ("16", "64K", "4")), "8,16,64,256,1024,4096,16384,65536", 300),
    "large": ((("256K", "64M", "4"),), "262144,1048576,4194304,16777216,67108864", 20),
}
# Numbers of coll_tuned; 0: its own choice.
OPENMPI = ("default", "basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring", "rabenseifner")
MPICH = ("auto", "smp", "recursive_doubling", "reduce_scatter_allgather")
GLOO = ("ring", "ring_chunked", "halving_doubling", "bcube")
OURS, PEERS, LIMIT = "lockstep", ("openmpi", "mpich", "gloo"), "streaming limit"
LIMIT_MS = 500  # time for each size
LIMIT_FROM_BYTES = 16 << 20  # the limit is of memory: below, ranks' buffers may be in caches


@dataclass(frozen=True)
class Key:
    label: str  # "lockstep ring", "openmpi default", "gloo ring_chunked", ...
    ranks: int
    bytes: int


Times = dict[Key, float]  # median time of a call, us


def load(folder: Path) -> Times:
    """Times in the files of all runs, one per program and round: our *.jsonl, and *.csv of peers."""
    rounds: dict[Key, list[float]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        auto = "auto " if "@auto@" in path.name else ""  # records name what auto chose
        for row in records(path, "row"):
            if not row["in_place"]:
                rounds[Key(f"{OURS} {auto}{row['algorithm']}", row["ranks"], row["bytes"])].append(row["stats"]["median"])
    for path in sorted(folder.glob("*.csv")):
        for peer in peer_rows(path):
            ranks, size = peer.case.split("/")[1:]
            rounds[Key(peer.label, int(ranks), int(size))].append(peer.median_us)
    if not rounds:
        raise SystemExit(f"{folder}: no results")
    return {key: statistics.median(times) for key, times in rounds.items()}


def best(times: Times, ranks: int, size: int, prefix: str) -> tuple[str, float] | None:
    """The fastest row whose label begins with the prefix."""
    found = [(t, k.label) for k, t in times.items() if (k.ranks, k.bytes) == (ranks, size) and k.label.startswith(prefix)]
    return (min(found)[1], min(found)[0]) if found else None


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--rounds", 2, "number of alternating rounds")
    flag(parser, "--ranks", "2,4,8", "numbers of ranks")
    flag(parser, "--plans", "ring,two_shot,one_shot,recursive_doubling", "algorithms in addition to auto")
    flag(parser, "--sizes", "small,large", "groups of sizes")


def forced(algorithm: int) -> list[str]:
    """Words that make Open MPI use an algorithm."""
    if algorithm == 0:
        return []
    return ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", str(algorithm)]


def run_gloo(file: Path, ranks: int, command: Callable[[int, str], list[object]]) -> None:
    """Runs a process per rank, by its command from the rank and the folder in which they find each other; leaves rank 0's rows."""
    with tempfile.TemporaryDirectory() as store:
        others = [subprocess.Popen(["timeout", "300", *map(str, command(rank, store))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                  for rank in range(1, ranks)]
        attempt(file, command(0, store))
        for other in others:
            other.wait()


class OneMachine:
    """The programs of one number of ranks, group of sizes and round."""

    def __init__(self, options: argparse.Namespace, out: Path, ranks: int, group: str, round_: int):
        self.options, self.out, self.ranks = options, out, ranks
        self.ranges, self.sizes, self.calls = GROUPS[group]
        self.label = f"{ranks}-{group}-{round_}"
        self.crowded = ranks > (os.cpu_count() or 1)

    def peer(self, name: str) -> Path | None:
        program = self.options.build / "bin/peers" / name
        return program if program.exists() else None

    def ours(self) -> None:
        for (begin, end, factor), algorithms in itertools.product(self.ranges, ("auto", self.options.plans)):
            chosen = "auto" if algorithms == "auto" else "plans"  # the file's name marks runs with auto
            output_of([self.options.build / "bin/all_reduce_perf", "--ranks", self.ranks, "--algo", algorithms, "-b", begin, "-e", end,
                       "-f", factor, "-n", self.calls, "-w", "5", "--json", self.out / f"ours-{self.label}-{begin}@{chosen}@.jsonl"])

    def limit(self) -> None:
        """Streams of a two-shot all-reduce: each rank's input is read once, each rank's output written once. On as many threads as
        there are ranks, so that on a machine with other programs they get the same share."""
        sizes = [size for size in map(int, self.sizes.split(",")) if size >= LIMIT_FROM_BYTES]
        if sizes and (program := self.peer("streaming_limit")):
            streams = {size: "+".join([f"r{size}"] * self.ranks + [f"w{size}"] * self.ranks) for size in sizes}
            attempt(self.out / f"limit-{self.label}.csv", [program, self.ranks, cold_bytes("cold"), LIMIT_MS, *(
                f"all_reduce/{self.ranks}/{size}={of}" for size, of in streams.items())])

    def openmpi(self, number: int, name: str) -> None:
        if not (program := self.peer("openmpi_all_reduce")):
            return
        placed = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"] if self.crowded else ["--bind-to", "core"]
        attempt(self.out / f"openmpi-{name}-{self.label}.csv",
                ["mpirun.openmpi", "--allow-run-as-root", "-np", self.ranks, *placed, *forced(number), program, f"openmpi {name}",
                 self.sizes, self.calls])

    def mpich(self, name: str) -> None:
        if program := self.peer("mpich_all_reduce"):
            calls = 10 if self.crowded else self.calls  # it polls without giving its core away: milliseconds per call
            attempt(self.out / f"mpich-{name}-{self.label}.csv", ["mpiexec.mpich", "-n", self.ranks, program, f"mpich {name}", self.sizes, calls],
                    MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=name)

    def gloo(self, name: str) -> None:
        if program := self.peer("gloo_all_reduce"):
            run_gloo(self.out / f"gloo-{name}-{self.label}.csv", self.ranks,
                     lambda rank, store: [program, name, rank, self.ranks, store, "lo", self.sizes, self.calls])

    def run(self) -> None:
        print(f"{self.label}: ranks, sizes, round", file=sys.stderr)
        self.ours()
        self.limit()
        for number, name in enumerate(OPENMPI):
            self.openmpi(number, name)
        for name in MPICH:
            self.mpich(name)
        for name in GLOO:
            self.gloo(name)


def row_of(times: Times, ranks: int, size: int) -> list[str] | None:
    """A ratio above 1: Lockstep is faster by this factor. The limit is the time of plain loops that move a two-shot all-reduce's bytes
    from and to memory, measured in the same run."""
    at = {label: times.get(Key(label, ranks, size)) for label in ("lockstep ring", "openmpi ring", LIMIT)}
    ours = best(times, ranks, size, "lockstep auto") or best(times, ranks, size, OURS)
    peers = [found for found in (best(times, ranks, size, name) for name in PEERS) if found]
    if ours is None or not peers:
        return None
    peer = min(peers, key=lambda found: found[1])
    own_best = best(times, ranks, size, OURS) or ours
    ring = f"{at['openmpi ring'] / at['lockstep ring']:.2f}" if at["openmpi ring"] and at["lockstep ring"] else "-"
    limit = f"{100 * at[LIMIT] / ours[1]:.0f} %" if at[LIMIT] and size >= LIMIT_FROM_BYTES else "-"
    return [f"{ranks}", bytes_text(size), ours[0].removeprefix(OURS + " "), time_text(ours[1]), own_best[0].removeprefix(OURS + " "),
            time_text(own_best[1]), peer[0], time_text(peer[1]), f"{peer[1] / ours[1]:.2f}", ring, limit]


def run(options: argparse.Namespace) -> None:
    out = folder_of_results(options)
    for group in (groups := options.sizes.split(",")):
        if group not in GROUPS:
            fail(f"--sizes {group}: unknown; allowed: {', '.join(GROUPS)}")
    for ranks, group, round_ in itertools.product(map(int, options.ranks.split(",")), groups, range(1, options.rounds + 1)):
        OneMachine(options, out, ranks, group, round_).run()
    times = load(out)
    places = sorted({(key.ranks, key.bytes) for key in times})
    print("Times of a float sum all-reduce, out of place, median of a call on its slowest rank.\n")
    print_table(["ranks", "size", "ours", "time", "our fastest", "time", "best peer", "time", "peer / ours", "ring / ring", "of limit"],
                [line for ranks, size in places if (line := row_of(times, ranks, size))])
