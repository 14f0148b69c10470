"""Tests schedules, layouts and studies: loading, comparisons, the boxes drawn of a timeline, and the numbers in sentences."""

import pytest

from reports.analysis.steps.schedules import (
    agreement_text, analyse_schedules, bubble, cases_of, contest_text, growths_of, repeated)
from reports.analysis.steps.overlap import analyse_overlap, exposed_of, joined_spans, lanes_of, link_finding
from reports.analysis.steps.layouts import (
    analyse_layouts, analyse_studies, layouts_text, mean_error, parts_text, published_pairs, zero_cta_text)
from reports.schema import ReportError
from reports.load import load
from reports.pages.simulations import layouts_table
from reports.pages.studies import badge
from reports.records import Task
from reports.report import report_of
from reports.tests.step_world import LayoutWorld, StepWorld
from reports.tests.world import write


@pytest.fixture
def loaded(tmp_path):
    def make(*worlds, names=("gpipe", "1f1b", "zb-h1"), **fields):
        lines = [line for world in worlds for line in [world.run(), *world.sweep(names, **fields)]]
        return load([write(tmp_path / "s.jsonl", lines)])
    return make


def test_a_schedule_is_read_whole(loaded):
    world = StepWorld(message=2.0)
    line = loaded(world, names=["1f1b"]).schedules[0]
    record = world.schedule("1f1b")
    assert line.makespan_ms == record["makespan_ms"] and bubble(line) == record["bubbles"]["of_makespan"]
    assert line.timeline[0][0] == Task("compute", "F", 0, 0, -1, 0.0, 10.0)
    assert sum(map(len, line.timeline)) == sum(map(len, record["timeline"]["ranks"]))
    assert line.memory.of_rank[0]["activations"][0] == (0.0, 1.0) and line.peak == 4
    assert line.hangs["batched"] is None and line.times_ms.message == 2.0 and line.run.basis == "simulated"


@pytest.mark.parametrize("change, expected", [
    ({"timeline": {"unit": "s", "ranks": []}}, "field 'timeline.unit' is \"s\", must be \"ms\""),
    ({"timeline": {"unit": "ms", "ranks": [[["compute", "F", 0, 0, -1, 0.0]]]}},
     "field 'timeline.ranks[0][0]' has 6 entries, must have at least 7"),
    ({"makespan_ms": -1}, "field 'makespan_ms' is -1, must be at least 0"),
    ({"basis": "emulated"}, "the schedule is emulated but its run is simulated"),
    ({"hangs": {"blocking": 3}}, "field 'hangs.blocking' is 3"),
])
def test_a_bad_schedule_is_refused_with_its_line(tmp_path, change, expected):
    world = StepWorld()
    file = write(tmp_path / "s.jsonl", [world.run(), {**world.schedule("1f1b"), **change}])
    with pytest.raises(ReportError) as error:
        load([file])
    assert str(error.value).startswith(f"{file}:2: ") and expected in str(error.value)


def test_bases_of_one_schedule_and_workload_are_one_case(loaded):
    emulated = StepWorld(basis="emulated", slow=1.02, run_name="e")
    other = StepWorld(basis="emulated", microbatches=4, run_name="o")
    records = loaded(StepWorld(), emulated, other, names=["1f1b", "zb-h1"])
    found = cases_of(records.schedules)
    assert [(workload.microbatches, [case.name for case in cases]) for workload, cases in found.items()] == \
        [(8, ["1f1b", "zb-h1"]), (4, ["1f1b", "zb-h1"])]
    first = next(iter(found.values()))[0]
    assert [line.basis for line in first.lines] == ["simulated", "emulated"]
    assert repeated(records.schedules) == 0
    text = agreement_text(next(iter(found.values())))
    assert text.startswith("Emulated against simulated makespan of 2 schedules: +2 %")


def test_the_latest_of_equal_lines_counts(loaded):
    records = loaded(StepWorld(), StepWorld(run_name="again", slow=2.0), names=["1f1b"])
    cases, = cases_of(records.schedules).values()
    assert len(cases) == 1 and cases[0].first.run.run == "again" and repeated(records.schedules) == 1


def test_emulated_steps_of_two_machines_are_never_compared(loaded):
    """Simulated lines are shown with each machine's."""
    here = StepWorld(basis="emulated", run_name="here")
    machine = {**here.run()["machine"], "fingerprint": "other"}
    there = StepWorld(basis="emulated", run_name="there", slow=3.0, run_fields={"machine": machine})
    records = loaded(StepWorld(), here, there, names=["1f1b", "zb-h1"])
    found = cases_of(records.schedules)
    assert [workload.place.split(",")[0] for workload in found] == ["machine a1b2c3d4", "machine other"]
    for (_, cases), run in zip(found.items(), ("here", "there")):
        assert [[line.run.run for line in case.lines] for case in cases] == [["steps-1", run]] * 2
    assert repeated(records.schedules) == 0


def test_sentences_have_the_numbers_of_the_records(loaded):
    result, = analyse_schedules(loaded(StepWorld()))
    contest, = result.contests
    text = contest_text(contest)
    # p = 4, m = 8 and unit times: 1F1B and GPipe idle (p-1)/(m+p-1) of the makespan, ZB-H1 (p-1)/(3m+p-1).
    assert [name for name, _ in contest.entries] == ["zb-h1", "1f1b", "gpipe"]
    assert bubble(contest.entries[0][1]) == pytest.approx(3 / 27)
    assert bubble(contest.entries[1][1]) == pytest.approx(3 / 11)
    assert text.startswith("zb-h1 has the smallest bubble of 3 schedules: 11 % of the step")
    assert "at most 4 microbatches" in text and text.endswith("gpipe has the largest, 27 %.")
    assert [name for name, _ in contest.frontier] == ["zb-h1"]


def test_steps_that_took_a_while_each_time_have_no_best_schedule(tmp_path):
    """Emulated steps of 12 runs: with little noise the best is named, with time slices of other programs none is."""
    world = StepWorld(basis="emulated")
    for noise, expected in ((0.01, "zb-h1 has the smallest bubble of 3 schedules"),
                        (0.8, "Which of 3 schedules has the smallest bubble is undecided on this machine: spread")):
        lines = world.sweep()
        for number, line in enumerate(lines):
            line["samples_ms"] = [line["makespan_ms"] * (1 + noise * ((i + number) % 5) / 4) for i in range(12)]
        result, = analyse_schedules(load([write(tmp_path / "s.jsonl", [world.run(), *lines])]))
        assert contest_text(result.contests[0]).startswith(expected)


def test_equal_bubbles_are_named_together_unless_own_spans_differ(tmp_path):
    world = StepWorld()
    free = {**world.schedule("zb-h1")["bubbles"], "of_own_span": 0.0}
    lines = [*world.sweep(), world.schedule("zb-h1", schedule="search")]
    first, = analyse_schedules(load([write(tmp_path / "s.jsonl", [world.run(), *lines])]))
    assert contest_text(first.contests[0]).startswith("zb-h1 and search have the smallest bubble of 4 schedules: 11 %")
    lines.append(world.schedule("zb-h1", schedule="zb-v", bubbles=free))
    second, = analyse_schedules(load([write(tmp_path / "s.jsonl", [world.run(), *lines])]))
    text = contest_text(second.contests[0])
    assert text.startswith("zb-v has the smallest bubble of 5 schedules: 11 % of the step (none of a rank's own span)")


def test_schedules_of_slices_are_compared_with_each_other_only(tmp_path):
    """A sliced sequence fills the pipe sooner: no order of whole sequences can have as small a bubble."""
    world = StepWorld(message=0.5)
    small = {**world.schedule("zb-h1")["bubbles"], "of_makespan": 0.01}
    sliced = [world.schedule("1f1b", schedule=name, slice_tokens=[1, 1, 1, 1], bubbles=small) for name in ("terapipe", "seq1f1b")]
    result, = analyse_schedules(load([write(tmp_path / "s.jsonl", [world.run(), *sliced, *world.sweep()])]))
    assert [(contest.slices, len(contest.entries)) for contest in result.contests] == [(1, 3), (4, 2)]
    finding, = result.findings
    assert "messages 0.5 ms" in finding.headline and "slices" not in finding.headline
    assert finding.text.startswith("zb-h1 has the smallest bubble of 3 schedules") and "terapipe" not in finding.text
    assert contest_text(result.contests[1]).startswith("terapipe and seq1f1b have the smallest bubble of 2 schedules: 1 %")


@pytest.mark.parametrize("untrained, expected", [
    ((), "mini_train trains in each of these orders."),
    (("gpipe",), "mini_train trains in all of these orders but gpipe."),
    (("zb-h1",), "mini_train trains in all of these orders but zb-h1, of which gpipe is best with 2"),
    (("zb-h1", "1f1b", "gpipe"), "mini_train trains in none of these orders."),
    (None, "1f1b has the largest, 2")])
def test_a_headline_names_what_the_trainer_can_run(tmp_path, untrained, expected):
    world = StepWorld(message=0.5)
    lines = world.sweep()
    if untrained is not None:
        lines = [{**line, "trained": line["schedule"] not in untrained} for line in lines]
    result, = analyse_schedules(load([write(tmp_path / "s.jsonl", [world.run(), *lines])]))
    assert expected in contest_text(result.contests[0])
    assert ("mini_train" in contest_text(result.contests[0])) == (untrained is not None)


def test_bubbles_of_several_numbers_of_microbatches_are_a_curve(loaded):
    worlds = [StepWorld(microbatches=m, run_name=f"m{m}") for m in (4, 8, 16)] + [StepWorld(ranks=2, run_name="p2")]
    growth, = growths_of(analyse_schedules(loaded(*worlds, names=["1f1b"])))
    assert growth.ranks == 4
    assert growth.curves["1f1b"] == tuple((m, pytest.approx(3 / (m + 3))) for m in (4, 8, 16))


def test_curves_of_slices_are_in_a_figure_of_their_own(tmp_path):
    worlds = [StepWorld(microbatches=m, run_name=f"m{m}") for m in (4, 8)]
    lines = [line for world in worlds for line in (world.run(), world.schedule("1f1b"),
                                                   world.schedule("1f1b", schedule="seq1f1b", slice_tokens=[1, 1]))]
    growths = growths_of(analyse_schedules(load([write(tmp_path / "s.jsonl", lines)])))
    assert [(growth.slices, list(growth.curves)) for growth in growths] == [(1, ["1f1b"]), (2, ["seq1f1b"])]


def test_messages_that_take_time_come_first(tmp_path):
    lines = [line for message in (0.0, 0.5) for world in [StepWorld(message=message, run_name=f"m{message}")]
             for line in (world.run(), *world.sweep())]
    first, second = analyse_schedules(load([write(tmp_path / "s.jsonl", lines)]))
    assert (first.workload.times.message, second.workload.times.message) == (0.5, 0)


def test_boxes_are_the_spans_of_the_record(loaded):
    line = loaded(StepWorld(message=2.0), names=["zb-h1"]).schedules[0]
    for tasks, lanes in zip(line.timeline, lanes_of(line.timeline)):
        computed = sorted((t.op, t.start, t.end, str(t.microbatch)) for t in tasks if t.lane == "compute")
        assert sorted((box.op, box.start, box.end, box.label) for box in lanes.compute) == computed
        assert [(box.start, box.end) for box in lanes.strips.get("send", ())] == \
            sorted((t.start, t.end) for t in tasks if t.lane == "send")


def test_a_receive_is_drawn_while_its_message_is_under_way():
    early = Task("receive", "RECV_F", 1, 0, -1, 0.0, 12.0)  # posted long before the message leaves
    timeline = ((Task("compute", "F", 0, 0, -1, 0.0, 10.0), Task("send", "SEND_F", 0, 0, -1, 10.0, 12.0)),
                (early, Task("compute", "F", 1, 0, -1, 12.0, 22.0)))
    _, second = lanes_of(timeline)
    assert [(box.start, box.end) for box in second.strips["receive"]] == [(10.0, 12.0)]
    assert second.exposed == ((10.0, 12.0),), "before 10 nothing is in flight: that is bubble"


def test_exposed_is_what_no_kernel_covers_of_what_it_waits_for():
    def task(lane, op, microbatch, start, end):
        return Task(lane, op, 1, microbatch, -1, float(start), float(end))
    tasks = [task("compute", "F", 0, 0, 4), task("receive", "RECV_F", 1, 5, 6), task("receive", "RECV_F", 2, 4, 6),
             task("compute", "F", 1, 6, 8), task("reduce", "REDUCE_GRAD", -1, 3, 4.5),
             task("reduce", "REDUCE_GRAD", -1, 7, 11), task("send", "SEND_F", 1, 8, 9)]
    # Not from 4.5 to 5: the message that arrives then is for a later computation. At the end all outgoing messages count.
    assert exposed_of(tasks) == [(4, 4.5), (5, 6), (8, 11)]
    assert joined_spans([(5, 6), (0, 2), (2, 3)]) == [(0, 3), (5, 6)]


def test_two_that_run_as_one_wait_for_the_messages_of_both():
    both = [Task("receive", "RECV_F", 0, 3, -1, 1.0, 2.0), Task("receive", "RECV_B", 3, 1, -1, 2.0, 4.0),
            Task("compute", "F", 0, 3, -1, 4.0, 6.0), Task("compute", "B", 3, 1, -1, 6.0, 9.0)]
    assert exposed_of(both) == [(1.0, 4.0)]


def test_chunks_are_kept_apart_and_fine_boxes_put_together():
    tasks = tuple(Task("compute", "F", stage, m, -1, 10.0 * i, 10.0 * i + 10) for i, (stage, m) in
                  enumerate([(1, 0), (1, 1), (5, 0), (5, 1)]))
    lanes, = lanes_of((tasks,), finest=11.0)
    assert lanes.compute == (("F", 0, 0.0, 20.0, ""), ("F", 1, 20.0, 40.0, ""))
    lanes, = lanes_of((tasks,), finest=9.0)
    assert [box.label for box in lanes.compute] == ["0", "1", "0", "1"]


def test_pieces_of_a_pass_are_put_together_with_what_lies_between_them():
    def pieces(m, start):
        return [Task("compute", "B", 0, m, part, start + 4.0 * part, start + 4.0 * part + 3) for part in range(5)]
    tasks = tuple(pieces(0, 0.0) + pieces(1, 20.0))
    lanes, = lanes_of((tasks,), finest=0.5)
    assert lanes.compute == (("B", 0, 0.0, 19.0, "0"), ("B", 0, 20.0, 39.0, "1"))
    lanes, = lanes_of((tasks,), finest=0.2)
    assert len(lanes.compute) == 10, "where they can be seen each is drawn"


@pytest.fixture
def layouts(tmp_path):
    world = LayoutWorld()
    records = load([write(tmp_path / "l.jsonl", [world.run(), *world.sweep()])])
    result, = analyse_layouts(records)
    return result


def test_layouts_that_fit_come_first_the_fastest_before_the_others(layouts):
    fits = [line.fits for line in layouts.lines]
    assert fits == sorted(fits, reverse=True) and 0 < sum(fits) < len(fits)
    for part in (layouts.fitting, layouts.lines[len(layouts.fitting):]):
        assert [line.step_ms for line in part] == sorted(line.step_ms for line in part)


def test_the_best_layout_is_named_with_its_numbers(layouts):
    best, text = layouts.first, layouts_text(layouts)
    assert "is tp=4 pp=8 dp=4 (1f1b): " in text and f"{best.step_ms / 1e3:.2f}"[:4] in text
    assert f"{len(layouts.lines) - len(layouts.fitting)} do not fit" in text
    assert parts_text(best).startswith(f"Its time: computing {100 * 4540 / best.step_ms:.0f} %")


def test_names_of_layouts_leave_out_what_all_share(tmp_path):
    world = LayoutWorld()
    texts = ["tp=8,pp=4,sp=yes,schedule=zb_h1,batch=64", "tp=4,pp=8,sp=yes,batch=64"]
    lines = [world.simulation(4, 8, 4, layout={"text": text, "numbers": {}}, schedule=schedule)
             for text, schedule in zip(texts, ("zb_h1", "1f1b"))]
    result, = analyse_layouts(load([write(tmp_path / "l.jsonl", [world.run(), *lines])]))
    assert result.common == ["sp=yes", "batch=64"]
    assert sorted(map(result.name_of, result.lines)) == ["tp=4 pp=8 1f1b", "tp=8 pp=4 zb_h1"]
    assert layouts_text(result).startswith("The fastest of 2 layouts, all with sp=yes, is tp=")


def test_layouts_that_are_nearly_as_fast_are_not_called_slowest(tmp_path):
    world = LayoutWorld()
    for times, expected in ((1.02, "no other that fits takes more than 2.0 % more"), (1.3, "the slowest that fits, ")):
        lines = [world.simulation(4, 8, 4), world.simulation(8, 4, 4)]
        for line, scale in zip(lines, (1, times)):
            line |= {"step_ms": 1000 * scale, "fits": True}
        result, = analyse_layouts(load([write(tmp_path / f"{times}.jsonl", [world.run(), *lines])]))
        assert expected in layouts_text(result)


def test_what_the_zero_cta_policy_saves_is_told_of_the_layout_that_gains_most(tmp_path):
    world = LayoutWorld()
    without, some, most = (world.simulation(dp, 4, 4) for dp in (2, 4, 8))
    some["zero_cta"] = {"collectives": 10, "of": 12, "step_ms_without": some["step_ms"] * 1.01}
    most["zero_cta"] = {"collectives": 1000, "of": 1200, "step_ms_without": most["step_ms"] / 0.96}
    file = tmp_path / "l.jsonl"
    result, = analyse_layouts(load([write(file, [world.run(), without, some, most])]))
    told = zero_cta_text(result)
    assert "With NCCL's zero-CTA policy the step of dp=8 takes" in told and "4.0 % less: 1,000 of 1,200 collectives" in told
    page = report_of(load([str(file)]))
    columns = layouts_table(page.results("simulations")[0]).columns
    saved, = (column for column in columns if column.name == "saved by zero-CTA %")
    assert sorted(saved.cell(one).text for one in result.lines) == ["0.99", "4", "–"]
    result, = analyse_layouts(load([write(file, [world.run(), without])]))
    assert zero_cta_text(result) == ""
    assert "saved by zero-CTA %" not in [column.name for column in layouts_table(result).columns]


def test_if_nothing_fits_it_says_what_comes_nearest(tmp_path):
    world = LayoutWorld()
    tight = [{**line, "capacity_bytes": 1e9, "fits": False} for line in world.sweep()]
    result, = analyse_layouts(load([write(tmp_path / "l.jsonl", [world.run(), *tight])]))
    least = min(result.lines, key=lambda line: line.memory_bytes["total"])
    assert layouts_text(result).startswith(f"None of {len(tight)} layouts fits: {result.name_of(least)} needs least")


@pytest.fixture
def overlaps(tmp_path):
    worlds = [StepWorld(forward=1.0, input_gradient=1.0, weight_gradient=1.0, run_name=f"g{gbps}",
                        run_fields={"link": {"latency_us": 20.0, "gbps": gbps}}) for gbps in (3.0, 25.0)]
    lines = [line for world in worlds for line in [world.run(), *(world.overlap(cap, 12, 28) for cap in (336, 28, 112))]]
    return load([write(tmp_path / "o.jsonl", lines)])


def test_overlap_is_by_link_the_shortest_step_first(overlaps):
    result, = analyse_overlap(overlaps)
    assert list(result.by_link) == ["links of 25 GB/s, 20 µs", "links of 3 GB/s, 20 µs"]
    for lines in result.by_link.values():
        assert [line.overlap.bucket_cap_bytes >> 20 for line in lines] == [28, 112, 336]
    assert not analyse_schedules(overlaps), "buckets are no pipeline schedule"


def test_what_is_hidden_is_stated_with_the_numbers_of_the_record(overlaps):
    result, = analyse_overlap(overlaps)
    text = link_finding(result.by_link["links of 25 GB/s, 20 µs"])
    # 12 layers of 1 + 2 ms; 12 buckets of 28 MiB over 25 GB/s and 20 µs: only the last one is exposed.
    line = 0.020 + 28 * 2 ** 20 / 25e6
    assert f"computing takes 36 ms, the collectives alone {12 * line:.1f} ms, both together {36 + line:.1f} ms" in text
    assert f"buckets of 28 MiB (92 % hidden, {line:.2f} ms exposed)" in text
    assert "with buckets of 336 MiB (nothing hidden, 14.1 ms exposed)" in text


def test_boxes_of_one_microbatch_are_numbered_by_layer(overlaps):
    lanes = lanes_of(overlaps.schedules[1].timeline)[0]
    assert [box.label for box in lanes.compute] == [str(i) for i in range(12)] + [str(i) for i in reversed(range(12))]
    assert len(lanes.strips["reduce"]) == 12
    assert lanes.exposed[-1][1] == pytest.approx(overlaps.schedules[1].makespan_ms)


# Studies: groups, answers, and points that must not be mixed.

def point(study, **fields):
    base = {"record": "study", "run": "simulate-1", "program": "simulate", "basis": "simulated", "study": study,
            "setting": "a model on a machine", "series": "one", "layout": "tp=2", "at": {}, "values": {}, "parts_ms": {},
            "fits": True, "best": False, "note": "", "source": ""}
    return {**base, **fields}


def results_of(tmp_path, points):
    return analyse_studies(load([write(tmp_path / "r.jsonl", [LayoutWorld().run(), *points])]))


def steps(gpus, efficiency, reduce_ms, series="weak"):
    return point("scaling", series=series, layout=f"dp={gpus}", at={"gpus": gpus},
                 values={"step_ms": 100.0, "tflops_per_gpu": 100 * efficiency, "efficiency": efficiency},
                 parts_ms={"forward": 100.0 - reduce_ms, "exposed_reduce": reduce_ms})


def test_scaling_says_what_is_left_and_what_grows(tmp_path):
    (result,) = results_of(tmp_path, [steps(8, 1.0, 1.0), steps(64, 0.8, 21.0)])
    assert result.answer == ("Weak scaling keeps 80 % of the throughput per GPU from 8 to 64 GPUs; waiting for reduced gradients "
                             "grows from 1.0 to 21.0 % of the step.")


def test_published_points_are_shown_and_in_no_other_number(tmp_path):
    ours = point("tp_boundary", at={"tp": 2, "node": 8}, values={"tflops_per_gpu": 110.0, "step_ms": 10.0})
    theirs = point("tp_boundary", basis="published", at={"tp": 2, "node": 8}, values={"tflops_per_gpu": 100.0}, source="a paper")
    (result,) = results_of(tmp_path, [ours, theirs])
    assert [line.basis for line in result.simulated] == ["simulated"] and [line.basis for line in result.published] == ["published"]
    assert len(published_pairs(result)) == 1 and mean_error(result) == pytest.approx(0.1)
    assert "hollow" in badge(result)


def test_a_measured_point_has_no_place_in_a_simulated_run(tmp_path):
    with pytest.raises(ReportError, match="must be one of simulated, counted, published"):
        results_of(tmp_path, [point("scaling", basis="measured")])


def test_points_without_values_are_listed_not_drawn(tmp_path):
    (result,) = results_of(tmp_path, [point("scaling", at={"gpus": 3}, note="3 devices are no multiple of 2")])
    assert not result.drawn and "no multiple of 2" in result.answer


def test_the_map_counts_winners_and_close_calls(tmp_path):
    (result,) = results_of(tmp_path, LayoutWorld().study())
    assert result.answer == ("Of 4 cells the winner is PP+DP in 2 and ZeRO-3 in 2. In 0 the second best is less than 5 % slower.")


def test_sensitivity_names_the_figures_that_move_most(tmp_path):
    figures = {"device.matrix_tflops": (-6.0, 7.0), "levels.0.gbps": (-1.0, 1.5), "host_gbps": (0.0, 0.0)}
    (result,) = results_of(tmp_path, [point("sensitivity", series=name, at={"value": 1.0, "percent": 10.0},
                                            values={"more_percent": more, "less_percent": less, "step_ms": 1.0})
                                      for name, (more, less) in figures.items()])
    assert result.answer == ("A change of 10 % affects the step time most for device.matrix_tflops (7.0 %) and levels.0.gbps (1.5 %); 1 of 3 "
                             "parameters change it by less than 0.05 %.")


def test_clocks_say_what_they_save_at_which_time(tmp_path):
    points = [point("clocks", series=name, at={"slower_percent": slower},
                    values={"saved_percent": saved, "step_ms": 100 + slower, "joules": 1e4 * (1 - saved / 100)})
              for name, slower, saved in (("stage", 0.0, 1.5), ("stage", 5.0, 9.0), ("unit", 0.0, 12.0), ("unit", 5.0, 20.25))]
    (result,) = results_of(tmp_path, points)
    assert result.answer == ("Energy saved compared with the top clock without a longer step: with a clock for each stage 1.5 %, and 9.0 % where the step may take 5 % longer; "
                             "with a clock for each unit 12.0 %, and 20.2 % where the step may take 5 % longer.")
