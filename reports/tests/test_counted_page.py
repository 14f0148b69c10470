"""GPU kernels by their counts on the kernels' page: the ceilings are there, labelled as counted, and nothing overlaps."""

import pytest

from reports.__main__ import main
from reports.load import load
from reports.pages.kernels import counted_table
from reports.plots import style
from reports.plots.drawn import figure_of
from reports.report import report_of
from reports.tests.kernel_world import kernel_count
from reports.tests.looks import expect_apart
from reports.tests.test_html import Structure
from reports.tests.world import World, write


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    world = World(run_name="counts", run_fields={"basis": "simulated", "program": "ptx_check"})
    lines = [kernel_count("counts", kernel=f"kernel_{number}", dtype=dtype, sass={"instructions": 65536.0 * 20 * number, "special": 0.0})
             for number in range(1, 8) for dtype in ("f32", "bf16")]
    return write(tmp_path_factory.mktemp("counted") / "counts.jsonl", [world.run(), *lines])


def test_ceilings_are_labelled_as_counted(file, tmp_path):
    assert main([file, "-o", str(tmp_path / "r")]) == 0
    html = (tmp_path / "r" / "index.html").read_text(encoding="utf-8")
    text = Structure(html).text
    assert "GPU kernels by their counts" in text and "kernel_7 f32 (1.98)" in text and "not timed" in text
    assert 'class="badge">counted' in html and "7 kernels" not in text.split("What was run")[0]


def test_the_table_begins_with_the_most_instructions(file):
    found = report_of(load([file])).results("kernels")[-1]
    lines = counted_table(found).lines
    names = [line.cells[0].text for line in lines]
    assert names[0].startswith("kernel_7") and names[-1].startswith("kernel_1") and len(names) == 14
    ceiling = {line.cells[0].text: (line.cells[6].value, line.cells[7].value) for line in lines}
    assert ceiling["kernel_1 f32"] == (100, 100) and ceiling["kernel_4 f32"] == pytest.approx((88.5, 61.8), abs=0.1)


def test_no_text_of_the_figure_lies_on_another(file):
    report = report_of(load([file]))
    sections = report.parts["kernels"].page.sections(report.results("kernels"))
    with style.context():
        for picture in sections[-1].drawings:
            expect_apart(figure_of(picture))
