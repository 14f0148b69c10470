"""Tests the pages of training and scaling: their sentences, their tables, and figures that equal the records."""
import pytest

from reports.analysis.estimate import decided_share
from reports.report import report_of
from reports.analysis.training.data_parallel import analyse_sharding, best_text, bucket_bytes, bytes_sentence, curve_text, hidden_of
from reports.analysis.training.runs import (
    behind_ms, budget, compared, differences, equal_bytes_text, line_text, loss_at, missed_text, off, predicted_text, slowed,
    step_ms, straggler_name, straggler_text, line_to_explain, tokens_per_s, way_name, why_text)
from reports.__main__ import main
from reports.pages.sharding import sharding_table
from reports.pages.training import tables_of
from reports.load import load
from reports.plots import style
from reports.page import Heading
from reports.plots.layer_figures import bucket_figure
from reports.plots.stacked_bars import parts_figure, predicted_figure
from reports.plots.training_figures import bytes_figure, gap_figure, loss_figure, straggler_figure, three_times_figure
from reports.tests.step_world import StepWorld
from reports.tests.test_html import Structure
from reports.tests.world import layout, sharding, TrainingWorld, World, write

HEADING = Heading("title", "subtitle", "")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    trained, scaled = TrainingWorld(), TrainingWorld(run_name="scaling-1", run_fields={"program": "scaling"})
    paced = TrainingWorld("scaling-2", "emulated", {"link": {"latency_us": 20.0, "gbps": 1.0}})
    beyond = TrainingWorld("scaling-3", "simulated")
    far = beyond.scaling(64, oversubscribed=False)
    far["times"] = far["times"][:1]
    lines = [trained.run(), trained.training(), scaled.run(), scaled.scaling(1, alone=50, contended=50, measured=50),
             scaled.scaling(2), scaled.scaling(32, measured=200.0), scaled.scaling(2, "strong"), paced.run(),
             paced.scaling(2), beyond.run(), far]
    return write(tmp_path_factory.mktemp("training") / "t.jsonl", lines)


@pytest.fixture(scope="module")
def report(records):
    return report_of(load([records]))


def test_speeds_leave_the_warm_up_out(report):
    line = report.results("training")[0].first
    assert step_ms(line) == 50 and tokens_per_s(line) == 40960


def test_the_gap_is_split_by_part(report):
    line = report.results("scaling")[0].lines[1]
    assert line.layout.text == "dp=2"
    assert off(line, "isolated") == pytest.approx(0.2) and off(line, "contended") == pytest.approx(60 / 54 - 1)
    assert differences(line, "contended") == pytest.approx({"forward": 0, "backward": 0, "exposed_reduce": 6})
    assert why_text(line, "contended") == "waiting for reduced gradients +6 ms"
    assert "alone give 50 ms" in line_text(line) and "contention 54 ms" in line_text(line)


def test_what_was_emulated_stands_apart(report):
    assert [(result.first.basis, len(result.run), len(result.beyond)) for result in report.results("scaling")] == [
        ("measured", 4, 1), ("emulated", 1, 0)]
    assert line_to_explain(report.results("scaling"), "dp=2").layout.text == "dp=2"
    assert line_to_explain(report.results("scaling")).oversubscribed is False


def bars_of(figure):
    return sorted(round(patch.get_width(), 6) for patch in figure.axes[0].patches if abs(patch.get_width()) > 1e-9)


def test_bars_equal_the_records(report):
    with style.context():
        parts = parts_figure(report.results("training")[0], HEADING)
        three = three_times_figure(report.results("scaling")[1], HEADING)
        gap = gap_figure(report.results("scaling")[1], HEADING)
        loss = loss_figure(report.results("training")[0], HEADING)
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
    first, training, scaling = (parsed.text for parsed in pages.values())
    for text in (first, training):
        assert "dp=2, f32, 1 thread per rank, 2,048 tokens per step: 50 ms, 40,960 tokens/s, MFU 40 %" in text
    assert "pieces timed alone give 50 ms, with their measured contention 54 ms, and the step takes 60 ms" in first
    assert "below the 2.78 that counting pairs of tokens reaches" in first
    assert "Data parallel, weak: simulated, 64 ranks reach 83 % of the ideal." in scaling
    assert "dp=64, weak, simulated" in scaling
    assert "dp=32, weak *" in scaling and "EMULATED" not in first


PREDICTED = {"machine": "calibrated", "kernels": 27, "measured_kernels": 27, "step_ms": 45.0,
             "parts_ms": {"forward": 15.0, "backward": 28.0, "exposed_reduce": 2.0, "bubble": 0.0, "around": 0.0},
             "measured_step_ms": 50.0,
             "measured_parts_ms": {"forward": 15.0, "backward": 30.0, "exposed_reduce": 5.0, "bubble": 0.0, "around": 0.0},
             "error": -0.1, "gap": "exposed_reduce, 3.00 ms longer than predicted: all_reduce in lane reduce took 3 ms"}


def test_a_prediction_is_shown_with_its_run(tmp_path):
    world = TrainingWorld()
    better = {**PREDICTED, "step_ms": 49.0, "error": -0.02, "gap": "none"}
    lines = [world.run(), world.training(predicted=PREDICTED), world.training(predicted=better, dtype="bf16"),
             world.training(dtype="f16")]
    result = report_of(load([write(tmp_path / "t.jsonl", lines)])).results("training")[0]
    line = predicted_text(result.lines)
    assert line.startswith("Predicted before they ran: 2 steps, off by 6 % in the median and 10 % at worst (dp=2, f32, too "
                           "short; its largest gap: exposed_reduce, 3.00 ms longer")
    figure = predicted_figure(result, HEADING)
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["dp=2, f32: predicted", "measured", "dp=2, bf16: predicted", "measured"]
    assert any("45 ms, -10 %" in text.get_text() for text in figure.axes[0].texts)
    assert len(tables_of(result.lines)["Predicted and measured steps"].lines) == 2
    assert predicted_text(report_of(load([write(tmp_path / "u.jsonl", [world.run(), world.training()])])).results("training")[0].lines) == ""


# Training runs whose activations are kept in parts, or off the device.

def test_the_table_has_what_was_copied(tmp_path):
    world = TrainingWorld()
    here = world.training(20, layout=layout(tp=2), basis=world.basis)
    away = world.training(20, layout=layout(tp=2), basis=world.basis)
    away["layout"]["text"] += ",offload=activations:file"
    away["activations"] = {"place": "file", "partitioned": True, "ahead": 2, "copied_bytes": 6 * (1 << 20), "away_bytes": 3 * (1 << 20)}
    result, = report_of(load([write(tmp_path / "r.jsonl", [world.run(), here, away])])).results("training")
    table = tables_of(result.lines)["Activations in parts, or off the device"]
    kept = {line.cells[1].text: [cell.text for cell in line.cells[2:5]] for line in table.lines}
    assert set(kept) == {"on the device", "in files, in parts"}
    assert kept["in files, in parts"][0] == "2" and "6" in kept["in files, in parts"][1] and "3" in kept["in files, in parts"][2]


def test_there_is_no_table_where_all_stay_on_the_device(tmp_path):
    world = TrainingWorld()
    file = write(tmp_path / "r.jsonl", [world.run(), world.training(20, layout=layout(tp=2), basis=world.basis)])
    result, = report_of(load([file])).results("training")
    assert not tables_of(result.lines)["Activations in parts, or off the device"].lines


# A table has columns for energy if any line has it; lines without it have dashes there.

ENERGY = {"source": "rapl", "devices": 1, "steps": 5, "seconds": 2.5, "joules_per_step": 31.25, "watts": 62.5,
          "tokens_per_joule": 16.384}


def _table(analysis_of, *lines):
    run = World(ranks=2, run_name="zero", run_fields={"program": "zero_bench"}).run()
    records, _ = analysis_of([run, *lines])
    return sharding_table(analyse_sharding(records)[0])


def _texts(line):
    return [cell.text for cell in line.cells]


def test_lines_that_were_counted_show_it_and_others_have_dashes(analysis_of):
    table = _table(analysis_of, sharding(0), sharding(1, energy=ENERGY))
    assert [column.name for column in table.columns[-4:]] == ["tokens/J", "J per step", "W", "of"]
    without, counted = (_texts(line) for line in table.lines)
    assert counted[-4:] == ["16.38", "31.25", "62.5", "1 CPU package"]
    assert without[-4:] == ["–"] * 4


@pytest.mark.parametrize("stage, fields, expected", [
    (0, {}, "replicas"), (1, {}, "ZeRO 1"), (3, {}, "ZeRO 3, prefetched"), (3, {"optimizer": "sgd"}, "ZeRO 3, prefetched, sgd"),
    (3, {"compression": "int8"}, "ZeRO 3, prefetched, gradients as int8 (qgZ)"),
    (3, {"secondary_ranks": 2}, "ZeRO 3, prefetched, secondary copy over 2 (hpZ)"),
    (3, {"compression": "int4", "near_ranks": 2}, "ZeRO 3, prefetched, gradients as int4 in two hops, 2 ranks first (qgZ)")])
def test_a_row_of_zero_names_what_ran(analysis_of, stage, fields, expected):
    table = _table(analysis_of, sharding(stage, **fields))
    assert _texts(table.lines[0])[0] == expected


def test_where_nothing_was_counted_there_are_no_columns(analysis_of):
    table = _table(analysis_of, sharding(0), sharding(1))
    assert table.columns[-1].name == "status" and len(_texts(table.lines[0])) == len(table.columns)


# Training runs by how replicas synchronise: the numbers in the table and the figures equal the records.

MIB = 1 << 20


def agreeing(world: TrainingWorld, way: str, every: int, step_ms: float = 50.0, sync_ms: float = 5.0, **sync) -> dict:
    """A run that sends a MiB with each synchronisation; the loss is 4 + 1 / step in every mode."""
    record = world.training(20, layout=layout(dp=4), basis=world.basis)
    for step in record["steps"]:
        step.update(loss=4 + 1 / step["step"], ms=step_ms, sync_ms=sync_ms, sent_bytes=step["step"] // every * MIB)
    return record | ({"sync": {"way": way, "every": every, **sync}} if way != "allreduce" else {})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    world, slow = TrainingWorld(), TrainingWorld("training-2", "emulated")
    lines = [world.run(), agreeing(world, "allreduce", 1), agreeing(world, "average:every=5", 5),
             agreeing(world, "async:staleness=2", 1, missed_mean=2.5, missed_most=7), slow.run(),
             agreeing(slow, "server:servers=4", 1, 150.0, 70.0, straggler="replica=3,factor=3", predicted_ms=149.5),
             agreeing(slow, "average:every=5", 5, 60.0, 1.0, straggler="replica=3,factor=3")]
    return write(tmp_path_factory.mktemp("replicas") / "r.jsonl", lines)


@pytest.fixture(scope="module")
def results(file):
    return report_of(load([file])).results("training")


def test_bases_stand_apart(results):
    assert [(result.first.basis, len(result.lines)) for result in results] == [("measured", 3), ("emulated", 2)]


def test_losses_at_equal_bytes(results):
    runs = compared(results[0].lines)
    assert len(runs) == 3 and budget(runs) == 4 * MIB
    line, average = runs[0], runs[1]
    assert loss_at(line) == pytest.approx(4 + sum(1 / n for n in range(11, 21)) / 10)
    assert loss_at(line, budget(runs)) == pytest.approx(4 + sum(1 / n for n in range(1, 5)) / 4), "four steps of a MiB"
    assert loss_at(average, budget(runs)) == loss_at(average), "all bytes"
    assert equal_bytes_text(results[0].lines).startswith("At equal bytes, 4 MiB from the rank that sends most, the loss is")
    assert " nats per token with average" in equal_bytes_text(results[0].lines)
    assert missed_text(runs[2]) == "2.5, 7 updates at most" and missed_text(line) == ""


def test_compressed_gradients_are_a_way_to_agree(tmp_path):
    world = TrainingWorld()
    few = agreeing(world, "allreduce", 4) | {"compression": "topk:density=0.01"}
    file = write(tmp_path / "r.jsonl", [world.run(), agreeing(world, "allreduce", 1), few])
    result, = report_of(load([file])).results("training")
    runs = compared(result.lines)
    assert [way_name(run) for run in runs] == ["allreduce", "as topk:density=0.01"] and budget(runs) == 5 * MIB
    assert "4.07 nats per token with topk:density=0.01" in equal_bytes_text(runs), "nats per token"
    assert "as topk:density=0.01" in tables_of(result.lines)["How replicas agree"].lines[1].cells[0].text


def test_what_a_slow_replica_costs(results):
    runs = slowed(results[1].lines)
    assert [(run.mean_ms, behind_ms(run)) for run in runs] == [(150, 70), (60, 1)]
    assert straggler_text(results[1].lines) == ("A step takes, where replica 3 takes 3 times as long, from 60 ms "
                                               "(average:every=5) to 150 ms (server:servers=4).")
    assert straggler_name("replica=any,factor=2,step_ms=9") == "another replica in each step takes 2 times as long"
    assert straggler_name("replica=any,factor=1,step_ms=9") == "no replica is slow"
    assert equal_bytes_text(results[1].lines) == "", "losses of slowed runs are not compared"
    assert not slowed(results[0].lines) and straggler_text(results[0].lines) == ""


def test_the_table_and_the_figures_are_of_the_records(results):
    table = tables_of(results[0].lines)["How replicas agree"]
    assert [line.cells[0].text for line in table.lines] == [way_name(line) for line in results[0].lines]
    slow_table = tables_of(results[1].lines)["How replicas agree"]
    assert [line.cells[6].text for line in slow_table.lines] == ["149.5", "–"]
    with style.context():
        sent = bytes_figure(results[0], Heading("title", "subtitle", ""))
        slow = straggler_figure(results[1], Heading("title", "subtitle", ""))
    assert list(sent.axes[0].lines[1].get_xdata()) == [n * MIB for n in range(1, 5)], "a point for each agreement"
    assert sent.axes[0].lines[1].get_ydata()[-1] == 4 + 1 / 20
    assert [line.get_xdata()[-1] for line in sent.axes[0].lines] == [20 * MIB, 4 * MIB, 20 * MIB]
    assert "(bytes)" in sent.axes[0].get_xlabel()
    assert sorted(round(patch.get_width(), 6) for patch in slow.axes[0].patches if patch.get_width() > 1e-9) == [1, 59, 70, 80]


def test_runs_without_replicas_have_none_of_it(tmp_path):
    world = TrainingWorld()
    result, = report_of(load([write(tmp_path / "t.jsonl", [world.run(), world.training()])])).results("training")
    assert compared(result.lines) == () and equal_bytes_text(result.lines) == ""
    assert not tables_of(result.lines)["How replicas agree"].lines


def test_one_rank_has_no_communication_and_no_bubble(tmp_path):
    world = TrainingWorld()
    parts = {"forward": 15.0, "backward": 30.0, "exposed_reduce": 10.0, "bubble": 5.0}
    line = world.training(layout=layout(), ranks=1, parts_ms=parts)
    result, = report_of(load([write(tmp_path / "t.jsonl", [world.run(), line])])).results("training")
    assert result.findings[0].why == "Its time: backward 50 %, forward 25 % and between kernels 25 %."


def test_the_page_is_written(file, tmp_path):
    assert main([str(file), "-o", str(tmp_path / "report")]) == 0
    page = "".join(line.read_text() for line in (tmp_path / "report").rglob("*") if line.suffix in (".html", ".svg"))
    assert "How replicas agree" in page and "a replica is slowed on purpose" in page


# ---- The page of gradient buckets: groups, the best bucket of each link, and a figure that equals the records

CAPS = (8, 16, 0)  # MiB; of 8 layers of 8 MiB; 0: one bucket
BACKWARD_MS = 8.0


def real(line, spread=0.01, **fields):
    """A step of the made-up world as a real one that gave these numbers."""
    overlap = line["overlap"]
    exposed = line["makespan_ms"] - overlap["compute_alone_ms"]
    overlap["efficiency"] = (overlap["communication_alone_ms"] - exposed) / min(overlap["communication_alone_ms"], BACKWARD_MS)
    overlap["reductions"] = {
        "compression": "none", "backward_ms": BACKWARD_MS, "exposed_ms": exposed, "sent_bytes": 64.0 * 2 ** 20,
        "one_by_one_ms": overlap["compute_alone_ms"] + overlap["communication_alone_ms"], "formula_bytes": 64.0 * 2 ** 20,
        "exposed_samples_ms": [exposed - spread, exposed, exposed + spread], "wrong": 0, "status": "ok", **fields}
    line["closed_form_ms"] = {"cost": overlap["compute_alone_ms"] + exposed / 2, "of": "makespan"}
    return line


def bucket_steps(world, **fields):
    lines = [real(world.overlap(cap or 64), **fields) for cap in CAPS]
    lines[-1]["overlap"]["bucket_cap_bytes"] = 0
    return lines


@pytest.fixture(scope="module")
def bucket_records(tmp_path_factory):
    lines = []
    for ranks in (2, 4):
        for number, gbps in enumerate((20.0, 80.0)):
            fields = {"link": {"latency_us": 10.0, "gbps": gbps}, "oversubscribed": ranks == 4}
            world = StepWorld(ranks=ranks, run_name=f"buckets-{ranks}-{number}", basis="emulated", run_fields=fields)
            lines += [world.run(), *bucket_steps(world)]
    codes = StepWorld(ranks=2, run_name="buckets-codes", basis="emulated",
                      run_fields={"link": {"latency_us": 10.0, "gbps": 80.0}})
    lines += [codes.run(), *bucket_steps(codes, compression="int8", sent_bytes=5.0, wrong=3, status="wrong")]
    plain = StepWorld(ranks=2, run_name="buckets-plain", basis="measured")
    lines += [plain.run(), *bucket_steps(plain)]
    return write(tmp_path_factory.mktemp("buckets") / "b.jsonl", lines)


@pytest.fixture(scope="module")
def bucket_report(bucket_records):
    return report_of(load([bucket_records]))


def test_what_travels_otherwise_and_what_was_measured_have_groups_of_their_own(bucket_report):
    assert not bucket_report.results("schedules")
    assert [len(result.lines) for result in bucket_report.results("buckets")] == [12, 3, 3]
    assert [result.basis for result in bucket_report.results("buckets")] == ["emulated", "emulated", ""]
    assert [(curve.ranks, curve.link.gbps) for curve in bucket_report.results("buckets")[0].curves] == [(2, 80), (2, 20), (4, 80), (4, 20)]


def test_the_best_bucket_is_the_one_that_leaves_least(bucket_report):
    result = bucket_report.results("buckets")[0]
    for curve in result.curves:
        left = {bucket_bytes(line): line.overlap.reductions.exposed_ms for line in curve.lines}
        assert left[bucket_bytes(curve.best)] == min(left.values()) and bucket_bytes(curve.worst) == 64 << 20
        assert "one bucket leaves" in curve_text(curve)
        assert ("more ranks than cores" in curve_text(curve)) == (curve.ranks == 4)
    assert "with one bucket" in best_text(result)
    assert "64 MiB on 2 ranks and 64 MiB on 4 ranks" in bytes_sentence(result)
    assert "in 3 rows different from the formula" in bytes_sentence(bucket_report.results("buckets")[1])


def test_of_noise_no_bucket_is_best_and_one_bucket_hides_nothing(tmp_path):
    """Exposed times below 0 and beyond the communication are noise: neither is stated, nor is what is impossible."""
    world = StepWorld(ranks=2, run_name="noisy", basis="measured")
    lines = [real(world.overlap(cap or 64), exposed_samples_ms=[-3.0, 0.1, 4.0], exposed_ms=0.1) for cap in CAPS]
    lines[-1]["overlap"].update(bucket_cap_bytes=0, efficiency=10.7)
    result, = report_of(load([write(tmp_path / "n.jsonl", [world.run(), *lines])])).results("buckets")
    assert curve_text(result.curves[0]).startswith("2 ranks, links without limit: which buckets are best is undecided on this machine: spread")
    assert best_text(result).startswith("Which buckets are best is undecided on this machine: spread")
    assert hidden_of(result.curves[0].lines[-1]).high == 0, "one bucket is complete only when the backward ends"
    for line in result.lines[:-1]:
        share = hidden_of(line)
        assert 0 <= share.low <= share.value <= share.high <= 1 and "undecided" in decided_share(share, "hidden")


def test_the_figure_has_what_the_records_have(bucket_report):
    result = bucket_report.results("buckets")[0]
    with style.context():
        figure = bucket_figure(result, Heading("title", "subtitle", ""))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["2 ranks", "4 ranks, more than cores"]
    for axes, curves in zip(figure.axes, result.by_ranks.values()):
        drawn = [[float(y) for y in line.get_ydata()] for line in axes.lines]
        for curve in curves:
            for values in ([line.overlap.reductions.exposed_ms for line in curve.lines],
                           [line.overlap.communication_alone_ms for line in curve.lines],
                           [line.closed_form_ms.cost - line.overlap.compute_alone_ms for line in curve.lines]):
                assert pytest.approx(values) in drawn
        assert "MiB" in axes.get_xticklabels()[0].get_text() and axes.get_xlabel()


def test_the_page_shows_wrong_rows(bucket_records, tmp_path):
    assert main([str(bucket_records), "-o", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "3 elements of gradients or weights differ" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "Wrong rows" in page and (tmp_path / "page" / "figures" / "buckets-1-exposed.svg").exists()
