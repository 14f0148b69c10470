#!/usr/bin/env python3
"""Compares one GPU's records of ci/gpu_check.sh with the targets, in a table: the standard library only.

    gpu_targets.py RECORDS                      RECORDS: the folder of what records.tar.gz of gpu_check.sh holds
    gpu_targets.py RECORDS --page FILE.html     writes a page about the run instead

The least time of an all-reduce of n bytes among p ranks that share one GPU: each rank's input is read once and each
rank's output written once, 2 p n bytes together, at the speed of a copy within the device's memory, which counts what
it reads and what it writes (docs/gpu.md has the derivation).
"""

from __future__ import annotations

import argparse
import html
import json
import os
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
LARGE_BYTES, SMALL_BYTES = 64 * MIB, 32 << 10
SHARE_OF_COPY, SHARE_OF_KERNELS, OVER_TORCH_ATTENTION = 0.85, 0.90, 1.15
GPT2 = {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 50304, "length": 1024}
CURVES_APART = 2.0 ** -8  # share of the loss: bf16's unit roundoff


@dataclass(frozen=True)
class Finding:
    """One line of the table; met is None where there is nothing to compare with."""

    what: str
    found: str
    wanted: str
    met: bool | None


def lines_of(folder: Path) -> list[dict]:
    """All lines of all records, including those of stopped programs; a truncated line is left out."""
    lines = []
    for file in sorted([*folder.glob("*.jsonl"), *folder.glob("torch*.json")]):
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
    """Fastest row for each number of ranks and bytes."""
    best: dict[tuple[int, int], dict] = {}
    for row in rows:
        key = row["ranks"], row["bytes"]
        if key not in best or median_us(row) < median_us(best[key]):
            best[key] = row
    return dict(sorted(best.items()))


def shares_of_copy(lines: list[dict]) -> list[Finding]:
    """All-reduces as shares of the speed of a copy; none unless all ranks share one GPU, as between GPUs other bytes are the limit."""
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


def transport_of(lines: list[dict]) -> dict[str, str]:
    """Transport of each run: "cuda" or "nccl" where it trained on GPUs, "local" on the CPU."""
    return {line["run"]: line["transport"] for line in lines if line.get("record") == "run"}


def trained_on_gpu(lines: list[dict]) -> list[dict]:
    transports = transport_of(lines)
    return [line for line in lines if line.get("record") == "training" and transports.get(line["run"]) in ("cuda", "nccl")]


def tokens_per_s(run: dict) -> float | None:
    """The median of the second half of the steps: the first ones choose and load kernels."""
    steps = [step for step in run["steps"] if not step["skipped"]]
    return statistics.median([step["tokens_per_s"] for step in steps[len(steps) // 2:]]) if steps else None


def is_gpt2(run: dict) -> bool:
    return all(run["model"]["numbers"].get(key) == value for key, value in GPT2.items())


def training(lines: list[dict]) -> list[Finding]:
    """Compares the fastest batch of one rank with PyTorch's fastest; runs of several ranks are listed without a comparison."""
    findings = []
    peer = max((line["tokens_per_s"] for line in lines if line.get("what") == "gpt2"), default=None)
    runs = [(run, tokens_per_s(run)) for run in trained_on_gpu(lines) if is_gpt2(run)]
    alone = [(run, speed) for run, speed in runs if run["ranks"] == 1 and speed]
    fastest_run = max(alone, key=lambda pair: pair[1])[0] if alone else None
    for run, speed in runs:
        if speed is None:
            continue
        energy = run.get("energy")
        found = f"{speed:.0f} tokens/s" + (f", {energy['tokens_per_joule']:.1f} a joule" if energy else "")
        sequences = run["tokens_per_step"] // GPT2["length"]
        graph = ", as a CUDA graph" if run.get("graph") else ""
        name = f"mini_train 124M, {run['dtype']}, {run['layout']['text'] or 'one rank'}, {sequences} sequences per step{graph}"
        if run is not fastest_run:
            findings.append(Finding(name, found, "no target", None))
        else:
            wanted = f"PyTorch's fastest, {peer:.0f}" if peer else "PyTorch did not run"
            findings.append(Finding(name, found, wanted, None if peer is None else speed >= peer))
    return findings


def curves(lines: list[dict]) -> list[Finding]:
    """The same model, data and seed on the CPU and on the GPU: the losses of all steps."""
    transports, findings = transport_of(lines), []
    known = [line for line in lines if line.get("record") == "training"]
    on_cpu = {curve_key(run): run for run in known if transports.get(run["run"]) == "local"}
    for run in trained_on_gpu(lines):
        peer = on_cpu.get(curve_key(run))
        if peer is None:
            continue
        theirs = {step["step"]: step["loss"] for step in peer["steps"]}
        apart = [abs(step["loss"] - theirs[step["step"]]) / theirs[step["step"]] for step in run["steps"]
                 if step["step"] in theirs]
        if apart:
            graph = ", as a CUDA graph" if run.get("graph") else ""
            findings.append(Finding(f"losses of {run['model']['name']}, {run['dtype']}{graph}, against the CPU's",
                                    f"{100 * max(apart):.3f} % apart at most in {len(apart)} steps",
                                    f"{100 * CURVES_APART:.2f} %", max(apart) <= CURVES_APART))
    return findings


def curve_key(run: dict) -> tuple:
    return json.dumps(run["model"]), run["dtype"], run["layout"]["text"], run["data"], run["tokens_per_step"]


def kernels(lines: list[dict]) -> list[Finding]:
    findings = []
    for line in lines:
        if line.get("record") == "kernel" and line["device"] == "cuda" and line["bound"] == "memory" and line["share"]:
            name = f"{line['kernel']} {line['dtype']} {line['shape']}, {line['cache']}, {line['timing']}"
            findings.append(Finding(name, f"{100 * line['share']:.1f} % of its bound",
                                    f"{100 * SHARE_OF_KERNELS:.0f} %", line["share"] >= SHARE_OF_KERNELS))
    return findings


def attention(lines: list[dict]) -> list[Finding]:
    """Compares our attention with the fastest of PyTorch's backends. Our shapes also contain the stride of rows, which is the stride of
    PyTorch's packed tensor."""
    findings, peers = [], {}
    for line in lines:
        if line.get("what", "").startswith("attention"):
            key = line["what"], line["shape"]
            peers[key] = min(peers.get(key, line), line, key=lambda peer: peer["us"])
    for line in lines:
        peer = peers.get((line.get("kernel"), line.get("shape", "").rsplit("_S", 1)[0]))
        if line.get("record") == "kernel" and line["device"] == "cuda" and peer and line["stats"]:
            ours = median_us(line)
            by = f", {peer['backend']}" if "backend" in peer else ""
            code = f", {line['implementation']}" if line.get("implementation") else ""
            findings.append(Finding(f"{line['kernel']} {line['dtype']} {line['shape']}, {line['timing']}{code}",
                                    f"{ours:.1f} us, {ours / peer['us']:.2f} of PyTorch's {peer['us']:.1f} us{by}",
                                    f"{OVER_TORCH_ATTENTION:.2f}", ours <= OVER_TORCH_ATTENTION * peer["us"]))
    return findings


def clocks(lines: list[dict]) -> list[Finding]:
    """Finding on whether the times that are compared with targets were measured at one clock; none if no row has clocks."""
    seen = [line["gpu_clocks"] for line in lines if "gpu_clocks" in line]
    disturbed = [row["disturbance"] for row in seen if row["disturbance"]]
    if not seen:
        return []
    found = f"changed during {len(disturbed)} of {len(seen)} rows, {sum(row['repeats'] for row in seen)} repetitions"
    return [Finding("clocks of GPUs", found + (f"; the first: {disturbed[0]}" if disturbed else ""), "0 rows", None)]


def findings_in(lines: list[dict]) -> list[Finding]:
    return [finding for find in (clocks, shares_of_copy, latencies, training, curves, kernels, attention) for finding in find(lines)]


# ---- One page about a run: steps that ran, failures, targets that were met. It is rewritten every few seconds while the steps run,
# so that it exists even if they are interrupted.

STYLE = """body { font: 15px sans-serif; margin: 2em; } table { border-collapse: collapse; } h2 { margin-top: 1.5em; }
td, th { text-align: left; padding: 0.15em 1em 0.15em 0; vertical-align: top; } .bad { color: #b00020; font-weight: bold; }
.good { color: #00701a; } .none { color: #666; }"""


@dataclass(frozen=True)
class StepResult:
    name: str
    seconds: str
    result: str

    @property
    def mark(self) -> str:
        """CSS class of the result on the page."""
        return "good" if self.result.split(":")[0] in ("ok", "ran") else "none" if self.result.startswith("left out") else "bad"


def steps_in(folder: Path) -> list[StepResult]:
    file = folder / "steps.tsv"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [StepResult(*line.split("\t", 2)) for line in text.splitlines() if line.count("\t") >= 2]


def headline(steps: list[StepResult], findings: list[Finding]) -> str:
    numbers = {mark: sum(step.mark == mark for step in steps) for mark in ("good", "bad", "none")}
    met, missed = (sum(finding.met is verdict for finding in findings) for verdict in (True, False))
    dry = "dry run without a GPU, nothing was computed: " if any(step.result.startswith("ran") for step in steps) else ""
    return (f"{dry}{numbers['good']} steps well, {numbers['bad']} failed, {numbers['none']} left out; "
            f"{met} targets met, {missed} missed")


def row_of(cells: list[str], mark: str) -> str:
    return f'<tr class="{mark}">' + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def page_of(folder: Path) -> str:
    steps, findings = steps_in(folder), findings_in(lines_of(folder))
    partial = sorted(file.name for file in folder.glob("*.partial.jsonl"))
    failed = [step for step in steps if step.mark == "bad"]
    parts = [f"<h1>GPU check</h1><p>{html.escape(headline(steps, findings))}</p>", "<h2>What failed</h2>"]
    parts += ["<table>", *(row_of([step.name, step.result], "bad") for step in failed), "</table>"] if failed else ["nothing"]
    if partial:
        parts += ["<h2>Partial records</h2><p>Their programs were stopped: " + html.escape(", ".join(partial)) + "</p>"]
    marks = {True: ("met", "good"), False: ("missed", "bad"), None: ("", "none")}
    parts += ["<h2>Targets</h2><table>"]
    for finding in sorted(findings, key=lambda finding: (False, True, None).index(finding.met)):
        word, mark = marks[finding.met]
        parts.append(row_of([word, finding.what, finding.found, f"wanted: {finding.wanted}"], mark))
    parts += ["</table>" if findings else "</table>no records concern them", "<h2>What ran</h2><table>"]
    parts += [*(row_of([step.name, f"{step.seconds} s", step.result], step.mark) for step in steps), "</table>"]
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>GPU check</title><style>{STYLE}</style>' + "\n".join(parts)


def write_page(page: Path, text: str) -> None:
    unfinished = page.with_name(page.name + ".part")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--page", type=Path, metavar="FILE.html")
    options = parser.parse_args()
    if not options.records.is_dir():
        sys.exit("gpu_targets.py: needs the folder of what records.tar.gz of gpu_check.sh holds")
    if options.page:
        write_page(options.page, page_of(options.records))
        return
    findings = findings_in(lines_of(options.records))
    if not findings:
        print("no records of a GPU that concern the targets")
    for finding in findings:
        verdict = {True: "met", False: "missed", None: ""}[finding.met]
        print(f"{verdict:7}{finding.what:55} {finding.found:42} wanted {finding.wanted}")


if __name__ == "__main__":
    main()
