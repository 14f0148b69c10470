"""Studies: what is grouped, what is answered, and what must not be mixed."""
import pytest

from reports.analysis.studies import analyse_studies, beside, mean_error
from reports.errors import ReportError
from reports.load import load
from reports.plots.study_figures import badge
from reports.tests.step_world import LayoutWorld
from reports.tests.world import write


def point(study, **fields):
    base = {"record": "study", "run": "simulate-1", "program": "simulate", "basis": "simulated", "study": study,
            "setting": "a model on a machine", "series": "one", "layout": "tp=2", "at": {}, "values": {}, "parts_ms": {},
            "fits": True, "best": False, "note": "", "source": ""}
    return {**base, **fields}


def results_of(tmp_path, points):
    return analyse_studies(load([write(tmp_path / "r.jsonl", [LayoutWorld().run(), *points])]))


def steps(gpus, efficiency, reduce_ms, series="weak"):
    return point("scaling", series=series, layout=f"dp={gpus}", at={"gpus": gpus},
                 values={"step_ms": 100.0, "tflops_a_gpu": 100 * efficiency, "efficiency": efficiency},
                 parts_ms={"forward": 100.0 - reduce_ms, "exposed_reduce": reduce_ms})


def test_scaling_says_what_is_left_and_what_grows(tmp_path):
    (result,) = results_of(tmp_path, [steps(8, 1.0, 1.0), steps(64, 0.8, 21.0)])
    assert result.answer == ("Weak scaling keeps 80 % of the throughput per GPU from 8 to 64 GPUs; waiting for reduced gradients "
                             "grows from 1.0 to 21.0 % of the step.")


def test_published_points_are_beside_and_in_no_other_number(tmp_path):
    ours = point("tp_boundary", at={"tp": 2, "node": 8}, values={"tflops_a_gpu": 110.0, "step_ms": 10.0})
    theirs = point("tp_boundary", basis="published", at={"tp": 2, "node": 8}, values={"tflops_a_gpu": 100.0}, source="a paper")
    (result,) = results_of(tmp_path, [ours, theirs])
    assert [one.basis for one in result.simulated] == ["simulated"] and [one.basis for one in result.published] == ["published"]
    assert len(beside(result)) == 1 and mean_error(result) == pytest.approx(0.1)
    assert "hollow" in badge(result)


def test_a_measured_point_has_no_place_in_a_simulated_run(tmp_path):
    with pytest.raises(ReportError, match="must be one of simulated, counted, published"):
        results_of(tmp_path, [point("scaling", basis="measured")])


def test_points_without_values_are_told_not_drawn(tmp_path):
    (result,) = results_of(tmp_path, [point("scaling", at={"gpus": 3}, note="3 devices are no multiple of 2")])
    assert not result.drawn and "no multiple of 2" in result.answer


def test_the_map_counts_winners_and_close_calls(tmp_path):
    (result,) = results_of(tmp_path, LayoutWorld().study())
    assert result.answer == ("Of 4 cells the winner is PP+DP in 2 and ZeRO-3 in 2. In 0 the next way is less than 5 % slower.")


def test_sensitivity_names_the_figures_that_move_most(tmp_path):
    figures = {"device.matrix_tflops": (-6.0, 7.0), "levels.0.gbps": (-1.0, 1.5), "host_gbps": (0.0, 0.0)}
    (result,) = results_of(tmp_path, [point("sensitivity", series=name, at={"value": 1.0, "percent": 10.0},
                                            values={"more_percent": more, "less_percent": less, "step_ms": 1.0})
                                      for name, (more, less) in figures.items()])
    assert result.answer == ("Changed by 10 %, device.matrix_tflops by 7.0 % and levels.0.gbps by 1.5 % move the step most; 1 of 3 "
                             "figures move it by less than 0.05 %.")


def test_clocks_say_what_they_save_at_which_time(tmp_path):
    points = [point("clocks", series=name, at={"slower_percent": slower},
                    values={"saved_percent": saved, "step_ms": 100 + slower, "joules": 1e4 * (1 - saved / 100)})
              for name, slower, saved in (("stage", 0.0, 1.5), ("stage", 5.0, 9.0), ("unit", 0.0, 12.0), ("unit", 5.0, 20.25))]
    (result,) = results_of(tmp_path, points)
    assert result.answer == ("Of the energy at the top clock with a clock for each stage 1.5 %, and 9.0 % where the step may take 5 % longer; "
                             "with a clock for each unit 12.0 %, and 20.2 % where the step may take 5 % longer, the step as long as before.")
