"""Compares Lockstep's kernels with plain streaming loops over the same operands, PyTorch (eager, of the Python that TORCH of the
environment names, else Debian's), oneDNN and OpenBLAS (GEMM), and libmvec (exp). Runs alternate, group by group of cases and round by round, so that drift affects all alike.

The folder of results holds Lockstep's records (*.jsonl) and peers' rows (*.csv, compare/rows.py), a file per
run and round. A row is a case; its time is the median over the rounds of a round's median. "of limit" is the time of plain streaming
loops over the same operands, from memory, over ours; a ratio above 1: Lockstep is faster by this factor. "at best" are the same for the
fastest calls of all rounds: on a machine that runs other programs, medians depend on interruptions.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from compare import rows
from compare.runner import BOUND_THREADS, attempt, fail, flag, folder_of_results, last_line
from reports.units import time_text

TARGETS = ["kernels_bench", "peers"]
# Regular expressions of kernels_bench's names, one per group that runs together.
FAMILIES = (r"^gelu ^layernorm|^residual_layernorm ^rmsnorm|^residual_rmsnorm ^softmax ^cross_entropy ^adamw/.*N16M "
            r"^momentum/.*N16M ^sum_of_squares/.*N16M ^residual_add ^reduction/.*(64KiB|16MiB) ^(un)?pack_bucket ^cast "
            r"^quantize|^dequantize ^dropout ^embedding ^attention_[bfm] ^attention_decode/.*S1_ ^gemm")

SMALL_SHARE = 0.02  # share of a case's largest operand; smaller ones are left out of its streams (a norm's gamma, scales of blocks)


@dataclass(frozen=True)
class Operand:
    name: str
    access: str
    dtype: str
    bytes: int

    @property
    def passes(self) -> int:
        return 2 if self.access == "update" else 1


@dataclass(frozen=True)
class KernelCase:
    kernel: str
    dtype: str
    shape: str
    cache: str
    threads: int
    flops: float
    bytes: float
    median_us: float
    min_us: float
    operands: tuple[Operand, ...]

    @property
    def name(self) -> str:
        """Name that peers print: "gelu_fwd/f32/B8_T128_C1024/cold"."""
        return f"{self.kernel}/{self.dtype}/{self.shape}/{self.cache}"

    def size(self, letter: str) -> int:
        """A number of the shape: 768 of "B8_T1024_C768" for C."""
        found = re.search(rf"(?:^|_){letter}(\d+)(?:_|$)", self.shape)
        if not found:
            raise KeyError(f"{self.name} has no {letter}")
        return int(found.group(1))

    def most_touched_bytes(self) -> float:
        """Most bytes of one operand that count. A kernel that declares less than its operands hold touches only a part of the
        largest (the named rows of a table), such that the sum is the declared number. The same rule is in bench/kernels_bench/timed_device.h.
        """
        left, passes = self.bytes, sum(operand.passes for operand in self.operands)
        for operand in sorted(self.operands, key=lambda o: o.bytes):
            if operand.bytes * passes >= left:
                return left / passes
            left -= operand.bytes * operand.passes
            passes -= operand.passes
        return max(operand.bytes for operand in self.operands)

    def footprint_bytes(self) -> float:
        return sum(min(operand.bytes, self.most_touched_bytes()) for operand in self.operands)

    def shared_operands(self) -> set[str]:
        """Names of operands whose touched rows are selected by ids; sets of operands share these operands, and select other rows."""
        if all(operand.name != "ids" for operand in self.operands):
            return set()
        return {operand.name for operand in self.operands if operand.bytes > self.most_touched_bytes()}

    def streams(self) -> str:
        most = self.most_touched_bytes()
        touched = [(o.access[0], min(o.bytes, math.ceil(most))) for o in self.operands]
        largest = max(size for _, size in touched)
        return "+".join(f"{access}{size}" for access, size in touched if size >= SMALL_SHARE * largest)


def read_records(path: Path) -> list[KernelCase]:
    cases = []
    for record in rows.records(path, "kernel"):
        if len(set(record["cores"])) < record["threads"]:
            print(f"{path}: {record['kernel']}: threads shared a core", file=sys.stderr)
        cases.append(KernelCase(*(record[name] for name in ("kernel", "dtype", "shape", "cache", "threads", "flops", "bytes")),
                                statistics.median(record["samples_us"]), min(record["samples_us"]),
                                tuple(Operand(o["name"], o["access"], o["dtype"], o["bytes"]) for o in record["operands"])))
    return cases


# ---- The table

LIMIT = "streaming limit"
COMPUTE_BOUND_FLOPS_A_BYTE = 8  # from this ratio on a streaming loop is no limit


@dataclass(frozen=True)
class CallTime:
    median_us: float  # over the rounds
    min_us: float  # least of all rounds

    def over(self, other: CallTime) -> Ratio:
        return Ratio(self.median_us / other.median_us, self.min_us / other.min_us)


@dataclass(frozen=True)
class Ratio:
    of_medians: float
    at_best: float


@dataclass(frozen=True)
class Results:
    cases: dict[str, KernelCase]  # by name
    ours: dict[str, CallTime]
    peers: dict[str, dict[str, CallTime]]  # label -> name -> time


Rounds = dict[str, list[CallTime]]


def join(rounds: Rounds) -> dict[str, CallTime]:
    return {
        name: CallTime(statistics.median(t.median_us for t in times), min(t.min_us for t in times))
        for name, times in rounds.items()
    }


def load(folder: Path) -> Results:
    cases: dict[str, KernelCase] = {}
    ours: Rounds = defaultdict(list)
    peers: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.iterdir()):
        if path.suffix == ".jsonl":
            for case in read_records(path):
                cases[case.name] = case
                ours[case.name].append(CallTime(case.median_us, case.min_us))
        elif path.suffix == ".csv":
            for row in rows.peer_rows(path):
                peers[row.label][row.case].append(CallTime(row.median_us, row.min_us))
    if not cases:
        raise SystemExit(f"{folder}: no results")
    return Results(cases, join(ours), {label: join(times) for label, times in peers.items()})


def best_peer(results: Results, name: str) -> tuple[str, CallTime] | None:
    found = {label: times[name] for label, times in results.peers.items() if label != LIMIT and name in times}
    return min(found.items(), key=lambda item: item[1].median_us) if found else None


def of_limit(results: Results, name: str) -> Ratio | None:
    case = results.cases[name]
    limit = results.peers.get(LIMIT, {}).get(name)
    if limit is None or case.cache != "cold" or case.flops > COMPUTE_BOUND_FLOPS_A_BYTE * case.bytes:
        return None
    return limit.over(results.ours[name])


def over_peer(results: Results, name: str) -> Ratio | None:
    peer = best_peer(results, name)
    return peer[1].over(results.ours[name]) if peer else None


def percents(share: Ratio | None) -> list[str]:
    return [f"{100 * share.of_medians:.0f} %", f"{100 * share.at_best:.0f} %"] if share else ["-", "-"]


def times_text(ratio: Ratio | None) -> list[str]:
    return [f"{ratio.of_medians:.2f}", f"{ratio.at_best:.2f}"] if ratio else ["-", "-"]


def row_of(results: Results, name: str) -> list[str]:
    peer = best_peer(results, name)
    ours_us = results.ours[name].median_us
    case = results.cases[name]
    return [
        name,
        time_text(ours_us),
        f"{case.bytes / ours_us / 1e3:.1f}",
        f"{case.flops / ours_us / 1e3:.1f}",
        *percents(of_limit(results, name)),
        peer[0] if peer else "-",
        time_text(peer[1].median_us) if peer else "-",
        *times_text(over_peer(results, name)),
    ]


def geometric_mean(ratios: list[Ratio]) -> Ratio | None:
    if not ratios:
        return None
    return Ratio(statistics.geometric_mean(r.of_medians for r in ratios), statistics.geometric_mean(r.at_best for r in ratios))


def group_rows(results: Results) -> list[list[str]]:
    """One row per kernel, dtype and state of the caches: geometric means over its shapes."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, case in results.cases.items():
        groups[f"{case.kernel}/{case.dtype}/{case.cache}"].append(name)
    lines = []
    for group, names in sorted(groups.items()):
        shares = [share for name in names if (share := of_limit(results, name))]
        ratios = [ratio for name in names if (ratio := over_peer(results, name))]
        means = [*percents(geometric_mean(shares)), *times_text(geometric_mean(ratios))]
        lines.append([group, f"{len(names)}", *means])
    return lines


def exp_rows(results: Results) -> list[list[str]]:
    exps = results.peers.get("exp", {})
    return [
        [name, f"{time.median_us:.3f} us", *times_text(time.over(exps["lockstep"]))] for name, time in exps.items()
    ]


def print_tables(folder: Path) -> None:
    results = load(folder)
    threads = sorted({case.threads for case in results.cases.values()})
    print(f"Times of a call on {', '.join(map(str, threads))} threads, medians over alternating rounds.\n")
    limit_and_peer = ["of limit", "at best", "peer / ours", "at best"]
    rows.print_table(
        ["case", "ours", "GB/s", "GFLOP/s", *limit_and_peer[:2], "best peer", "time", *limit_and_peer[2:]],
        [row_of(results, name) for name in results.cases],
    )
    print()
    rows.print_table(["kernel", "shapes", *limit_and_peer], group_rows(results))
    if exps := exp_rows(results):
        print()
        rows.print_table(["exp of 4096 f32 in L1", "time", "peer / ours", "at best"], exps)


# ---- The runs


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--rounds", 3, "number of alternating rounds")
    flag(parser, "--threads", 2, "threads of each side")
    flag(parser, "--caches", "cold,warm", "states of the caches")
    flag(parser, "--milliseconds", 100.0, "time of each case in a round; at least one call")
    flag(parser, "--families", FAMILIES, "regular expressions of kernels_bench's names, one per group")
    parser.add_argument("--model", help="the kernels of this model's training step, as kernels_bench --model (default: kernels_bench's shapes)")
    parser.add_argument("--layout", help="layouts of --model, as kernels_bench --layout")


def cold_bytes(cache: str) -> int:
    """As in kernels_bench: twice the last-level cache, so that no set of operands is still cached."""
    l3 = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    kib = int(l3.read_text(encoding="utf-8").strip().rstrip("K")) if l3.exists() else 32768
    return 2 * kib * 1024 if cache == "cold" else 0


def bench_command(options: argparse.Namespace, family: str, cache: str, records: Path, *more: object, seconds: float) -> list[object]:
    """The command that times our kernels of a family."""
    return [options.build / "bin/kernels_bench", f"--benchmark_filter={family}", "--threads", str(options.threads), "--cache", cache,
            "--check", "0", "--ceilings", "0", f"--benchmark_min_time={seconds}", *more, "--json", str(records)]


def run_ours(options: argparse.Namespace, family: str, cache: str, records: Path) -> bool:
    shapes = [word for name in ("model", "layout") if (value := getattr(options, name)) for word in (f"--{name}", value)]
    command = bench_command(options, f"({family})", cache, records, *shapes, seconds=options.milliseconds / 2000)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(last_line(done.stderr or done.stdout), file=sys.stderr)
        records.unlink(missing_ok=True)
    return done.returncode == 0


def run_peers(options: argparse.Namespace, records: Path, cache: str, label: str) -> None:
    def peer(name: str, *command: object) -> None:
        errors = attempt(options.out / f"{name}-{label}.csv", list(command), 900, keep=True, OMP_NUM_THREADS=str(options.threads),
                       OPENBLAS_NUM_THREADS=str(options.threads), **BOUND_THREADS,
                       # OpenBLAS 0.3.21 treats newer processors as a Haswell unless this is set.
                       OPENBLAS_CORETYPE=os.environ.get("OPENBLAS_CORETYPE", "SkylakeX"))
        print(*(line for line in errors.splitlines() if line.startswith("pytorch")), sep="\n", end="", file=sys.stderr)

    cases, peers = read_records(records), options.build / "bin/peers"
    sizes = (cold_bytes(cache), options.milliseconds)
    if cache == "cold" and (peers / "streaming_limit").exists():
        peer("limit", peers / "streaming_limit", options.threads, *sizes, *(f"{case.name}={case.streams()}" for case in cases))
    python = os.environ.get("TORCH", "/usr/bin/python3")  # Debian's may have PyTorch
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        peer("pytorch", python, "-m", "compare.torch_kernels", records, *sizes)
    products = [case.name for case in cases if re.match("gemm_(fwd|dgrad|wgrad)/", case.name)]
    for library in ("openblas", "onednn"):
        if products and (peers / f"{library}_gemm").exists():
            peer(f"gemm-{library}", peers / f"{library}_gemm", *sizes, *products)


def run(options: argparse.Namespace) -> None:
    out = folder_of_results(options)
    rounds = range(1, options.rounds + 1)
    for family, cache, round_ in itertools.product(options.families.split(), options.caches.split(","), rounds):
        label = f"{re.sub('[^a-z0-9_]', '', family)}-{cache}-{round_}"
        print(f"{family}, {cache}, round {round_}", file=sys.stderr)
        if run_ours(options, family, cache, out / f"ours-{label}.jsonl"):
            run_peers(options, out / f"ours-{label}.jsonl", cache, label)
    if (exp := options.build / "bin/peers/exp_speed").exists():
        for round_ in rounds:
            attempt(out / f"exp-{round_}.csv", [exp])
    if not list(out.glob("*.jsonl")):
        fail(f"no family of '{options.families}' has a case")
    print_tables(out)
