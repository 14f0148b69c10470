"""Against enumeration of all placements, and scipy where it is there."""
import itertools
import math
import random

import numpy as np
import pytest

from gate.two_samples import holm, least_p, p_above, rank_sum_distribution, shift, shift_bounds


def count(base, head, at=0.0):
    return sum(h - b <= at for h in head for b in base)


@pytest.mark.parametrize("m", range(1, 6))
@pytest.mark.parametrize("n", range(1, 6))
def test_distribution_is_that_of_all_placements(m, n):
    counts = [count(set(range(m + n)) - set(head), head) for head in itertools.combinations(range(m + n), n)]
    expected = [sum(one <= u for one in counts) / len(counts) for u in range(m * n + 1)]
    np.testing.assert_allclose(rank_sum_distribution(m, n), expected, atol=1e-12)
    assert rank_sum_distribution(m, n)[0] == pytest.approx(least_p(m, n))


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
        low, high = shift_bounds(base, head, 0.05)
        assert low <= shift(base, head) <= high
        assert p_above(base, head, low - 1e-9) <= 0.05 < p_above(base, head, low + 1e-9)
        assert p_above(head, base, -high - 1e-9) <= 0.05 < p_above(head, base, -high + 1e-9)


def test_too_few_values_of_two_samples_have_no_bounds():
    assert shift_bounds([1.0, 2.0], [1.0, 2.0], 0.05) == (-math.inf, math.inf)
    assert all(map(math.isfinite, shift_bounds([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.05)))  # 1 of 20


def test_bounds_hold_as_often_as_they_say():
    dice = np.random.default_rng(3)
    wrong = 0
    for _ in range(2000):
        base, head = dice.standard_t(2, size=6), 1.0 + dice.standard_t(2, size=6)
        wrong += shift_bounds(base, head, 0.05)[0] > 1.0
    assert wrong / 2000 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
