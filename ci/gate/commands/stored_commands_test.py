"""compare, store, history and calibrate as a user calls them."""
import json
import random
import stat
import sys
import textwrap
from pathlib import Path

import pytest

from gate.cli import main
from gate.inputs.files import read_file
from gate.inputs.files_for_tests import all_reduce_line, google, kernel_line, run_line, text_of, write_kernels

RUNS = 8
TRUST = ("--uncalibrated", "trust")


def session(folder: Path, gelu_us: float, revision: str = "a", machine: str = "m1", day: int = 1, calibration_us: float = 0) -> Path:
    """Eight runs, a file each."""
    folder.mkdir(exist_ok=True)
    dice = random.Random(folder.name)
    for i in range(RUNS):
        run = f"{folder.name}{i}"
        write_kernels(folder / f"{run}.jsonl", run, {"gelu": [gelu_us * dice.gauss(1, 0.002)], "gemm": [50 * dice.gauss(1, 0.002)]},
                      revision=revision * 40, fingerprint=machine, started=f"2026-01-{day:02}T00:00:{i:02}Z")
        if calibration_us:
            lines = [run_line(f"c{run}", revision * 40, machine, program="gate_planted"),
                     kernel_line(f"c{run}", "calibration_compute", "compute", [calibration_us * dice.gauss(1, 0.001)], 1)]
            (folder / f"calibration{i}.jsonl").write_text(text_of(lines))
    return folder


def test_compare_of_two_folders(tmp_path, capsys):
    base, same, slow = (session(tmp_path / name, us) for name, us in (("base", 10), ("same", 10), ("slow", 10.5)))
    assert main(["compare", str(base), str(same)]) == 0
    assert main(["compare", str(base), str(slow)]) == 3
    assert "slower if the machine was the same" in capsys.readouterr().out
    assert main(["compare", str(base), str(slow), *TRUST]) == 1
    out = capsys.readouterr().out
    assert "gelu/f64/fixed/cpu/threads:1/warm" in out and "8 and 8 runs" in out
    assert main(["compare", *map(str, sorted(base.iterdir())), "--", str(slow), *TRUST]) == 1
    assert main(["compare", *map(str, sorted(base.iterdir())), "--head", f"{slow}/*.jsonl", "--threshold", "20%"]) == 0


def test_compare_takes_out_what_the_machine_did(tmp_path, capsys):
    base, head = session(tmp_path / "base", 10, calibration_us=14), session(tmp_path / "head", 10.6, calibration_us=14 * 1.06)
    assert main(["compare", str(base), str(head)]) in (0, 3)
    out = capsys.readouterr().out
    assert main(["compare", str(base), str(session(tmp_path / "slow", 11.6, calibration_us=14 * 1.06))]) == 1
    assert "calibration: compute +6.0 %" in out and "the machine was not the same: compute" in out
    assert "slower" not in out.splitlines()[-1]


def test_machines_that_differ(tmp_path, capsys):
    base, head = session(tmp_path / "base", 10), session(tmp_path / "head", 10, machine="m2")
    assert main(["compare", str(base), str(head)]) == 2
    assert "machines differ: base m1, head m2; allowed" in capsys.readouterr().err
    assert main(["compare", str(base), str(head), "--fingerprint", "warn"]) == 0
    assert "machines differ" in capsys.readouterr().out


def test_facts_alone_may_be_of_any_machine(tmp_path):
    row = all_reduce_line("r", [2.0], 1, 64) | {"basis": "simulated"}
    for name, us in (("base", 7.5), ("same", 7.5), ("slow", 7.5000001)):
        lines = [run_line("r", fingerprint=name, basis="simulated"), row | {"time_us": us}]
        (tmp_path / f"{name}.jsonl").write_text(text_of(lines))
    assert main(["compare", str(tmp_path / "base.jsonl"), str(tmp_path / "same.jsonl")]) == 0
    assert main(["compare", str(tmp_path / "base.jsonl"), str(tmp_path / "slow.jsonl")]) == 1


def test_runs_of_both_sides_are_told(tmp_path, capsys):
    base = session(tmp_path / "base", 10)
    assert main(["compare", str(base), str(base)]) == 0
    assert "8 runs are on both sides" in capsys.readouterr().out


@pytest.mark.parametrize("words, told", [
    (["a", "b", "c"], "3 RECORDS given; allowed: BASE HEAD"),
    (["a", "b", "--update"], "--update without --store"),
    (["a", "--head", "b", "--store", "s"], "--store and --head"),
    (["nowhere", "nowhere2"], "HEAD nowhere2: no such file"),
    (["a", "b", "--threshold", "0"], "--threshold 0; allowed"),
])
def test_compare_refuses_in_one_line(words, told, capsys):
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_foreign_formats_compare(tmp_path):
    dice = random.Random(1)
    for side, ns in (("base", 1000), ("head", 1100)):
        (tmp_path / side).mkdir()
        for i in range(RUNS):
            (tmp_path / side / f"{i}.json").write_text(google({"BM_x": [ns * dice.gauss(1, 0.005) for _ in range(3)]}))
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "head"), *TRUST]) == 1


def test_a_store_keeps_machines_apart_and_compares_with_the_newest_revision(tmp_path, capsys):
    store = tmp_path / "store"
    old, new = session(tmp_path / "old", 9, "a", day=1), session(tmp_path / "new", 10, "b", day=2)
    other = session(tmp_path / "other", 5, "c", "m2", day=3)
    assert main(["store", str(store), str(old), str(new), str(other)]) == 0
    assert {path.name for path in store.iterdir()} == {"m1", "m2"} and len(list(store.glob("m1/*"))) == 2 * RUNS
    head = session(tmp_path / "head", 10, "d", day=4)
    assert main(["compare", "--store", str(store), str(head)]) == 0
    assert main(["compare", "--store", str(store), str(head), "--base-revision", "aaa", *TRUST]) == 1
    assert main(["compare", "--store", str(store), str(head), "--base-revision", "c"]) == 2
    assert "0 revisions" in capsys.readouterr().err
    unknown = session(tmp_path / "unknown", 10, machine="m3")
    assert main(["compare", "--store", str(store), str(unknown)]) == 2
    assert "nothing of machine m3" in capsys.readouterr().err


def test_a_store_is_updated_only_by_what_is_not_slower(tmp_path):
    store, base = tmp_path / "store", session(tmp_path / "base", 10, "a", day=1)
    main(["store", str(store), str(base)])
    before = sorted(store.rglob("*"))
    assert main(["compare", "--store", str(store), "--update", *TRUST, str(session(tmp_path / "slow", 11, "b", day=2))]) == 1
    assert main(["compare", "--store", str(store), "--update", str(session(tmp_path / "doubtful", 11, "b", day=2))]) == 3
    assert sorted(store.rglob("*")) == before
    assert main(["compare", "--store", str(store), "--update", str(session(tmp_path / "good", 10, "c", day=3))]) == 0
    assert len(list(store.glob("m1/*"))) == 2 * RUNS


def test_storing_twice_adds_once_and_a_broken_file_adds_nothing(tmp_path):
    store, base = tmp_path / "store", session(tmp_path / "base", 10)
    main(["store", str(store), str(base)])
    main(["store", str(store), str(base)])
    assert len(list(store.glob("m1/*"))) == RUNS
    (base / "zz.jsonl").write_text('{"record": "run"')
    assert main(["store", str(tmp_path / "second"), str(base)]) == 2
    assert not (tmp_path / "second").exists()


def history_of(folder: Path, step_at: int, points: int = 24) -> Path:
    folder.mkdir()
    dice = random.Random(3)
    for i in range(points):
        write_kernels(folder / f"{points - i}.jsonl", f"r{i}", {"gelu": [(10.6 if i >= step_at else 10) * dice.gauss(1, 0.006)]},
                      revision=f"{i:02}" * 20, started=f"2026-01-{i + 1:02}T00:00:00Z")
    return folder


def test_history_blames_and_says_by_status(tmp_path, capsys):
    folder = history_of(tmp_path / "h", step_at=16)
    assert main(["history", str(folder)]) == 1
    assert "151515151515..161616161616" in capsys.readouterr().out
    assert main(["history", str(folder), "--last", "5"]) == 0  # it is older
    assert main(["history", str(history_of(tmp_path / "none", step_at=99))]) == 0
    assert main(["history", str(folder), "--last", "0"]) == 2


PLANTED = """
    import json, sys
    names = ["memory", "compute"] if sys.argv[1] == "alone" else ["collective"]
    print(json.dumps({"serve": 1, "program": "gate_planted", "cases": names}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps({"us": [{"memory": 33.0, "compute": 14.0, "collective": 5.0}[names[order["case"]]]] * order["runs"]}), flush=True)
"""
SWEEP = """
    import sys
    open(sys.argv[-1], "w").write(LINE)
"""


def build_with(folder: Path, sweep: str) -> Path:
    """A build folder whose programs are of a few lines."""
    (folder / "bin").mkdir(parents=True)
    for name, text in (("gate_planted", PLANTED), ("all_reduce_perf", sweep)):
        path = folder / "bin" / name
        path.write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


def test_calibrate_writes_records_that_compare_takes_for_calibration(tmp_path):
    line = json.dumps(run_line("x", revision="c" * 40, fingerprint="m9", program="all_reduce_perf")) + "\n"
    build = build_with(tmp_path / "build", SWEEP.replace("LINE", repr(line)))
    out = tmp_path / "calibration.jsonl"
    assert main(["calibrate", "--build", str(build), "--json", str(out), "--processes", "2"]) == 0
    found = read_file(out)
    assert {(one.quantity.kind, one.typical) for one in found} == {("memory", 33.0), ("compute", 14.0), ("collective", 5.0)}
    assert all(one.quantity.calibrates and one.origin.fingerprint == "m9" and len(one.values) == 12 for one in found)
    assert len({one.origin.run for one in found}) == 4  # two processes of each of two groups


def test_calibrate_says_what_could_not_run(tmp_path, capsys):
    build = build_with(tmp_path / "build", "raise SystemExit('no memory')")
    assert main(["calibrate", "--build", str(build), "--json", str(tmp_path / "c.jsonl")]) == 4
    assert "all_reduce_perf: wrote no record (status 1): no memory" in capsys.readouterr().err
    assert not (tmp_path / "c.jsonl").exists()
