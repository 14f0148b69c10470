"""Counts of GPU kernels as a gate: a kernel of another project, and one of ours, with work planted into its PTX."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import find_binaries, records_of, ROOT

EXAMPLE = ROOT / "docs" / "examples" / "counted_kernel"


@pytest.fixture(scope="module")
def build() -> Path:
    folders = [*([found.parent] if (found := find_binaries()) else []), *sorted((ROOT / "build").glob("*"))]
    found = next((folder for folder in folders if (folder / "tests" / "ptx_check").is_file()), None)
    if found is None:
        pytest.skip("no build has tests/ptx_check, which needs CUDA's compiler")
    return found


def ptx_check(build: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(build / "stand_in"), "STAND_IN_PRODUCTS": "ours"}
    return subprocess.run([build / "tests" / "ptx_check", *words], env=environment, capture_output=True, text=True, timeout=300, check=False)


def counted(build: Path, command: str, folder: Path, file: Path, *words: str) -> Path:
    done = ptx_check(build, command, str(folder), "--json", str(file), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    records_of(file)
    return file


def gate(base: Path, head: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "ci/gate.py", "compare", base, head], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def folder_with(path: Path, files: dict[str, str]) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text, encoding="utf-8")
    return path


def planted(text: str, pattern: str) -> str:
    """Each instruction that matches is there twice: the results are the same, the work is more."""
    changed, number = re.subn(rf"(?m)^(\t{pattern}.*)$", r"\1\n\1", text)
    assert number > 0
    return changed


@pytest.mark.parametrize(("pattern", "worse"), [("ld.global", ("instructions.memory", "global_sectors", "warp_instructions")),
                                                ("mul.f32", ("instructions.real", "warp_instructions"))])
def test_a_kernel_of_another_project_is_gated(build, tmp_path, pattern, worse):
    base = counted(build, "launch", EXAMPLE, tmp_path / "base.jsonl")
    (line,) = [line for line in records_of(base) if line["record"] == "kernel_count"]
    assert (line["entry"], line["global_sectors"], line["global_bytes"], line["spill_bytes"]) == ("scale", 4096, 131072, 0)
    assert line["warp_instructions"] == 128 * 22 and line["resident_threads"] == 2048 and line["registers"] > 0
    more = folder_with(tmp_path / "more", {"scale.json": (EXAMPLE / "scale.json").read_text(),
                                           "scale.ptx": planted((EXAMPLE / "scale.ptx").read_text(), pattern)})
    head = counted(build, "launch", more, tmp_path / "head.jsonl")
    done = gate(base, head)
    assert done.returncode == 1, done.stdout + done.stderr
    assert all(f"scale/f32/N16384/scale: {name}" in done.stdout for name in worse), done.stdout
    assert gate(base, base).returncode == 0


def test_more_work_in_a_kernel_of_ours_is_a_regression(build, tmp_path):
    text = (build / "ptx" / "softmax.ptx").read_text()
    cases = ("--cases", "softmax_fwd/bf16")
    base = counted(build, "counts", folder_with(tmp_path / "a", {"softmax.ptx": text}), tmp_path / "base.jsonl", *cases)
    again = counted(build, "counts", tmp_path / "a", tmp_path / "again.jsonl", *cases, "--seed", "7")
    more = folder_with(tmp_path / "b", {"softmax.ptx": planted(text, "ex2.approx")})
    head = counted(build, "counts", more, tmp_path / "head.jsonl", *cases)
    assert gate(base, again).returncode == 0
    done = gate(base, head)
    assert done.returncode == 1 and "instructions.special" in done.stdout, done.stdout + done.stderr


def test_a_launch_is_dumped_and_runs_from_its_files(build, tmp_path):
    done = ptx_check(build, "dump", str(build / "ptx"), str(tmp_path / "out"), "--cases", "softmax/softmax_fwd/bf16/R70_C64")
    assert done.returncode == 0, done.stdout + done.stderr
    records = sorted((tmp_path / "out").glob("*.json"))
    assert records and (tmp_path / "out" / "softmax.ptx").is_file()
    done = ptx_check(build, "launch", str(tmp_path / "out"))
    assert done.returncode == 0 and done.stdout.count("right") == len(records), done.stdout + done.stderr
    record = json.loads(records[0].read_text())
    wrong = tmp_path / "out" / record["buffers"]["b0"]["after"]
    wrong.write_bytes(bytes(byte ^ 1 for byte in wrong.read_bytes()))
    done = ptx_check(build, "launch", str(tmp_path / "out"))
    assert done.returncode == 1 and "buffer b0:" in done.stdout
