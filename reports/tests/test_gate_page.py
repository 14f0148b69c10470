"""Tests the gate's page: its sentences, plots that equal the records, and protection against misleading names and scales."""
import base64
import re
from types import SimpleNamespace

import numpy as np
import pytest

from reports.analysis.gate.results import analyse_gates
from reports.analysis.gate.words import change_text, headline, interval_text, value_text, worst_first
from reports.__main__ import main
from reports.html.write import gate_file
from reports.load import load
from reports.plots import style
from reports.page import Heading
from reports.pages.gate import MOST_SERIES, PAGE, shown_series
from reports.plots.gate_figures import (
    forest_figure, history_figure, limits_of, MOST, row_names, rows_of, tick_text, VERDICTS)
from reports.schema import ReportError
from reports.tests.looks import expect_apart
from reports.tests.test_html import Structure
from reports.tests.world import GateWorld, World, write

HEADING = Heading("title", "subtitle", "")
HOSTILE = "line: <script>alert(1)</script> | a\"b"


def lines(world=GateWorld()):
    return [world.run(), world.case("kernels: same"), world.case("kernels: slower", "slower", 1.051, 0.02),
            world.case("kernels: slowest", "slower", 1.13, 0.04), world.case("kernels: faster", "faster", 0.96),
            world.case("kernels: unclear", "undecided", 1.018, 0.03, why="not clear after 24 pairs"),
            world.case(HOSTILE, "new", None), world.case("kernels: went", "gone", None)]


@pytest.fixture
def result_of(tmp_path):
    return lambda records: analyse_gates(PAGE.records(load([write(tmp_path / "g.jsonl", records)])))[0]


def summary(verdict, ratio=1.0, channel="time", case="a"):
    bounds = (None, None) if channel == "exact" else (0.9 * ratio, 1.1 * ratio)
    return SimpleNamespace(case=case, channel=channel, verdict=verdict, ratio=ratio, low=bounds[0], high=bounds[1])


def test_cases_are_worst_first(result_of):
    result = result_of(lines())
    assert [case.case.removeprefix("kernels: ") for case in result.lines] == [
        "slowest", "slower", "unclear", "went", HOSTILE, "faster", "same"]
    assert result.findings[0].text.startswith("REGRESSION: ")
    assert result.name == "my-branch (fedcba987654) against main (0123456789ab)"
    assert result.answer == "2 of 7 cases are slower, kernels: slowest most, by +13.0 % (+8.5 to +17.5 %)."
    assert result.findings[0].why == ("In all: 2 slower, 1 undecided, 1 gone, 1 new, 1 faster, 1 same. Undecided: 1 × not clear "
                                      "after 24 pairs. 60 pairs of fresh processes in 32 s.")


@pytest.mark.parametrize("cases, text", [
    ([], "No cases were compared."),
    ([summary("same")], "The only case is the same within 2 %."),
    ([summary("same"), summary("same")], "All 2 cases are the same within 2 %."),
    ([summary("same", channel="exact")] * 2, "All 2 cases are equal."),
    ([summary("undecided")], "Nothing is known to be slower; 1 of 1 case is undecided."),
    ([summary("gone"), summary("undecided")], "Nothing is known to be slower; 2 of 2 cases are undecided or gone."),
    ([summary("gone"), summary("same")], "Nothing is known to be slower; 1 of 2 cases is gone."),
    ([summary("undecided"), summary("same"), summary("undecided")], "Nothing is known to be slower; 2 of 3 cases are undecided."),
    ([summary("faster", 0.9), summary("same")], "Nothing is slower: 1 faster, 1 same."),
    ([summary("new", None, "exact"), summary("same", 1.0, "exact")], "Nothing costs more: 1 new, 1 same."),
    ([summary("slower", 1.2)], "The only case is slower: a by +20.0 % (+8.0 to +32.0 %)."),
    ([summary("slower", 1.00001, "exact"), summary("same")], "1 of 2 cases costs more: a by +0.001 %."),
    ([summary("slower", None, "exact"), summary("same")], "1 of 2 cases costs more: a."),
])
def test_headline(cases, text):
    assert headline(cases, 0.02) == text


def test_words_of_numbers():
    assert [change_text(ratio) for ratio in (1.0512, 0.9, 1.0, 0.99999, 3.5, 12, None, float("inf"))] == [
        "+5.1 %", "-10.0 %", "0.0 %", "0.0 %", "+250 %", "×12", "–", "–"]
    assert [change_text(ratio, "exact") for ratio in (1 + 6.1e-5, 1.0, 1.01)] == ["+0.0061 %", "0 %", "+1.0 %"]
    assert interval_text(0.99, 1.02) == "-1.0 to +2.0 %" and interval_text(None, 1.0) == "–"
    assert value_text(1048577, "bytes", "exact") == "1,048,577 bytes" and value_text(12.3456, "us") == "12.35 us"
    assert value_text(None, "us") == "–" and value_text(123456789, "us") == "123,456,789 us"
    assert value_text(400960.5, "instructions", "instructions") == "400,960 instructions"


def test_order_is_that_of_what_it_costs():
    cases = [summary("faster", 0.9, case="f"), summary("slower", 1.1, case="s"), summary("slower", 1.3, case="t"), summary("same", case="e"),
             summary("undecided", 1.5, case="u"), summary("gone", 1.0, case="g")]
    assert [case.case for case in worst_first(cases)] == ["t", "s", "u", "g", "f", "e"]


def points(figure, verdict):
    """Ratios of the centres of a verdict's marks, by row."""
    found = {line.get_ydata()[0]: line.get_xdata()[0] for line in figure.axes[0].lines
             if line.get_marker() == VERDICTS[verdict].marker and line.get_markersize() == 6}
    return [found[row] for row in sorted(found)]


def test_the_plot_equals_the_records(result_of):
    result = result_of(lines())
    with style.context():
        figure = forest_figure((result.lines, 0.02, 0.9), HEADING)
    axes = figure.axes[0]
    assert [points(figure, verdict) for verdict in VERDICTS] == [[1.13, 1.051], [1.018], [0.96], [1.0]]
    bars = [tuple(line.get_xdata()) for line in axes.lines if line.get_linewidth() == 2.2]
    assert bars[0] == (pytest.approx(1.13 * 0.96), pytest.approx(1.13 * 1.04)) and len(bars) == 5
    pairs = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "|"]
    assert pairs[0] == pytest.approx([1.13 * 0.96, 1.13, 1.13 * 1.04]) and len(pairs) == 5
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (band.x0, band.x1) == (pytest.approx(1 / 1.02), pytest.approx(1.02))
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the worst is at the top"
    assert "(%)" in axes.get_xlabel() and "90 % interval" in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("number", [1, 3, 40, 400])
@pytest.mark.parametrize("spread", [0.01, 4.0])
def test_texts_do_not_overlap(result_of, number, spread):
    """Long names, small changes and factors of ten, few cases and many."""
    world, dice = GateWorld(), np.random.default_rng(number)
    name = "kernels: attention_backward_causal/bf16/B2_T1024_H12_D64_causal/cpu/threads:2/warm/more_words_to_make_it_long_{}"
    verdicts = ["slower", "undecided", "faster", "same"]
    cases = [world.case(name.format(i), verdicts[i % 4], float(np.exp(spread * dice.standard_normal() / 2)), 0.005)
             for i in range(number)]
    result = result_of([world.run(), *cases])
    with style.context():
        figure = forest_figure((result.lines, 0.02, 0.9), HEADING)
        expect_apart(figure, 0.5, 0.5, edge=1)
    assert figure.get_figheight() < 20


def test_of_many_cases_the_notable_are_shown_and_all_are_drawn(result_of):
    world = GateWorld()
    records = [world.run(), *(world.case(f"s{i}", "slower", 1.05) for i in range(3)),
               *(world.case(f"e{i}", "same", 1 + i / 1e5) for i in range(100)), world.case("f", "faster", 0.9)]
    result = result_of(records)
    rows, rest = rows_of(result.lines)
    assert len(rows) == MOST and len(rest) == 64 and {case.verdict for case in rest} == {"same"}
    assert [case.verdict for case in rows[:4]] == ["slower"] * 3 + ["faster"]
    with style.context():
        figure = forest_figure((result.lines, 0.02, 0.9), HEADING)
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "."]
    assert sum(len(line.get_xdata()) for line in dots) == 64
    assert figure.axes[0].get_yticklabels()[-1].get_text() == "64 cases more, same"


def test_a_wide_interval_does_not_squeeze_the_others():
    low, high = limits_of([1.05, 0.98], [1.03, 1.07, 0.2, 5.0], least=0.03)
    assert 0.8 < low < 0.98 and 1.07 < high < 1.3
    assert limits_of([1.0], [], least=0.03)[0] < 1 / 1.02
    assert [tick_text(ratio) for ratio in (1.0, 1.05, 0.9, 10)] == ["0", "+5", "−10", "+900"]


def test_names_that_are_cut_are_never_alike():
    long = "a/" * 40
    names = row_names([f"{long}x{i}/{long}" for i in range(3)] + ["short"], 30)
    assert len(set(names)) == 4 and names[-1] == "short"
    assert all(max(map(len, name.split("\n"))) <= 30 + 3 for name in names)
    assert row_names(["kernels: gelu/f32/warm"], 14) == ["kernels:\ngelu/f32/warm"]


def test_page(tmp_path):
    records = write(tmp_path / "g.jsonl", lines(GateWorld(notes=["machines differ & <more>"])))
    assert main([records, "-o", str(tmp_path / "report")]) == 0
    text = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    parsed = Structure(text)
    assert "REGRESSION: 2 of 7 cases are slower" in parsed.text and "Machines differ & <more>" in parsed.text
    assert HOSTILE in parsed.text and "<script>alert" not in text and "None" not in parsed.text


def test_with_other_records(tmp_path):
    world = World()
    file = write(tmp_path / "r.jsonl", [world.run()] + world.sweep(["ring"], [8, 16]))
    gate = write(tmp_path / "g.jsonl", lines())
    assert main([file, gate, "-o", str(tmp_path / "report")]) == 0
    assert "Did the change make anything slower?" in (tmp_path / "report" / "gate.html").read_text(encoding="utf-8")
    assert 'href="gate.html"' in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")


def test_one_file_needs_no_other(tmp_path):
    records = load([write(tmp_path / "g.jsonl", lines())])
    text = gate_file(records)
    parsed = Structure(text)
    assert all(link.startswith(("#", "data:")) for link in parsed.links)
    figures = re.findall(r'"data:image/svg\+xml;base64,([^"]+)"', text)
    assert len(figures) == 1, "light and dark are one file"
    assert all(b"<svg" in base64.b64decode(figure) for figure in figures) and "Raw records" not in parsed.text


def test_counts_that_changed_have_a_plot_of_their_own(tmp_path):
    world = GateWorld()
    records = [world.run(), world.case("t"), world.count("plan: steps", 14, 14, "steps"), world.count("plan: bytes", 0, 64),
               world.count("plan: messages", 56, 57, "messages")]
    assert main([write(tmp_path / "g.jsonl", records), "-o", str(tmp_path / "report")]) == 0
    names = {path.name for path in (tmp_path / "report" / "figures").iterdir()}
    assert {"gate-1-times.svg", "gate-1-counts.svg"} <= names
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "2 % of instructions" not in page and 'Counts that changed: 2 slower' in page
    assert ">pairs<" in page and ">from %<" in page, "of the time"
    assert "57 messages" in Structure((tmp_path / "report" / "index.html").read_text(encoding="utf-8")).text


def test_a_verdict_needs_a_run_that_compared(tmp_path):
    world = GateWorld()
    with pytest.raises(ReportError, match="whose run line lacks what was compared"):
        load([write(tmp_path / "g.jsonl", [world.run(gate=None), world.case("a")])])
    with pytest.raises(ReportError, match="field 'verdict' is \"worse\", must be one of slower, faster"):
        load([write(tmp_path / "g.jsonl", [world.run(), world.case("a", "worse")])])


def test_a_table_has_no_columns_that_say_nothing(tmp_path):
    world = GateWorld()
    assert main([write(tmp_path / "g.jsonl", [world.run(), world.count("a", 8, 9)]), "-o", str(tmp_path / "report")]) == 0
    heads = re.findall(r'<button type="button">([^<]+)</button></th>', (tmp_path / "report" / "index.html").read_text(encoding="utf-8"))
    assert heads == ["case", "verdict", "change %", "base", "head", "channel"]


# ---- Tests a history on the gate's page: values, levels, change points and the commits to blame

STEP = [10.0] * 9 + [11.0] * 5


def history_lines(*series):
    world = GateWorld()
    run = world.run()
    run["gate"] = {**run["gate"], "mode": "history", "head": {**run["gate"]["head"], "name": "records"}}
    return [run, world.case("kernels: a", "slower", 1.1), *series]


def test_the_plot_of_a_history_equals_the_records(result_of):
    result = result_of(history_lines(GateWorld().history("kernels: a", STEP, [9], why="the machine changed there too")))
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
    result = result_of(history_lines(*series, *(world.history(f"more {i}", [10.0] * 14, []) for i in range(MOST_SERIES))))
    shown = [series.case for series in shown_series(result.series)]
    assert shown[:4] == ["slower", "faster", "old", "none"] and len(shown) == MOST_SERIES
    assert "To blame: 000000000008..000000000009 for 1 case." in result.findings[0].why


@pytest.mark.parametrize("number, points", [(1, 1), (1, 14), (3, 200), (40, 30)])
def test_texts_of_a_history_do_not_overlap(result_of, number, points):
    values = [10.0 + (i // 6) % 3 for i in range(points)]
    ats = [at for at in range(6, points, 6)]
    name = "kernels: attention_backward_causal/bf16/B2_T1024_H12_D64_causal/cpu/threads:2/warm/long_{}" * 2
    result = result_of(history_lines(*(GateWorld().history(name.format(i, i), values, ats) for i in range(number))))
    with style.context():
        figure = history_figure(shown_series(result.series), Heading("title", "subtitle", ""))
        expect_apart(figure, 0.5, 0.5, edge=1)


def test_page_of_a_history(tmp_path):
    world = GateWorld()
    records = history_lines(world.history("kernels: a", STEP, [9]), world.history("b", [1.0] * 3, [], why="3 points; 8 are needed"),
                    world.history("c", [0.0, 5.0], [], channel="exact", unit="bytes"))
    assert main([write(tmp_path / "g.jsonl", records), "-o", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    text = Structure(page).text
    assert "history of records" in text and "14 record files, 3 cases, 1 change point." in text
    assert "Every change point" in text and "1 of 3 cases changed over time" in page
    assert (tmp_path / "report" / "figures" / "gate-1-history.svg").exists()
