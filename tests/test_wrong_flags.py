"""Every flag of every program, as its --help lists them, with values that no flag takes: each is refused in one line that names the
flag and states what is allowed. A run tries every fourth flag with one value; LOCKSTEP_WRONG_FLAGS=all tries all with all values."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from conftest import Programs

STUDIES = ("plan", "scaling", "map", "memory", "recompute", "tp-boundary", "order", "sensitivity", "bubbles", "clocks")
PROGRAMS = ("all_reduce_perf", "tune", "kernels_bench", "pipeline_perf", "overlap_perf", "ddp_overlap_bench", "zero_bench", "tp_linear_bench",
            "seqpar_bench", "moe_bench", "simulate", "mini_train", "scaling", "suite", *(f"simulate {name}" for name in STUDIES))
WRONG = ("?", "", "nan", "-7e400", "99999999999999999999", "\x1b[31m")
ALL = os.environ.get("LOCKSTEP_WRONG_FLAGS") == "all"
USAGE = 6
# These take any text: names of files that are written, and prompts.
TEXT = ("--json", "--trace", "--chakra", "--dump-csv", "--output", "--out", "--tokenize", "--checkpoints", "--export", "--prompt", "--offload-folder")
# These name files that are read: a refusal names the file in place of the flag.
FILES = ("--data", "--tokenizer", "--resume", "--init-from", "--plan", "--csv", "--calibrate", "--suite", "--machine", "--predict")


def flags_of(programs: Programs, program: str) -> list[str]:
    """Names of the flags that take a value: "-b,--minbytes"."""
    done = programs.run(*program.split(), "--help")
    assert done.returncode == 0, done.stderr
    return re.findall(r"^  (-[\w,-]+) VALUE", done.stdout, re.MULTILINE)


def cases(flags: list[str]) -> list[tuple[str, str]]:
    tried = [flag for flag in flags if flag.split(",")[-1] not in TEXT]
    if ALL:
        return [(flag, value) for flag in tried for value in WRONG]
    return [(flag, WRONG[i % len(WRONG)]) for i, flag in enumerate(tried) if i % 4 == len(tried) % 4]


def problem_of(program: str, flag: str, value: str, status: int, stderr: str) -> str | None:
    line = stderr.removesuffix("\n")
    call = f"{program} {flag} {value!r}: status {status}: {line[:300]!r}"
    if status != USAGE or not line.startswith(program.split()[0] + ": "):
        return f"not refused as a wrong flag: {call}"
    if re.search(r"[\x00-\x1f]", line):
        return f"not one line of text: {call}"
    shown = value.replace("\x1b", "\\x1b")
    is_file = flag.split(",")[-1] in FILES and value and shown in line
    names_flag = any(re.search(rf"{name}(?![\w-])", line) for name in flag.split(","))
    return None if is_file or (names_flag and "allowed" in line) else f"does not name the flag and what is allowed: {call}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_wrong_value_is_refused_in_one_line(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.chdir(tmp_path)
    flags = flags_of(programs, program)
    assert len(flags) > 3
    problems = []
    for flag, value in cases(flags):
        done = programs.run(*program.split(), flag.split(",")[-1], value, timeout=60)
        problems.append(problem_of(program, flag, value, done.returncode, done.stderr))
    assert [problem for problem in problems if problem] == []


def test_a_flag_that_is_missing_its_value_or_unknown_is_refused(programs: Programs) -> None:
    for words in (("--ranks",), ("--rank", "2"), ("--ranks=",), ("stray",), ("--ranks", "2", "--ranks", "x")):
        done = programs.run("all_reduce_perf", *words)
        assert (done.returncode, done.stderr.count("\n")) == (USAGE, 1), done.stderr
        assert "allowed" in done.stderr and words[0].lstrip("-").rstrip("=") in done.stderr
    assert "nearest: --ranks" in programs.run("all_reduce_perf", "--rank", "2").stderr
    assert "nearest: plan" in programs.run("simulate", "pln").stderr
    assert "nearest: dgx-h100" in programs.run("simulate", "--machine", "h100").stderr
    assert "nearest: 80; allowed: numbers of devices whose factors" in programs.run(
        "simulate", "plan", "--model", "llama3-70b", "--gpus", "100", "--batch", "512").stderr
    assert "nearest: double_tree" in programs.run("all_reduce_perf", "--algo", "double_tre").stderr
