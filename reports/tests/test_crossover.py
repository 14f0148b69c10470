"""Crossovers, fits and the map of the fastest, in a known world: they name its sizes, its alpha and beta, and no others."""
from dataclasses import replace

import numpy as np
import pytest

from reports.analysis.crossover import compare, comparison_text, fastest_spans, fastest_text, margin_text, Verdict
from reports.analysis.findings import maps_of
from reports.analysis.fit import Fit, fit_points, NoFit, robust_fit
from reports.analysis.panels import Point, Series, Variant
from reports.records import Stats
from reports.pages.collectives import map_drawing
from reports.plots.drawn import render
from reports.tests.world import ALGORITHMS, known_crossover, MIB, SIZES, World


def point(size, time, ci=0.0):
    return Point(size, Stats(20, *[time] * 7, time * (1 - ci), time * (1 + ci)), float(size), None)


def changed(point, **fields):
    return replace(point, stats=replace(point.stats, **fields))


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


def test_what_samples_do_not_decide_is_not_stated():
    """Wide intervals that overlap, a single sample, and medians that the least disturbed samples contradict."""
    assert words([1, 1], [1.2, 1.2], ci=0.4) == (
        "tree or ring: from 8 B to 16 B it is undecided on this machine: spread 40 %")
    tree = series("tree", [1])
    for other in (changed(point(8, 1.2), ci_low=None), changed(point(8, 9), count=1), changed(point(8, 9), p5=1)):
        compared = compare(tree, Series("ring", "ring", tree.variant, (other,)))
        assert compared.verdicts == (Verdict.UNDECIDED,) and compared.crossing_bytes is None
        assert compare(Series("ring", "ring", tree.variant, (other,)), tree).verdicts == (Verdict.UNDECIDED,)


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
    first, second = analysis[0].series
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
    assert analysis[0].answer.startswith(
        "double_tree is faster up to 32 KiB at 8 ranks, ring from 256 KiB on; between them the two are within 5 %")


def test_fastest_of_many():
    spans = fastest_spans([series("a", [1, 1, 5, 9]), series("b", [3, 1.02, 1, 3]), series("c", [9, 9, 3, 1])])
    assert fastest_text(spans) == "a is fastest up to 16 B, b at 32 B, c from 64 B on"


def test_fastest_prefers_few_ranges_to_noise():
    """Two series that are level with each other do not alternate."""
    spans = fastest_spans([series("a", [1, 1.02, 1, 1.03, 1]), series("b", [1.01, 1, 1.02, 1, 9])])
    assert fastest_text(spans) == "a is fastest, or within 5 % of it, at every size from 8 B to 128 B"


def test_fastest_where_sizes_differ():
    a, b = series("a", [1, 1, 1, 1]), series("b", [2, 2])
    c = Series("c", "c", a.variant, (point(4 * MIB, 7),))
    assert [(s.answer, s.first, s.last) for s in fastest_spans([a, b, c])] == [("a", 8, 64), ("c", 4 * MIB, 4 * MIB)]


# alpha and beta: recovered where they are known, refused where they cannot be determined.

def send_recv_fit(analysis_of, world, sizes=SIZES):
    _, analysis = analysis_of([world.run()] + world.send_recv(sizes))
    return next(iter(analysis[0].fits.values()))


@pytest.mark.parametrize("alpha, beta", [(0.5, 1e-5), (5, 1e-3), (50, 1e-2), (30, 8.4e-3)])
def test_exact_world_is_found_again(analysis_of, alpha, beta):
    fit = send_recv_fit(analysis_of, World(alpha=alpha, beta=beta, noise=0))
    assert fit.alpha_us == pytest.approx(alpha, rel=1e-6) and fit.beta_us_per_byte == pytest.approx(beta, rel=1e-6)
    assert fit.worst_error < 1e-6 and fit.r2 == pytest.approx(1)


def test_noise_and_outliers_move_it_little():
    rng = np.random.default_rng(3)
    wire = np.array(SIZES, dtype=float)
    times = (5 + 1e-3 * wire) * rng.lognormal(0, 0.03, len(wire))
    times[[3, 20]] *= 5  # an outlier at a small and at a large size
    alpha, beta = robust_fit(np.ones(len(wire)), wire, times)
    assert alpha == pytest.approx(5, rel=0.05) and beta == pytest.approx(1e-3, rel=0.05)


def test_residuals_are_stated():
    points = [point(size, 5 + 1e-3 * size) for size in SIZES]
    points[10] = point(SIZES[10], 3 * points[10].time_us)
    fit = fit_points(points)
    assert fit.worst_bytes == SIZES[10] and fit.worst_error == pytest.approx(2 / 3, rel=0.05)
    assert fit.typical_error < 0.02 and not fit.poor


def test_a_world_that_is_not_linear_is_called_poor():
    fit = fit_points([point(size, 0.1 * size ** 0.5) for size in SIZES])
    assert isinstance(fit, Fit) and fit.poor


@pytest.mark.parametrize("points, reason", [
    ([point(8, 5.0), point(1024, 6.0)], "at 2 sizes"),
    ([point(size, 5.0 + size) for size in (8, 16, 32, 64)], "64 times"),
    ([point(size, 5.0) for size in SIZES[:10]], "do not grow"),
    ([point(size, 1e-3 * size) for size in SIZES[:12]], "no latency"),
])
def test_impossible_fits_say_why(points, reason):
    found = fit_points(points)
    assert isinstance(found, NoFit) and reason in found.reason


def test_predictions_use_the_fit_of_the_same_ranks_only(analysis_of):
    eight, four = World(noise=0), World(noise=0, ranks=4, run_name="run-2")
    _, analysis = analysis_of([eight.run()] + eight.sweep(["ring"]) + [four.run()] + four.send_recv())
    ring = analysis[0]
    assert ring.predictions.by_label == {} and "no send/recv rows" in ring.predictions.no_fit


def test_predicted_times_and_latency_bound(analysis_of):
    world = World(alpha=5, beta=1e-3, noise=0)
    _, analysis = analysis_of([world.run()] + world.sweep(["ring", "double_tree"]) + world.send_recv())
    predictions = analysis[0].predictions
    assert predictions.no_fit == ""
    for label, prediction in predictions.by_label.items():
        assert all(ratio == pytest.approx(1, rel=1e-6) for ratio in prediction.ratios)
        steps, wire = ALGORITHMS[label](8)
        assert prediction.latency_bound_below == pytest.approx(5 * steps / (1e-3 * wire), rel=1e-3)


def test_recorded_predictions_are_used_and_said(analysis_of):
    world = World(noise=0)
    rows = world.sweep(["ring"])
    for row in rows:
        row["plan"]["predicted_us"] = row["time_us"] / 2
    predictions = analysis_of([world.run()] + rows)[1][0].predictions
    assert predictions.no_fit and predictions.by_label["ring"].played_out
    assert set(np.round(predictions.by_label["ring"].ratios, 6)) == {2.0}
    with_fit = analysis_of([world.run()] + rows + world.send_recv())[1][0].predictions.by_label["ring"]
    assert with_fit.played_out and with_fit.ratios[0] == pytest.approx(2) and with_fit.latency_bound_below


def test_series_without_a_prediction_are_named(analysis_of):
    """A transport without send/recv rows has no fit, and does not borrow another's."""
    local = World(noise=0)
    mpi = World(noise=0, run_name="run-2", run_fields={"transport": "mpi", "rank_kind": "mpi"})
    lists = [[local.run()] + local.sweep(["ring"]) + local.send_recv(), [mpi.run()] + mpi.sweep(["ring"])]
    predictions = analysis_of(*lists)[1][0].predictions
    assert list(predictions.by_label) == ["ring (local)"] and predictions.left_out == ("ring (mpi)",)
    assert "no send/recv rows" in predictions.no_fit


# ---- The map of the fastest algorithm by size and ranks

WINNER_SIZES = [1 << k for k in range(10, 25, 2)]


def lines_of(ranks, algorithms=("ring", "double_tree"), **run_fields):
    lines = []
    for n in ranks:
        world = World(alpha=5, beta=1e-3, noise=0, ranks=n, run_name=f"run-{n}", run_fields=run_fields)
        lines += [world.run()] + world.sweep(algorithms, WINNER_SIZES)
    return lines


def test_each_cell_has_the_fastest_and_its_margin(analysis_of):
    _, analysis = analysis_of(lines_of((4, 16, 64)))
    (winners,) = maps_of(analysis)
    assert [result.first.ranks for result in winners.results] == [4, 16, 64]
    small = next(cell for cell in winners.cells if (cell.ranks, cell.bytes) == (64, 1024))
    ring_us, tree_us = 5 * 126 + 1e-3 * 1024 * 2 * 63 / 64, 5 * 12 + 1e-3 * 1024 * 2
    assert (small.label, small.second) == ("double_tree", "ring")
    assert small.margin == pytest.approx(ring_us / tree_us, rel=1e-6)
    large = next(cell for cell in winners.cells if (cell.ranks, cell.bytes) == (4, WINNER_SIZES[-1]))
    assert large.label == "ring"
    assert "4 ranks" in winners.finding and "64 ranks" in winners.finding


def test_few_numbers_of_ranks_or_one_algorithm_have_no_map(analysis_of):
    assert not maps_of(analysis_of(lines_of((4, 16)))[1])
    assert not maps_of(analysis_of(lines_of((4, 8, 16), algorithms=("ring",)))[1])


def test_measured_and_simulated_are_never_on_one_map(analysis_of):
    simulated = {"basis": "simulated", "transport": "simulated", "rank_kind": "simulated", "simulated_machine": "dgx-h100"}
    lines = lines_of((4, 8, 16)) + [{**line, "run": line["run"] + "-s"} for line in lines_of((4, 8, 16), **simulated)]
    maps = maps_of(analysis_of(lines)[1])
    assert [line.first.basis for line in maps] == ["measured", "simulated"]
    assert "simulated on dgx-h100" in maps[1].name


def test_the_figure_says_what_it_shows(analysis_of, tmp_path):
    _, analysis = analysis_of(lines_of((4, 16, 64)))
    file, = map(map_drawing, maps_of(analysis))
    render([file], tmp_path)
    drawn = (tmp_path / f"{file.stem}.svg").read_text()
    assert "double_tree" in drawn and "ranks" in drawn and "message size" in drawn
