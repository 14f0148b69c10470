"""Finds whether a rules file of `tune --openmpi-rules` makes Open MPI faster: times its own decision, the same calls with the rules,
and the algorithm that tune found, chosen by name, alternating for some rounds. Prints a table of medians of the rounds' medians."""
from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from compare.rows import markdown, records
from compare.runner import flag, output_of
from reports.units import bytes_text

TARGETS: list[str] = []

MPIRUN = "mpirun --oversubscribe --allow-run-as-root --bind-to none --mca mpi_yield_when_idle 1"
PROGRAMS = {"all_to_all": "alltoall"}  # whose program's name is not the collective's
DYNAMIC = ("--mca", "coll_tuned_use_dynamic_rules", "1")
OWN, RULES, CHOSEN = "own decision", "with rules", "best found"


@dataclass(frozen=True)
class Point:
    collective: str
    bytes: int


def best_found(table: Path, ranks: int) -> dict[Point, str]:
    entries = json.loads(table.read_text(encoding="utf-8")).get("library_entries", [])
    found = {Point(entry["collective"], entry["bytes"]): entry["algorithm"] for entry in entries
             if entry["transport"] == "mpi" and entry["ranks"] == ranks}
    if not found:
        raise SystemExit(f"--table {table}: nothing measured over MPI with {ranks} ranks; allowed: a table of tune --openmpi-rules")
    return found


def medians(options: argparse.Namespace, collective: str, sizes: list[int], mca: tuple[str, ...],
            algorithms: str) -> dict[tuple[int, str], float]:
    """Median time in us by size and algorithm, of one run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "r.jsonl"
        program = options.build / "bin" / f"{PROGRAMS.get(collective, collective)}_perf"
        output_of([*shlex.split(options.mpirun), *mca, "-n", options.ranks, program, "--transport", "mpi", "-b", min(sizes), "-e", max(sizes),
                   "-f", options.factor, "--algo", algorithms, "-n", options.calls, "--json", file], seconds=600)
        rows = records(file, "row")
    return {(row["bytes"], row["algorithm"]): row["stats"]["median"] for row in rows if not row["in_place"]}


def compare(options: argparse.Namespace, found: dict[Point, str]) -> dict[tuple[Point, str], float]:
    times: dict[tuple[Point, str], list[float]] = defaultdict(list)
    rules = (*DYNAMIC, "--mca", "coll_tuned_dynamic_rules_filename", str(options.rules))
    for _ in range(options.rounds):
        for collective in sorted({point.collective for point in found}):
            points = [point for point in found if point.collective == collective]
            sizes = [point.bytes for point in points]
            chosen = ",".join(sorted({found[point] for point in points}))
            for way, mca, algorithms in ((OWN, (), "library"), (RULES, rules, "library"), (CHOSEN, DYNAMIC, chosen)):
                measured = medians(options, collective, sizes, mca, algorithms)
                for point in points:
                    time = measured.get((point.bytes, found[point] if way == CHOSEN else "library"))
                    if time is not None:
                        times[point, way].append(time)
    return {key: statistics.median(rounds) for key, rounds in times.items()}


def table(found: dict[Point, str], times: dict[tuple[Point, str], float]) -> str:
    lines = []
    for point, algorithm in found.items():
        if all((point, way) in times for way in (OWN, RULES, CHOSEN)):
            own, rules, best = (times[point, way] for way in (OWN, RULES, CHOSEN))
            lines.append([point.collective, bytes_text(point.bytes), f"{own:.1f}", f"{rules:.1f}", f"{best:.1f}",
                          algorithm.removeprefix("library:algorithm="), f"{own / rules:.2f}"])
    return markdown(["collective", "size", *(f"{way}, us" for way in (OWN, RULES, CHOSEN)), "algorithm", "own / rules"], lines)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", type=Path, required=True, help="the table that tune wrote (its --output)")
    parser.add_argument("--rules", type=Path, required=True, help="the rules file that tune wrote")
    parser.add_argument("--ranks", type=int, required=True, help="number of ranks, one that tune has measured")
    flag(parser, "--factor", 2, "factor between tune's sizes, its -f")
    flag(parser, "--rounds", 5, "rounds of own decision, rules and chosen algorithm")
    flag(parser, "--calls", 50, "timed calls per size and run")
    flag(parser, "--mpirun", MPIRUN, "launcher and its flags")


def run(options: argparse.Namespace) -> None:
    if not options.rules.is_file():
        raise SystemExit(f"--rules {options.rules}: no such file")
    if not shutil.which(shlex.split(options.mpirun)[0]):
        raise SystemExit(f"--mpirun {options.mpirun}: not found")
    found = best_found(options.table, options.ranks)
    print(table(found, compare(options, found)))
