"""The page of gradient buckets: groups, the best bucket of each link, and a figure that equals the records."""
import pytest

from reports.analysis.report import report_of
from reports.analysis.training.data_parallel import best_text, bucket_bytes, bytes_sentence, curve_text
from reports.cli import main
from reports.load import load
from reports.plots import style
from reports.plots.layer_figures import bucket_figure
from reports.plots.frame import Heading
from reports.tests.step_world import StepWorld
from reports.tests.world import write

CAPS = (8, 16, 0)  # MiB; of 8 layers of 8 MiB; 0: one bucket
BACKWARD_MS = 8.0


def real(line, spread=0.5, **fields):
    """A step of the made-up world as a real one that gave these numbers."""
    one = line["overlap"]
    exposed = line["makespan_ms"] - one["compute_alone_ms"]
    one["efficiency"] = (one["communication_alone_ms"] - exposed) / min(one["communication_alone_ms"], BACKWARD_MS)
    one["reductions"] = {
        "compression": "none", "backward_ms": BACKWARD_MS, "exposed_ms": exposed, "sent_bytes": 64.0 * 2 ** 20,
        "one_by_one_ms": one["compute_alone_ms"] + one["communication_alone_ms"], "formula_bytes": 64.0 * 2 ** 20,
        "exposed_samples_ms": [exposed - spread, exposed, exposed + spread], "wrong": 0, "status": "ok", **fields}
    line["closed_form_ms"] = {"cost": one["compute_alone_ms"] + exposed / 2, "of": "makespan"}
    return line


def steps(world, **fields):
    lines = [real(world.overlap(cap or 64), **fields) for cap in CAPS]
    lines[-1]["overlap"]["bucket_cap_bytes"] = 0
    return lines


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    lines = []
    for ranks in (2, 4):
        for number, gbps in enumerate((20.0, 80.0)):
            fields = {"link": {"latency_us": 10.0, "gbps": gbps}, "oversubscribed": ranks == 4}
            world = StepWorld(ranks=ranks, run_name=f"buckets-{ranks}-{number}", basis="emulated", run_fields=fields)
            lines += [world.run(), *steps(world)]
    codes = StepWorld(ranks=2, run_name="buckets-codes", basis="emulated",
                      run_fields={"link": {"latency_us": 10.0, "gbps": 80.0}})
    lines += [codes.run(), *steps(codes, compression="int8", sent_bytes=5.0, wrong=3, status="wrong")]
    plain = StepWorld(ranks=2, run_name="buckets-plain", basis="measured")
    lines += [plain.run(), *steps(plain)]
    return write(tmp_path_factory.mktemp("buckets") / "b.jsonl", lines)


@pytest.fixture(scope="module")
def report(records):
    return report_of(load([records]))


def test_what_travels_otherwise_and_what_was_measured_have_groups_of_their_own(report):
    assert not report.overlaps and not report.schedules
    assert [len(result.lines) for result in report.buckets] == [12, 3, 3]
    assert [result.emulates for result in report.buckets] == [True, True, False]
    assert [(curve.ranks, curve.link.gbps) for curve in report.buckets[0].curves] == [(2, 80), (2, 20), (4, 80), (4, 20)]


def test_the_best_bucket_is_the_one_that_leaves_least(report):
    result = report.buckets[0]
    for curve in result.curves:
        left = {bucket_bytes(line): line.overlap.reductions.exposed_ms for line in curve.lines}
        assert left[bucket_bytes(curve.best)] == min(left.values()) and bucket_bytes(curve.worst) == 64 << 20
        assert "one bucket leaves" in curve_text(curve)
        assert ("more ranks than cores" in curve_text(curve)) == (curve.ranks == 4)
    assert "with one bucket" in best_text(result)
    assert "64 MiB on 2 ranks and 64 MiB on 4 ranks" in bytes_sentence(result)
    assert "3 rows not what the formula" in bytes_sentence(report.buckets[1])


def test_the_figure_has_what_the_records_have(report):
    result = report.buckets[0]
    with style.context():
        figure = bucket_figure(result, Heading("title", "subtitle", ""))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["2 ranks", "4 ranks, more than cores"]
    for axes, curves in zip(figure.axes, result.by_ranks.values()):
        drawn = [[float(y) for y in line.get_ydata()] for line in axes.lines]
        for curve in curves:
            for values in ([one.overlap.reductions.exposed_ms for one in curve.lines],
                           [one.overlap.communication_alone_ms for one in curve.lines],
                           [one.closed_form_ms.cost - one.overlap.compute_alone_ms for one in curve.lines]):
                assert pytest.approx(values) in drawn
        assert "MiB" in axes.get_xticklabels()[0].get_text() and axes.get_xlabel()


def test_the_page_shows_wrong_rows(records, tmp_path):
    assert main([str(records), "-o", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "3 elements of gradients or weights differ" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "Wrong rows" in page and (tmp_path / "page" / "figures" / "buckets-1-exposed.svg").exists()
