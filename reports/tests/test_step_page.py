"""Tests the pages of schedules and simulations: their sentences, their tables, and figures that equal the records."""
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from reports.report import report_of
from reports.analysis.steps.overlap import charts_of
from reports.analysis.steps.schedules import cases_of, growths_of
from reports.__main__ import main
from reports.load import load
from reports.plots import style
from reports.page import Heading
from reports.pages.schedules import case_title
from reports.pages.simulations import memory_title
from reports.plots.gantt import gantt_figure, MOST_ROWS, total_of
from reports.plots.style import COMPUTE
from reports.plots.step_figures import growth_figure, tradeoff_figure
from reports.plots.stacked_bars import layout_memory_figure, layout_parts_figure, overlap_figure
from reports.tests.step_world import LayoutWorld, StepWorld
from reports.tests.looks import expect_apart
from reports.tests.test_html import Structure
from reports.tests.world import write

HEADING = Heading("title", "subtitle", "SIMULATED")


def records_of(folder, *worlds, **fields):
    return load([write(folder / "s.jsonl", [line for world in worlds for line in [world.run(), *world.sweep(**fields)]])])


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steps")
    traced = {"command": ["pipeline_perf", "--trace", "/elsewhere/1f1b.json"]}
    worlds = [StepWorld(message=1.0, run_fields=traced), StepWorld(microbatches=16, message=1.0, run_name="m16"),
              StepWorld(basis="emulated", slow=1.015, message=1.0, run_name="e"), LayoutWorld()]
    lines = [line for world in worlds for line in [world.run(), *world.sweep()]]
    paced = StepWorld(run_name="o", run_fields={"link": {"latency_us": 20.0, "gbps": 1.0}})
    lines += [paced.run(), *(paced.overlap(cap) for cap in (8, 64))]
    lines[1]["schedule"] = "<b>evil</b>.csv"
    (folder / "1f1b.json").write_text("{}")
    out = folder / "report"
    assert main([write(folder / "s.jsonl", lines), "-o", str(out)]) == 0
    return out


def test_what_was_not_measured_is_said_everywhere(page):
    text = Structure((page / "schedules.html").read_text(encoding="utf-8")).text
    assert "4 ranks, 8 microbatches, F 10 ms, I 10 ms, W 10 ms, messages 1 ms, simulated simulated" in text, "a heading and its badge"
    assert "3 of 11 steps are emulated" in text and "8 of 11 steps are simulated" in text
    assert "Emulated against simulated makespan of 2 schedules: +1.4 %" in text
    simulations = Structure((page / "simulations.html").read_text(encoding="utf-8")).text
    assert "26 of 26 layouts are simulated" in simulations and "All times and sizes are predictions" in simulations


def test_hostile_names_are_text_and_hangs_are_words(page):
    html = (page / "schedules.html").read_text(encoding="utf-8")
    assert "<b>evil" not in html and "&lt;b&gt;evil&lt;/b&gt;.csv" in html
    assert "blocking (rank 0 at 0SEND_F1 to rank 1)" in html


def test_a_trace_next_to_the_records_is_linked(page):
    assert (page / "traces" / "1f1b.json").read_text() == "{}"
    assert 'href="traces/1f1b.json"' in (page / "schedules.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    worlds = StepWorld(message=2.0), StepWorld(message=2.0, basis="emulated", slow=1.02, run_name="e")
    (cases,) = cases_of(records_of(tmp_path_factory.mktemp("case"), *worlds, names=["zb-h1"]).schedules).values()
    return cases[0]


def spans_drawn(axes, colour):
    found = []
    for collection in axes.collections:
        if isinstance(collection, PolyCollection) and len(collection.get_facecolor()) and \
                tuple(collection.get_facecolor()[0][:3]) == pytest.approx(to_rgb(colour), abs=1e-6):
            for path in collection.get_paths():
                (x0, y0), (x1, y1) = path.get_extents().get_points()
                found.append((int(y0), round(x0, 6), round(x1, 6)))
    return sorted(found)


def test_charts_stand_one_above_the_other_with_the_spans_of_the_records(case):
    with style.context():
        figure = gantt_figure(charts_of(case.lines), HEADING)
    simulated, emulated, memory = figure.axes
    for axes, line in zip((simulated, emulated), case.lines):
        assert axes.get_title(loc="left").startswith(f"{line.basis.upper()}: {line.makespan_ms:.0f} ms, bubble ")
    assert simulated.get_position().y0 > emulated.get_position().y1 > memory.get_position().y1
    assert simulated.get_xlim() == emulated.get_xlim() == memory.get_xlim() == (0, case.lines[1].makespan_ms)
    for axes, line in zip((simulated, emulated), case.lines):
        for op in "FIW":
            expected = sorted((r, round(t.start, 6), round(t.end, 6)) for r, rank in enumerate(line.timeline)
                              for t in rank if t.op == op)
            assert spans_drawn(axes, COMPUTE[op][0]) == expected and expected


def test_numbers_are_in_all_boxes_of_a_kind_or_in_none(case, tmp_path):
    crowded = records_of(tmp_path, StepWorld(ranks=2, microbatches=150, forward=5.0), names=["1f1b"]).schedules
    with style.context():
        figure, fuller = gantt_figure(charts_of(case.lines[:1]), HEADING), gantt_figure(charts_of(crowded), HEADING)
    computed = sum(t.lane == "compute" for rank in case.first.timeline for t in rank)
    assert len(figure.axes[0].texts) == computed and not fuller.axes[0].texts


def test_many_ranks_and_microbatches_stay_a_page(tmp_path):
    records = records_of(tmp_path, StepWorld(ranks=64, microbatches=64), names=["1f1b"])
    with style.context():
        figure = gantt_figure(charts_of(records.schedules), HEADING)
    assert figure.get_figheight() < MOST_ROWS + 4.5 and not figure.axes[0].texts
    assert all(collection.get_rasterized() for collection in figure.axes[0].collections if collection.get_facecolor().size
               and collection.get_paths() and collection.get_hatch() is None)


def test_titles_have_the_numbers_of_the_records(case):
    first, second = case.lines
    text = case_title(case).replace("\u00a0", " ")
    assert f"{first.makespan_ms:.0f} ms simulated, {second.makespan_ms:.0f} ms emulated (+" in text
    assert f"{100 * first.bubbles.of_makespan:.0f} % of it is bubble" in text and "at most 4 microbatches" in text


def test_a_sum_of_kinds_keeps_every_step():
    assert total_of([[(0, 1), (2, 3)], [(1, 5), (2, 0)]]) == [(0, 1), (1, 6), (2, 3)]


def test_a_schedule_far_above_all_others_does_not_press_them_together(tmp_path):
    world = StepWorld()
    lines = [*world.sweep(), world.schedule("gpipe", schedule="other")]
    lines.append(world.schedule("gpipe", schedule="naive", bubbles={**lines[0]["bubbles"], "of_makespan": 0.9}))
    report = report_of(load([write(tmp_path / "s.jsonl", [world.run(), *lines])]))
    with style.context():
        axes, = tradeoff_figure(report.results("schedules")[0].contests[0], HEADING).axes
    assert axes.get_ylim()[1] < 0.35
    assert any(text.get_text() == "naive: 90 %, above" for text in axes.texts)


def test_bars_of_layouts_add_up_to_the_records(tmp_path):
    world = LayoutWorld()
    result, = report_of(load([write(tmp_path / "l.jsonl", [world.run(), *world.sweep()])])).results("simulations")
    shown = result.lines[:24]
    for draw, totals in ((layout_parts_figure, [line.step_ms / 1e3 for line in shown]),
                         (layout_memory_figure, [line.memory_bytes["total"] / 2 ** 30 for line in shown])):
        with style.context():
            axes, = draw(result, HEADING).axes
        ends = [0.0] * len(shown)
        for bars in axes.containers:
            for row, bar in enumerate(bars):
                assert bar.get_x() == pytest.approx(ends[row]), "stacked"
                ends[row] = bar.get_x() + bar.get_width()
        assert ends == pytest.approx(totals)
        assert sum("does not fit" in text.get_text() for text in axes.texts) == sum(not line.fits for line in shown)
    texts = memory_title(result).replace("\u00a0", " ")
    assert texts.startswith("tp=4 pp=8 dp=4 needs 56.1 GiB of 74.5 GiB per device")


@pytest.mark.parametrize("ranks, microbatches", [(2, 2), (4, 8), (16, 32)])
def test_no_text_lies_on_another_or_outside(tmp_path, ranks, microbatches):
    worlds = [StepWorld(ranks, microbatches, message=1.0), LayoutWorld(),
              StepWorld(ranks, 2 * microbatches, basis="emulated", message=1.0, run_name="e")]
    lines = [line for world in worlds for line in [world.run(), *world.sweep()]]
    paced = StepWorld(run_name="o", run_fields={"link": {"latency_us": 20.0, "gbps": 1.0}})
    lines += [paced.run(), *(paced.overlap(cap, zero_stage=stage) for cap in (8, 64) for stage in range(4))]
    report = report_of(load([write(tmp_path / "s.jsonl", lines)]))
    (*workloads, overlap), layouts = report.results("schedules"), report.results("simulations")[0]
    result = workloads[0]
    with style.context():
        figures = [tradeoff_figure(result.contests[0], HEADING), overlap_figure(overlap, HEADING),
                   layout_parts_figure(layouts, HEADING),
                   layout_memory_figure(layouts, HEADING), gantt_figure(charts_of(result.cases[0].lines), HEADING),
                   *(growth_figure(growth, HEADING) for growth in growths_of(workloads))]
        for figure in figures:
            expect_apart(figure)
