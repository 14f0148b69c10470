"""The table of ci/compare_trainer.sh, from made-up runs."""

from __future__ import annotations

import json
from pathlib import Path

import compare_trainer_table as table


def write(folder: Path, label: str, ms: list[float], ours: bool, mib: int) -> None:
    (folder / f"{label}.memory").write_text(str(mib * 2**20), encoding="utf-8")
    if ours:
        record = {"record": "training", "tokens_per_step": 1024, "steps": [{"ms": one} for one in ms],
                  "gemm": {"implementation": "amx" if label.startswith("1") else "packed"}}
        (folder / f"{label}.jsonl").write_text('{"record": "run"}\n' + json.dumps(record) + "\n", encoding="utf-8")
    else:
        (folder / f"{label}.out").write_text(json.dumps({"ms": ms, "tokens": 1024}), encoding="utf-8")


def test_rates_are_medians_over_rounds_without_warm_up(tmp_path: Path) -> None:
    write(tmp_path, "1-a-f32-ours", [9999, 9999, 100, 100, 100], True, 50)
    write(tmp_path, "2-a-f32-ours", [9999, 9999, 100, 200, 100], True, 60)
    write(tmp_path, "1-a-f32-torch", [9999, 9999, 250, 250, 250], False, 900)
    write(tmp_path, "1-a-f32-dp2", [9999, 9999, 125, 125], True, 70)
    text = table.table(tmp_path)
    row = next(line for line in text.splitlines() if line.startswith("a "))
    assert row.split()[:3] == ["a", "f32", "10240"]
    assert "2.50" in row and row.split()[-4:] == ["60", "900", "amx,", "packed"]
    assert "80 % of one rank of two" in text


def test_the_better_of_eager_and_compiled_counts(tmp_path: Path) -> None:
    write(tmp_path, "1-a-bf16-ours", [0, 0, 100], True, 50)
    write(tmp_path, "1-a-bf16-torch", [0, 0, 150], False, 900)
    write(tmp_path, "1-a-bf16-compiled", [9999, 0, 120], False, 800)
    row = next(line for line in table.table(tmp_path).splitlines() if line.startswith("a "))
    assert row.split()[-4:] == ["1.20", "50", "800", "amx"]


def test_a_run_keeps_its_output_and_the_most_memory(tmp_path: Path) -> None:
    label = str(tmp_path / "1-a-f32-torch")
    assert table.run(label, ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"]) == 3
    assert Path(f"{label}.out").read_text() == "out\n" and Path(f"{label}.err").read_text() == "err\n"
    assert int(Path(f"{label}.memory").read_text()) > 0
