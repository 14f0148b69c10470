"""The first page of a report with several: a card for each page, a folder that stays small; and figures of all pages."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

from reports.claims.data import load_suite
from reports.__main__ import main
from reports import pages as pages_package
from reports.pages import pages, studies
from reports.pages.collectives import _SHOWS, PAGE
from reports.plots import style
from reports.plots.drawn import figure_of, render
from reports.plots.frame import compact, spread
from reports.tests.world import (
    ContextWorld, experts_line, experts_run, failed, GateWorld, LayerWorld, sharding, SIZES, TrainingWorld, World, write)
from reports.tests.kernel_world import KernelWorld
from reports.tests.step_world import LayoutWorld, StepWorld
from reports.tests.test_training_page import bucket_steps
from reports.tests.looks import expect_apart
from reports.tests.test_html import Structure
from reports.tests.test_results import MANY


MOST_BYTES = 40_000  # a figure, on average


def claims() -> list[dict]:
    """Records of plans counted by a command of the claims' suite, for three numbers of ranks."""
    command = {"command": list(load_suite()["plans"])}
    worlds = [World(ranks=ranks, run_name=f"claims-{ranks}", run_fields=command) for ranks in (4, 8, 16)]
    return [record for world in worlds for record in (world.run(), world.row("ring", 1 << 16), world.row("double_tree", 1 << 16))]


def every_kind() -> list[dict]:
    """Records of every kind, one row of which failed."""
    rows, step, layers, training = World(), StepWorld(run_name="step"), LayerWorld(), TrainingWorld()
    contexts = ContextWorld()
    buckets = StepWorld(ranks=2, run_name="buckets", basis="measured")
    return [
        rows.run(), *rows.sweep(["ring", "double_tree", "tree"], SIZES[::4]), *rows.send_recv(SIZES[::4]),
        failed(rows.row("ring", 8, "all_gather")),
        *KernelWorld(sizes=(1,), threads=(1, 2)).records(), buckets.run(), *bucket_steps(buckets),
        World(ranks=2, run_name="zero", run_fields={"program": "zero_bench"}).run(), *map(sharding, range(4)),
        layers.run(), layers.layer(), layers.layer(tiles=2, overlapped=600.0),
        contexts.run(), contexts.context(), contexts.context("zigzag"),
        experts_run(), experts_line(), experts_line(load_of=2.0), step.run(), *step.sweep(),
        LayoutWorld().run(), *LayoutWorld().sweep(), *LayoutWorld().study(), training.run(), training.training(),
        *(training.scaling(dp) for dp in (1, 2)), *[GateWorld().run(), GateWorld().case("a")], *claims(),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("overview")
    assert main([write(base / "all.jsonl", every_kind()), "-o", str(base / "report")]) == 0
    return base / "report"


def test_every_subject_has_a_card_with_a_finding_a_figure_and_a_page(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    cards = re.findall(r'<section id="(\w+)" class="card">(.*?)</section>', text, flags=re.DOTALL)
    titles = {page.subject: page.title for page in pages()}
    assert [name for name, _ in cards] == list(titles)
    for name, card in cards:
        assert f'<h2><a href="{name}.html">{titles[name]}</a></h2>' in card
        assert re.search(r"<li.*?><a href=.*?<p>\w", card, flags=re.DOTALL), f"{name}: no finding"
        (figure,) = re.findall(r'<img src="(figures/[^"]+)"', card)
        assert (folder / figure).is_file()
    failures = {name for name, card in cards if 'class="alert"' in card}
    assert failures == {"collectives"}, "what failed is on the first page"


def test_the_bold_line_and_the_figure_below_it_are_of_one_run(folder):
    """They describe the layout that the chart shows; the training run has a sentence of its own below."""
    step = re.search(r'<section id="step".*?</section>', (folder / "index.html").read_text(encoding="utf-8"), flags=re.DOTALL).group()
    bold, chart = re.search(r'class="answer">(.*?)</p>', step).group(1), re.search(r'alt="([^"]*)"', step).group(1)
    layout = re.search(r"dp=\d, \w+", unescape(chart)).group()
    assert f", {layout}:" in unescape(bold).replace("\xa0", " ") and "of the step" in unescape(bold).replace("\xa0", " ")
    others = re.findall(r"<p>(.*?)</p>", step)
    assert "Trained in another run: " in others[-1].replace("\xa0", " ") and not any("another run" in text for text in [bold, *others[:-1]])


def test_the_figure_of_a_card_is_of_one_of_its_findings(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    for name, card in re.findall(r'<section id="(\w+)" class="card">(.*?)</section>', text, flags=re.DOTALL):
        anchors = re.findall(rf'<a href="{name}\.html#([\w-]+)"', card)
        figure = re.search(r'<img src="figures/([^"]+)"', card).group(1)
        assert name == "claims" or figure.startswith(tuple(f"{anchor}-" for anchor in anchors)), (name, figure, anchors)


def test_links_lead_to_places_that_are_there(folder):
    """Links of every page; a page needs no network, and its ids are unique."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}
    parsed = {name: Structure(text) for name, text in texts.items()}
    assert set(parsed) == {"index.html", *(f"{page.subject}.html" for page in pages())}
    for page, found in parsed.items():
        assert len(found.ids) == len(set(found.ids)) and found.counts["h1"] == 1 and found.counts["img"]
        assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", texts[page]), f"{page} must need no network"
        for link in found.links:
            name, _, anchor = link.partition("#")
            assert link.startswith("data:") or (folder / name).exists(), f"{page}: {link}"
            assert link.startswith("data:") or not anchor or anchor in parsed[name or page].ids, f"{page}: {link}"


def test_a_figure_is_one_small_file(folder):
    files = list((folder / "figures").iterdir())
    assert len(files) > 20 and {path.suffix for path in files} == {".svg"}
    sizes = sorted(path.stat().st_size for path in files)
    assert sum(sizes) / len(sizes) < MOST_BYTES and sizes[-1] < 4 * MOST_BYTES, sizes[-3:]


def test_numbers_and_text_survive_what_makes_a_figure_small():
    drawn = compact("""<?xml version="1.0"?><svg width="1pt"><metadata>x</metadata><defs><style>*{}</style></defs>
 <g id="text_1"><!-- 1.2345 -->
  <text style="fill: #1c1f23; font: 700 11px 'DejaVu Sans'; text-anchor: start" x="1.23456" y="2" transform="rotate(-0 1 2)">1.2345  &gt; 1</text>
 </g><path d="M 1.005001 2
L -0.001 3
z" style="fill: none; stroke: #0072b2"/></svg>""", style.DARK)
    text = r'<text style="fill: #1c1f23; font-size: 11px; font-weight: 700; text-anchor: start" x="1.23" y="2" textLength="([\d.]+)"'
    width = re.search(text, drawn)
    assert width and 60 < float(width.group(1)) < 90, "eleven bold letters of 11 px"
    assert ">1.2345  &gt; 1</text>" in drawn and 'd="M1.01 2L-0 3z"' in drawn and "metadata" not in drawn
    assert '[style*="fill: #1c1f23"]{fill:#e8eaed!important}' in drawn and '"stroke: #1c1f23"' not in drawn


# Figures: files that exist and are well-formed, labels that do not overlap, colours with a counterpart on dark pages.

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


@pytest.mark.parametrize("kind", list(_SHOWS))
@pytest.mark.parametrize("names, sizes, emulated", [(MANY, SIZES, False), (["ring"], SIZES[:1], False),
                                                    (["ring", "double_tree"], SIZES[3:9], True)])
def test_no_text_lies_on_another_or_outside(analysis_of, kind, names, sizes, emulated):
    fields = {"basis": "emulated", "link": {"latency_us": 12.5, "gbps": 0.125}} if emulated else {}
    world = World(noise=0.1, run_fields=fields)
    result = analysis_of([world.run()] + world.sweep(names, sizes) + world.send_recv())[1][0]
    drawn = {drawing.kind: drawing for section in PAGE.sections([result]) for drawing in section.drawings}
    if kind not in drawn:
        assert kind == "relative" and names == ["ring"], "there is nothing to compare"
        return
    with style.context():
        figure = figure_of(drawn[kind])
        expect_apart(figure)
    assert any("EMULATED" in text.get_text() for text in figure.texts) == emulated


def test_every_figure_is_well_formed_and_has_colours_for_dark_pages(folder):
    for path in (folder / "figures").iterdir():
        drawn = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
        rules = drawn[drawn.index("prefers-color-scheme:dark"):drawn.index("</style>")]
        for light, dark in style.DARK.items():
            for what in ("fill", "stroke"):
                assert (f'[style*="{what}: {light}"]{{{what}:{dark}!important}}' in rules) == (f"{what}: {light}" in drawn)


def test_panels_have_a_figure_for_each_question(analysis_of):
    world = World()
    results = analysis_of([world.run()] + world.sweep(["ring", "double_tree"], SIZES[:8]) + world.send_recv())[1]
    two, line = [part.drawings for section in PAGE.sections(results) for part in section.parts]
    assert [drawn.kind for drawn in two] == ["relative", "latency", "busbw", "predicted", "percentiles"]
    assert [drawn.kind for drawn in line] == ["latency", "busbw", "predicted", "percentiles"]
    assert all(drawn.alt and drawn.heading.title.strip() for drawn in [*two, *line])


def test_the_same_records_give_the_same_svg(analysis_of, tmp_path):
    world = World()
    results = analysis_of([world.run()] + world.sweep(["ring", "double_tree"], SIZES[:6]))[1]
    first, *_ = PAGE.sections(results)[0].drawings
    for name in ("a", "b"):
        render([first], tmp_path / name)
    assert (tmp_path / "a" / f"{first.stem}.svg").read_bytes() == (tmp_path / "b" / f"{first.stem}.svg").read_bytes()


# ---- Pages as data

def test_every_figure_that_a_page_names_has_a_function():
    named = {name for path in Path(pages_package.__file__).parent.glob("*.py")
             for name in re.findall(r'"(\w+\.\w+_(?:figure|of)|curves\.\w+)"', path.read_text(encoding="utf-8"))}
    named |= {f"study_figures.{name}" for name, _ in studies.DRAWN.values()}
    assert len(named) > 25
    for name in named:
        module, function = name.split(".")
        assert callable(getattr(import_module(f"reports.plots.{module}"), function)), name


def test_pages_have_names_and_places_of_their_own():
    assert [page.place for page in pages()] == list(range(1, len(pages()) + 1))
    assert len({page.subject for page in pages()}) == len(pages())


def test_a_summary_needs_no_matplotlib(folder):
    program = "import sys; from reports.__main__ import main; assert main(sys.argv[1:]) == 0 and 'matplotlib' not in sys.modules"
    records = [str(path) for path in (folder / "records").iterdir()]
    subprocess.run([sys.executable, "-c", program, *records, "--summary"], check=True, capture_output=True, cwd=Path(__file__).parents[2])
