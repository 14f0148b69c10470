"""Tests a history on the gate's page: values, levels, change points and the commits to blame."""
import pytest

from reports.analysis.gate.results import analyse_gates
from reports.cli import main
from reports.load import load
from reports.plots import style
from reports.plots.frame import Heading
from reports.plots.gate_history import MOST, history_figure, shown_series
from reports.tests.world import GateWorld, write
from reports.tests.test_gate_page import overlaps
from reports.tests.test_html import Structure

STEP = [10.0] * 9 + [11.0] * 5


def lines(*series):
    world = GateWorld()
    run = world.run()
    run["gate"] = {**run["gate"], "mode": "history", "head": {**run["gate"]["head"], "name": "records"}}
    return [run, world.case("kernels: a", "slower", 1.1), *series]


@pytest.fixture
def result_of(tmp_path):
    return lambda records: analyse_gates(load([write(tmp_path / "g.jsonl", records)]).of_gate())[0]


def test_the_plot_equals_the_records(result_of):
    result = result_of(lines(GateWorld().history("kernels: a", STEP, [9], why="the machine changed there too")))
    with style.context():
        figure = history_figure(shown_series(result.series), Heading("title", "subtitle", ""))
    axes = figure.axes[0]
    assert list(axes.lines[0].get_ydata()) == STEP
    levels = [(*line.get_xdata(), *line.get_ydata()) for line in axes.lines if line.get_linewidth() == 1.4]
    assert levels == [(-0.5, 8.5, 10, 10), (8.5, 13.5, 11, 11)]
    texts = [text.get_text() for text in axes.texts]
    assert "1  +10.0 % (+7.8 to +12.2 %) slower, recent" in texts and f"{8:012x}..{9:012x}" in texts
    assert "the machine changed there too" in texts
    assert axes.get_title(loc="left") == "kernels: a (us, lower is better)"


def test_recent_changes_for_the_worse_come_first(result_of):
    world = GateWorld()
    series = [world.history("none", [10.0] * 14, []), world.history("old", STEP, [9], recent=False),
              world.history("faster", STEP[::-1], [5]), world.history("slower", STEP, [9])]
    result = result_of(lines(*series, *(world.history(f"more {i}", [10.0] * 14, []) for i in range(MOST))))
    shown = [one.case for one in shown_series(result.series)]
    assert shown[:4] == ["slower", "faster", "old", "none"] and len(shown) == MOST
    assert "To blame: 000000000008..000000000009 for 1 case." in result.findings[0].why


@pytest.mark.parametrize("number, points", [(1, 1), (1, 14), (3, 200), (40, 30)])
def test_texts_do_not_overlap(result_of, number, points):
    values = [10.0 + (i // 6) % 3 for i in range(points)]
    ats = [at for at in range(6, points, 6)]
    name = "kernels: attention_backward_causal/bf16/B2_T1024_H12_D64_causal/cpu/threads:2/warm/long_{}" * 2
    result = result_of(lines(*(GateWorld().history(name.format(i, i), values, ats) for i in range(number))))
    with style.context():
        figure = history_figure(shown_series(result.series), Heading("title", "subtitle", ""))
        assert overlaps(figure) == []


def test_page(tmp_path):
    world = GateWorld()
    records = lines(world.history("kernels: a", STEP, [9]), world.history("b", [1.0] * 3, [], why="3 points; 8 are needed"),
                    world.history("c", [0.0, 5.0], [], channel="exact", unit="bytes"))
    assert main([write(tmp_path / "g.jsonl", records), "-o", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    text = Structure(page).text
    assert "history of records" in text and "14 record files, 3 cases, 1 change point." in text
    assert "Every change point" in text and "1 of 3 cases changed over time" in page
    assert (tmp_path / "report" / "figures" / "gate-1-history.svg").exists()
