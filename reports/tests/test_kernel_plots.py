"""Figures of kernels: nothing lies on anything else, points lie where the numbers say, and grey is enough."""
import math
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from reports.analysis.report import report_of
from reports.analysis.roofline.findings import comparisons_of
from reports.load import load
from reports.plots import style
from reports.plots.dumbbells import MOST, shown_rows
from reports.plots.kernel_figures import draw, kinds_of, render_kernels
from reports.plots.kernel_style import BOUNDS, GROUPS, marks
from reports.plots.shares import CUT, EDGE, rows_of
from reports.tests.kernel_world import WORKS, KernelWorld, Work, gpu_world, without_ceiling
from reports.tests.world import write

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
        found[name] = report_of(load([file])).kernels[0]
    return found


def texts_of(figure):
    """Every text with its own box: that of an annotation would reach to its point."""
    FigureCanvasAgg(figure).draw()
    renderer = figure.canvas.get_renderer()
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        found += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            drawn = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [tick.label1 for tick in drawn if tick.label1.get_visible()]
    return [(text, Text.get_window_extent(text, renderer)) for text in found if text.get_text().strip()]


def slanted(text):
    return text.get_rotation() not in (0, 90)


@pytest.mark.parametrize("kind", ["roofline", "shares", "caches", "threads"])
@pytest.mark.parametrize("world", WORLDS)
def test_no_text_lies_on_another_or_outside(results, world, kind):
    result = results[world]
    if kind not in kinds_of(result):
        assert (kind, world) in {("caches", "one"), ("threads", "one"), ("threads", "gpu")}
        return
    with style.context():
        figure = draw(kind, result)
        boxes = texts_of(figure)
    for text, box in boxes:
        inside = figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0
        assert inside and box.y1 <= figure.bbox.y1, text.get_text()
    straight = [(text.get_text(), box) for text, box in boxes if not slanted(text)]
    for (text, box), (other, other_box) in combinations(straight, 2):
        width = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        height = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert width <= 1 or height <= 3, f"{text!r} lies on {other!r}"
    assert any("SIMULATED" in text for text, _ in straight) == ("simulated" in world)


@pytest.mark.parametrize("world", WORLDS)
def test_names_of_roofs_do_not_lie_on_each_other(results, world):
    """They all lie along one direction: turned back, they are boxes again."""
    with style.context():
        figure = draw("roofline", results[world])
        FigureCanvasAgg(figure).draw()
        for axes in figure.axes:
            names = [text for text in axes.texts if slanted(text)]
            assert len(names) == 4
            for one, other in combinations([_turned_back(name) for name in names], 2):
                apart = one[0] > other[1] or other[0] > one[1] or abs(one[2] - other[2]) >= 8
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
    roofline = results["all"].roofline
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
    rows = rows_of(results["all"].roofline)
    share = {work.kernel: work.share for work in WORKS}
    shares = [share[row.split(" ")[0]] for row in rows]
    assert len(rows) == len(WORKS) and rows[0] == "attention_bwd" and rows[-1] == "sum_of_squares"
    assert all(later > earlier - 0.03 for earlier, later in zip(shares, shares[1:]))


def test_shares_far_beyond_the_ceiling_do_not_squeeze_the_others(tmp_path):
    world = KernelWorld(works=[*WORKS[:3], Work("adamw", 15, 28, 9.0)], dtypes=("f32",), sizes=(1,), threads=(1,),
                        caches=("cold",))
    result = report_of(load([write(tmp_path / "k.jsonl", world.records())])).kernels[0]
    axes = draw("shares", result).axes[0]
    told = [text.get_text() for text in axes.texts]
    assert axes.get_xlim()[1] == EDGE and len(told) == 1 and told[0].startswith("1 ▶ 89")
    assert max(line.get_xdata()[-1] for line in axes.lines if len(line.get_xdata()) == 1) < CUT


def test_too_many_pairs_show_the_ends(results):
    comparisons = comparisons_of(results["all"].roofline)["caches"]
    rows, pairs = shown_rows(comparisons), comparisons[-1].pairs
    assert len(rows) == MOST and rows[0] == pairs[0].case and rows[-1] == pairs[-1].case


def test_families_bounds_and_dtypes_can_be_told_apart_in_grey():
    groups = GROUPS.values()
    assert len({one.marker for one in groups}) == len({one.colour for one in groups}) == len(groups)
    assert len({one.marker for one in BOUNDS.values()}) == len(BOUNDS)
    assert len({marks(GROUPS["GEMM"], dtype, 5)["fillstyle"] for dtype in ("f32", "bf16", "f16", "e4m3")}) == 4


def test_without_ceilings_there_are_points_and_no_shares(tmp_path):
    world = KernelWorld(works=WORKS[:4], sizes=(1,))
    file = write(tmp_path / "k.jsonl", [world.run(), *map(without_ceiling, world.kernels())])
    result = report_of(load([file])).kernels[0]
    assert kinds_of(result) == ["roofline", "caches", "threads"]
    assert any(len(line.get_xdata()) == 1 for line in draw("roofline", result).axes[0].lines)


def test_files_light_dark_and_the_same_again(results, tmp_path):
    few = [results["few, simulated"]]
    first, second = (render_kernels(few, tmp_path / name)[0] for name in ("a", "b"))
    assert first == second and [file.kind for file in first] == ["roofline", "shares", "caches", "threads"]
    for file in first:
        drawn = (tmp_path / "a" / f"{file.stem}.svg").read_text()
        assert ElementTree.fromstring(drawn).tag.endswith("svg") and style.PAPER in drawn
        assert drawn == (tmp_path / "b" / f"{file.stem}.svg").read_text() and file.alt and "simulated" in file.stem
