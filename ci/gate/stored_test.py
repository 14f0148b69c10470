"""Tests compare on made-up sessions: without differences, with planted steps, on machines that moved."""
import json
import math
import random
import stat
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from gate.cli import main
from gate.inputs.files import read_file
from gate.inputs.files_for_tests import all_reduce_line, google, kernel_line, run_line, text_of, write_kernels
from gate.inputs.observation import FAILURES, Observation, Origin, Quantity, WRONG
from gate.model import Channel, Verdict
from gate.stored import compare, StoredRule

CASES = [f"case{i}" for i in range(40)]
SPREAD = 0.015  # spread of the medians of processes on one machine in one session; a tenth of them are outliers (see session())


def session(dice, slower=None, runs=10, cases=CASES, drift=None, kind="memory", calibrated=True, spread=SPREAD):
    """Runs of all cases. Noise has a long upper tail: what disturbs a run makes it slower, one in ten by several percent."""
    found = []
    for run in range(runs):
        origin = Origin(f"{dice.random()}", "f")
        slow = (slower or {}).items()
        scales = dict.fromkeys(cases, 0.0) | {case: math.log1p(percent / 100) for case, percent in slow}
        for case, scale in scales.items():
            disturbed = abs(dice.gauss(0, 0.05)) if dice.random() < 0.1 else 0.0
            value = 100 * math.exp(scale + (drift or 0.0) + dice.gauss(0, spread) + disturbed)
            found.append(Observation(Quantity(case, Channel.STORED, "us", kind=kind), origin, (value,)))
        if calibrated:
            value = 100 * math.exp((drift or 0.0) + dice.gauss(0, spread / 3))
            found.append(Observation(Quantity("calibration", Channel.STORED, "us", kind=kind, calibrates=True), origin, (value,)))
    return found


def verdicts(base, head, rule=StoredRule()):
    results, notes = compare(base, head, rule)
    return {result.case: result.verdict for result in results}, notes


def test_sessions_that_do_not_differ_raise_an_alarm_in_one_of_a_hundred_at_most():
    dice = random.Random(1)
    alarms = sum(Verdict.SLOWER in verdicts(session(dice), session(dice))[0].values() for _ in range(150))
    assert alarms <= 1  # expected of 150 sessions of 40 cases at 1 %: 1.5


@pytest.mark.parametrize("percent, runs, least", [(5, 12, 0.7), (5, 16, 0.85), (10, 12, 0.9)])
def test_planted_steps_are_found_among_forty_cases(percent, runs, least):
    dice = random.Random(2)
    planted = {case: percent for case in CASES[:4]}
    found = [verdicts(session(dice, runs=runs), session(dice, planted, runs=runs))[0] for _ in range(20)]
    assert np.mean([verdicts[case] is Verdict.SLOWER for verdicts in found for case in planted]) >= least
    assert not any(verdicts[case] is Verdict.SLOWER for verdicts in found for case in CASES[4:])


def test_what_got_faster_is_found_too():
    dice = random.Random(3)
    found, _ = verdicts(session(dice, {"case0": 10}, runs=12), session(dice, runs=12))
    assert found["case0"] is Verdict.FASTER


def test_bandwidth_that_falls_is_slower():
    def side(value):
        quantity = Quantity("bandwidth", Channel.STORED, "gbps", better="higher")
        return [Observation(quantity, Origin(f"{value}{i}", "f"), (value + i / 1000,)) for i in range(8)]
    results, _ = compare(side(10.0), side(8.0), StoredRule(trust=True))
    assert results[0].verdict is Verdict.SLOWER and results[0].ratio == pytest.approx(1.25, rel=1e-3)
    assert (round(results[0].base), round(results[0].head)) == (10, 8)


def test_drift_of_the_machine_is_taken_out_and_told():
    dice = random.Random(4)
    base, head = session(dice, runs=12), session(dice, {"case1": 10}, runs=12, drift=0.08)
    found, notes = verdicts(base, head)
    assert [case for case, verdict in found.items() if verdict is Verdict.SLOWER] == ["case1"]
    assert any("memory +8" in note for note in notes) and any("the machine was not the same: memory" in note for note in notes)


def test_without_calibration_nothing_is_called_slower_unless_the_machine_is_trusted():
    dice = random.Random(4)
    sides = session(dice, runs=12, calibrated=False), session(dice, runs=12, drift=0.08, calibrated=False)
    results, notes = compare(*sides, StoredRule())
    assert not any(result.verdict is Verdict.SLOWER for result in results)
    assert sum("slower if the machine was the same" in result.why for result in results) > 30
    assert any("no calibration cases" in note and "--uncalibrated trust" in note for note in notes)
    trusted, _ = verdicts(*sides, StoredRule(trust=True))
    assert list(trusted.values()).count(Verdict.SLOWER) > 30


def test_a_kind_that_was_not_calibrated_is_not_corrected_but_doubted():
    dice = random.Random(5)
    calibration = [observed for observed in session(dice, runs=12) if observed.quantity.calibrates]
    moved = [observed for observed in session(dice, runs=12, drift=0.08) if observed.quantity.calibrates]
    others = [session(dice, runs=12, cases=["x"], kind=None, calibrated=False, drift=drift) for drift in (0, 0.08)]
    results, _ = compare(others[0] + calibration, others[1] + moved, StoredRule())
    assert results[0].verdict is Verdict.UNDECIDED and results[0].ratio == pytest.approx(1.08, abs=0.02)
    assert results[0].low < 1 < results[0].high


def test_noisy_calibration_widens_intervals():
    dice = random.Random(6)
    quiet = compare(session(dice), session(dice), StoredRule())[0][0]
    dice = random.Random(6)
    noisy = [[Observation(observed.quantity, observed.origin, tuple(value * math.exp(dice.gauss(0, 0.2)) for value in observed.values))
              if observed.quantity.calibrates else observed for observed in session(dice)] for _ in range(2)]
    wide = compare(*noisy, StoredRule())[0][0]
    assert wide.high / wide.low > 1.5 * quiet.high / quiet.low


def test_one_run_a_side_decides_nothing_and_says_so():
    dice = random.Random(7)
    results, notes = compare(session(dice, runs=1), session(dice, dict.fromkeys(CASES, 50), runs=1), StoredRule())
    assert {result.verdict for result in results} == {Verdict.UNDECIDED}
    assert all(result.why.startswith("one run a side") and result.low is None for result in results)
    assert "8 runs (processes) a side are needed" in notes[-1]


def test_samples_of_a_run_are_not_independent():
    """An outlier process is slow in all of its samples; many samples do not make it a regression."""
    quantity = Quantity("x", Channel.STORED, "us")
    sides = [[Observation(quantity, Origin(f"{level}{i}", "f"), tuple(level + i / 100 + j / 1e4 for j in range(1000))) for i in range(3)]
             for level in (10.0, 11.0)]
    assert compare(*sides, StoredRule())[0][0].verdict is Verdict.UNDECIDED


def test_equal_sessions_of_small_spread_are_the_same():
    dice = random.Random(8)
    found, _ = verdicts(session(dice, spread=0.003, runs=12), session(dice, spread=0.003, runs=12))
    assert list(found.values()).count(Verdict.SAME) >= 38


def fact(case, value, run="r"):
    return Observation(Quantity(case, Channel.EXACT, "bytes"), Origin(run, "f"), (value,))


def test_facts_have_no_tolerance():
    base = [fact("a: bytes", 100), fact("b: bytes", 100), fact("c: bytes", 100), fact("d: bytes", 0)]
    head = [fact("a: bytes", 100), fact("b: bytes", 101), fact("c: bytes", 99), fact("d: bytes", 1)]
    found, _ = verdicts(base, head)
    assert list(found.values()) == [Verdict.SAME, Verdict.SLOWER, Verdict.FASTER, Verdict.SLOWER]


def test_a_fact_that_runs_do_not_agree_on_is_none():
    results, _ = compare([fact("a: bytes", 1, "r1"), fact("a: bytes", 2, "r2")], [fact("a: bytes", 1)], StoredRule())
    assert results[0].verdict is Verdict.UNDECIDED and "not exact" in results[0].why


def test_one_run_with_a_fault_is_enough():
    def faults(*counts):
        return [Observation(Quantity("a: wrong", Channel.EXACT, WRONG), Origin(f"{i}", "f"), (count,)) for i, count in enumerate(counts)]
    assert verdicts(faults(0, 0), faults(0, 7))[0] == {"a: wrong": Verdict.SLOWER}
    assert verdicts(faults(0, 7), faults(0, 0))[0] == {"a: wrong": Verdict.FASTER}


def test_cases_of_one_side_are_told_once():
    dice = random.Random(9)
    base = session(dice, cases=["old", "both"], calibrated=False) + [fact("old: bytes", 1)]
    head = session(dice, cases=["both", "new"], calibrated=False) + [fact("new: bytes", 1), fact("both: bytes", 1)]
    found, _ = verdicts(base, head)
    assert found["old"] is Verdict.GONE and found["new"] is Verdict.NEW and len(found) == 3


def test_what_the_head_lacks_of_a_case_is_told():
    """A benchmark that is skipped has no time any more; neither has one that was never checked before and that is wrong."""
    dice = random.Random(10)
    base = session(dice, cases=["skipped", "wrong"], calibrated=False)
    head = [Observation(Quantity("skipped: failures", Channel.EXACT, FAILURES), Origin("h", "f"), (0.0,)),
            Observation(Quantity("wrong: wrong", Channel.EXACT, WRONG), Origin("h", "f"), (5.0,))]
    assert verdicts(base, head)[0] == {"skipped": Verdict.GONE, "wrong": Verdict.GONE, "wrong: wrong": Verdict.SLOWER}


# ---- gate.py compare, store, history and calibrate as a user calls them

RUNS = 8
TRUST = ("--uncalibrated", "trust")


def session_file(folder: Path, gelu_us: float, revision: str = "a", machine: str = "m1", day: int = 1, calibration_us: float = 0) -> Path:
    """Eight runs, a file each."""
    folder.mkdir(exist_ok=True)
    dice = random.Random(folder.name)
    for i in range(RUNS):
        run = f"{folder.name}{i}"
        write_kernels(folder / f"{run}.jsonl", run, {"gelu": [gelu_us * dice.gauss(1, 0.002)], "gemm": [50 * dice.gauss(1, 0.002)]},
                      revision=revision * 40, fingerprint=machine, started=f"2026-01-{day:02}T00:00:{i:02}Z")
        if calibration_us:
            lines = [run_line(f"c{run}", revision * 40, machine, program="gate_planted"),
                     kernel_line(f"c{run}", "calibration_compute", "compute", [calibration_us * dice.gauss(1, 0.001)])]
            (folder / f"calibration{i}.jsonl").write_text(text_of(lines))
    return folder


def test_compare_of_two_folders(tmp_path, capsys):
    base, same, slow = (session_file(tmp_path / name, us) for name, us in (("base", 10), ("same", 10), ("slow", 10.5)))
    assert main(["compare", str(base), str(same)]) == 0
    assert main(["compare", str(base), str(slow)]) == 3
    assert "slower if the machine was the same" in capsys.readouterr().out
    assert main(["compare", str(base), str(slow), *TRUST]) == 1
    out = capsys.readouterr().out
    assert "gelu/f64/fixed/cpu/threads:1/warm" in out and "8 and 8 runs" in out
    assert main(["compare", *map(str, sorted(base.iterdir())), "--", str(slow), *TRUST]) == 1
    assert main(["compare", *map(str, sorted(base.iterdir())), "--head", f"{slow}/*.jsonl", "--threshold", "20%"]) == 0


def test_compare_takes_out_what_the_machine_did(tmp_path, capsys):
    base, head = session_file(tmp_path / "base", 10, calibration_us=14), session_file(tmp_path / "head", 10.6, calibration_us=14 * 1.06)
    assert main(["compare", str(base), str(head)]) in (0, 3)
    out = capsys.readouterr().out
    assert main(["compare", str(base), str(session_file(tmp_path / "slow", 11.6, calibration_us=14 * 1.06))]) == 1
    assert "calibration: compute +6.0 %" in out and "the machine was not the same: compute" in out
    assert "slower" not in out.splitlines()[-1]


def test_machines_that_differ(tmp_path, capsys):
    base, head = session_file(tmp_path / "base", 10), session_file(tmp_path / "head", 10, machine="m2")
    assert main(["compare", str(base), str(head)]) == 2
    assert "machines differ: base m1, head m2; allowed" in capsys.readouterr().err
    assert main(["compare", str(base), str(head), "--fingerprint", "warn"]) == 0
    assert "machines differ" in capsys.readouterr().out


def test_facts_alone_may_be_of_any_machine(tmp_path):
    row = all_reduce_line("r", [2.0], 64) | {"basis": "simulated"}
    for name, us in (("base", 7.5), ("same", 7.5), ("slow", 7.5000001)):
        lines = [run_line("r", fingerprint=name, basis="simulated"), row | {"time_us": us}]
        (tmp_path / f"{name}.jsonl").write_text(text_of(lines))
    assert main(["compare", str(tmp_path / "base.jsonl"), str(tmp_path / "same.jsonl")]) == 0
    assert main(["compare", str(tmp_path / "base.jsonl"), str(tmp_path / "slow.jsonl")]) == 1


def test_runs_of_both_sides_are_told(tmp_path, capsys):
    base = session_file(tmp_path / "base", 10)
    assert main(["compare", str(base), str(base)]) == 0
    assert "8 runs are on both sides" in capsys.readouterr().out


@pytest.mark.parametrize("words, expected", [
    (["a", "b", "c"], "3 RECORDS given; allowed: BASE HEAD"),
    (["a", "b", "--update"], "--update requires --store"),
    (["a", "--head", "b", "--store", "s"], "--store and --head"),
    (["nowhere", "nowhere2"], "HEAD nowhere2: no such file"),
    (["a", "b", "--threshold", "0"], "--threshold 0; allowed"),
])
def test_compare_refuses_in_one_line(words, expected, capsys):
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1


def test_foreign_formats_compare(tmp_path):
    dice = random.Random(1)
    for side, ns in (("base", 1000), ("head", 1100)):
        (tmp_path / side).mkdir()
        for i in range(RUNS):
            (tmp_path / side / f"{i}.json").write_text(google({"BM_x": [ns * dice.gauss(1, 0.005) for _ in range(3)]}))
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "head"), *TRUST]) == 1


def test_a_store_keeps_machines_apart_and_compares_with_the_newest_revision(tmp_path, capsys):
    store = tmp_path / "store"
    old, new = session_file(tmp_path / "old", 9, "a", day=1), session_file(tmp_path / "new", 10, "b", day=2)
    other = session_file(tmp_path / "other", 5, "c", "m2", day=3)
    assert main(["store", str(store), str(old), str(new), str(other)]) == 0
    assert {path.name for path in store.iterdir()} == {"m1", "m2"} and len(list(store.glob("m1/*"))) == 2 * RUNS
    head = session_file(tmp_path / "head", 10, "d", day=4)
    assert main(["compare", "--store", str(store), str(head)]) == 0
    assert main(["compare", "--store", str(store), str(head), "--base-revision", "aaa", *TRUST]) == 1
    assert main(["compare", "--store", str(store), str(head), "--base-revision", "c"]) == 2
    assert "0 revisions" in capsys.readouterr().err
    unknown = session_file(tmp_path / "unknown", 10, machine="m3")
    assert main(["compare", "--store", str(store), str(unknown)]) == 2
    assert "nothing of machine m3" in capsys.readouterr().err


def test_a_store_is_updated_only_by_what_is_not_slower(tmp_path):
    store, base = tmp_path / "store", session_file(tmp_path / "base", 10, "a", day=1)
    main(["store", str(store), str(base)])
    before = sorted(store.rglob("*"))
    assert main(["compare", "--store", str(store), "--update", *TRUST, str(session_file(tmp_path / "slow", 11, "b", day=2))]) == 1
    assert main(["compare", "--store", str(store), "--update", str(session_file(tmp_path / "doubtful", 11, "b", day=2))]) == 3
    assert sorted(store.rglob("*")) == before
    assert main(["compare", "--store", str(store), "--update", str(session_file(tmp_path / "good", 10, "c", day=3))]) == 0
    assert len(list(store.glob("m1/*"))) == 2 * RUNS


def test_storing_twice_adds_once_and_a_broken_file_adds_nothing(tmp_path):
    store, base = tmp_path / "store", session_file(tmp_path / "base", 10)
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
    assert {(observed.quantity.kind, observed.typical) for observed in found} == {("memory", 33.0), ("compute", 14.0), ("collective", 5.0)}
    assert all(observed.quantity.calibrates and observed.origin.fingerprint == "m9" and len(observed.values) == 12 for observed in found)
    assert len({observed.origin.run for observed in found}) == 4  # two processes of each of two groups


def test_calibrate_says_what_could_not_run(tmp_path, capsys):
    build = build_with(tmp_path / "build", "raise SystemExit('no memory')")
    assert main(["calibrate", "--build", str(build), "--json", str(tmp_path / "c.jsonl")]) == 4
    assert "calibrate: all_reduce_perf ended with status 1: no memory" in capsys.readouterr().err
    assert not (tmp_path / "c.jsonl").exists()
