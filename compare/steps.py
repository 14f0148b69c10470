"""Training steps predicted before they run: calibrates a machine file on this machine, then runs ten layouts.

Writes these files below OUT, each once, so that an interrupted run continues where it stopped:
  kernels-DTYPE.jsonl    kernels_bench --model --layout: the kernels of all layouts' steps, alone and while other copies run
  COLLECTIVE-RANKS.jsonl the collectives that the layouts use, and messages
  machine-DTYPE.json     simulate --calibrate
  step-DTYPE-N.jsonl     mini_train --predict, whose prediction is made before its first step
and prints a line per layout: predicted and measured milliseconds, the error, and the origin of the largest gap.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path

from compare.rows import records
from compare.runner import fail, flag, output_of

TARGETS = ["programs"]
# Every way of splitting a step that fits 2 to 4 ranks, at the same work for all: 16 sequences per step.
LAYOUTS = ("dp=1,microbatch=8,batch=16", "dp=2,microbatch=8,batch=16", "dp=2,zero=2,microbatch=8,batch=16",
           "dp=2,zero=3,microbatch=8,batch=16", "tp=2,microbatch=8,batch=16", "tp=2,sp=yes,microbatch=8,batch=16",
           "pp=2,microbatch=4,batch=16", "pp=2,schedule=zb_h1,microbatch=4,batch=16",
           "dp=2,recompute=full,microbatch=8,batch=16", "dp=2,pp=2,microbatch=4,batch=16")
# Program, and its numbers of ranks.
COLLECTIVES = (("all_reduce", (2, 4)), ("reduce_scatter", (2,)), ("all_gather", (2,)), ("sendrecv", (2,)))
SIZES = ("-b", "64", "-e", "16M", "-f", "4")
# The values from which mini_train's flags start (trainer/train/options.h), so that the text describes the whole layout.
COMMON = "early_stop=yes,overlap_p2p=yes"


def make(command: list[object], file: Path) -> None:
    """Runs the program if its file does not exist yet; an interrupted program has left none."""
    if not file.exists():
        output_of(command, seconds=7200)


def calibrate(args: argparse.Namespace, dtype: str, layouts: list[str]) -> Path:
    programs, out = args.build / "bin", args.out
    kernels = out / f"kernels-{dtype}.jsonl"
    cores = len(os.sched_getaffinity(0))
    copies = ",".join(str(n) for n in (1, 2, 4, 8) if n <= cores)
    make([programs / "kernels_bench", "--model", args.model, "--layout", ";".join(layouts), "--threads", "1", "--copies", copies,
         "--cache", "cold", "--gemm", args.gemm, "--time-budget", args.seconds, "--json", kernels], kernels)
    files = [kernels]
    for name, of_ranks in COLLECTIVES:
        for ranks in of_ranks:
            file = out / f"{name}-{ranks}.jsonl"
            algorithms = ["--algo", "auto,ring"] if name == "all_reduce" else []
            make([programs / f"{name}_perf", "--ranks", ranks, *SIZES, *algorithms, "--json", file], file)
            files.append(file)
    machine = out / f"machine-{dtype}.json"
    make([programs / "simulate", "--calibrate", ",".join(map(str, files)), "--output", machine], machine)
    return machine


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--model", "micro", "model of all steps")
    flag(parser, "--dtypes", "f32,bf16", "dtypes of weights and activations")
    flag(parser, "--layouts", ";".join(LAYOUTS), "layouts, separated by ;")
    flag(parser, "--gemm", "packed", "implementation of products, the same in all programs")
    flag(parser, "--seconds", 150.0, "time for the kernels of a dtype, in seconds")
    flag(parser, "--steps", 12, "training steps of a run")


def run(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    asked = json.dumps({name: str(value) for name, value in vars(args).items()}, indent=1)
    before = args.out / "args.json"
    if before.exists() and before.read_text(encoding="utf-8") != asked:
        fail(f"{before}: made with other arguments; allowed: the same, or another --out")
    before.write_text(asked, encoding="utf-8")

    errors = []
    print(f"{'dtype':<6}{'layout':<46}{'predicted ms':>13}{'measured ms':>13}{'error %':>9}  largest gap")
    for dtype in args.dtypes.split(","):
        layouts = [f"{layout},dtype={dtype},{COMMON}" for layout in args.layouts.split(";")]
        machine = calibrate(args, dtype, layouts)
        for number, layout in enumerate(layouts):
            file = args.out / f"step-{dtype}-{number}.jsonl"
            make([args.build / "bin" / "mini_train", "--model", args.model, "--layout", layout, "--predict", machine, "--gemm",
                 args.gemm, "--steps", args.steps, "--json", file], file)
            predicted = records(file, "training")[0]["predicted"]
            errors.append(predicted["error"])
            if (unmeasured := predicted["kernels"] - predicted["measured_kernels"]) > 0:
                print(f"# {unmeasured} kernels of the next line were not measured; raise --seconds")
            name = layout.removesuffix(f",dtype={dtype},{COMMON}")
            print(f"{dtype:<6}{name:<46}{predicted['step_ms']:>13.2f}{predicted['measured_step_ms']:>13.2f}"
                  f"{100 * predicted['error']:>+9.1f}  {predicted['gap']}", flush=True)
    sizes = sorted(abs(error) for error in errors)
    print(f"{len(sizes)} steps: off by {100 * statistics.median(sizes):.1f} % in the median, {100 * sizes[-1]:.1f} % at worst")

