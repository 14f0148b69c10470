#!/usr/bin/env python3
"""Makes one page about a run of ci/gpu_check.sh: steps that ran, failures, targets that were met. Uses the standard library only.

    gpu_summary.py RECORDS --page FILE.html        RECORDS: the folder of what records.tar.gz holds

It is rewritten every few seconds while the steps run, so that it exists even if they are interrupted.
"""

from __future__ import annotations

import argparse
import html
import os
from dataclasses import dataclass
from pathlib import Path

from gpu_targets import Finding, findings_in, lines_of

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
        return "good" if self.result == "ok" else "none" if self.result.startswith("left out") else "bad"


def steps_in(folder: Path) -> list[StepResult]:
    file = folder / "steps.tsv"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [StepResult(*line.split("\t", 2)) for line in text.splitlines() if line.count("\t") >= 2]


def headline(steps: list[StepResult], findings: list[Finding]) -> str:
    numbers = {mark: sum(step.mark == mark for step in steps) for mark in ("good", "bad", "none")}
    met, missed = (sum(one.met is verdict for one in findings) for verdict in (True, False))
    return (f"{numbers['good']} steps well, {numbers['bad']} failed, {numbers['none']} left out; "
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
    for one in sorted(findings, key=lambda finding: (False, True, None).index(finding.met)):
        word, mark = marks[one.met]
        parts.append(row_of([word, one.what, one.found, f"wanted: {one.wanted}"], mark))
    parts += ["</table>" if findings else "</table>no records say anything of them", "<h2>What ran</h2><table>"]
    parts += [*(row_of([step.name, f"{step.seconds} s", step.result], step.mark) for step in steps), "</table>"]
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>GPU check</title><style>{STYLE}</style>' + "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    if not options.records.is_dir():
        parser.error(f"{options.records} is no folder")
    unfinished = options.page.with_name(options.page.name + ".part")
    unfinished.write_text(page_of(options.records), encoding="utf-8")
    os.replace(unfinished, options.page)


if __name__ == "__main__":
    main()
