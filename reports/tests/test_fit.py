"""alpha and beta: found again where they are known, refused where they cannot be."""
import numpy as np
import pytest

from reports.analysis.fit import Fit, NoFit, fit_points, robust_fit
from reports.tests.test_crossover import point
from reports.tests.world import ALGORITHMS, SIZES, World


def send_recv_fit(analysis_of, world, sizes=SIZES):
    _, analysis = analysis_of([world.run()] + world.send_recv(sizes))
    return next(iter(analysis.fits.values()))


@pytest.mark.parametrize("alpha, beta", [(0.5, 1e-5), (5, 1e-3), (50, 1e-2), (30, 8.4e-3)])
def test_exact_world_is_found_again(analysis_of, alpha, beta):
    fit = send_recv_fit(analysis_of, World(alpha=alpha, beta=beta, noise=0))
    assert fit.alpha_us == pytest.approx(alpha, rel=1e-6) and fit.beta_us_per_byte == pytest.approx(beta, rel=1e-6)
    assert fit.worst_error < 1e-6 and fit.r2 == pytest.approx(1)


def test_noise_and_outliers_move_it_little():
    rng = np.random.default_rng(3)
    wire = np.array(SIZES, dtype=float)
    times = (5 + 1e-3 * wire) * rng.lognormal(0, 0.03, len(wire))
    times[[3, 20]] *= 5  # a hiccup at a small and at a large size
    alpha, beta = robust_fit(np.ones(len(wire)), wire, times)
    assert alpha == pytest.approx(5, rel=0.05) and beta == pytest.approx(1e-3, rel=0.05)


def test_residuals_are_told():
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
    ring = analysis.results[0]
    assert ring.predictions.by_label == {} and "no send/recv rows" in ring.predictions.no_fit


def test_predicted_times_and_latency_bound(analysis_of):
    world = World(alpha=5, beta=1e-3, noise=0)
    _, analysis = analysis_of([world.run()] + world.sweep(["ring", "double_tree"]) + world.send_recv())
    predictions = analysis.results[0].predictions
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
    predictions = analysis_of([world.run()] + rows)[1].results[0].predictions
    assert predictions.no_fit and predictions.by_label["ring"].played_out
    assert set(np.round(predictions.by_label["ring"].ratios, 6)) == {2.0}
    with_fit = analysis_of([world.run()] + rows + world.send_recv())[1].results[0].predictions.by_label["ring"]
    assert with_fit.played_out and with_fit.ratios[0] == pytest.approx(2) and with_fit.latency_bound_below


def test_series_without_a_prediction_are_named(analysis_of):
    """A transport without send/recv rows has no fit, and borrows no other's."""
    local = World(noise=0)
    mpi = World(noise=0, run_name="run-2", run_fields={"transport": "mpi", "rank_kind": "mpi"})
    lists = [[local.run()] + local.sweep(["ring"]) + local.send_recv(), [mpi.run()] + mpi.sweep(["ring"])]
    predictions = analysis_of(*lists)[1].results[0].predictions
    assert list(predictions.by_label) == ["ring (local)"] and predictions.left_out == ("ring (mpi)",)
    assert "no send/recv rows" in predictions.no_fit
