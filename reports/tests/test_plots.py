"""Figures: files that are there and well-formed, labels that do not lie on each other, colours that dark pages know."""
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from reports.plots import style
from reports.plots.figures import _DRAW, ordered, render_all, shown_labels
from reports.plots.frame import Heading, spread
from reports.plots.titles import badge, subtitle, title_of
from reports.tests.test_results import MANY
from reports.tests.world import SIZES, World


def test_spread_keeps_order_and_distance():
    for places in ([0.5, 0.5, 0.5], [0.0, 0.01, 0.02], [1, 1, 0.99], [0.1, 0.9], [0.5, 0.52, 0.9, 0.91, 0.1], []):
        moved = spread(places, 0.05)
        order = sorted(range(len(places)), key=lambda i: places[i])
        gaps = [moved[b] - moved[a] for a, b in zip(order, order[1:])]
        assert all(gap >= 0.05 - 1e-9 for gap in gaps)
        assert all(-1e-9 <= place <= 1 + 1e-9 for place in moved)
    assert spread([0.1, 0.9], 0.05) == pytest.approx([0.1, 0.9])
    assert len(spread([0.5] * 50, 0.05)) == 50


def test_styles_are_distinct_without_colour():
    styles = style.styles_for([str(i) for i in range(30)])
    assert len({(s.marker, str(s.dash)) for s in list(styles.values())[:6]}) == 6
    assert len({(s.colour, s.marker, str(s.dash)) for s in styles.values()}) == 30


def texts_of(figure):
    FigureCanvasAgg(figure).draw()
    renderer = figure.canvas.get_renderer()
    found = list(figure.texts)
    for axes in figure.axes:
        found += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            drawn = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [tick.label1 for tick in drawn if tick.label1.get_visible()]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in found if t.get_text().strip()]


@pytest.mark.parametrize("kind", list(_DRAW))
@pytest.mark.parametrize("names, sizes, emulated", [(MANY, SIZES, False), (["ring"], SIZES[:1], False),
                                                    (["ring", "double_tree"], SIZES[3:9], True)])
def test_no_text_lies_on_another_or_outside(analysis_of, kind, names, sizes, emulated):
    fields = {"basis": "emulated", "link": {"latency_us": 12.5, "gbps": 0.125}} if emulated else {}
    world = World(noise=0.1, run_fields=fields)
    result = analysis_of([world.run()] + world.sweep(names, sizes) + world.send_recv())[1].results[0]
    styles = style.styles_for(ordered([result]))
    shown = {label: styles[label] for label in shown_labels(result)}
    setting = result.panel.setting
    with style.context():
        figure = _DRAW[kind](result, shown, Heading(title_of(kind, result), subtitle(kind, result), badge(setting)))
        boxes = texts_of(figure)
    for text, box in boxes:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0, text
        assert box.y1 <= figure.bbox.y1, text
    for (text, box), (other, other_box) in combinations(boxes, 2):
        width = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        height = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert width <= 1 or height <= 3, f"{text!r} lies on {other!r}"
    assert any("EMULATED" in text for text, _ in boxes) == emulated


def test_files_light_and_dark(analysis_of, tmp_path):
    world = World()
    rows = world.sweep(["ring", "double_tree"], SIZES[:8]) + world.send_recv()
    results = analysis_of([world.run()] + rows)[1].results
    figures = render_all(results, tmp_path / "figures")
    assert [f.kind for f in figures[0]] == ["relative", "latency", "busbw", "predicted", "percentiles"]
    assert [f.kind for f in figures[1]] == ["latency", "busbw", "predicted", "percentiles"]
    for file in [*figures[0], *figures[1]]:
        drawn = (tmp_path / "figures" / f"{file.stem}.svg").read_text()
        assert ElementTree.fromstring(drawn).tag.endswith("svg") and file.alt and file.title[0].strip()
        rules = drawn[drawn.index("prefers-color-scheme:dark"):drawn.index("</style>")]
        for light, dark in style.DARK.items():
            for what in ("fill", "stroke"):
                assert (f'[style*="{what}: {light}"]{{{what}:{dark}!important}}' in rules) == (f"{what}: {light}" in drawn)


def test_the_same_records_give_the_same_svg(analysis_of, tmp_path):
    world = World()
    results = analysis_of([world.run()] + world.sweep(["ring", "double_tree"], SIZES[:6]))[1].results
    first, second = (render_all(results, tmp_path / name)[0][0].stem for name in ("a", "b"))
    assert (tmp_path / "a" / f"{first}.svg").read_bytes() == (tmp_path / "b" / f"{second}.svg").read_bytes()
