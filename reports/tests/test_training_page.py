"""The pages of training and scaling: what they say, what they show, and figures that equal the records."""
import pytest

from reports.analysis.report import report_of
from reports.analysis.training.runs import predicted_text, step_ms, tokens_per_s
from reports.analysis.training.scaling import differences, line_text, off, telling, why_text
from reports.cli import main
from reports.load import load
from reports.plots import style
from reports.plots.frame import Heading
from reports.plots.scaling_figures import gap_figure, three_times_figure
from reports.html.training_view import predicted_tables
from reports.plots.part_bars import parts_figure, predicted_figure
from reports.plots.training_lines import loss_figure
from reports.tests.test_html import Structure
from reports.tests.training_world import TrainingWorld
from reports.tests.world import write

HEADING = Heading("title", "subtitle", "")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    trained, scaled = TrainingWorld(), TrainingWorld(run_name="scaling-1", run_fields={"program": "scaling"})
    paced = TrainingWorld("scaling-2", "emulated", {"link": {"latency_us": 20.0, "gbps": 1.0}})
    beyond = TrainingWorld("scaling-3", "simulated")
    far = beyond.scaling(64, oversubscribed=False)
    far["steps"] = far["steps"][:1]
    lines = [trained.run(), trained.training(), scaled.run(), scaled.scaling(1, alone=50, contended=50, measured=50),
             scaled.scaling(2), scaled.scaling(32, measured=200.0), scaled.scaling(2, "strong"), paced.run(),
             paced.scaling(2), beyond.run(), far]
    return write(tmp_path_factory.mktemp("training") / "t.jsonl", lines)


@pytest.fixture(scope="module")
def report(records):
    return report_of(load([records]))


def test_speeds_leave_the_warm_up_out(report):
    one = report.trainings[0].first
    assert step_ms(one) == 50 and tokens_per_s(one) == 40960


def test_the_gap_is_told_by_part(report):
    line = report.scalings[0].lines[1]
    assert line.layout.text == "dp=2"
    assert off(line, "isolated") == pytest.approx(0.2) and off(line, "contended") == pytest.approx(60 / 54 - 1)
    assert differences(line, "contended") == pytest.approx({"forward": 0, "backward": 0, "exposed_reduce": 6})
    assert why_text(line, "contended") == "waiting for reduced gradients +6 ms"
    assert "alone give 50 ms" in line_text(line) and "contention 54 ms" in line_text(line)


def test_what_was_emulated_stands_apart(report):
    assert [(result.first.basis, len(result.lines)) for result in report.scalings] == [("measured", 4), ("emulated", 1),
                                                                                       ("simulated", 1)]
    assert telling(report.scalings, "dp=2").layout.text == "dp=2"
    assert telling(report.scalings).oversubscribed is False


def bars_of(figure):
    return sorted(round(patch.get_width(), 6) for patch in figure.axes[0].patches if abs(patch.get_width()) > 1e-9)


def test_bars_equal_the_records(report):
    with style.context():
        parts = parts_figure(report.trainings[0], HEADING)
        three = three_times_figure(report.scalings[1], HEADING)
        gap = gap_figure(report.scalings[1], HEADING)
        loss = loss_figure(report.trainings[0], HEADING)
    assert bars_of(parts) == [5, 15, 30]
    assert bars_of(three) == sorted([15, 30, 5, 15, 34, 5, 15, 34, 11])
    assert bars_of(gap) == sorted([4, 6, 6])
    for figure in (parts, three, gap, loss):
        axes = figure.axes[0]
        assert "(" in (axes.get_xlabel() + axes.get_ylabel()), "an axis has its unit"
    curve = loss.axes[0].lines[0]
    assert list(curve.get_xdata()) == list(range(1, 11)) and curve.get_ydata()[0] == 5.5
    assert 2.78 in [line.get_ydata()[0] for line in loss.axes[0].lines], "the line of counting"


def test_pages(records, tmp_path):
    assert main([records, "-o", str(tmp_path / "report")]) == 0
    pages = {name: Structure((tmp_path / "report" / name).read_text(encoding="utf-8"))
             for name in ("index.html", "training.html", "scaling.html")}
    for parsed in pages.values():
        assert len(parsed.ids) == len(set(parsed.ids))
        for link in parsed.links:
            if link.startswith("#"):
                assert link[1:] in parsed.ids
            elif not link.startswith(("data:", "http")):
                assert (tmp_path / "report" / link.split("#")[0]).exists(), link
    first, training, scaling = (parsed.text for parsed in pages.values())
    for text in (first, training):
        assert "dp=2, f32, 1 thread per rank, 2,048 tokens per step: 50 ms, 40,960 tokens/s, MFU 40 %" in text
    assert "pieces timed alone give 50 ms, with their measured contention 54 ms, and the step takes 60 ms" in first
    assert "below the 2.78 that counting pairs of tokens reaches" in first
    assert "1 layout, simulated from the pieces of two replicas; none was run." in scaling
    assert "dp=32, weak *" in scaling and "EMULATED" not in first


PREDICTED = {"machine": "calibrated", "kernels": 27, "measured_kernels": 27, "step_ms": 45.0,
             "parts_ms": {"forward": 15.0, "backward": 28.0, "exposed_reduce": 2.0, "bubble": 0.0, "around": 0.0},
             "measured_step_ms": 50.0,
             "measured_parts_ms": {"forward": 15.0, "backward": 30.0, "exposed_reduce": 5.0, "bubble": 0.0, "around": 0.0},
             "error": -0.1, "gap": "exposed_reduce, 3.00 ms longer than predicted: all_reduce in lane reduce took 3 ms"}


def test_a_prediction_stands_beside_its_run(tmp_path):
    world = TrainingWorld()
    better = {**PREDICTED, "step_ms": 49.0, "error": -0.02, "gap": "none"}
    lines = [world.run(), world.training(predicted=PREDICTED), world.training(predicted=better, dtype="bf16"),
             world.training(dtype="f16")]
    result = report_of(load([write(tmp_path / "t.jsonl", lines)])).trainings[0]
    told = predicted_text(result.runs)
    assert told.startswith("Predicted before they ran: 2 steps, off by 6 % in the median and 10 % at worst (dp=2, f32, too "
                           "short; its largest gap: exposed_reduce, 3.00 ms longer")
    figure = predicted_figure(result, HEADING)
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["dp=2, f32: predicted", "measured", "dp=2, bf16: predicted", "measured"]
    assert any("45 ms, -10 %" in text.get_text() for text in figure.axes[0].texts)
    table = predicted_tables(result)[0]
    assert len(table.lines) == 2
    assert predicted_text(report_of(load([write(tmp_path / "u.jsonl", [world.run(), world.training()])])).trainings[0].runs) == ""
