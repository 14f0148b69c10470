"""Tests the page of long sequences: its sentences, its tables, and figures that equal the records."""
import pytest

from reports.analysis.report import report_of
from reports.analysis.training.context import (bytes_sentence, exposed_sentence, hidden, hidden_sentence, load_sentence,
                                               memory_sentence, simulated_hidden, time_sentence)
from reports.cli import main
from reports.load import load
from reports.plots import style
from reports.plots.context_figures import exposed_figure, hidden_figure, load_figure, memory_figure, time_figure
from reports.plots.frame import Heading
from reports.tests.world import ContextWorld, write
from reports.tests.test_html import Structure

HEADING = Heading("A title", "below it", "")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    world = ContextWorld()
    paced = ContextWorld("context-2", "emulated", {"link": {"latency_us": 20.0, "gbps": 1.0}})
    lines = [world.run(), world.context("ring", 1024, load=1.75), world.context("ring", 2048, 200.0, load=1.75),
             world.context("zigzag", 1024, 300.0), world.context("zigzag", 2048, 0.0), paced.run(),
             paced.context("ring", simulated_exposed_us={"forward": 300.0, "backward": 300.0})]
    return write(tmp_path_factory.mktemp("context") / "c.jsonl", lines)


@pytest.fixture(scope="module")
def results(records):
    return report_of(load([records])).contexts


def test_what_was_emulated_stands_apart(results):
    assert [(result.first.basis, len(result.lines)) for result in results] == [("measured", 2), ("emulated", 1)]
    assert "emulated links of 1 GB/s, 20 µs" in results[1].name and results[1].findings[0].badge == "emulated"


def test_what_is_told(results):
    ring, zigzag = results[0].lines
    assert [hidden(one) for one in ring.points] == [0.5, 0.8] and hidden(zigzag.longest) == 1
    assert time_sentence(results[0]) == ("At 2,048 tokens forward and backward take zigzag 16 ms and ring 16.4 ms.")
    assert memory_sentence(results[0]) == "At 2,048 tokens a rank holds ring 8 MiB and zigzag 8 MiB."
    assert hidden_sentence(results[0]) == ("At 2,048 tokens kernels hide ring 80 % and zigzag 100 % of the time that "
                                           "communication takes alone.")
    assert load_sentence(results[0]) == ("The rank with most to compute has 1 times the mean in zigzag and 1.75 times the "
                                         "mean in ring.")
    assert bytes_sentence(results[0]).endswith("within 1.0e-06 of the largest in all 32 passes.")


def test_figures_equal_the_records(results):
    with style.context():
        time, memory, share, loads = (draw(results[0], HEADING) for draw in
                                      (time_figure, memory_figure, hidden_figure, load_figure))
    lines = {tuple(line.get_xdata()): list(line.get_ydata()) for line in time.axes[0].lines if len(line.get_xdata()) == 2
             and line.get_xdata()[0] == 1024}
    assert lines[(1024, 2048)] == [4600.0, 16000.0], "the zigzag's: kernels of 2 x 2 ms, and what communication adds"
    assert [4096.0 * 1024, 4096.0 * 2048] in [list(line.get_ydata()) for line in memory.axes[0].lines]
    assert [0.5, 0.8] in [list(line.get_ydata()) for line in share.axes[0].lines]
    heights = [round(patch.get_height(), 6) for patch in loads.axes[0].patches]
    assert heights == [0.75, 0.75, 0.75, 1.75, 1, 1, 1, 1]


def test_what_was_simulated_is_drawn_beside_what_was_measured(results):
    emulated = results[1]
    assert simulated_hidden(emulated.first) == pytest.approx(0.7) and simulated_hidden(results[0].first) is None
    assert exposed_sentence(emulated) == "At 1,024 tokens communication adds ring 1 ms to the kernels; simulated: ring 600 µs."
    with style.context():
        lines = [list(line.get_ydata()) for line in exposed_figure(emulated, HEADING).axes[0].lines]
    assert [1000.0] in lines and [600.0] in lines


def test_a_wrong_row_is_shown(tmp_path):
    world = ContextWorld()
    wrong = world.context(status="wrong", error="a result differs from one rank's by 0.1 of the largest")
    records = write(tmp_path / "c.jsonl", [world.run(), wrong])
    assert main([records, "-o", str(tmp_path / "report")]) == 0
    text = Structure((tmp_path / "report" / "index.html").read_text(encoding="utf-8")).text
    assert "Wrong rows" in text and "a result differs from one rank's by 0.1 of the largest" in text


def test_page(records, tmp_path):
    assert main([records, "-o", str(tmp_path / "report")]) == 0
    parsed = Structure((tmp_path / "report" / "index.html").read_text(encoding="utf-8"))
    assert len(parsed.ids) == len(set(parsed.ids))
    assert "share the attention of a long sequence" in parsed.text
    assert "5 rows, 0 wrong; 40 passes checked" in parsed.text
