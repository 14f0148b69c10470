"""Pairs, rounds and second opinions, on workers that are programs of a few lines."""
import json
import math
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from gate import ab
from gate.ab import Budget, measure
from gate.model import CouldNotRun, Verdict
from gate.pairs import calls_for, Pairing, PairTimes, Timing, Turn, turn_for
from gate.rule import Rule
from gate.worker import Worker

PYTHON = [sys.executable, "-IS"]  # without the modules of the site, and no imports below: tests start it hundreds of times
SERVER = """
    import os, sys
    speed, names = eval(sys.argv[1]), sys.argv[2]
    print(f'{{"serve": 1, "program": "fake", "cases": {names}}}', flush=True)
    dice = os.getpid()
    for line in sys.stdin:
        order, us = eval(line), []
        for _ in range(order["runs"]):
            dice = 48271 * dice % 0x7fffffff
            us.append(speed[order["case"]] * (0.995 + 0.01 * dice / 0x7fffffff))
        print(f'{{"us": {us}}}', flush=True)
"""


@pytest.fixture
def server(tmp_path: Path):
    program = tmp_path / "server.py"
    program.write_text(textwrap.dedent(SERVER))

    def start(speed: list[float], names: list[str]):
        return lambda core: Worker([*PYTHON, str(program), json.dumps(speed), json.dumps(names)], core=core)
    return start


def pairing(base, head) -> Pairing:
    return Pairing(base, head, one_core=True, timing=Timing(run_us=100, turns=4), dice=random.Random(1))


def by_case(results):
    return {result.case: result for result in results}


def test_verdicts_of_workers_of_known_speed(server):
    names = ["same", "slow", "fast"]
    results = by_case(measure({"fake": pairing(server([10, 10, 10], names), server([10, 10.5, 9.5], names))}, Rule(), Budget(60)))
    assert {case: result.verdict for case, result in results.items()} == {
        "fake: same": Verdict.SAME, "fake: slow": Verdict.SLOWER, "fake: fast": Verdict.FASTER}
    slow = results["fake: slow"]
    assert 1.04 < slow.low <= slow.ratio <= slow.high < 1.06
    assert slow.why == "confirmed by 9 fresh pairs" and len(slow.ratios) == slow.pairs == 9
    assert slow.base == pytest.approx(10, rel=0.01) and slow.head == pytest.approx(10.5, rel=0.01)


def test_cases_of_one_side_are_told(server):
    results = by_case(measure({"fake": pairing(server([1, 1], ["both", "old"]), server([1, 1], ["both", "new"]))}, Rule(), Budget(60)))
    assert results["fake: old"].verdict is Verdict.GONE
    assert results["fake: new"].verdict is Verdict.NEW
    assert results["fake: both"].verdict is Verdict.SAME


def test_a_spent_budget_decides_nothing(server):
    results = measure({"fake": pairing(server([10], ["a"]), server([20], ["a"]))}, Rule(), Budget(0))
    assert [result.verdict for result in results] == [Verdict.UNDECIDED]
    assert results[0].why == "the budget was spent after 0 pairs"


@pytest.mark.parametrize(("pairs", "verdict"), [(3, Verdict.UNDECIDED), (8, Verdict.SAME)])
def test_a_spent_budget_has_a_last_look_if_there_are_pairs_enough_for_one(monkeypatch, server, pairs, verdict):
    """The first look, at six pairs, decides nothing."""
    monkeypatch.setattr(ab, "_look", lambda *_: set())

    class Spent(Budget):
        asked = 0

        def is_spent(self) -> bool:
            Spent.asked += 1
            return Spent.asked > 2 * pairs  # asked before each round and each line
    start = server([10], ["a"])
    result = measure({"fake": pairing(start, start)}, Rule(), Spent(1))[0]
    assert (result.verdict, result.pairs) == (verdict, pairs)


def test_what_looks_slower_and_is_not_is_not_slower(server):
    """The first six pairs are slower by chance, and no later ones are."""
    class Lucky(Pairing):
        rounds = 0

        def run(self, cases):
            self.rounds += 1
            self.start_head = server([11 if self.rounds <= 6 else 10], ["a"])
            return super().run(cases)
    lucky = Lucky(server([10], ["a"]), server([10], ["a"]), one_core=False, timing=Timing(run_us=100, turns=4))
    result = measure({"fake": lucky}, Rule(), Budget(60))[0]
    assert result.verdict is Verdict.SAME and result.why == "not confirmed by 9 fresh pairs" and result.ratio < 1.01


def test_calls_fill_a_run():
    asked = []

    def us_of_call(calls: int) -> float:
        asked.append(calls)
        return 2.0
    assert calls_for(us_of_call, 1000) == 500
    assert asked[0] == 1 and len(asked) < 8
    assert calls_for(lambda _: 5000.0, 1000) == 1


def test_first_calls_are_cold():
    """First calls of two ranks took hundreds of microseconds each, as long as thousands of later calls."""
    asked = []

    def us_of_call(calls: int) -> float:
        asked.append(calls)
        return 0.5 + (1000 / calls if len(asked) <= 2 else 0)
    assert calls_for(us_of_call, 1000) == 2000


def test_long_calls_are_not_asked_for_often():
    asked = []

    def us_of_call(calls: int) -> float:
        asked.append(calls)
        return 2e6
    assert calls_for(us_of_call, 1000) == 1 and len(asked) == 1


@pytest.mark.parametrize(("us", "turn"), [(1.0, Turn(250, 2, 12)), (200.0, Turn(1, 2, 12)), (900.0, Turn(1, 2, 12)),
                                         (1100.0, Turn(1, 3, 12)), (2500.0, Turn(1, 3, 5)), (2e6, Turn(1, 3, 4))])
def test_only_short_calls_are_run_often(us, turn):
    assert turn_for(lambda _: us, Timing()) == turn


@pytest.mark.parametrize("turns", [1, 4, 11, 12])
def test_each_side_has_the_first_turn_of_half_the_couples(turns):
    firsts = [sum(Pairing(None, None, one_core=True, dice=random.Random(seed))._order_of_turns(turns)) for seed in range(20)]
    assert set(firsts) == {turns // 2, (turns + 1) // 2}


def test_a_pair_compares_the_faster_halves():
    base, head = (10.0, 10.0, 10.0, 70.0, 90.0, 12.0), (11.0, 400.0, 30.0, 11.0, 11.0, 300.0)
    assert math.exp(PairTimes(base, head, 0.1).log_ratio()) == pytest.approx(1.1)


@pytest.mark.parametrize("unlucky", range(5))
def test_an_interruption_does_not_make_runs_short(unlucky):
    """One in five runs also contains 20 ms of another program."""
    asked = []

    def us_of_call(calls: int) -> float:
        asked.append(calls)
        return 2.0 + (20_000 / calls if len(asked) % 5 == unlucky else 0)
    assert calls_for(us_of_call, 1000) == 500


@pytest.mark.parametrize(("program", "expected"), [
    ("print('hello')", "does not serve"),
    ("import sys; sys.exit('no such flag')", "has ended: no such flag"),
    ("print('{\"serve\": 1}')", "does not serve"),
    ("print('{\"serve\": 1, \"cases\": [\"a\", \"a\"]}')", "two cases have one name"),
    *((f"print('{{\"serve\": 1, \"cases\": [\"a\"]}}', flush=True); input(); print('{answer}', flush=True)", "not the times of 1 runs in a: ")
      for answer in ('{}', '{"us": []}', '{"us": 3}', '{"us": [NaN]}', '{"us": [-1]}', '{"us": [1, 2]}')),
    ("print('{\"serve\": 1, \"cases\": [\"a\"]}', flush=True); input(); print('{\"error\": \"wrong\"}', flush=True)", "an error in a: wrong"),
    ("print('{\"serve\": 1, \"cases\": [\"a\"]}', flush=True); input(); import sys; sys.exit('died')", "died")])
def test_a_broken_worker_is_one_line(program, expected):
    with pytest.raises(CouldNotRun, match=expected), Worker([*PYTHON, "-c", program]) as worker:
        worker.ready()
        worker.run(0, 1)


def test_a_worker_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr("gate.worker.ORDER_DEADLINE_S", 0.3)
    program = "print('{\"serve\": 1, \"cases\": [\"a\"]}', flush=True)\nimport time\ntime.sleep(60)"
    with pytest.raises(CouldNotRun, match="no answer in a within 0.3 s"), Worker([*PYTHON, "-c", program]) as worker:
        worker.ready()
        worker.run(0, 1)


def is_alive(pid: int) -> bool:
    """A process that has ended remains as an entry until its new parent waits for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_leaves_no_process(monkeypatch):
    """The worker itself ends in time; a rank that it started would not."""
    monkeypatch.setattr("gate.worker.STOP_DEADLINE_S", 5)
    program = ("import subprocess\nrank = subprocess.Popen(['sleep', '60'])\n"
               "print('{\"serve\": 1, \"cases\": [\"%d\"]}' % rank.pid, flush=True)\ninput()")
    with Worker([*PYTHON, "-c", program]) as worker:
        rank = int(worker.ready()[0])
        assert is_alive(rank)
    deadline = time.monotonic() + 5  # it has been asked to end, and needs a core for that
    while is_alive(rank) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(rank)


def test_a_spent_budget_ends_between_lines(server):
    """Lines that had their pair are reported with it, and no case is decided with fewer pairs than a look has."""
    class Spent(Budget):
        asked = 0

        def is_spent(self) -> bool:
            Spent.asked += 1
            return Spent.asked > 2
    lines = {name: pairing(server([10], ["a"]), server([20], ["a"])) for name in ("first", "second")}
    results = measure(lines, Rule(looks=(1,), error=0.5), Spent(1))
    assert [result.why for result in results] == [
        "it looked slower, and the budget was spent before fresh pairs could confirm it", "the budget was spent after 0 pairs"]
    assert {result.verdict for result in results} == {Verdict.UNDECIDED}


def test_no_case_at_all_is_no_pass(server):
    with pytest.raises(CouldNotRun, match="fake: neither build has a case"):
        measure({"fake": pairing(server([], []), server([], []))}, Rule(), Budget(60))


def test_an_interrupted_gate_is_one_line_and_leaves_nothing(tmp_path):
    """SIGTERM, as CI sends it to a cancelled job, while a worker hangs and ignores the end of its input."""
    for side in ("base", "head"):
        program = tmp_path / side / "bin" / "hangs"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\necho $$ > " + str(tmp_path / f"{side}.pid") + "\nexec sleep 60\n")
        program.chmod(0o755)
    (tmp_path / "suite").write_text("line all hangs\n")
    gate = Path(__file__).resolve().parents[1] / "gate.py"
    running = subprocess.Popen([sys.executable, str(gate), "ab", "--base", str(tmp_path / "base"), "--head", str(tmp_path / "head"),
                                "--suite", str(tmp_path / "suite")], stderr=subprocess.PIPE, text=True)
    for _ in range(300):
        if (tmp_path / "base.pid").is_file() and (tmp_path / "base.pid").read_text().strip():
            break
        time.sleep(0.1)
    running.terminate()
    _, error = running.communicate(timeout=30)
    assert (running.returncode, error) == (4, "gate.py: interrupted; nothing was written\n")
    assert not is_alive(int((tmp_path / "base.pid").read_text()))
