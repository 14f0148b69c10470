"""The map of the fastest algorithm by size and ranks."""
import pytest

from reports.analysis.findings import maps_of
from reports.plots.winner_map import render_maps
from reports.tests.world import World

SIZES = [1 << k for k in range(10, 25, 2)]


def lines_of(ranks, algorithms=("ring", "double_tree"), **run_fields):
    lines = []
    for n in ranks:
        world = World(alpha=5, beta=1e-3, noise=0, ranks=n, run_name=f"run-{n}", run_fields=run_fields)
        lines += [world.run()] + world.sweep(algorithms, SIZES)
    return lines


def test_each_cell_has_the_fastest_and_its_margin(analysis_of):
    _, analysis = analysis_of(lines_of((4, 16, 64)))
    (winners,) = maps_of(analysis.results)
    assert [result.panel.setting.ranks for result in winners.results] == [4, 16, 64]
    small = next(cell for cell in winners.cells if (cell.ranks, cell.bytes) == (64, 1024))
    ring_us, tree_us = 5 * 126 + 1e-3 * 1024 * 2 * 63 / 64, 5 * 12 + 1e-3 * 1024 * 2
    assert (small.label, small.second) == ("double_tree", "ring")
    assert small.margin == pytest.approx(ring_us / tree_us, rel=1e-6)
    large = next(cell for cell in winners.cells if (cell.ranks, cell.bytes) == (4, SIZES[-1]))
    assert large.label == "ring"
    assert "4 ranks" in winners.headline and "64 ranks" in winners.headline


def test_few_numbers_of_ranks_or_one_algorithm_have_no_map(analysis_of):
    assert not maps_of(analysis_of(lines_of((4, 16)))[1].results)
    assert not maps_of(analysis_of(lines_of((4, 8, 16), algorithms=("ring",)))[1].results)


def test_measured_and_simulated_are_never_on_one_map(analysis_of):
    simulated = {"basis": "simulated", "transport": "simulated", "rank_kind": "simulated", "simulated_machine": "dgx-h100"}
    lines = lines_of((4, 8, 16)) + [{**line, "run": line["run"] + "-s"} for line in lines_of((4, 8, 16), **simulated)]
    maps = maps_of(analysis_of(lines)[1].results)
    assert [one.setting.basis for one in maps] == ["measured", "simulated"]
    assert "simulated on dgx-h100" in maps[1].name


def test_the_figure_says_what_it_shows(analysis_of, tmp_path):
    _, analysis = analysis_of(lines_of((4, 16, 64)))
    (file,) = render_maps(maps_of(analysis.results), tmp_path)
    drawn = (tmp_path / f"{file.stem}.svg").read_text()
    assert "double_tree" in drawn and "ranks" in drawn and "message size" in drawn
