"""Tables of the studies from made-up results, the verdicts on products of matrices, and how commands fail."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from compare import __main__ as program
from compare import collectives, gemm, hosts, kernels, runner, trainer
from compare.kernels import read_records
from compare.collectives import Key

# ---- compare/kernels.py

NAME = "gelu_fwd/f32/B2_T4_C8/cold"


def write_ours(path: Path, samples_us: list[float], **changes: object) -> None:
    operands = [{"name": name, "access": access, "dtype": "f32", "bytes": size}
                for name, access, size in (("x", "read", 4000), ("gamma", "read", 40), ("y", "write", 4000))]
    record = {"record": "kernel", "kernel": "gelu_fwd", "dtype": "f32", "shape": "B2_T4_C8", "cache": "cold", "threads": 2, "cores": [0, 1],
              "status": "ok", "error": None, "flops": 9000.0, "bytes": 8040.0, "operands": operands, "samples_us": samples_us, **changes}
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
    results = kernels.load(folder)
    assert results.ours[NAME] == kernels.CallTime(12.0, 10.0)


def test_ratios_above_one_mean_that_we_are_faster(folder: Path) -> None:
    results = kernels.load(folder)
    assert kernels.best_peer(results, NAME) == ("pytorch", kernels.CallTime(24.0, 20.0))
    assert kernels.over_peer(results, NAME) == kernels.Ratio(2.0, 2.0)
    assert kernels.of_limit(results, NAME) == kernels.Ratio(0.75, 0.8)
    assert kernels.row_of(results, NAME)[4:] == ["75 %", "80 %", "pytorch", "24 µs", "2.00", "2.00"]
    assert kernels.group_rows(results) == [["gelu_fwd/f32/cold", "1", "75 %", "80 %", "2.00", "2.00"]]


def test_streams_are_no_limit_of_much_arithmetic(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        write_ours(path, [10.0], flops=1e6)
    assert kernels.of_limit(kernels.load(folder), NAME) is None


def test_streams_are_no_limit_in_caches(tmp_path: Path) -> None:
    write_ours(tmp_path / "ours-1.jsonl", [10.0], cache="warm")
    (tmp_path / "limit.csv").write_text(f"streaming limit,{NAME.replace('cold', 'warm')},9,5.0,5.0,5.0\n", encoding="utf-8")
    assert kernels.of_limit(kernels.load(tmp_path), NAME.replace("cold", "warm")) is None


def test_without_peers_there_are_dashes(tmp_path: Path) -> None:
    write_ours(tmp_path / "ours-1.jsonl", [10.0])
    assert kernels.row_of(kernels.load(tmp_path), NAME)[4:] == ["-", "-", "-", "-", "-", "-"]


def test_a_wrong_row_stops_the_table(tmp_path: Path) -> None:
    write_ours(tmp_path / "ours-1.jsonl", [], status="wrong", error="y[0]")
    with pytest.raises(SystemExit, match="wrong"):
        kernels.load(tmp_path)


def test_an_empty_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no results"):
        kernels.load(tmp_path)


def test_shared_cores_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ours(tmp_path / "ours-1.jsonl", [10.0], cores=[1, 1])
    kernels.load(tmp_path)
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


# ---- compare/trainer.py

def write_run(folder: Path, label: str, ms: list[float], ours: bool, mib: int) -> None:
    (folder / f"{label}.memory").write_text(str(mib * 2**20), encoding="utf-8")
    if ours:
        record = {"record": "training", "tokens_per_step": 1024, "steps": [{"ms": value} for value in ms],
                  "gemm": {"implementation": "onednn" if label.startswith("1") else "packed"}}
        (folder / f"{label}.jsonl").write_text('{"record": "run"}\n' + json.dumps(record) + "\n", encoding="utf-8")
    else:
        (folder / f"{label}.out").write_text(json.dumps({"ms": ms, "tokens": 1024}), encoding="utf-8")


def test_rates_are_medians_over_rounds_without_warm_up(tmp_path: Path) -> None:
    write_run(tmp_path, "1-a-f32-ours", [9999, 9999, 100, 100, 100], True, 50)
    write_run(tmp_path, "2-a-f32-ours", [9999, 9999, 100, 200, 100], True, 60)
    write_run(tmp_path, "1-a-f32-torch", [9999, 9999, 250, 250, 250], False, 900)
    write_run(tmp_path, "1-a-f32-dp2", [9999, 9999, 125, 125], True, 70)
    text = trainer.table(tmp_path)
    row = next(line for line in text.splitlines() if line.startswith("a "))
    assert row.split()[:3] == ["a", "f32", "10240"]
    assert "2.50" in row and row.split()[-4:] == ["60", "900", "onednn,", "packed"]
    assert "80 % of one rank of two" in text


def test_the_better_of_eager_and_compiled_counts(tmp_path: Path) -> None:
    write_run(tmp_path, "1-a-bf16-ours", [0, 0, 100], True, 50)
    write_run(tmp_path, "1-a-bf16-torch", [0, 0, 150], False, 900)
    write_run(tmp_path, "1-a-bf16-compiled", [9999, 0, 120], False, 800)
    row = next(line for line in trainer.table(tmp_path).splitlines() if line.startswith("a "))
    assert row.split()[-4:] == ["1.20", "50", "800", "onednn"]


def test_a_run_keeps_its_output_and_the_most_memory(tmp_path: Path) -> None:
    label = tmp_path / "1-a-f32-torch"
    assert trainer.measured(label, ["/bin/sh", "-c", "echo out; echo $WORD >&2; exit 3"], {"WORD": "err"}) == 3
    assert Path(f"{label}.out").read_text() == "out\n" and Path(f"{label}.err").read_text() == "err\n"
    assert int(Path(f"{label}.memory").read_text()) > 0


# ---- compare/gemm.py

def test_own_code_stays_from_fifteen_percent_on() -> None:
    own = {"a": [100.0, 100.0, 300.0], "b": [100.0, 100.0, 100.0]}
    faster = {"a": [120.0, 120.0, 130.0], "b": [120.0, 120.0, 480.0]}
    assert gemm.verdict(own, faster) == "geometric mean 1.20 times oneDNN's speed (rounds 1.20 to 1.44): own code stays"
    slower = {"a": [114.0] * 3, "b": [114.0] * 3}
    assert gemm.verdict(own, slower).endswith(": the library does it")


def test_the_mean_is_over_layers_and_geometric() -> None:
    own = {"a": [100.0], "b": [100.0]}
    assert "mean 1.00 times" in gemm.verdict(own, {"a": [200.0], "b": [50.0]})


def test_what_the_library_cannot_multiply_stays_ours() -> None:
    own = {"a": [100.0]}
    assert "own code stays" in gemm.verdict(own, {})
    assert gemm.table(own, {}) == [["  a", "100", "-", "-"]]


# ---- compare/collectives.py, compare/hosts.py, compare/runner.py

def test_the_fastest_peer_is_compared_with_what_auto_chose() -> None:
    us = {"lockstep auto ring": 100.0, "lockstep two_shot": 80.0, "openmpi ring": 250.0, "gloo ring": 150.0, "streaming limit": 50.0,
          "lockstep ring": 125.0}
    row = collectives.row_of({Key(label, 2, 1 << 24): time for label, time in us.items()}, 2, 1 << 24)
    assert row == ["2", "16 MiB", "auto ring", "100 µs", "two_shot", "80 µs", "gloo ring", "150 µs", "1.50", "2.00", "50 %"]


def test_hosts_are_compared_with_the_wire(capsys: pytest.CaptureFixture[str]) -> None:
    hosts.print_hosts({Key("lockstep ring", 4, 1 << 24): 250e3, Key("openmpi ring", 4, 1 << 24): 300e3}, 4, 118.0)
    assert "1.20" in (last := capsys.readouterr().out.splitlines()[-1]) and last.endswith("85.3 %       80.5 %")


def test_a_peer_that_fails_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner.attempt(tmp_path / "a.csv", ["/bin/sh", "-c", "echo row; echo broken >&2; exit 1"])
    assert not (tmp_path / "a.csv").exists() and capsys.readouterr().err == "a failed: broken\n"
    runner.attempt(tmp_path / "b.csv", ["/bin/sh", "-c", "echo row; exec sleep 60"], seconds=0.5, keep=True)
    assert (tmp_path / "b.csv").read_text() == "row\n" and "not done within 0.5 s" in capsys.readouterr().err


def test_a_program_of_ours_that_fails_ends_the_study() -> None:
    with pytest.raises(SystemExit, match="status 3: wrong row"):
        runner.output_of(["/bin/sh", "-c", "echo wrong row >&2; exit 3"])


@pytest.mark.parametrize("study", program.STUDIES)
def test_every_study_has_a_help(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    if study in runner.IN_TORCH:
        pytest.importorskip("torch", reason="Debian's python3-torch is not installed")
    with pytest.raises(SystemExit) as ended:
        program.main([study, "--help"])
    assert ended.value.code == 0 and f"compare {study}" in capsys.readouterr().out
