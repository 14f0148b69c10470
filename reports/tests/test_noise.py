"""Noise is not a finding: samples of a loaded machine give no finding that a quiet one contradicts; a quiet one gives the truth, and
a planted factor of 1.5 is found.

loaded_samples.json: samples of 60 rows of all_reduce_perf on 2 ranks of 2 cores, in us, in order, while other programs kept the cores
busy."""
import json
import random
from pathlib import Path

import numpy as np
import pytest

from reports.analysis.crossover import compare, Verdict
from reports.analysis.estimate import alike, certain_factor, estimate, exact, median_of, decided_share
from reports.analysis.findings import main_findings
from reports.tests.world import stats_of, World

SAMPLES = json.loads(Path(__file__).with_name("loaded_samples.json").read_text(encoding="utf-8"))
TIME_SLICE_US = 1000
NAMES = ("ring", "double_tree", "recursive_doubling", "one_shot")
SIZES = [8 << 3 * k for k in range(7)]  # 8 B to 2 MiB


def world_of(seed, **fields):
    return World(alpha=0.5, beta=1e-4, seed=seed, run_name=f"run-{seed}", run_fields=fields)


def loaded(row, rng):
    """The row with the disturbances of a loaded machine in place of its noise: time slices of others as long, all else in proportion."""
    quiet_us, drawn = min(row["samples_us"]), rng.choice(SAMPLES)
    samples = [quiet_us + us if us > TIME_SLICE_US else quiet_us * us / min(drawn) for us in drawn]
    return {**row, "samples_us": samples, "stats": stats_of(samples), "time_us": float(np.mean(samples))}


def pairs_of(panel):
    return [(a, b) for i, a in enumerate(panel.series) for b in panel.series[i + 1:]]


@pytest.mark.parametrize("seed", range(6))
def test_a_loaded_machine_finds_nothing_that_a_quiet_one_contradicts(analysis_of, seed):
    world, rng = world_of(seed), random.Random(seed)
    world.noise = 0
    lines = [world.run(), *(loaded(row, rng) for row in world.sweep(NAMES, SIZES))]
    result, = analysis_of(lines)[1]
    factors = []
    for first, second in pairs_of(result):
        found = compare(first, second)
        for size, verdict, factor in zip(found.sizes, found.verdicts, found.factors):
            truth = world.time_us(second.label, size) / world.time_us(first.label, size)
            if verdict in (Verdict.FIRST, Verdict.SECOND):
                factors.append((truth if verdict is Verdict.FIRST else 1 / truth, factor))
    assert not [factor for factor in factors if factor[0] < 1], "the one that is called faster is slower"
    assert not [factor for factor in factors if factor[1] > 1.5 * factor[0]], "a factor comes from noise"
    for span in result.fastest:
        for size in (size for size in SIZES if span.first <= size <= span.last and span.answer is not Verdict.UNDECIDED):
            assert world.time_us(span.answer, size) <= 1.5 * min(world.time_us(name, size) for name in NAMES)
    text = " ".join(finding.text for finding in main_findings([result]))
    assert "undecided on this machine: spread" in text


@pytest.mark.parametrize("noise", (0.01, 0.05, 0.1))
def test_a_quiet_machine_tells_the_truth_and_finds_a_factor_of_one_and_a_half(analysis_of, noise):
    world = world_of(1)
    world.noise = noise
    rows = world.sweep(NAMES, SIZES)
    planted = [{**row, "algorithm": "planted", "samples_us": (slow := [1.5 * us for us in rng_row["samples_us"]]), "stats": stats_of(slow)}
               for row, rng_row in zip(world.sweep(["one_shot"], SIZES), world_of(2).sweep(["one_shot"], SIZES))]
    result, = analysis_of([world.run(), *rows, *planted])[1]
    by_label = {series.label: series for series in result.series}
    found = compare(by_label["one_shot"], by_label["planted"])
    assert found.verdicts == (Verdict.FIRST,) * len(SIZES) and min(found.factors) > 1
    for first, second in pairs_of(result):
        if "planted" in (first.label, second.label):
            continue
        compared = compare(first, second)
        for size, verdict in zip(compared.sizes, compared.verdicts):
            truth = world.time_us(second.label, size) / world.time_us(first.label, size)
            if max(truth, 1 / truth) > 1.5:
                assert verdict is (Verdict.FIRST if truth > 1 else Verdict.SECOND)


def test_intervals_of_few_samples_and_of_long_disturbances_are_wide():
    few = median_of([10.0, 11.0, 12.0])
    assert (few.low, few.high) == (8.0, 14.0) and certain_factor(exact(20.0), few) > 1 == certain_factor(exact(13.0), few)
    for samples in ([10.0], [10.0, 10.0]):
        assert certain_factor(exact(20.0), median_of(samples)) == 1, "so few samples decide nothing"
    disturbed = median_of([10.0] * 50 + [30.0] * 10)
    assert disturbed.high == 30 and not alike(disturbed, exact(10.0)), "though nine in ten medians are 10"


def test_a_figure_draws_its_rounds_together():
    compute = [10.0, 30.0, 12.0, 50.0, 11.0, 10.0, 90.0]
    exposed = estimate(lambda step, alone: step - alone, [ms + 2 for ms in compute], compute)
    assert (exposed.value, exposed.low, exposed.high) == (2, 2, 2)
    assert decided_share(estimate(lambda ms: ms, [0.6] * 7), "hidden") == "60 % hidden"
    assert decided_share(estimate(lambda ms: ms, [0.5, 0.6, 0.7] * 3), "hidden") == "60 % (50 % to 70 %) hidden"
    assert decided_share(estimate(lambda ms: ms, [0.1, 0.9, 0.5] * 2).within(0, 1)) == "undecided on this machine: spread 40 %"


def test_single_samples_decide_no_factor() -> None:
    """Both intervals are infinite, and their quotient would be no number."""
    assert certain_factor(estimate(lambda ms: ms, [9.0]), estimate(lambda ms: ms, [1.0])) == 1.0
