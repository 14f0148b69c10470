"""Series of which it is known where they change, and if."""
import math

import numpy as np
import pytest

from gate.history import find_changes, history, HistoryRule, least_length, seeded_intervals
from gate.inputs.observation import Observation, Origin, Quantity
from gate.model import Channel, Verdict

SPREAD = 0.015  # spread of a point, which is the median of its runs; one point in twenty is disturbed by several percent


def noise(dice, n, spread=SPREAD):
    values = dice.normal(0, spread, n)
    disturbed = dice.random(n) < 0.05
    values[disturbed] += np.abs(dice.normal(0, 0.08, disturbed.sum()))
    return values


def with_step(dice, n, at, percent=5, spread=SPREAD):
    values = noise(dice, n, spread)
    values[at:] += math.log1p(percent / 100)
    return values


def test_series_without_a_change_have_none_found_more_often_than_stated():
    dice = np.random.default_rng(1)
    assert sum(bool(find_changes(noise(dice, n), 0.01)) for n in (20, 40, 60, 100) for _ in range(50)) <= 5  # 1 % would be 2 of 200


def test_heavy_tails_and_rounded_values_are_no_changes():
    dice = np.random.default_rng(2)
    series = [dice.standard_t(1.5, 50) for _ in range(60)] + [np.round(noise(dice, 50) * 60) for _ in range(60)]
    assert sum(bool(find_changes(values, 0.01)) for values in series) <= 4


@pytest.mark.parametrize("n, at", [(40, 20), (60, 48)])
def test_steps_are_found_where_they_are(n, at):
    dice = np.random.default_rng(3)
    found = [[place for place, _ in find_changes(with_step(dice, n, at), 0.01)] for _ in range(20)]
    assert np.mean([any(abs(place - at) <= 1 for place in series) for series in found]) >= 0.8
    assert np.mean([len(series) > 1 for series in found]) <= 0.1


def test_a_quieter_series_has_nearly_all_steps_found_to_the_commit():
    dice = np.random.default_rng(4)
    found = [[place for place, _ in find_changes(with_step(dice, 60, 30, spread=0.01), 0.01)] for _ in range(20)]
    assert np.mean([any(abs(place - 30) <= 1 for place in series) for series in found]) >= 0.9


def test_a_step_that_is_taken_back_is_two_changes():
    dice = np.random.default_rng(5)
    values = noise(dice, 80, 0.01)
    values[35:50] += 0.06
    places = [at for at, _ in find_changes(values, 0.01)]
    assert len(places) == 2 and abs(places[0] - 35) <= 1 and abs(places[1] - 50) <= 1


def test_a_small_step_next_to_a_large_one_is_found():
    dice = np.random.default_rng(6)
    values = noise(dice, 90, 0.01)
    values[30:] += 1.0
    values[60:] += 0.05
    places = [at for at, _ in find_changes(values, 0.01)]
    assert len(places) == 2 and places[0] == 30 and abs(places[1] - 60) <= 1


@pytest.mark.parametrize("outliers", [[25], [49], [0], [25, 26]])
def test_outliers_are_no_change(outliers):
    values = noise(np.random.default_rng(7), 50, 0.01)
    values[outliers] += 2.0
    assert find_changes(values, 0.01) == []


def test_answers_do_not_vary_from_call_to_call():
    values = with_step(np.random.default_rng(8), 50, 25, percent=4)
    assert find_changes(values, 0.5) == find_changes(values, 0.5) != []


def test_short_and_constant_series_have_no_change():
    assert find_changes([1.0] * 3 + [9.0] * 3, 0.01) == []
    assert find_changes([1.0] * 50, 0.01) == []


@pytest.mark.parametrize("n", [least_length(), 17, 100])
def test_seeded_intervals_cover_every_place_at_each_scale(n):
    intervals = seeded_intervals(n)
    assert all(0 <= start < end <= n for start, end in intervals) and (0, n) in intervals
    assert all(any(start + 3 <= at <= end - 3 for start, end in intervals) for at in range(3, n - 2))


def point(number, value, case="x", revision=None, machine="m", channel=Channel.STORED, calibrates=False, better="lower"):
    revision = f"{number:02}" + 38 * "0" if revision is None else revision
    origin = Origin(f"r{number}", f"{number:02}.jsonl", f"2026-01-{number + 1:02}T00:00:00Z", revision, machine)
    return Observation(Quantity(case, channel, "us", better, calibrates=calibrates), origin, (value,))


def level(number, at=15):
    return (100.0 if number < at else 110.0) + number % 3


def test_a_change_names_the_commits_the_step_and_its_interval():
    series, notes = history([point(i, level(i)) for i in reversed(range(25))], HistoryRule())
    (change,) = series[0].changes
    assert change.at == 15 and change.blame == "140000000000..150000000000" and change.worse and change.recent
    assert change.low < change.ratio < change.high and change.ratio == pytest.approx(1.1, abs=0.01)
    assert (change.before, change.after) == (101, 111) and change.p < 0.01
    assert series[0].verdict is Verdict.SLOWER and not notes


def test_a_bandwidth_that_rises_is_faster():
    series, _ = history([point(i, level(i), better="higher") for i in range(25)], HistoryRule())
    assert series[0].verdict is Verdict.FASTER and series[0].changes[0].ratio == pytest.approx(1 / 1.1, abs=0.01)


def test_only_the_last_change_among_the_last_points_counts():
    old, _ = history([point(i, level(i)) for i in range(25)], HistoryRule(last=5))
    assert old[0].changes and old[0].verdict is Verdict.SAME
    mended, _ = history([point(i, level(i) if i < 22 else 100.0 + i % 3) for i in range(30)], HistoryRule(last=20))
    assert [change.worse for change in mended[0].changes] == [True, False] and mended[0].verdict is Verdict.FASTER


def test_steps_below_the_threshold_are_left_out():
    series, _ = history([point(i, 100 + (i >= 15) + 0.01 * (i % 3)) for i in range(30)], HistoryRule())
    assert series[0].changes == ()
    series, _ = history([point(i, 100 + (i >= 15) + 0.01 * (i % 3)) for i in range(30)], HistoryRule(threshold=0.005))
    assert len(series[0].changes) == 1


def test_many_cases_together_keep_to_the_error():
    dice = np.random.default_rng(9)
    alarms = 0
    for _ in range(10):
        values = {f"c{case}": 100 * np.exp(noise(dice, 40)) for case in range(20)}
        series, _ = history([point(i % 28 + i // 28, values[case][i], case, revision=f"{i:040}") for case in values for i in range(28)],
                            HistoryRule())
        alarms += any(case.changes for case in series)
    assert alarms <= 1


def test_exact_values_change_wherever_they_differ():
    values = [64, 64, 65, 65, 65, 60]
    series, _ = history([point(i, value, channel=Channel.EXACT) for i, value in enumerate(values)], HistoryRule(last=2))
    assert [(change.at, change.worse, change.p) for change in series[0].changes] == [(2, True, 0), (5, False, 0)]
    assert series[0].verdict is Verdict.FASTER
    from_zero, _ = history([point(i, value, channel=Channel.EXACT) for i, value in enumerate([0, 1])], HistoryRule())
    assert from_zero[0].changes[0].ratio is None and from_zero[0].verdict is Verdict.SLOWER


def test_no_commit_is_blamed_for_what_one_revision_does():
    same, _ = history([point(i, level(i), revision="a" * 40) for i in range(25)], HistoryRule())
    assert same[0].changes[0].blame == "no commit: aaaaaaaaaaaa on both sides"
    unknown, _ = history([point(i, level(i), revision="unknown") for i in range(25)], HistoryRule())
    assert unknown[0].changes[0].blame == "revisions are not known: 14.jsonl to 15.jsonl"


def test_a_machine_that_changed_is_told_and_other_machines_are_left_out():
    points = [point(i, level(i)) for i in range(25)] + [point(i, level(i), "copy", calibrates=True) for i in range(25)]
    points += [point(0, 5.0, machine="other")]
    series, notes = history(points, HistoryRule())
    assert [case.case for case in series] == ["x"] and len(series[0].points) == 25
    assert series[0].verdict is Verdict.SAME and series[0].changes and series[0].why == "the machine changed there too"
    assert notes == ["1 files of other machines are left out; this is machine m",
                     "the machine changed at 15.jsonl: copy is +9.9 % from there on"]


def test_a_change_away_from_the_machines_counts():
    points = [point(i, level(i)) for i in range(25)] + [point(i, level(i, at=8), "copy", calibrates=True) for i in range(25)]
    points += [point(i, 210 - level(i), "other way") for i in range(25)] + [point(i, level(i), "copy2", calibrates=True) for i in range(25)]
    series, _ = history([observed for observed in points if observed.quantity.case != "copy2"], HistoryRule())
    assert [case.verdict for case in series] == [Verdict.SLOWER, Verdict.FASTER]
    series, _ = history([observed for observed in points if observed.quantity.case != "copy"], HistoryRule())
    assert [case.verdict for case in series] == [Verdict.SAME, Verdict.FASTER]


def test_few_points_say_so():
    series, _ = history([point(i, 100.0 * (i + 1)) for i in range(5)], HistoryRule())
    assert series[0].changes == () and series[0].why == "5 points; 8 are needed"


def test_a_case_that_is_measured_no_more_is_told():
    points = [point(i, 1.0, case) for i in range(9) for case in ("stays", "ends") if case == "stays" or i < 7]
    _, notes = history(points, HistoryRule())
    assert notes == [f"1 of 2 cases end before the newest revision, {points[-1].origin.revision[:12]}: ends",
                     "1 of 2 timed cases have at most 7 points, too few to find a change in: 8 are needed"]
