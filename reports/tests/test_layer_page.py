"""Tests the page of tensor-parallel layers: its sentences, its tables, and figures that equal the records."""
import pytest

from reports.analysis.report import report_of
from reports.analysis.training.layers import bytes_sentence, gain_text, split_text, units_text
from reports.cli import main
from reports.schema import ReportError
from reports.load import load
from reports.plots import style
from reports.plots.frame import Heading
from reports.plots.layer_figures import bytes_figure, gain_figure, split_figure
from reports.tests.world import LayerWorld, UNIT, write
from reports.tests.test_html import Structure

HEADING = Heading("title", "subtitle", "")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    plain = LayerWorld()
    paced = LayerWorld("layers-2", "emulated", {"link": {"latency_us": 20.0, "gbps": 1.0}})
    lines = [plain.run(), plain.layer(), plain.layer(tiles=2, beside=500), plain.layer(sequence_parallel=True, units=5),
             plain.layer("row", units=2, serial=0.0, beside=0.0), plain.layer("row", True, units=2, serial=100, beside=0),
             paced.run(), paced.layer(serial=4000)]
    return write(tmp_path_factory.mktemp("layers") / "l.jsonl", lines)


@pytest.fixture(scope="module")
def results(records):
    return report_of(load([records])).layers


def test_what_was_emulated_stands_apart(results):
    assert [(result.first.basis, len(result.cases)) for result in results] == [("measured", 4), ("emulated", 1)]
    assert "emulated links of 1 GB/s, 20 µs" in results[1].name and results[1].findings[0].badge == "emulated"


def test_what_is_hidden_is_told(results):
    mlp, sequence, row, row_sequence = results[0].cases
    assert (mlp.serial_us, mlp.async_us, mlp.best.tiles) == (2000, 1000, 2) and mlp.hidden == 0.5
    assert mlp.exposed_us(mlp.forms[1], "async") == 1000
    assert sequence.hidden == 0 and row.hidden is None and row_sequence.hidden == 1
    assert gain_text(results[0]) == ("Beside products 29 % is hidden of the 4.2 ms that communication adds to 3 layers: "
                                     "100 % in row-parallel, tp=2, sequence-parallel (1 tile), "
                                     "0 % in MLP pair, tp=2, sequence-parallel (1 tile).")


def test_time_is_split(results):
    assert split_text(results[0]) == ("One after the other the MLP pair, tp=2 takes 6 ms, forward and backward: "
                                      "matrix products 50 %, other kernels 17 % and communication 33 %.")


def test_bytes_are_those_of_the_formulas(results):
    assert bytes_sentence(results[0]) == (
        "Sequence parallelism sends 25 % more in MLP pair and no more in row-parallel. Bytes are the formulas', and "
        "results one rank's within rounding, in all 40 passes of 5 rows.")
    assert units_text(results[0].cases[1].one) == "1.25 MiB, 5 E (t−1)/t"


def test_figures_equal_the_records(results):
    with style.context():
        split, gain, sent = (draw(results[0], HEADING) for draw in (split_figure, gain_figure, bytes_figure))
    widths = [round(patch.get_width(), 6) for patch in split.axes[0].patches]
    assert widths[0] == 3.0 and widths[1] == 3.0, "products of the MLP in either form, ms"
    exposed = widths[2 * 8:]
    assert exposed[:2] == [2.0, 1.0], "its exposed communication"
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in gain.axes[0].lines if line.get_marker() == "^"]
    assert points[0] == (2.0, 0) and len(points) == 4
    bars = sorted(round(patch.get_width() * (1 << 20)) for patch in sent.axes[0].patches)
    assert bars == sorted(units * UNIT // 2 for units in (4, 5, 2, 2))
    assert list(sent.axes[0].lines[-1].get_xdata()) == [patch.get_width() for patch in sent.axes[0].patches]
    assert all("(" in figure.axes[0].get_xlabel() for figure in (split, gain, sent)), "an axis has its unit"


def test_a_wrong_row_is_shown(tmp_path):
    world = LayerWorld()
    wrong = world.layer(status="wrong", wrong=3, error="3 elements are not one rank's within rounding")
    records = write(tmp_path / "l.jsonl", [world.run(), wrong])
    assert main([records, "-o", str(tmp_path / "report")]) == 0
    text = Structure((tmp_path / "report" / "index.html").read_text(encoding="utf-8")).text
    assert "Wrong rows" in text and "3 elements are not one rank's within rounding" in text


def test_page(records, tmp_path):
    assert main([records, "-o", str(tmp_path / "report")]) == 0
    parsed = Structure((tmp_path / "report" / "index.html").read_text(encoding="utf-8"))
    assert len(parsed.ids) == len(set(parsed.ids))
    for link in parsed.links:
        if link.startswith("#"):
            assert link[1:] in parsed.ids
        elif not link.startswith(("data:", "http")):
            assert (tmp_path / "report" / link).exists(), link
    assert "how much of their communication can run beside products" in parsed.text
    assert "6 rows, 0 wrong; 48 passes checked" in parsed.text and "EMULATED" not in parsed.text


def test_lines_that_are_not_layers_are_refused(tmp_path):
    world = LayerWorld()
    line = world.layer()
    line["times"] = line["times"][:3]
    with pytest.raises(ReportError, match="field 'times' has 3 entries, must have at least 8"):
        load([write(tmp_path / "l.jsonl", [world.run(), line])])


def test_layers_on_grids_are_cases_of_their_own_beside_one_dimension(tmp_path):
    world = LayerWorld()
    lines = [world.run(), world.layer(ranks=4, sent_bytes=100.0), world.layer(ranks=4, grid="2x2", sent_bytes=250.0)]
    (result,) = report_of(load([write(tmp_path / "grids.jsonl", lines)])).layers
    assert [case.name for case in result.cases] == ["MLP pair, tp=4", "MLP pair, grid 2x2"]
    assert "Grids send 2.5 times (MLP pair, 2x2) the bytes of one dimension on as many ranks. " in bytes_sentence(result)
