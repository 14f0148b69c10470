#!/usr/bin/env python3
"""Runs the programs of ci/compare_trainer.sh, and makes its table.

    compare_trainer_table.py run LABEL COMMAND...   runs it; LABEL.out, LABEL.err, and LABEL.memory in bytes
compare_trainer_table.py table FOLDER           the table of all runs
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path

WARM_UP = 2  # steps of a run that do not count


def run(label: str, command: list[str]) -> int:
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, f"{label}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_OPEN, 2, f"{label}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)])
    _, status, usage = os.wait4(child, 0)
    Path(f"{label}.memory").write_text(str(usage.ru_maxrss * 1024), encoding="utf-8")
    return os.waitstatus_to_exitcode(status)


def steps_of(folder: Path, label: str) -> tuple[list[float], int]:
    """Milliseconds of the steps that count, and tokens per step."""
    if (records := folder / f"{label}.jsonl").is_file():
        lines = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
        training = next(line for line in lines if line["record"] == "training")
        return [step["ms"] for step in training["steps"]][WARM_UP:], training["tokens_per_step"]
    said = json.loads((folder / f"{label}.out").read_text(encoding="utf-8"))
    return said["ms"][WARM_UP:], said["tokens"]


def gathered(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Results by label, such as "a-f32-ours": tokens per second of each step of all rounds, and bytes of memory of each run."""
    runs: dict[str, dict[str, list[float]]] = {}
    for memory in sorted(folder.glob("*.memory")):
        label = memory.name.removesuffix(".memory")
        ms, tokens = steps_of(folder, label)
        row = runs.setdefault(label.split("-", 1)[1], {"rates": [], "bytes": []})
        row["rates"] += [tokens / one * 1e3 for one in ms]
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
    """Implementation of the matrix products in each of our runs: "packed" or "amx, packed"."""
    found = {}
    for records in sorted(folder.glob(f"*-{name}.jsonl")):
        lines = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
        found[next(line for line in lines if line["record"] == "training").get("gemm", {}).get("implementation", "?")] = 1
    return ", ".join(found)


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


def main() -> int:
    if len(sys.argv) > 3 and sys.argv[1] == "run":
        return run(sys.argv[2], sys.argv[3:])
    if len(sys.argv) == 3 and sys.argv[1] == "table":
        print(table(Path(sys.argv[2])))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
