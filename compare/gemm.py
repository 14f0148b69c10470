"""Decides whether our own code for products of matrices should stay: compares it with oneDNN 3 on the trainer's layers, alternating.

The layers are the ones of kernels_bench: 4 layers of 256 columns on 1024 rows, and GPT-2 124M on 256 rows; forward, input
gradient and weight gradient. PREFIX holds include/ and lib/ of a oneDNN 3 that was built on OpenMP; without it the
newest one from pip is installed under build/onednn3. Our code and oneDNN alternate. A product's time is the least of all its calls in all rounds, as other programs can only add time, and add more
to threads that wait for each other. The rule: own code for a dtype and an instruction set stays
where it is at least 1.15 times as fast as oneDNN 3 in the geometric mean over the layers; otherwise the library does it.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from pathlib import Path
from statistics import geometric_mean

from compare import kernels
from compare.rows import peer_rows, print_table
from compare.runner import BOUND_THREADS, ROOT, fail, flag, output_of

TARGETS = ["kernels_bench"]
STAYS = 1.15  # times oneDNN's speed
WHEELS = ["onednn-cpu-gomp==2023.2.0", "onednn-devel-cpu-gomp==2023.2.0"]  # oneDNN 3.2, the last ones built on GCC's OpenMP
DTYPES = ("f32", "bf16")
GROUPS = ("N1024_", "N256_")  # the small model's layers, and GPT-2's

Times = dict[str, list[float]]  # by the name of a product: microseconds, the least of each round


def onednn_of_pip(folder: Path) -> Path:
    """Downloads and unpacks the wheels, of which only include/ and lib/ are needed; returns their folder."""
    if (folder / "lib/libdnnl.so").exists():
        return folder
    output_of(["/usr/bin/python3", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder / "wheels"), *WHEELS])
    for wheel in (folder / "wheels").glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if found := re.search(r"\.data/data/((?:include|lib)/.*[^/])$", name):
                    target = folder / found.group(1)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))
    return folder


def version_of(prefix: Path) -> str:
    text = (prefix / "include/oneapi/dnnl/dnnl_version.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"#define DNNL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))


def built_peer(prefix: Path, out: Path) -> Path:
    if not version_of(prefix).startswith("3."):
        fail(f"{prefix} has oneDNN {version_of(prefix)}; allowed: 3")
    peer = out / "onednn_gemm"
    output_of(["c++", "-std=c++20", "-O3", "-march=native", f"-I{ROOT}", f"-I{prefix}/include", f"{ROOT}/compare/peers/onednn_gemm.cpp",
            f"{prefix}/lib/libdnnl.so", f"-Wl,-rpath,{prefix}/lib", "-o", str(peer)])
    return peer


def instruction_set() -> str:
    """The instruction set of our code on this CPU."""
    flags = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M).group(1).split())
    return "AVX-512" if "avx512dq" in flags else "AVX2" if "avx2" in flags else "baseline"


def own_times(which: str, options: argparse.Namespace) -> dict[str, float]:
    records = options.out / "own.jsonl"
    output_of(kernels.bench_command(options, f"^gemm_(fwd|dgrad|wgrad)/{which}", options.cache, records, "--gemm", "packed", seconds=0.05))
    return {case.name: case.min_us for case in kernels.read_records(records)}


def peer_times(peer: Path, names: list[str], options: argparse.Namespace) -> dict[str, float]:
    rows = options.out / "onednn.csv"
    rows.write_text(output_of([peer, kernels.cold_bytes(options.cache), "100", *names], OMP_NUM_THREADS=str(options.threads), **BOUND_THREADS),
                    encoding="utf-8")
    return {row.case: row.min_us for row in peer_rows(rows)}


def speed_ups(own: Times, library: Times) -> dict[str, float]:
    return {name: min(library[name]) / min(own[name]) for name in own if name in library}


def verdict(own: Times, library: Times) -> str:
    """Sentence on one implementation and dtype; the means of the rounds show how certain it is."""
    ratios = speed_ups(own, library)
    if not ratios:
        return "oneDNN has no such products on this CPU: own code stays"
    mean = geometric_mean(list(ratios.values()))
    rounds = [geometric_mean([library[name][r] / own[name][r] for name in ratios])
              for r in range(min(len(own[name]) for name in ratios))]
    decision = "own code stays" if mean >= STAYS else "the library does it"
    return f"geometric mean {mean:.2f} times oneDNN's speed (rounds {min(rounds):.2f} to {max(rounds):.2f}): {decision}"


def table(own: Times, library: Times) -> list[list[str]]:
    ratios = speed_ups(own, library)
    return [[f"  {name}", f"{min(own[name]):.0f}", *([f"{min(library[name]):.0f}", f"{ratios[name]:.2f}"] if name in library else ["-", "-"])]
            for name in own]


def add(times: Times, round_: dict[str, float]) -> None:
    for name, us in round_.items():
        times.setdefault(name, []).append(us)


def measured(peer: Path, options: argparse.Namespace) -> tuple[dict[str, Times], dict[str, Times]]:
    """Our times and oneDNN's, by dtype, of rounds in which both alternate."""
    own: dict[str, Times] = {dtype: {} for dtype in options.dtypes}
    library: dict[str, Times] = {dtype: {} for dtype in options.dtypes}
    for round_ in range(options.rounds):
        for dtype in options.dtypes:
            for group in GROUPS:
                times = own_times(f"{dtype}/{group}", options)
                add(own[dtype], times)
                add(library[dtype], peer_times(peer, list(times), options))
        print(f"round {round_ + 1} of {options.rounds}", file=sys.stderr)
    return own, library


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--onednn", type=Path, help="folder with include/ and lib/ of a oneDNN 3 built on OpenMP (default: pip's newest)")
    flag(parser, "--rounds", 5, "number of alternating rounds")
    flag(parser, "--threads", 2, "threads of each side")
    parser.add_argument("--cache", choices=["warm", "cold"], default="cold", help="state of the caches (default: cold)")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES, help="(default: both)")


def run(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    prefix = (options.onednn or onednn_of_pip(ROOT / "build/onednn3")).resolve()
    own, library = measured(built_peer(prefix, options.out), options)
    print(f"oneDNN {version_of(prefix)}, {options.threads} threads, {options.cache} operands, {options.rounds} rounds")
    for dtype, times in own.items():
        print(f"packed ({instruction_set()}), {dtype}: {verdict(times, library[dtype])}")
        print_table(["  product", "own us", "oneDNN us", "speed-up"], table(times, library[dtype]))
