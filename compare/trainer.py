"""Compares mini_train with PyTorch on the CPU, eager and compiled (torch.compile), of which the faster counts: the same models,
batches and dtypes, alternating on the same two cores. TORCH of the environment names a Python that has PyTorch; else one is made
under build/, with the newest that pip installs."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
from pathlib import Path

from compare import rows
from compare.runner import BOUND_THREADS, fail, flag, folder_of_results, last_line, python_with_torch

TARGETS = ["mini_train"]
# Flags of a model by the name of its case, and its steps.
CASES = {"a": ("--layers 4 --hidden 256 --heads 4 --vocabulary 256 --length 128", 8, 12),
         "b": ("--layers 12 --hidden 768 --heads 12 --vocabulary 50257 --length 64", 4, 6)}
WARM_UP = 2  # steps of a run that do not count


def measured(label: Path, command: list[str], environment: dict[str, str]) -> int:
    """Runs a command; leaves LABEL.out, LABEL.err, and its peak memory in bytes, LABEL.memory."""
    child = os.posix_spawnp(command[0], command, {**os.environ, **environment}, file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, f"{label}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_OPEN, 2, f"{label}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)])
    _, status, usage = os.wait4(child, 0)
    Path(f"{label}.memory").write_text(str(usage.ru_maxrss * 1024), encoding="utf-8")
    return os.waitstatus_to_exitcode(status)


def steps_of(folder: Path, label: str) -> tuple[list[float], int]:
    """Milliseconds of the steps that count, and tokens per step."""
    if (file := folder / f"{label}.jsonl").is_file():
        (training,) = rows.records(file, "training")
        return [step["ms"] for step in training["steps"]][WARM_UP:], training["tokens_per_step"]
    printed = json.loads((folder / f"{label}.out").read_text(encoding="utf-8"))
    return printed["ms"][WARM_UP:], printed["tokens"]


def gathered(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Results by label, such as "a-f32-ours": tokens per second of each step of all rounds, and bytes of memory of each run."""
    runs: dict[str, dict[str, list[float]]] = {}
    for memory in sorted(folder.glob("*.memory")):
        label = memory.name.removesuffix(".memory")
        ms, tokens = steps_of(folder, label)
        row = runs.setdefault(label.split("-", 1)[1], {"rates": [], "bytes": []})
        row["rates"] += [tokens / step_ms * 1e3 for step_ms in ms]
        row["bytes"].append(float(memory.read_text(encoding="utf-8")))
    return runs


def rate_text(row: dict[str, list[float]] | None) -> str:
    if row is None:
        return "-"
    ordered = sorted(row["rates"])
    return f"{statistics.median(ordered):9.0f} [{ordered[len(ordered) // 10]:.0f}, {ordered[-1 - len(ordered) // 10]:.0f}]"


def rate_of(row: dict[str, list[float]]) -> float:
    return statistics.median(row["rates"])


def products_of(folder: Path, name: str) -> str:
    """Implementation of the matrix products in each of our runs: "packed" or "onednn, packed"."""
    trainings = [rows.records(file, "training")[0] for file in sorted(folder.glob(f"*-{name}.jsonl"))]
    return ", ".join(dict.fromkeys(training.get("gemm", {}).get("implementation", "?") for training in trainings))


def table(folder: Path) -> str:
    runs = gathered(folder)
    lines = [f"{'case':<5} {'dtype':<5} {'tokens/s, ours':>27} {'PyTorch, eager':>27} {'compiled':>27} {'ours/better':>11} "
             f"{'MiB ours':>9} {'PyTorch':>8}  products by"]
    for name in sorted(runs):
        case, dtype, who = name.split("-", 2)
        if who != "ours" or f"{case}-{dtype}-torch" not in runs:
            continue
        ours, eager, compiled = runs[name], runs[f"{case}-{dtype}-torch"], runs.get(f"{case}-{dtype}-compiled")
        better = max((row for row in (eager, compiled) if row), key=rate_of)
        lines.append(f"{case:<5} {dtype:<5} {rate_text(ours):>27} {rate_text(eager):>27} {rate_text(compiled):>27} "
                     f"{rate_of(ours) / rate_of(better):11.2f} {max(ours['bytes']) / 2**20:9.0f} "
                     f"{max(better['bytes']) / 2**20:8.0f}  {products_of(folder, name)}")
        if (weights := runs.get(f"{case}-bf16-weights")) and dtype == "bf16":
            lines.append(f"{'':<5} {'':<5} {'PyTorch, eager, bf16 without master weights':>55}: {rate_text(weights)}")
        if dp2 := runs.get(f"{case}-{dtype}-dp2"):
            lines.append(f"{'':<5} {'':<5} {'2 data-parallel ranks of a thread each':>55}: {rate_text(dp2)}, "
                         f"{100 * rate_of(dp2) / rate_of(ours):.0f} % of one rank of two")
    return "\n".join(lines + ["median of all steps of all rounds [10th, 90th percentile]"])


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--rounds", 3, "number of alternating rounds")
    parser.add_argument("--steps", type=int, help="of a run (default: 12 of case a, 6 of case b)")
    flag(parser, "--cases", "a,b", "models: a of 4 layers and 256 columns, b of GPT-2 124M")
    flag(parser, "--dtypes", "f32,bf16", "dtypes of weights and activations")
    flag(parser, "--gemm", "probe", "mini_train's --gemm")


class Round:
    """The runs of one round, case and dtype."""

    def __init__(self, options: argparse.Namespace, out: Path, torch: str, label: str, case: str, dtype: str):
        self.options, self.out, self.torch, self.label, self.dtype = options, out, torch, label, dtype
        model, self.batch, steps = CASES[case]
        self.model = [*model.split(), "--steps", str(options.steps or steps)]

    def run(self, who: str, command: list[str], **environment: str) -> bool:
        label = self.out / f"{self.label}-{who}"
        return measured(label, ["taskset", "-c", "0,1", *command], environment) == 0

    def error(self, who: str) -> str:
        return last_line((self.out / f"{self.label}-{who}.err").read_text(encoding="utf-8"))

    def ours(self, who: str, *flags: str) -> None:
        command = [str(self.options.build / "bin/mini_train"), *self.model, "--dtype", self.dtype, *flags, "--gemm", self.options.gemm,
                   "--peak-gflops", "1", "--validation-sequences", "1", "--json", str(self.out / f"{self.label}-{who}.jsonl")]
        if not self.run(who, command):
            fail(f"mini_train failed: {self.error(who)}")

    def pytorch(self, who: str, dtype: str, *flags: str) -> bool:
        command = [self.torch, "compare/torch_trainer.py", *self.model, "--batch", str(self.batch), "--threads", "2", "--dtype", dtype, *flags]
        return self.run(who, command, OMP_NUM_THREADS="2", KMP_AFFINITY="granularity=fine,compact,1,0", **BOUND_THREADS)


def run(options: argparse.Namespace) -> None:
    out, torch, compiles = folder_of_results(options), python_with_torch(), True
    for round_, case, dtype in itertools.product(range(1, options.rounds + 1), options.cases.split(","), options.dtypes.split(",")):
        if case not in CASES:
            fail(f"--cases {case}: unknown; allowed: {', '.join(CASES)}")
        turn = Round(options, out, torch, f"{round_}-{case}-{dtype}", case, dtype)
        turn.ours("ours", "--microbatch-size", str(turn.batch), "--threads", "2")
        if not turn.pytorch("torch", dtype):
            fail(f"PyTorch failed: {turn.error('torch')}")
        if compiles and not turn.pytorch("compiled", dtype, "--compile"):  # reported once; eager counts
            compiles = False
            print(f"PyTorch's eager mode alone is measured: {turn.error('compiled')}", file=sys.stderr)
            for left in out.glob(f"{turn.label}-compiled.*"):
                left.unlink()
        if dtype == "f32":
            turn.ours("dp2", "--dp", "2", "--microbatch-size", str(turn.batch // 2), "--threads", "1")
        else:
            turn.pytorch("weights", "bf16-weights")
    print(table(out))
