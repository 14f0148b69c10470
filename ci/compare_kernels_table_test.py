"""compare_kernels_table.py on made-up results."""

from __future__ import annotations

import json
from pathlib import Path

import compare_kernels_table as table
import pytest
from compare_kernels_cases import read_records

NAME = "gelu_fwd/f32/B2_T4_C8/cold"


def write_ours(path: Path, samples_us: list[float], **changes: object) -> None:
    operands = [
        {"name": "x", "access": "read", "dtype": "f32", "bytes": 4000},
        {"name": "gamma", "access": "read", "dtype": "f32", "bytes": 40},
        {"name": "y", "access": "write", "dtype": "f32", "bytes": 4000},
    ]
    record = {
        "record": "kernel",
        "kernel": "gelu_fwd",
        "dtype": "f32",
        "shape": "B2_T4_C8",
        "cache": "cold",
        "threads": 2,
        "cores": [0, 1],
        "status": "ok",
        "error": None,
        "flops": 9000.0,
        "bytes": 8040.0,
        "operands": operands,
        "samples_us": samples_us,
        **changes,
    }
    path.write_text(json.dumps({"record": "run"}) + "\n" + json.dumps(record) + "\n", encoding="utf-8")


def write_peer(path: Path, label: str, median_us: float, min_us: float) -> None:
    path.write_text(f"noise\n{label},{NAME},9,{median_us},{median_us},{min_us}\n", encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_ours(tmp_path / "ours-1.jsonl", [10.0, 11.0, 90.0])
    write_ours(tmp_path / "ours-2.jsonl", [13.0])
    write_peer(tmp_path / "limit-1.csv", "streaming limit", 9.0, 8.0)
    write_peer(tmp_path / "torch-1.csv", "pytorch", 24.0, 20.0)
    write_peer(tmp_path / "other-1.csv", "slow", 240.0, 200.0)
    return tmp_path


def test_rounds_are_joined_by_their_median_and_least(folder: Path) -> None:
    results = table.load(folder)
    assert results.ours[NAME] == table.Time(12.0, 10.0)


def test_ratios_say_how_much_faster_we_are(folder: Path) -> None:
    results = table.load(folder)
    assert table.best_peer(results, NAME) == ("pytorch", table.Time(24.0, 20.0))
    assert table.over_peer(results, NAME) == table.Ratio(2.0, 2.0)
    assert table.of_limit(results, NAME) == table.Ratio(0.75, 0.8)
    assert table.row_of(results, NAME)[4:] == ["75 %", "80 %", "pytorch", "24.0 us", "2.00", "2.00"]
    assert table.group_rows(results) == [["gelu_fwd/f32/cold", "1", "75 %", "80 %", "2.00", "2.00"]]


def test_streams_are_no_limit_of_much_arithmetic(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        write_ours(path, [10.0], flops=1e6)
    assert table.of_limit(table.load(folder), NAME) is None


def test_streams_are_no_limit_in_caches(tmp_path: Path) -> None:
    write_ours(tmp_path / "ours-1.jsonl", [10.0], cache="warm")
    (tmp_path / "limit.csv").write_text(f"streaming limit,{NAME.replace('cold', 'warm')},9,5.0,5.0,5.0\n", encoding="utf-8")
    assert table.of_limit(table.load(tmp_path), NAME.replace("cold", "warm")) is None


def test_without_peers_there_are_dashes(tmp_path: Path) -> None:
    write_ours(tmp_path / "ours-1.jsonl", [10.0])
    assert table.row_of(table.load(tmp_path), NAME)[4:] == ["-", "-", "-", "-", "-", "-"]


def test_a_wrong_row_stops_the_table(tmp_path: Path) -> None:
    write_ours(tmp_path / "ours-1.jsonl", [], status="wrong", error="y[0]")
    with pytest.raises(SystemExit, match="wrong"):
        table.load(tmp_path)


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no results"):
        table.load(tmp_path)


def test_shared_cores_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ours(tmp_path / "ours-1.jsonl", [10.0], cores=[1, 1])
    table.load(tmp_path)
    assert "shared a core" in capsys.readouterr().err


def test_streams_leave_out_small_operands(folder: Path) -> None:
    case = read_records(folder / "ours-1.jsonl")[0]
    assert case.streams() == "r4000+w4000"
    assert (case.size("B"), case.size("T"), case.size("C")) == (2, 4, 8)
    with pytest.raises(KeyError):
        case.size("V")


def test_of_a_table_only_the_rows_that_are_named_are_streams(folder: Path) -> None:
    operands = [
        {"name": "ids", "access": "read", "dtype": "i32", "bytes": 40},
        {"name": "table", "access": "update", "dtype": "f32", "bytes": 4_000_000},
        {"name": "dy", "access": "read", "dtype": "bf16", "bytes": 2000},
    ]
    write_ours(folder / "ours-1.jsonl", [10.0], operands=operands, bytes=40 + 2 * 4000 + 2000)
    case = read_records(folder / "ours-1.jsonl")[0]
    assert case.streams() == "u4000+r2000"
    assert case.footprint_bytes() == 40 + 4000 + 2000
    assert case.shared_operands() == {"table"}
