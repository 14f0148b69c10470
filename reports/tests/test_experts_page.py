"""Tests the page of mixtures of experts: its sentences, and figures that equal the records."""
import pytest

from reports.analysis.report import report_of
from reports.analysis.training.experts import PARTS, bytes_text_of, skew_text, slowdown_of, split_text
from reports.cli import main
from reports.load import load
from reports.plots import style
from reports.plots.experts_figures import load_figure, parts_figure
from reports.plots.frame import Heading
from reports.tests.experts_world import line, world
from reports.tests.test_html import Structure
from reports.tests.world import write

HEADING = Heading("title", "subtitle", "")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    paced = "experts-2"
    lines = [world(), line(), line(load_of=2.0, us=1050.0), line(capacity_factor=1.0, dropped=512, load_of=2.0),
             world(paced, "emulated", link={"latency_us": 20.0, "gbps": 1.0}), line(paced, "emulated")]
    return write(tmp_path_factory.mktemp("experts") / "e.jsonl", lines)


@pytest.fixture(scope="module")
def results(records):
    return report_of(load([records])).experts


def test_what_was_emulated_stands_apart(results):
    assert [(result.first.basis, len(result.lines)) for result in results] == [("measured", 3), ("emulated", 1)]
    assert results[1].findings[0].badge == "emulated"


def test_what_an_uneven_router_costs_is_told(results):
    even, uneven, capped = results[0].lines
    assert slowdown_of(even, results[0]) is None and slowdown_of(capped, results[0]) is None
    assert slowdown_of(uneven, results[0]) == 1.5
    assert skew_text(results[0]) == ("With a load of 2.00 times an even share the busiest of 4 ranks has 1.37 times the mean "
                                     "rows, and the layer takes 1.50 times as long as with the most even router.")
    assert "one load" in skew_text(results[1])
    assert "experts 50 %" in split_text(results[0])
    assert "12 % of the copies are dropped" in bytes_text_of(results[0]) or "13 %" in bytes_text_of(results[0])


def test_figures_equal_the_records(results):
    with style.context():
        parts, loads = (draw(results[0], HEADING) for draw in (parts_figure, load_figure))
    widths = [round(patch.get_width(), 6) for patch in parts.axes[0].patches]
    experts = widths[3 * PARTS.index("experts"):][:3]
    assert experts == [0.7, 1.05, 0.7], "forward and backward, ms"
    assert [list(drawn.get_ydata()) for drawn in loads.axes[0].lines][0] == [1.4, 2.1]
    assert all("(" in figure.axes[0].get_xlabel() or "share" in figure.axes[0].get_xlabel() for figure in (parts, loads))


def test_the_page_has_every_row_and_wrong_ones_by_name(tmp_path):
    wrong = line(status="wrong", wrong=3, error="3 elements are not one rank's within rounding")
    file = write(tmp_path / "e.jsonl", [world(), wrong, line(load_of=2.0)])
    assert main([file, "-o", str(tmp_path / "report")]) == 0
    text = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "3 elements are not one rank" in text and "ep=4, dropless, load 2.00" in text
    Structure(text)
