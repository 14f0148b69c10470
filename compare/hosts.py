"""Compares Lockstep's plans over MPI with Open MPI's own all-reduce algorithms and Gloo's, on hosts of network namespaces with
1 Gbit/s ports. Runs alternate, size by size and round by round, so that drift affects all alike. Needs root."""

from __future__ import annotations

import argparse
import itertools
import os
import sys

from compare.collectives import OURS, Key, Times, best, forced, load, run_gloo
from compare.rows import print_table, records
from compare.runner import ROOT, fail, flag, folder_of_results, output_of
from reports.units import bytes_text, time_text

TARGETS = ["all_reduce_perf", "sendrecv_perf", "tune", "peers"]
PEER_ALGORITHMS = {0: "default", 3: "recursive_doubling", 4: "ring", 6: "rabenseifner"}
NAMESPACES = ROOT / "ci/hosts/namespaces.sh"
WIRE_MB_S = 125.0  # 1 Gbit/s
ON_HOST = "LOCKSTEP_ON_HOST"  # in the environment of the study's process on the first host


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--rounds", 2, "number of alternating rounds")
    flag(parser, "--sizes", "8,64,1024,4096,16384,65536,262144,1048576,4194304,16777216,67108864", "sizes in bytes")
    flag(parser, "--plans", "auto,recursive_doubling,one_shot,two_shot,halving_doubling,ring,ring:lanes=2", "algorithms")
    flag(parser, "--hosts", 4, "number of hosts")


def calls_of(size: int) -> int:
    return 3 if size >= 1 << 24 else 9 if size >= 1 << 18 else 100


def peer_calls_of(size: int) -> int:
    """The other libraries' programs divide their number of calls at large sizes (compare/peers/peers.h)."""
    return calls_of(size) * (8 if size >= 1 << 24 else 2 if size >= 1 << 20 else 1)


class Hosts:
    def __init__(self, options: argparse.Namespace):
        self.options, self.out = options, folder_of_results(options).resolve()
        self.tuning = str(self.out / "tuning.json")  # not the table of this machine

    def ran(self, *command: object) -> str:
        """Output of a command with a rank on each host; namespaces.sh has configured Open MPI to start them."""
        addresses = output_of([NAMESPACES, "addresses", self.options.hosts]).strip()
        return output_of(["mpirun.openmpi", "--host", addresses, "-np", self.options.hosts, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
                          "-x", "LOCKSTEP_TUNING", *command], LOCKSTEP_TUNING=self.tuning)

    def gloo(self, size: int, round_: int) -> None:
        program, ranks = (self.options.build / "bin/peers/gloo_all_reduce").resolve(), self.options.hosts
        if program.exists():
            run_gloo(self.out / f"gloo-{size}-{round_}.csv", ranks, lambda rank, store: [
                NAMESPACES, "enter", rank, program, "ring_chunked", rank, ranks, store, "port", size, peer_calls_of(size)])

    def goodput(self) -> float:
        """MB/s of the wire each way. Each rank sends to the next: all ports are busy in both directions."""
        file = self.out / "wire.json"
        self.ran(self.options.build / "bin/sendrecv_perf", "--transport", "mpi", "-b", "64M", "-e", "64M", "-n", "3", "-w", "1", "--json", file)
        return max(row["bytes"] / row["stats"]["median"] for row in records(file, "row"))

    def measure(self) -> None:
        binaries, goodput = self.options.build.resolve() / "bin", self.goodput()
        self.ran(binaries / "tune", "--transport", "mpi", "--collectives", "all_reduce", "-e", "4M", "-f", "2", "--time-budget", "90",
                 "--output", self.tuning)
        sizes = [int(size) for size in self.options.sizes.split(",")]
        for size, round_ in itertools.product(sizes, range(1, self.options.rounds + 1)):
            print(f"size {size}, round {round_}", file=sys.stderr)
            self.ran(binaries / "all_reduce_perf", "--transport", "mpi", "--algo", self.options.plans, "-b", size, "-e", size, "-n",
                     calls_of(size), "-w", "2", "--json", self.out / f"ours-{size}-{round_}.jsonl")
            for number, name in PEER_ALGORITHMS.items():
                rows = self.ran(*forced(number), binaries / "peers/openmpi_all_reduce", f"openmpi {name}", size, peer_calls_of(size))
                (self.out / f"openmpi-{name}-{size}-{round_}.csv").write_text(rows, encoding="utf-8")
            self.gloo(size, round_)
        print_hosts(load(self.out), self.options.hosts, goodput)


def print_hosts(times: Times, ranks: int, goodput: float) -> None:
    labels = sorted({key.label for key in times}, key=lambda label: (not label.startswith(OURS), label))
    sizes = sorted({key.bytes for key in times})
    print(f"Times of a float sum all-reduce, {ranks} hosts, median of a call on its slowest rank.\n")
    at = lambda label, size: times.get(Key(label, ranks, size))  # noqa: E731
    print_table(["", *map(bytes_text, sizes)],
                [[label, *(time_text(at(label, s)) if at(label, s) else "-" for s in sizes)] for label in labels])
    print(f"\nBest of Lockstep's plans; the wire carries {goodput:.1f} MB/s each way (measured), 125 at the most.\n")
    lines = []
    for size in sizes:
        ours, ompi, gloo = (best(times, ranks, size, prefix) for prefix in (OURS, "openmpi", "gloo"))
        if ours is None or ompi is None:
            continue
        lines.append([bytes_text(size), ours[0].removeprefix(OURS + " "), time_text(ours[1]), ompi[0].removeprefix("openmpi "),
                      f"{ompi[1] / ours[1]:.2f}", f"{gloo[1] / ours[1]:.2f}" if gloo else "-",
                      # each port must carry 2 (p-1)/p of the bytes in each direction
                      *(f"{100 * 2 * (ranks - 1) / ranks * size / mb_s / ours[1]:.1f} %" for mb_s in (goodput, WIRE_MB_S))])
    print_table(["size", "best plan", "time", "best of Open MPI", "Open MPI / ours", "Gloo / ours", "of goodput", "of 1 Gbit/s"], lines)


def run(options: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        fail("hosts needs root, to make network namespaces; run it with sudo")
    if ON_HOST in os.environ:
        Hosts(options).measure()
    else:  # anew on the first of the hosts, which end with it
        command = [NAMESPACES, "run", options.hosts, sys.executable, "-m", "compare", *sys.argv[1:]]
        os.execve(NAMESPACES, [str(word) for word in command], {**os.environ, ON_HOST: "1"})
