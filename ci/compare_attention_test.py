"""Tests how ci/compare_attention.py counts, and how it reads bench/attention_loop."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

pytest.importorskip("torch")
import compare_attention as compare


def test_flops_are_of_the_pairs_that_are_seen() -> None:
    causal = compare.Case("f32", 128, 64, True)
    full = compare.Case("f32", 128, 64, False)
    assert full.flops("attention_fwd") == 4 * 64 * full.heads * 128 * 128
    assert causal.flops("attention_bwd") == 10 * 64 * causal.heads * 128 * 129 / 2


def test_the_programs_medians_are_read_and_its_flags_are_the_cases(tmp_path: Path) -> None:
    program = tmp_path / "loop"
    seen = tmp_path / "seen"
    program.write_text(f'#!/bin/sh\necho "$@" > {seen}\necho attention_fwd,3,12.5,11\necho attention_bwd,2,30,29\n')
    program.chmod(0o755)
    case = compare.Case("bf16", 8192, 128, True)
    assert compare.ours(str(program), case, 2, 50) == {"attention_fwd": 12.5, "attention_bwd": 30.0}
    words = "--dtype bf16 --length 8192 --columns 128 --heads 2 --threads 2 --milliseconds 50 --causal"
    assert seen.read_text().split() == words.split()


def test_a_program_that_finds_its_result_wrong_stops_the_comparison(tmp_path: Path) -> None:
    program = tmp_path / "loop"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(compare.subprocess.CalledProcessError):
        compare.ours(str(program), compare.Case("f32", 128, 64, False), 2, 50)


def test_means_are_geometric() -> None:
    assert math.isclose(compare.mean_of([1.0, 4.0]), 2.0)
