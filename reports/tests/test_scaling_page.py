"""Tests curves of scaling: sentences only where the interval decides, and figures that equal the records."""
import pytest

from reports.__main__ import main
from reports.report import report_of
from reports.load import load
from reports.plots import style
from reports.page import Heading
from reports.plots.training_figures import curve_figure, losses_figure
from reports.tests.test_html import Structure
from reports.tests.world import TrainingWorld, write

HEADING = Heading("title", "subtitle", "")


def measured(world, dp, mode="weak", verdict="loss", efficiency=0.7, half=0.05, step_ms=50.0, **fields):
    """A layout of a curve: ten rounds, and losses of which communication alone is decided."""
    line = world.scaling(dp, mode, measured=step_ms)
    measured_step = line["times"][2]
    del measured_step["timeline"]
    losses = [("compute", 0.05, 0.06), ("communication", 0.95 - efficiency, 0.02), ("bubble", 0.0, 0.01), ("other", 0.0, 0.01)]
    own = {"value": efficiency, "interval": {"low": efficiency - half, "high": efficiency + half}, "verdict": verdict,
           "ideal_speedup": float(dp), "losses": [loss_of(*loss) for loss in losses], **fields.pop("of_efficiency", {})}
    return {**line, "times": [measured_step], "slowdowns": [], "series": {"rounds_ms": [step_ms * f for f in (0.9, 1, 1.2)]},
            **({"efficiency": own} if dp > 1 else {}), **fields}


def loss_of(to, share, width):
    return {"to": to, "share": share, "interval": {"low": share - width, "high": share + width}}


def simulated(world, dp, mode="weak", efficiency=0.8, **fields):
    line = world.scaling(dp, mode, **fields)
    own = {"value": efficiency, "ideal_speedup": float(dp), "verdict": "loss", "losses": [loss_of("communication", 1 - efficiency, 0)]}
    return {**line, "times": line["times"][:1], "slowdowns": [], "efficiency": own, "oversubscribed": False,
            "figures": {"tokens_per_s": efficiency * dp * 20480.0}}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    run = TrainingWorld("scaling-1", run_fields={"program": "scaling"})
    beyond = TrainingWorld("scaling-2", "simulated")
    shared = {"oversubscribed": True, "of_efficiency": {"ideal_speedup": 2.0, "losses": [loss_of("cores", 0.3, 0.05)]}}
    unclear = {"verdict": "undecided", "of_efficiency": {"undecided": "spread 30 % in 10 rounds; more --rounds or an idle machine would decide"}}
    lines = [run.run(), measured(run, 1), measured(run, 2), measured(run, 4, **shared),
             measured(run, 2, "strong", efficiency=1.49, half=0.3, **unclear),
             beyond.run(), simulated(beyond, 2), simulated(beyond, 1024, efficiency=0.6)]
    return write(tmp_path_factory.mktemp("scaling") / "s.jsonl", lines)


@pytest.fixture(scope="module")
def result(records):
    result, = report_of(load([records])).results("scaling")
    return result


def test_a_sentence_tells_what_is_decided(result):
    weak, strong = (curve.text for curve in result.curves)
    assert weak.startswith("Data parallel, weak: 2 ranks reach 70 % (65 to 75) of the ideal, lost to exposed communication 25 % (23 "
                           "to 27); 4 ranks with cores for 2 (OVERSUBSCRIBED) reach 70 % (65 to 75) of the ideal of 2 ranks, lost "
                           "to shared cores 30 % (25 to 35); simulated, 1,024 ranks reach 60 % of the ideal, lost to exposed "
                           "communication 40 %; simulated over measured tokens/s: 2 ranks +0 % (0 to 0).")
    assert "slower kernels" not in weak, "its interval holds 0"
    assert strong == ("Data parallel, strong: 2 ranks: undecided on this machine, spread 30 % in 10 rounds; more --rounds or an idle "
                      "machine would decide.")
    assert [finding.text for finding in result.findings] == [weak, strong], "no pieces were timed"


def test_what_is_not_decided_is_no_number_anywhere(records, tmp_path):
    assert main([records, "-o", str(tmp_path / "report")]) == 0
    for file in (tmp_path / "report").rglob("*"):
        if file.suffix in (".html", ".svg"):
            text = file.read_text(encoding="utf-8")
            assert "149 %" not in text and "149 (" not in text, file


def test_the_curve_has_measured_and_simulated_points(result):
    with style.context():
        axes = curve_figure(result, HEADING).axes[0]
    drawn = [[list(line.get_xdata()), line.get_markerfacecolor(), line.get_linestyle()] for line in axes.lines if len(line.get_xdata())]
    assert [1, 2, 4] in [xs for xs, _, _ in drawn] and [2, 1024] in [xs for xs, _, _ in drawn]
    assert next(face for xs, face, _ in drawn if xs == [2, 1024]) == "none", "simulated points are hollow"
    assert next(dash for xs, _, dash in drawn if xs == [2, 1024]) == "--"
    assert axes.get_xscale() == axes.get_yscale() == "log"
    segments = [segment for bars in axes.collections for segment in bars.get_segments()] if axes.collections else []
    assert any(segment[0][1] < segment[1][1] for segment in segments), "error bars"


def test_bars_of_losses_add_up_to_the_step(result):
    with style.context():
        axes = losses_figure(result, HEADING).axes[0]
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["dp=2, weak", "dp=4, weak *", "dp=1024, weak, simulated", "dp=2, strong"]
    for row, place in zip(names, axes.get_yticks()):
        whole = sum(patch.get_width() for patch in axes.patches if abs(patch.get_y() + patch.get_height() / 2 - place) < 1e-6)
        assert whole == pytest.approx(0 if row == "dp=2, strong" else 100)


def test_a_run_alone_and_a_simulation_alone_are_stated(tmp_path):
    run, beyond = TrainingWorld("scaling-1", run_fields={"program": "scaling"}), TrainingWorld("scaling-2", "simulated")
    for world, lines in ((run, [measured(run, 1), measured(run, 2)]), (beyond, [simulated(beyond, 8, choices={"mode": "weak", "machine": "dgx-h100"})])):
        file = write(tmp_path / f"{world.basis}.jsonl", [world.run(), *lines])
        assert main([file, "-o", str(tmp_path / world.basis)]) == 0
    text = Structure((tmp_path / "simulated" / "index.html").read_text(encoding="utf-8")).text
    assert "simulated on dgx-h100, 8 ranks reach 80 % of the ideal" in text
