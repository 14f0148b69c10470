#!/usr/bin/env python3
"""What one GPU's records of ci/gpu_check.sh say of the targets, in a table: the standard library only.

    gpu_targets.py OUT        OUT: the folder that gpu_check.sh wrote

The least time of an all-reduce of n bytes among p ranks that share one GPU: each rank's input is read once and each
rank's output written once, 2 p n bytes together, at the speed of a copy within the device's memory, which counts what
it reads and what it writes (docs/gpu.md has the derivation).
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
LARGE_BYTES, SMALL_BYTES = 64 * MIB, 32 << 10
SHARE_OF_COPY, SHARE_OF_KERNELS, OVER_TORCH_ATTENTION = 0.85, 0.90, 1.15


@dataclass(frozen=True)
class Finding:
    """One line of the table; met is None where there is nothing to compare with."""

    what: str
    found: str
    wanted: str
    met: bool | None


def lines_of(folder: Path) -> list[dict]:
    """All lines of all records; a line that was cut off when its program was killed is left out."""
    lines = []
    for file in sorted([*folder.glob("*.jsonl"), *folder.glob("torch.json")]):
        for text in file.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                print(f"gpu_targets.py: {file.name} has a line that is cut off", file=sys.stderr)
    return lines


def least_us(ranks: int, size: int, copy_gbps: float) -> float:
    return 2 * ranks * size / copy_gbps / 1e3


def copy_gbps(lines: list[dict]) -> float | None:
    return max((line["value"] for line in lines if line.get("record") == "ceiling" and line["device"] == "cuda"
                and line["name"] == "copy" and line["level"] == "memory"), default=None)


def median_us(line: dict) -> float:
    return line["stats"]["median"] if line.get("stats") else line["time_us"]


def all_reduces(lines: list[dict], transport: str) -> list[dict]:
    return [line for line in lines if line.get("record") == "row" and line["collective"] == "all_reduce"
            and line["transport"] == transport and line["status"] == "ok" and line["time_us"]]


def fastest(rows: list[dict]) -> dict[tuple[int, int], dict]:
    """By ranks and bytes."""
    best: dict[tuple[int, int], dict] = {}
    for row in rows:
        key = row["ranks"], row["bytes"]
        if key not in best or median_us(row) < median_us(best[key]):
            best[key] = row
    return dict(sorted(best.items()))


def shares_of_copy(lines: list[dict]) -> list[Finding]:
    """Only where all ranks share one GPU: between GPUs other bytes count."""
    speed = copy_gbps(lines)
    runs = [line for line in lines if line.get("record") == "run" and line["transport"] == "cuda"]
    gpus = {len(run["machine"]["gpus"]) for run in runs}
    if speed is None or gpus != {1}:
        return []
    findings = []
    for (ranks, size), row in fastest(all_reduces(lines, "cuda")).items():
        if ranks > 1 and size >= LARGE_BYTES:
            share = least_us(ranks, size, speed) / median_us(row)
            findings.append(Finding(f"all-reduce, {ranks} ranks, {size // MIB} MiB, {row['algorithm']}",
                                    f"{median_us(row):.1f} us, {100 * share:.1f} % of a copy at {speed:.0f} GB/s",
                                    f"{100 * SHARE_OF_COPY:.0f} %", share >= SHARE_OF_COPY))
    return findings


def latencies(lines: list[dict]) -> list[Finding]:
    peers, findings = fastest(all_reduces(lines, "nccl")), []
    for key, row in fastest(all_reduces(lines, "cuda")).items():
        if key in peers and 8 <= key[1] <= SMALL_BYTES:
            ours, theirs = median_us(row), median_us(peers[key])
            findings.append(Finding(f"all-reduce, {key[0]} ranks, {key[1]} B, {row['algorithm']}", f"{ours:.2f} us",
                                    f"NCCL's {theirs:.2f} us", ours <= theirs))
    return findings


def training(lines: list[dict]) -> list[Finding]:
    """The second half of the steps: the first ones choose and load kernels."""
    findings = []
    peer = max((line["tokens_per_s"] for line in lines if line.get("what") == "gpt2"), default=None)
    for run in (line for line in lines if line.get("record") == "training"):
        steps = [step for step in run["steps"] if not step["skipped"]]
        speeds = [step["tokens_per_s"] for step in steps[len(steps) // 2:]]
        if speeds:
            ours = statistics.median(speeds)
            name = f"mini_train {run['model']['name']}, {run['dtype']}"
            wanted = f"PyTorch's {peer:.0f}" if peer else "PyTorch did not run"
            findings.append(Finding(name, f"{ours:.0f} tokens/s", wanted, None if peer is None else ours >= peer))
    return findings


def kernels(lines: list[dict]) -> list[Finding]:
    findings = []
    for line in lines:
        if line.get("record") == "kernel" and line["device"] == "cuda" and line["bound"] == "memory" and line["share"]:
            name = f"{line['kernel']} {line['dtype']} {line['shape']}, {line['cache']}, {line['timing']}"
            findings.append(Finding(name, f"{100 * line['share']:.1f} % of its bound",
                                    f"{100 * SHARE_OF_KERNELS:.0f} %", line["share"] >= SHARE_OF_KERNELS))
    return findings


def attention(lines: list[dict]) -> list[Finding]:
    """Our shapes also say the stride of rows, which is that of PyTorch's packed tensor."""
    findings = []
    known = [line for line in lines if line.get("what", "").startswith("attention")]
    peers = {(line["what"], line["shape"]): line["us"] for line in known}
    for line in lines:
        peer = peers.get((line.get("kernel"), line.get("shape", "").rsplit("_S", 1)[0]))
        if line.get("record") == "kernel" and line["device"] == "cuda" and peer and line["stats"]:
            ours = median_us(line)
            findings.append(Finding(f"{line['kernel']} {line['dtype']} {line['shape']}, {line['timing']}",
                                    f"{ours:.1f} us, {ours / peer:.2f} of PyTorch's {peer:.1f} us",
                                    f"{OVER_TORCH_ATTENTION:.2f}", ours <= OVER_TORCH_ATTENTION * peer))
    return findings


def findings_in(lines: list[dict]) -> list[Finding]:
    return [*shares_of_copy(lines), *latencies(lines), *training(lines), *kernels(lines), *attention(lines)]


def main() -> None:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("gpu_targets.py: needs the folder that gpu_check.sh wrote")
    findings = findings_in(lines_of(Path(sys.argv[1])))
    if not findings:
        print("no records of a GPU that say anything of the targets")
    for one in findings:
        verdict = {True: "met", False: "missed", None: ""}[one.met]
        print(f"{verdict:7}{one.what:55} {one.found:42} wanted {one.wanted}")


if __name__ == "__main__":
    main()
