"""The gate's statistics against enumeration and published tables, and the rule on numbers whose answer is known."""

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from gate import rule
from gate.model import Verdict
from gate.rule import (
    centre_of, decide, holm, least_p, p_above, rank_sum_distribution, Rule, shift_of, walsh_averages)


def test_walsh_averages_are_all_means_of_two():
    assert list(walsh_averages([1, 2, 4])) == [1, 1.5, 2, 2.5, 3, 4]
    assert centre_of([1, 2, 4], 0.05).middle == 2.25


@pytest.mark.parametrize("n", [1, 2, 5, 6, 9])
@pytest.mark.parametrize("error", [0.01, 0.05, 0.2])
def test_bounds_are_wrong_as_often_as_they_may_be(n, error):
    """Over all 2^n signs of values around 0: how often the lower bound is above 0."""
    magnitudes = [1 + math.sqrt(prime) for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23)[:n]]
    wrong = 0
    for signs in itertools.product((-1, 1), repeat=n):
        _, low, high = centre_of([s * m for s, m in zip(signs, magnitudes, strict=True)], error)
        assert low <= high
        wrong += low > 0
    assert wrong / 2**n <= error
    # One more Walsh average would be too many: the bound is as tight as a discrete distribution allows.
    if 2**-n <= error:
        assert wrong > 0


def test_too_few_values_have_no_bounds():
    assert centre_of([1.0, 2.0], 0.05) == (1.5, -math.inf, math.inf)


def test_bounds_as_tabulated():
    """Hollander and Wolfe, table A.4: P(T+ >= 19) = 0.047 for n = 6, so that 3 of 21 averages lie outside at 0.05."""
    values = [float(v) for v in range(1, 7)]
    means = walsh_averages(values)
    assert centre_of(values, 0.05)[1:] == (means[2], means[-3])


def ratios(centre: float, spread: float, n: int = 12, seed: int = 1) -> list[float]:
    dice = random.Random(seed)
    return [math.log(centre) + dice.gauss(0, spread) for _ in range(n)]


@pytest.mark.parametrize(("centre", "spread", "verdict"), [
    (1.0, 0.002, Verdict.SAME), (1.05, 0.002, Verdict.SLOWER), (1 / 1.05, 0.002, Verdict.FASTER), (1.015, 0.002, Verdict.SAME),
    (1.0, 0.1, Verdict.UNDECIDED), (1.05, 0.2, Verdict.UNDECIDED)])
def test_rule(centre, spread, verdict):
    assert decide(ratios(centre, spread), Rule()).verdict is verdict


def test_rule_obeys_its_threshold():
    assert decide(ratios(1.05, 0.002), Rule(threshold=0.1)).verdict is Verdict.SAME
    assert decide(ratios(1.015, 0.001), Rule(threshold=0.01)).verdict is Verdict.SLOWER


def test_an_outlier_among_pairs_decides_nothing():
    assert decide([*ratios(1.0, 0.002, n=11), math.log(1.4)], Rule()).verdict is Verdict.SAME


# Against enumeration of all placements, and scipy.

def count(base, head, at=0.0):
    return sum(h - b <= at for h in head for b in base)


@pytest.mark.parametrize("m", range(1, 6))
@pytest.mark.parametrize("n", range(1, 6))
def test_distribution_is_that_of_all_placements(m, n):
    counts = [count(set(range(m + n)) - set(head), head) for head in itertools.combinations(range(m + n), n)]
    expected = [sum(count <= u for count in counts) / len(counts) for u in range(m * n + 1)]
    np.testing.assert_allclose(rank_sum_distribution(m, n), expected, atol=1e-12)
    assert rank_sum_distribution(m, n)[0] == pytest.approx(least_p(m, n))


def test_p_values_are_scipys():
    dice = np.random.default_rng(4)
    for m, n in ((5, 4), (12, 9), (40, 30)):
        base, head = dice.normal(size=m), dice.normal(0.2, size=n)
        assert p_above(base, head, 0.0) == pytest.approx(stats.mannwhitneyu(head, base, alternative="greater", method="exact").pvalue, rel=1e-9)
    for n in (6, 19, 50):
        values = dice.normal(size=n)
        counts = rule._signed_rank_distribution(n)
        above = int(sum(walsh_averages(values) < 0))
        assert counts[above] == pytest.approx(stats.wilcoxon(values, alternative="greater", mode="exact").pvalue, rel=1e-9)


def test_p_is_that_of_all_permutations_of_the_labels():
    dice = random.Random(1)
    for _ in range(20):
        base, head = ([dice.gauss(0, 1) for _ in range(n)] for n in (5, 4))
        seen = count(base, head)
        values = base + head
        as_clear = sum(count([values[i] for i in set(range(9)) - set(chosen)], [values[i] for i in chosen]) <= seen
                       for chosen in itertools.combinations(range(9), 4))
        assert p_above(base, head, 0.0) == pytest.approx(as_clear / math.comb(9, 4))


def test_p_of_a_stated_shift_is_that_of_head_moved_back():
    base, head = [1.0, 2.0, 3.0, 5.0], [3.0, 4.5, 6.25, 8.0]
    assert p_above(base, head, 1.5) == p_above(base, [value - 1.5 for value in head], 0.0)
    assert p_above(base, head, 0.0) < p_above(base, head, 1.5) < p_above(base, head, 9.0) == pytest.approx(1)


def test_ties_count_against_a_difference():
    assert p_above([1.0] * 8, [1.0] * 8, 0.0) == pytest.approx(1)


def test_bounds_and_p_agree():
    """A bound is where the test just rejects no more."""
    dice = random.Random(2)
    for _ in range(50):
        base, head = ([dice.gauss(0, 1) for _ in range(n)] for n in (7, 6))
        middle, low, high = shift_of(base, head, 0.05)
        assert low <= middle <= high
        assert p_above(base, head, low - 1e-9) <= 0.05 < p_above(base, head, low + 1e-9)
        assert p_above(head, base, -high - 1e-9) <= 0.05 < p_above(head, base, -high + 1e-9)


def test_too_few_values_of_two_samples_have_no_bounds():
    assert shift_of([1.0, 2.0], [1.0, 2.0], 0.05) == (0.0, -math.inf, math.inf)
    assert all(map(math.isfinite, shift_of([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.05)))  # 1 of 20


def test_bounds_hold_as_often_as_they_say():
    dice = np.random.default_rng(3)
    wrong = 0
    for _ in range(2000):
        base, head = dice.standard_t(2, size=6), 1.0 + dice.standard_t(2, size=6)
        wrong += shift_of(base, head, 0.05).low > 1.0
    assert wrong / 2000 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
