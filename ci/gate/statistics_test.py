"""The gate's statistics against enumeration and published tables, and the rule on numbers whose answer is known."""
import itertools
import math
import random

import pytest
from gate.model import Verdict
from gate.rule import decide, hodges_lehmann, Rule, signed_rank_bounds, walsh_averages, wilson


def test_walsh_averages_are_all_means_of_two():
    assert list(walsh_averages([1, 2, 4])) == [1, 1.5, 2, 2.5, 3, 4]
    assert hodges_lehmann([1, 2, 4]) == 2.25


@pytest.mark.parametrize("n", [1, 2, 5, 6, 9])
@pytest.mark.parametrize("error", [0.01, 0.05, 0.2])
def test_bounds_are_wrong_as_often_as_they_may_be(n, error):
    """Over all 2^n signs of values around 0: how often the lower bound is above 0."""
    magnitudes = [1 + math.sqrt(prime) for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23)[:n]]
    wrong = 0
    for signs in itertools.product((-1, 1), repeat=n):
        low, high = signed_rank_bounds([s * m for s, m in zip(signs, magnitudes, strict=True)], error)
        assert low <= high
        wrong += low > 0
    assert wrong / 2**n <= error
    # One more Walsh average would be too many: the bound is as tight as a discrete distribution allows.
    if 2**-n <= error:
        assert wrong > 0


def test_too_few_values_have_no_bounds():
    assert signed_rank_bounds([1.0, 2.0], 0.05) == (-math.inf, math.inf)


def test_bounds_as_tabulated():
    """Hollander and Wolfe, table A.4: P(T+ >= 19) = 0.047 for n = 6, so that 3 of 21 averages lie outside at 0.05."""
    values = [float(v) for v in range(1, 7)]
    means = walsh_averages(values)
    assert signed_rank_bounds(values, 0.05) == (means[2], means[-3])


def test_wilson():
    low, high = wilson(0, 300)
    assert low == 0 and high == pytest.approx(0.01264, abs=1e-4)
    low, high = wilson(85, 100)
    assert (low, high) == (pytest.approx(0.7672, abs=1e-3), pytest.approx(0.9069, abs=1e-3))
    assert wilson(0, 0) == (0.0, 1.0)


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
