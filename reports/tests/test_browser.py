"""The page in a headless browser: it shows, its script runs without errors, its tables sort and copy."""
import struct

import pytest
from matplotlib.image import imread

from reports.__main__ import main
from reports.tests.looks import browsed, CHROMIUM, chromium
from reports.tests.world import failed, SIZES, World, write

# Sorts a table both ways, and copies it.
WORK = """
  const tables = Array.from(document.querySelectorAll("table.sortable"));
  const table = tables.find((t) => t.tHead.textContent.includes("busbw"));
  const heads = Array.from(table.tHead.rows[0].cells, (c) => c.textContent.trim());
  const head = (name) => table.tHead.rows[0].cells[heads.indexOf(name)];
  const cell = (row, name) => row.cells[heads.indexOf(name)];
  const value = (row, name) => cell(row, name).dataset.v ?? cell(row, name).textContent;
  const column = (name) => Array.from(table.tBodies[0].rows, (row) => value(row, name));
  const click = (name) => head(name).querySelector("button").click();
  click("median µs"); found.up = column("median µs"); found.sort = head("median µs").ariaSort;
  click("median µs"); found.down = column("median µs");
  click("algorithm"); found.names = column("algorithm");
  let copied = null;
  const clipboard = {writeText: async (text) => { copied = text; }};
  Object.defineProperty(navigator, "clipboard", {value: clipboard, configurable: true});
  table.querySelector("button.copy").click();
  await Promise.resolve();
  found.tsv = copied; found.heads = heads;"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    world = World()
    rows = world.sweep(["ring", "double_tree", "one_shot"], SIZES[:10]) + world.send_recv(SIZES[:20])
    rows[4] = failed(rows[4])
    file = write(folder / "r.jsonl", [world.run()] + rows)
    assert main([file, "-o", str(folder / "report")]) == 0
    return folder / "report" / "index.html"


@pytest.fixture(scope="module")
def probe(report):
    return browsed(report, 1280, WORK)


def test_no_errors_and_all_figures_load(probe):
    assert probe["problems"] == [] and probe["broken"] == [] and probe["wider"] <= 0


def test_tables_sort_numbers_and_names_unknown_last(probe):
    up = [float(value) for value in probe["up"] if value]
    down = [float(value) for value in probe["down"] if value]
    assert len(up) == 29 and up == sorted(up) and down == up[::-1] and probe["sort"] == "ascending"
    assert probe["up"][-1] == probe["down"][-1] == "", "the failed row has no median and stays last"
    assert probe["names"] == sorted(probe["names"])


def test_tables_copy_as_tsv(probe):
    lines = probe["tsv"].rstrip("\n").split("\n")
    assert lines[0].split("\t") == probe["heads"] and len(lines) == 31
    assert {len(line.split("\t")) for line in lines} == {len(probe["heads"])}
    assert {line.split("\t")[0] for line in lines[1:]} == {str(size) for size in SIZES[:10]}, "numbers in full"


@pytest.mark.parametrize("width, height", [(1280, 2000), (500, 2000)])
def test_screenshot_shows_something(report, tmp_path, width, height):
    picture = tmp_path / "page.png"
    chromium(f"--window-size={width},{height}", f"--screenshot={picture}", report.as_uri())
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (width, height)
    pixels = imread(picture)[:, :, :3]
    assert 0.02 < (pixels < 0.5).any(axis=2).mean() < 0.5, "text and lines on a light page"


def test_prints_to_pdf(report, tmp_path):
    chromium("--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'p.pdf'}", report.as_uri())
    assert (tmp_path / "p.pdf").read_bytes()[:5] == b"%PDF-"
