"""Training runs by how replicas agree: the numbers of the table and the figures are those of the records."""
import pytest

from reports.analysis.report import report_of
from reports.analysis.training.replicas import (behind_ms, budget, compared, equal_bytes_text, loss_at, missed_text, slowed,
                                                straggler_name, straggler_text, way_name)
from reports.cli import main
from reports.html.training_view import replica_tables
from reports.load import load
from reports.plots import style
from reports.plots.frame import Heading
from reports.plots.replica_figures import bytes_figure, straggler_figure
from reports.tests.training_world import TrainingWorld, layout
from reports.tests.world import write

MIB = 1 << 20


def agreeing(world: TrainingWorld, way: str, every: int, step_ms: float = 50.0, sync_ms: float = 5.0, **sync) -> dict:
    """A MiB with each agreement; the loss is 4 + 1 / step, the same in all ways."""
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
    return report_of(load([file])).trainings


def test_bases_stand_apart(results):
    assert [(result.first.basis, len(result.runs)) for result in results] == [("measured", 3), ("emulated", 2)]


def test_losses_at_equal_bytes(results):
    runs = compared(results[0].runs)
    assert len(runs) == 3 and budget(runs) == 4 * MIB
    one, average = runs[0], runs[1]
    assert loss_at(one) == pytest.approx(4 + sum(1 / n for n in range(11, 21)) / 10)
    assert loss_at(one, budget(runs)) == pytest.approx(4 + sum(1 / n for n in range(1, 5)) / 4), "four steps of a MiB"
    assert loss_at(average, budget(runs)) == loss_at(average), "all of them"
    assert equal_bytes_text(results[0].runs).startswith("At equal bytes, 4 MiB from the rank that sends most, the loss is")
    assert " nats per token with average" in equal_bytes_text(results[0].runs)
    assert missed_text(runs[2]) == "2.5, 7 updates at most" and missed_text(one) == ""


def test_compressed_gradients_are_a_way_to_agree(tmp_path):
    world = TrainingWorld()
    few = agreeing(world, "allreduce", 4) | {"compression": "topk:density=0.01"}
    file = write(tmp_path / "r.jsonl", [world.run(), agreeing(world, "allreduce", 1), few])
    result, = report_of(load([file])).trainings
    runs = compared(result.runs)
    assert [way_name(one) for one in runs] == ["allreduce", "as topk:density=0.01"] and budget(runs) == 5 * MIB
    assert "4.07 nats per token with topk:density=0.01" in equal_bytes_text(runs), "nats per token"
    assert "as topk:density=0.01" in replica_tables(result)[0].lines[1].cells[0].text


def test_what_a_slow_replica_costs(results):
    runs = slowed(results[1].runs)
    assert [(one.mean_ms, behind_ms(one)) for one in runs] == [(150, 70), (60, 1)]
    assert straggler_text(results[1].runs) == ("A step takes, where replica 3 takes 3 times as long, from 60 ms "
                                               "(average:every=5) to 150 ms (server:servers=4).")
    assert straggler_name("replica=any,factor=2,step_ms=9") == "another replica in each step takes 2 times as long"
    assert straggler_name("replica=any,factor=1,step_ms=9") == "no replica is slow"
    assert equal_bytes_text(results[1].runs) == "", "losses of slowed runs are not compared"
    assert not slowed(results[0].runs) and straggler_text(results[0].runs) == ""


def test_the_table_and_the_figures_are_of_the_records(results):
    table, = replica_tables(results[0])
    assert [line.cells[0].text for line in table.lines] == [way_name(one) for one in results[0].runs]
    slow_table, = replica_tables(results[1])
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
    result, = report_of(load([write(tmp_path / "t.jsonl", [world.run(), world.training()])])).trainings
    assert compared(result.runs) == () and replica_tables(result) == [] and equal_bytes_text(result.runs) == ""


def test_the_page_is_written(file, tmp_path):
    assert main([str(file), "-o", str(tmp_path / "report")]) == 0
    page = "".join(one.read_text() for one in (tmp_path / "report").rglob("*") if one.suffix in (".html", ".svg"))
    assert "How replicas agree" in page and "a replica is slowed on purpose" in page
