"""Crossovers: the words name the sizes at which a known world crosses, and no others."""
from dataclasses import replace

import pytest

from reports.analysis.crossover import Verdict, compare, fastest_spans
from reports.analysis.panels import Point, Series, Variant
from reports.analysis.words import comparison_text, fastest_text, margin_text
from reports.tests.world import MIB, SIZES, World, known_crossover


def point(size, time, ci=0.0):
    return Point(size, time, time, time, time, time, time, time * (1 - ci), time * (1 + ci), 20, float(size), None)


def series(label, times, ci=0.0):
    """Times by size; sizes 8 B, 16 B, ..."""
    points = tuple(point(SIZES[i], time, ci) for i, time in enumerate(times))
    return Series(label, label, Variant("local", "direct", "threads"), points)


def words(a, b, ci=0.0):
    first, second = series("tree", a, ci), series("ring", b, ci)
    return comparison_text("tree", "ring", compare(first, second))


@pytest.mark.parametrize("a, b, expected", [
    ([1, 1, 2, 2], [2, 2, 1, 1], "tree is faster up to 16 B, ring from 32 B on"),
    ([1, 1, 1, 2], [2, 1.04, 1, 1], "tree is faster up to 8 B, ring from 64 B on; between them the two are within 5 %"),
    ([1, 1, 1], [2, 3, 4], "tree is faster than ring at every size from 8 B to 32 B"),
    ([4, 3, 2], [2, 2, 1], "ring is faster than tree at every size from 8 B to 32 B"),
    ([1, 1, 1], [1.01, 1, 0.99], "tree and ring are within 5 % of each other from 8 B to 32 B"),
    ([1, 1, 1], [1, 1, 2], "tree is faster than ring from 32 B on; up to 16 B the two are within 5 %"),
    ([2, 1, 1], [1, 1, 1], "ring is faster than tree up to 8 B; from 16 B on the two are within 5 %"),
    ([1, 2, 1, 1, 1], [2, 1, 2, 1, 1],
     "tree is faster up to 8 B and at 32 B, ring at 16 B; from 64 B on the two are within 5 %"),
    ([1, 1, 2, 1, 2], [2, 1, 1, 1, 1],
     "tree is faster up to 8 B, ring at 32 B and from 128 B on; elsewhere the two are within 5 %"),
    ([1, 2, 2, 1], [2, 1, 1, 2], "tree is faster up to 8 B and from 64 B on, ring from 16 B to 32 B"),
    ([], [], "tree and ring have no size in common"),
])
def test_words_of_two(a, b, expected):
    assert words(a, b) == expected


def test_overlapping_intervals_are_level_and_say_why():
    assert words([1, 1], [1.2, 1.2]) == "tree is faster than ring at every size from 8 B to 16 B"
    assert words([1, 1], [1.2, 1.2], ci=0.1) == (
        "tree and ring are within 5 % of each other, or within their noise, from 8 B to 16 B")
    unknown = replace(point(8, 1.2), ci_low=None)
    first = series("tree", [1], 0.5)
    assert compare(first, Series("ring", "ring", first.variant, (unknown,))).verdicts == (Verdict.FIRST,)


def test_margin_and_place():
    comparison = compare(series("tree", [1, 1, 3]), series("ring", [2.5, 1, 1]))
    assert margin_text("tree", "ring", comparison) == "tree by 2.5 times at 8 B, ring by 3 times at 32 B"
    placed = comparison_text("tree", "ring", comparison, "at 8 ranks")
    assert placed.startswith("tree is faster up to 8 B at 8 ranks, ring from 32 B on")


def test_crossing_lies_between_sizes_and_only_if_single():
    assert compare(series("t", [1, 1]), series("r", [2, 0.5])).crossing_bytes == pytest.approx(2 ** 3.5)
    assert compare(series("t", [1, 1, 1]), series("r", [2, 0.5, 2])).crossing_bytes is None
    assert compare(series("t", [1, 1]), series("r", [2, 2])).crossing_bytes is None


@pytest.mark.parametrize("ranks, alpha, beta", [(8, 5, 1e-3), (8, 5, 2e-3), (16, 2, 1e-4), (4, 50, 1e-2), (6, 1, 1e-3)])
@pytest.mark.parametrize("pair", [("double_tree", "ring"), ("recursive_doubling", "ring"), ("one_shot", "two_shot")])
def test_known_worlds(analysis_of, ranks, alpha, beta, pair):
    """The words' edges lie at or around the size where the model's times are equal."""
    world = World(alpha=alpha, beta=beta, ranks=ranks, noise=0.005)
    _, analysis = analysis_of([world.run()] + world.sweep(pair))
    first, second = analysis.results[0].panel.series
    a, b = (first, second) if first.label == pair[0] else (second, first)
    comparison = compare(a, b)
    known = known_crossover(world, *pair)
    assert comparison.spans[0].answer is Verdict.FIRST and comparison.spans[-1].answer is Verdict.SECOND
    assert comparison.spans[0].last <= known <= comparison.spans[-1].first
    assert comparison.crossing_bytes == pytest.approx(known, rel=0.25)
    for size, verdict in zip(comparison.sizes, comparison.verdicts):
        ratio = world.time_us(pair[1], size) / world.time_us(pair[0], size)
        if ratio > 1.08 or ratio < 1 / 1.08:
            assert verdict is (Verdict.FIRST if ratio > 1 else Verdict.SECOND)


def test_the_issue_s_sentence(analysis_of):
    """8 ranks, crossing between 32 KiB and 256 KiB."""
    world = World(alpha=5, beta=2e-3, ranks=8, noise=0.005)
    _, analysis = analysis_of([world.run()] + world.sweep(["ring", "double_tree"]))
    assert analysis.results[0].answer.startswith(
        "double_tree is faster up to 32 KiB at 8 ranks, ring from 256 KiB on; between them the two are within 5 %")


def test_fastest_of_many():
    spans = fastest_spans([series("a", [1, 1, 5, 9]), series("b", [3, 1.02, 1, 3]), series("c", [9, 9, 3, 1])])
    assert fastest_text(spans) == "a is fastest up to 16 B, b at 32 B, c from 64 B on"


def test_fastest_prefers_few_ranges_to_noise():
    """Two that are level with each other do not take turns."""
    spans = fastest_spans([series("a", [1, 1.02, 1, 1.03, 1]), series("b", [1.01, 1, 1.02, 1, 9])])
    assert fastest_text(spans) == "a is fastest, or within 5 % of it, at every size from 8 B to 128 B"


def test_fastest_where_sizes_differ():
    a, b = series("a", [1, 1, 1, 1]), series("b", [2, 2])
    c = Series("c", "c", a.variant, (point(4 * MIB, 7),))
    assert [(s.answer, s.first, s.last) for s in fastest_spans([a, b, c])] == [("a", 8, 64), ("c", 4 * MIB, 4 * MIB)]
