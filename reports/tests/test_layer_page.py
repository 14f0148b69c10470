"""Tests the pages of one layer that ranks share (tensor-parallel layers, long sequences, mixtures of experts): their sentences, their
tables, and figures that equal the records."""
import pytest

from reports.report import report_of
from reports.analysis.training.layers import (
    bytes_sentence, context_bytes_sentence, experts_bytes_text, EXPERTS_PARTS, experts_split_text, exposed_sentence, gain_text,
    hidden, hidden_sentence, load_sentence, memory_sentence, simulated_hidden, skew_text, slowdown_of, split_text,
    time_sentence, units_text)
from reports.__main__ import main
from reports.load import load
from reports.plots import style
from reports.page import Heading
from reports.plots.layer_figures import (
    bytes_figure, context_load_figure, experts_load_figure, exposed_figure, gain_figure, hidden_figure, memory_figure,
    parts_figure, split_figure, time_figure)
from reports.schema import ReportError
from reports.tests.test_html import Structure
from reports.tests.world import ContextWorld, experts_line, experts_run, LayerWorld, UNIT, write

HEADING = Heading("title", "subtitle", "")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    plain = LayerWorld()
    paced = LayerWorld("layers-2", "emulated", {"link": {"latency_us": 20.0, "gbps": 1.0}})
    lines = [plain.run(), plain.layer(), plain.layer(tiles=2, overlapped=500), plain.layer(sequence_parallel=True, units=5),
             plain.layer("row", units=2, serial=0.0, overlapped=0.0), plain.layer("row", True, units=2, serial=100, overlapped=0),
             paced.run(), paced.layer(serial=4000)]
    return write(tmp_path_factory.mktemp("layers") / "l.jsonl", lines)


@pytest.fixture(scope="module")
def results(records):
    return report_of(load([records])).results("layers")


def test_what_was_emulated_stands_apart(results):
    assert [(result.first.basis, len(result.cases)) for result in results] == [("measured", 4), ("emulated", 1)]
    assert "emulated links of 1 GB/s, 20 µs" in results[1].name and results[1].findings[0].badge == "emulated"


def test_what_is_hidden_is_stated(results):
    mlp, sequence, row, row_sequence = results[0].cases
    assert (mlp.serial_us, mlp.async_us, mlp.best.tiles) == (2000, 1000, 2) and mlp.hidden == 0.5
    assert mlp.exposed_us(mlp.forms[1], "async") == 1000
    assert sequence.hidden == 0 and row.hidden is None and row_sequence.hidden == 1
    assert gain_text(results[0]) == ("Overlapped with products, 29 % is hidden of the 4.2 ms that communication adds to 3 layers: "
                                     "100 % in row-parallel, tp=2, sequence-parallel (1 tile), "
                                     "0 % in MLP pair, tp=2, sequence-parallel (1 tile).")


def test_time_is_split(results):
    assert split_text(results[0]) == ("Run serially, the MLP pair, tp=2 takes 6 ms, forward and backward: "
                                      "matrix products 50 %, other kernels 17 % and communication 33 %.")


def test_bytes_are_those_of_the_formulas(results):
    assert bytes_sentence(results[0]) == (
        "Sequence parallelism sends 25 % more in MLP pair and no more in row-parallel. Bytes equal the formulas, and "
        "results equal one rank's within rounding, in all 40 passes of 5 rows.")
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
    assert "how much of their communication can overlap with products" in parsed.text
    assert "6 rows, 0 wrong; 48 passes checked" in parsed.text and "EMULATED" not in parsed.text


def test_lines_that_are_not_layers_are_refused(tmp_path):
    world = LayerWorld()
    line = world.layer()
    line["times"] = line["times"][:3]
    with pytest.raises(ReportError, match="field 'times' has 3 entries, must have at least 8"):
        load([write(tmp_path / "l.jsonl", [world.run(), line])])


def test_layers_on_grids_are_cases_of_their_own_compared_with_one_dimension(tmp_path):
    world = LayerWorld()
    lines = [world.run(), world.layer(ranks=4, sent_bytes=100.0), world.layer(ranks=4, grid="2x2", sent_bytes=250.0)]
    (result,) = report_of(load([write(tmp_path / "grids.jsonl", lines)])).results("layers")
    assert [case.name for case in result.cases] == ["MLP pair, tp=4", "MLP pair, grid 2x2"]
    assert "Grids send 2.5 times (MLP pair, 2x2) the bytes of one dimension on as many ranks. " in bytes_sentence(result)


# ---- The page of long sequences: its sentences, its tables, and figures that equal the records

@pytest.fixture(scope="module")
def context_records(tmp_path_factory):
    world = ContextWorld()
    paced = ContextWorld("context-2", "emulated", {"link": {"latency_us": 20.0, "gbps": 1.0}})
    lines = [world.run(), world.context("ring", 1024, load=1.75), world.context("ring", 2048, 200.0, load=1.75),
             world.context("zigzag", 1024, 300.0), world.context("zigzag", 2048, 0.0), paced.run(),
             paced.context("ring", simulated_exposed_us={"forward": 300.0, "backward": 300.0})]
    return write(tmp_path_factory.mktemp("context") / "c.jsonl", lines)


@pytest.fixture(scope="module")
def context_results(context_records):
    return report_of(load([context_records])).results("context")


def test_emulated_contexts_stand_apart(context_results):
    assert [(result.first.basis, len(result.by_way)) for result in context_results] == [("measured", 2), ("emulated", 1)]
    assert "emulated links of 1 GB/s, 20 µs" in context_results[1].name and context_results[1].findings[0].badge == "emulated"


def test_sentences_on_contexts(context_results):
    ring, zigzag = context_results[0].by_way.values()
    assert [hidden(line) for line in ring] == [0.5, 0.8] and hidden(zigzag[-1]) == 1
    assert time_sentence(context_results[0]) == ("At 2,048 tokens forward and backward take zigzag 16 ms and ring 16.4 ms.")
    assert memory_sentence(context_results[0]) == "At 2,048 tokens a rank holds ring 8 MiB and zigzag 8 MiB."
    assert hidden_sentence(context_results[0]) == ("At 2,048 tokens kernels hide ring 80 % and zigzag 100 % of the time that "
                                           "communication takes alone.")
    assert load_sentence(context_results[0]) == ("The rank with the most computation has 1 times the mean in zigzag and 1.75 times the "
                                         "mean in ring.")
    assert context_bytes_sentence(context_results[0]).endswith("within 1.0e-06 of the largest in all 32 passes.")


def test_context_figures_equal_the_records(context_results):
    with style.context():
        time, memory, share, loads = (draw(context_results[0], HEADING) for draw in
                                      (time_figure, memory_figure, hidden_figure, context_load_figure))
    lines = {tuple(line.get_xdata()): list(line.get_ydata()) for line in time.axes[0].lines if len(line.get_xdata()) == 2
             and line.get_xdata()[0] == 1024}
    assert lines[(1024, 2048)] == [4600.0, 16000.0], "the zigzag's: kernels of 2 x 2 ms, and what communication adds"
    assert [4096.0 * 1024, 4096.0 * 2048] in [list(line.get_ydata()) for line in memory.axes[0].lines]
    assert [0.5, 0.8] in [list(line.get_ydata()) for line in share.axes[0].lines]
    heights = [round(patch.get_height(), 6) for patch in loads.axes[0].patches]
    assert heights == [0.75, 0.75, 0.75, 1.75, 1, 1, 1, 1]


def test_what_was_simulated_is_drawn_with_what_was_measured(context_results):
    emulated = context_results[1]
    assert simulated_hidden(emulated.first) == pytest.approx(0.7) and simulated_hidden(context_results[0].first) is None
    assert exposed_sentence(emulated) == "At 1,024 tokens communication adds ring 1 ms to the kernels; simulated: ring 600 µs."
    with style.context():
        lines = [list(line.get_ydata()) for line in exposed_figure(emulated, HEADING).axes[0].lines]
    assert [1000.0] in lines and [600.0] in lines


def test_a_wrong_row_of_a_context_is_shown(tmp_path):
    world = ContextWorld()
    wrong = world.context(status="wrong", error="a result differs from one rank's by 0.1 of the largest")
    context_records = write(tmp_path / "c.jsonl", [world.run(), wrong])
    assert main([context_records, "-o", str(tmp_path / "report")]) == 0
    text = Structure((tmp_path / "report" / "index.html").read_text(encoding="utf-8")).text
    assert "Wrong rows" in text and "a result differs from one rank's by 0.1 of the largest" in text


def test_context_page(context_records, tmp_path):
    assert main([context_records, "-o", str(tmp_path / "report")]) == 0
    parsed = Structure((tmp_path / "report" / "index.html").read_text(encoding="utf-8"))
    assert "share the attention of a long sequence" in parsed.text
    assert "5 rows, 0 wrong; 40 passes checked" in parsed.text


# ---- The page of mixtures of experts: its sentences, and figures that equal the records

@pytest.fixture(scope="module")
def experts_records(tmp_path_factory):
    paced = "experts-2"
    lines = [experts_run(), experts_line(), experts_line(load_of=2.0, us=1050.0), experts_line(capacity_factor=1.0, dropped=512, load_of=2.0),
             experts_run(paced, "emulated", link={"latency_us": 20.0, "gbps": 1.0}), experts_line(paced, "emulated")]
    return write(tmp_path_factory.mktemp("experts") / "e.jsonl", lines)


@pytest.fixture(scope="module")
def experts_results(experts_records):
    return report_of(load([experts_records])).results("experts")


def test_emulated_experts_stand_apart(experts_results):
    assert [(result.first.basis, len(result.lines)) for result in experts_results] == [("measured", 3), ("emulated", 1)]
    assert experts_results[1].findings[0].badge == "emulated"


def test_what_an_uneven_router_costs_is_stated(experts_results):
    even, uneven, capped = experts_results[0].lines
    assert slowdown_of(even, experts_results[0]) is None and slowdown_of(capped, experts_results[0]) is None
    assert slowdown_of(uneven, experts_results[0]) == 1.5
    assert skew_text(experts_results[0]) == ("With a load of 2.00 times an even share the busiest of 4 ranks has 1.37 times the mean "
                                     "rows, and the layer takes 1.50 times as long as with the most even router.")
    assert "the same load" in skew_text(experts_results[1])
    assert "experts 50 %" in experts_split_text(experts_results[0])
    assert "12 % of the copies are dropped" in experts_bytes_text(experts_results[0]) or "13 %" in experts_bytes_text(experts_results[0])


def test_experts_figures_equal_the_records(experts_results):
    with style.context():
        parts, loads = (draw(experts_results[0], HEADING) for draw in (parts_figure, experts_load_figure))
    widths = [round(patch.get_width(), 6) for patch in parts.axes[0].patches]
    experts = widths[3 * EXPERTS_PARTS.index("experts"):][:3]
    assert experts == [0.7, 1.05, 0.7], "forward and backward, ms"
    assert [list(drawn.get_ydata()) for drawn in loads.axes[0].lines][0] == [1.4, 2.1]
    assert all("(" in figure.axes[0].get_xlabel() or "share" in figure.axes[0].get_xlabel() for figure in (parts, loads))


def test_the_page_has_every_row_and_wrong_ones_by_name(tmp_path):
    wrong = experts_line(status="wrong", wrong=3, error="3 elements are not one rank's within rounding")
    file = write(tmp_path / "e.jsonl", [experts_run(), wrong, experts_line(load_of=2.0)])
    assert main([file, "-o", str(tmp_path / "report")]) == 0
    text = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "3 elements are not one rank" in text and "ep=4, dropless, load 2.00" in text
    Structure(text)
