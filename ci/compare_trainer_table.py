#!/usr/bin/env python3
"""For ci/compare_trainer.sh.

    compare_trainer_table.py run LABEL COMMAND...   runs it; LABEL.out, LABEL.err, and LABEL.memory in bytes
    compare_trainer_table.py table FOLDER           what all runs say
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
    """Milliseconds of the steps that count, and tokens a step."""
    if (records := folder / f"{label}.jsonl").is_file():
        lines = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
        training = next(line for line in lines if line["record"] == "training")
        return [step["ms"] for step in training["steps"]][WARM_UP:], training["tokens_a_step"]
    said = json.loads((folder / f"{label}.out").read_text(encoding="utf-8"))
    return said["ms"][WARM_UP:], said["tokens"]


def gathered(folder: Path) -> dict[str, dict[str, list[float]]]:
    """By "a-f32-ours": tokens a second of each step of all rounds, and memory of each run."""
    runs: dict[str, dict[str, list[float]]] = {}
    for memory in sorted(folder.glob("*.memory")):
        label = memory.name.removesuffix(".memory")
        ms, tokens = steps_of(folder, label)
        row = runs.setdefault(label.split("-", 1)[1], {"rates": [], "bytes": []})
        row["rates"] += [tokens / one * 1e3 for one in ms]
        row["bytes"].append(float(memory.read_text(encoding="utf-8")))
    return runs


def rate_text(row: dict[str, list[float]]) -> str:
    ordered = sorted(row["rates"])
    return f"{statistics.median(ordered):9.0f} [{ordered[len(ordered) // 10]:.0f}, {ordered[-1 - len(ordered) // 10]:.0f}]"


def table(folder: Path) -> str:
    runs = gathered(folder)
    lines = [f"{'case':<6} {'dtype':<6} {'tokens/s, ours':>28} {'PyTorch':>28} {'ours/its':>9} {'MiB ours':>9} {'PyTorch':>8}"]
    for name in sorted(runs):
        case, dtype, who = name.split("-", 2)
        if who != "ours" or f"{case}-{dtype}-torch" not in runs:
            continue
        ours, theirs = runs[name], runs[f"{case}-{dtype}-torch"]
        ratio = statistics.median(ours["rates"]) / statistics.median(theirs["rates"])
        lines.append(f"{case:<6} {dtype:<6} {rate_text(ours):>28} {rate_text(theirs):>28} {ratio:9.2f} "
                     f"{max(ours['bytes']) / 2**20:9.0f} {max(theirs['bytes']) / 2**20:8.0f}")
        if (weights := runs.get(f"{case}-bf16-weights")) and dtype == "bf16":
            lines.append(f"{'':<6} {'':<6} {'PyTorch, bf16 without master weights':>57}: {rate_text(weights)}")
        if dp2 := runs.get(f"{case}-{dtype}-dp2"):
            share = statistics.median(dp2["rates"]) / statistics.median(ours["rates"])
            lines.append(f"{'':<6} {'':<6} {'2 data-parallel ranks of a thread each':>57}: {rate_text(dp2)}, "
                         f"{100 * share:.0f} % of one rank of two")
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
