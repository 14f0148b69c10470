"""Tests the self-test's bookkeeping, and that it detects a gate that favours a side."""
import json
import math
import random
import textwrap
from pathlib import Path

import pytest
from gate.ab import Budget, measure
from gate.ab_test import PYTHON
from gate.model import UsageError
from gate.pairs import Pairing, Timing
from gate.rule import Rule
from gate_selftest import Kind, missed_goals, Records, summary, Tally, Trial
from gate.worker import Worker

SAME = Kind(0.0, 0)

# Among two workers side by side, the one that runs first is slower by 5 % for its whole life.
SECOND_IS_FASTER = """
    import os, sys
    mark, us = sys.argv[1], None
    print('{"serve": 1, "program": "fake", "cases": ["a"]}', flush=True)
    for line in sys.stdin:
        if us is None:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                us = 10.5
            except FileExistsError:
                os.remove(mark)
                us = 10.0
        print(f'{{"us": {[us] * eval(line)["runs"]}}}', flush=True)
"""


class BaseFirst(Pairing):
    """Pairs of an earlier gate, in which the base was always first."""

    def _shuffled_means_us(self, sides, calls):
        return [side.worker.run(side.index, calls)[0] for side in sides]


@pytest.fixture
def second_is_faster(tmp_path: Path):
    program = tmp_path / "server.py"
    program.write_text(textwrap.dedent(SECOND_IS_FASTER))
    return lambda core: Worker([*PYTHON, str(program), str(tmp_path / "mark")], core=core)


def trials_with(make: type[Pairing], start, number: int) -> list[Trial]:
    timing, dice = Timing(run_us=100, turns=2), random.Random(7)
    return [Trial.of(measure({"fake": make(start, start, one_core=True, timing=timing, dice=dice)}, Rule(looks=(9,)), Budget(60))[0], "fake", SAME)
            for _ in range(number)]


def test_a_gate_that_favours_the_second_toucher_is_found(second_is_faster):
    tally = Tally(trials_with(BaseFirst, second_is_faster, 4))
    assert {trial.verdict for trial in tally.trials} == {"faster"}
    assert tally.bias()[0] == pytest.approx(100 * (10 / 10.5 - 1), abs=0.01)
    assert [goal for goal in missed_goals(0, tally) if goal != "seconds"] == ["bias", "false", "same"], "time is the machine's"


def test_who_touches_first_does_not_bias_a_pair(second_is_faster):
    """Each pair is 5 % off, as its workers are, in either direction."""
    pairing = Pairing(second_is_faster, second_is_faster, one_core=True, timing=Timing(run_us=100, turns=2), dice=random.Random(7))
    logs = [pairing.run(["a"])["a"].log_ratio() for _ in range(24)]
    pairing.close()
    assert {round(abs(log), 6) for log in logs} == {round(math.log(1.05), 6)}
    assert 6 <= sum(log > 0 for log in logs) <= 18
    assert "bias" not in missed_goals(0, Tally(trials_with(Pairing, second_is_faster, 4)))


def trial(verdict: str, change: float | None = 0.1, case: str = "line: a", percent: float = 0.0) -> Trial:
    return Trial("line", case, percent, 0, verdict, change, -1.0, 1.0, 1.0, [])


def test_goals_are_missed_where_the_trials_refute_them():
    assert missed_goals(0, Tally([trial("same")] * 100)) == []
    assert missed_goals(0, Tally([trial("same", change) for change in (0.7, 0.5)] * 50)) == ["bias"]
    assert missed_goals(0, Tally([trial("same", change) for change in (5.0, -4.0)])) == []  # 0.5 +- 9: too few trials to decide
    assert missed_goals(0, Tally([trial("same")] * 96 + [trial("faster")] * 4)) == ["false"]
    assert missed_goals(0, Tally([trial("same")] * 80 + [trial("undecided", None)] * 20)) == ["same"]
    assert missed_goals(5.0, Tally([trial("slower")] * 80 + [trial("same")] * 20)) == ["found"]
    assert missed_goals(3.0, Tally([trial("slower")] * 70 + [trial("same")] * 30)) == []
    assert missed_goals(1.0, Tally([trial("same")])) == []  # no goal


def test_slices_add_up(tmp_path):
    path = tmp_path / "trials.jsonl"
    Records(path).add([trial("same"), trial("undecided", None, "line: b")])
    later = Records(path)
    later.add([trial("same"), trial("slower", 5.0, percent=5.0)])
    assert Records(path).trials == later.trials and len(later.trials) == 4
    assert later.trials_of("line", SAME) == 2 and later.trials_of("line", Kind(5.0, 0)) == 1
    assert later.trials_of("other", SAME) == 0


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text(json.dumps({"line": "a"}) + "\n")
    with pytest.raises(UsageError, match="line 1: not a trial"):
        Records(path)


def test_summary_has_a_row_for_each_case_of_each_kind():
    text, met = summary([trial("same"), trial("same", case="line: b"), trial("slower", 5.1, percent=5.0)])
    assert met
    assert [line.split()[-1] for line in text.splitlines() if "line: " in line] == ["a", "b", "a"]
    assert text.count("all cases") == 2
    assert not summary([trial("faster", -5.0)] * 20)[1]


def test_a_thousand_trials_can_be_judged():
    """Their binomials are larger than the largest float."""
    assert missed_goals(0, Tally([trial("same")] * 1290 + [trial("faster")] * 10)) == []
    assert missed_goals(0, Tally([trial("same")] * 1260 + [trial("faster")] * 40)) == ["false"]
