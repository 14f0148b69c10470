"""Tests the kernels' page: rows in red, labels, and figures that equal the records."""

import math
import re
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from reports.report import report_of
from reports.analysis.roofline.findings import comparisons_of
from reports.__main__ import main
from reports.load import load
from reports.plots import style
from reports.pages.kernels import kernel_drawings, MOST_ROWS
from reports.plots.drawn import figure_of
from reports.plots.kernel_dots import BOUNDS, CUT, EDGE, GROUPS, marks, rows_of, shown_rows
from reports.tests.kernel_world import (
    gpu_world, kernel_failed, kernel_wrong, KernelWorld, without_ceiling, Work, WORKS)
from reports.tests.looks import expect_apart, slanted
from reports.tests.test_html import Structure
from reports.tests.world import SIZES, World, write


FEW = WORKS[::3]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Kernels with a wrong, a failed, a hostile and an unlimited one, simulated ones, and collectives."""
    folder = tmp_path_factory.mktemp("kernels")
    world = KernelWorld(works=FEW)
    kernels = world.kernels()
    kernels[0], kernels[1] = kernel_wrong(kernels[0]), kernel_failed(kernels[1], "<script>alert(1)</script>")
    kernels[2] = {**without_ceiling(kernels[2]), "shape": "<b>evil</b>", "checked": False}
    simulated = KernelWorld(works=FEW[:3], sizes=(1,), threads=(1,), run_name="sim", run_fields={"basis": "simulated"})
    rows = World(run_name="rows")
    file = write(folder / "k.jsonl", [world.run(), *world.ceilings(), *kernels, *simulated.records(), rows.run(),
                                      *rows.sweep(["ring", "double_tree"], SIZES[:6])])
    out = folder / "report"
    assert main([file, "-o", str(out)]) == 0
    return out, (out / "kernels.html").read_text(encoding="utf-8")


def test_two_pages_lead_to_each_other(page):
    out, text = page
    other = (out / "collectives.html").read_text(encoding="utf-8")
    assert 'href="kernels.html"' in other and 'href="collectives.html"' in text and 'href="index.html"' in text
    assert "Ring or tree" in other and "attention_bwd" not in other and "double_tree" not in text


def test_kernels_alone_are_the_first_page(tmp_path, capsys):
    world = KernelWorld(works=FEW[:2], sizes=(1,), threads=(1,))
    assert main([write(tmp_path / "k.jsonl", world.records()), "-o", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {tmp_path / 'r' / 'index.html'}"
    text = (tmp_path / "r" / "index.html").read_text(encoding="utf-8")
    assert "What the machine can do" in text and 'class="pages"' not in text
    assert not (tmp_path / "r" / "kernels.html").exists()


def test_the_page_says_findings_ceilings_and_comparisons(page):
    text = Structure(page[1]).text
    for part in ("of the ceiling that binds them; the farthest is", "Median share by family: GEMM",
                 "2 threads: bandwidth 420 to 660 GB/s in L1", "launch 1.6 µs", "warm over cold:",
                 "2 threads over 1 thread:", "9 kernels, 37 cases"):
        assert part in text


def test_wrong_failed_unchecked_and_unlimited_are_shown(page):
    rows = re.findall(r'<tr class="bad">.*?</tr>', page[1], flags=re.DOTALL)
    assert len(rows) == 4 and sum("element 5 of y" in row for row in rows) == 2
    text = Structure(page[1]).text
    assert "1 timed kernel had wrong results" in text and "not checked" in text and "no ceiling and no share" in text


def test_simulated_is_labelled_in_findings_heading_table_and_plot(page):
    out, text = page
    section = next(s for s in text.split("<section")[1:] if "panel not-measured" in s.split(">")[0])
    assert 'class="badge">simulated' in section.split("</h2>")[0]
    assert section.count('class="table-badge"') == section.count('<details class="data"') == 2
    measured = next(s for s in text.split("<section")[1:] if 'class="panel"' in s.split(">")[0])
    assert 'class="badge"' not in measured
    assert list((out / "figures").glob("*simulated-roofline.svg"))


def test_the_table_begins_with_the_farthest_and_ends_with_those_without_a_share(page):
    table = page[1].split("farthest from its limit first")[1].split("</table>")[0]
    lines = re.findall(r"<tr.*?</tr>", table.split("<tbody>")[1], flags=re.DOTALL)
    shares = [re.findall(r'data-v="([^"]*)"', line)[1] for line in lines]
    known = [float(share) for share in shares[:-3]]
    assert known == sorted(known) and len(known) == 16 * len(FEW) - 3
    assert shares[-3] == "" and 'class="bad"' not in lines[-3], "without a ceiling"
    assert 'class="bad"' in lines[-2] and 'class="bad"' in lines[-1], "wrong and failed"


# Figures of kernels: nothing overlaps, points are at the positions of their numbers, and grey print suffices.

WORLDS = {
    "all": KernelWorld(),
    "one": KernelWorld(works=WORKS[:1], dtypes=("f32",), sizes=(1,), threads=(1,), caches=("cold",)),
    "few, simulated": KernelWorld(works=WORKS[4:7], sizes=(1,), run_fields={"basis": "simulated"}),
    "many threads, noisy": KernelWorld(works=WORKS[::2], threads=(1, 2, 4), noise=0.4,
                                       dtypes=("f32", "bf16", "f16", "e4m3", "e5m2"), sizes=(1,)),
    "gpu": gpu_world(works=WORKS[::2]),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots")
    found = {}
    for name, world in WORLDS.items():
        file = write(folder / f"{name}.jsonl", world.records())
        found[name] = report_of(load([file])).results("kernels")[0]
    return found


def kinds_of(result):
    return [drawing.kind for drawing in kernel_drawings(result)]


def draw(kind, result):
    return next(figure_of(drawing) for drawing in kernel_drawings(result) if drawing.kind == kind)


@pytest.mark.parametrize("kind", ["roofline", "shares", "caches", "threads"])
@pytest.mark.parametrize("world", WORLDS)
def test_no_text_lies_on_another_or_outside(results, world, kind):
    result = results[world]
    if kind not in kinds_of(result):
        assert (kind, world) in {("caches", "one"), ("threads", "one"), ("threads", "gpu")}
        return
    with style.context():
        figure = draw(kind, result)
        expect_apart(figure)
    assert any("SIMULATED" in text.get_text() for text in figure.texts) == ("simulated" in world)


@pytest.mark.parametrize("world", WORLDS)
def test_names_of_roofs_do_not_lie_on_each_other(results, world):
    """They all lie along one direction: turned back, they are boxes again."""
    with style.context():
        figure = draw("roofline", results[world])
        FigureCanvasAgg(figure).draw()
        for axes in figure.axes:
            names = [text for text in axes.texts if slanted(text)]
            assert len(names) == 4
            for line, other in combinations([_turned_back(name) for name in names], 2):
                apart = line[0] > other[1] or other[0] > line[1] or abs(line[2] - other[2]) >= 8
                assert apart, [name.get_text() for name in names]


def _turned_back(name):
    """(begin, end, height) in pixels along and across the name's direction."""
    angle = math.radians(name.get_rotation())
    x, y = name.axes.transData.transform(name.xy)
    along = x * math.cos(angle) + y * math.sin(angle)
    name.set_rotation(0)
    width = Text.get_window_extent(name).width
    name.set_rotation(math.degrees(angle))
    return along, along + width, -x * math.sin(angle) + y * math.cos(angle)


def test_points_lie_at_intensity_and_speed_and_below_the_roofs(results):
    roofline = results["all"]
    figure = draw("roofline", results["all"])
    for axes, way in zip(figure.axes, roofline.ways):
        drawn = {(round(line.get_xdata()[0], 9), round(line.get_ydata()[0], 9)) for line in axes.lines
                 if len(line.get_xdata()) == 1}
        known = {(round(k.flops / k.bytes, 9), round(k.gflops, 9)) for k in roofline.timed[way].values() if k.flops}
        assert drawn == known
        (x_low, x_high), (y_low, y_high) = axes.get_xlim(), axes.get_ylim()
        assert all(x_low < x < x_high and y_low < y < y_high for x, y in drawn)
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1, "all on the same axes"


def test_shares_are_sorted_by_distance_from_the_limit(results):
    rows = rows_of(results["all"])
    share = {work.kernel: work.share for work in WORKS}
    shares = [share[row.split(" ")[0]] for row in rows]
    assert len(rows) == len(WORKS) and rows[0] == "attention_bwd" and rows[-1] == "sum_of_squares"
    assert all(later > earlier - 0.03 for earlier, later in zip(shares, shares[1:]))


def test_shares_far_beyond_the_ceiling_do_not_squeeze_the_others(tmp_path):
    world = KernelWorld(works=[*WORKS[:3], Work("adamw", 15, 28, 9.0)], dtypes=("f32",), sizes=(1,), threads=(1,),
                        caches=("cold",))
    result = report_of(load([write(tmp_path / "k.jsonl", world.records())])).results("kernels")[0]
    axes = draw("shares", result).axes[0]
    phrases = [text.get_text() for text in axes.texts]
    assert axes.get_xlim()[1] == EDGE and len(phrases) == 1 and phrases[0].startswith("1 ▶ 89")
    assert max(line.get_xdata()[-1] for line in axes.lines if len(line.get_xdata()) == 1) < CUT


def test_too_many_pairs_show_the_ends(results):
    comparisons = comparisons_of(results["all"])["caches"]
    rows, pairs = shown_rows(comparisons), comparisons[-1].pairs
    assert len(rows) == MOST_ROWS and rows[0] == pairs[0].case and rows[-1] == pairs[-1].case


def test_families_bounds_and_dtypes_differ_in_grey():
    groups = GROUPS.values()
    assert len({group.marker for group in groups}) == len({group.colour for group in groups}) == len(groups)
    assert len({bound.marker for bound in BOUNDS.values()}) == len(BOUNDS)
    assert len({marks(GROUPS["GEMM"], dtype, 5)["fillstyle"] for dtype in ("f32", "bf16", "f16", "e4m3")}) == 4


def test_without_ceilings_there_are_points_and_no_shares(tmp_path):
    world = KernelWorld(works=WORKS[:4], sizes=(1,))
    file = write(tmp_path / "k.jsonl", [world.run(), *map(without_ceiling, world.kernels())])
    result = report_of(load([file])).results("kernels")[0]
    assert kinds_of(result) == ["roofline", "caches", "threads"]
    assert any(len(line.get_xdata()) == 1 for line in draw("roofline", result).axes[0].lines)
