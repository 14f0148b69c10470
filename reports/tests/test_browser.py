"""The page in a headless browser: it shows, its script runs without errors, its tables sort and copy."""
import json
import re
import shutil
import struct
import subprocess

import pytest
from matplotlib.image import imread

from reports.__main__ import main
from reports.tests.world import failed, SIZES, World, write

# ---- Runs a page and returns the output and effects of its script as data

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

# Inserted before our script; errors are written into the page, which is dumped.
CATCH = """<script>window.problems = [];
window.addEventListener("error", (e) => problems.push(String(e.message || e.target.src || e.target.href)), true);
window.addEventListener("unhandledrejection", (e) => problems.push(String(e.reason)));</script>"""

# Inserted after it: sorts a table both ways, copies it, and writes the results into the page.
PROBE = """<script>window.addEventListener("load", async () => {
  const result = {problems, broken: []};
  for (const image of document.images) { image.loading = "eager"; }
  await Promise.all(Array.from(document.images, (i) => i.decode().catch(() => result.broken.push(i.src))));
  const tables = Array.from(document.querySelectorAll("table.sortable"));
  const table = tables.find((t) => t.tHead.textContent.includes("TABLE"));
  const heads = Array.from(table.tHead.rows[0].cells, (c) => c.textContent.trim());
  const head = (name) => table.tHead.rows[0].cells[heads.indexOf(name)];
  const cell = (row, name) => row.cells[heads.indexOf(name)];
  const value = (row, name) => cell(row, name).dataset.v ?? cell(row, name).textContent;
  const column = (name) => Array.from(table.tBodies[0].rows, (row) => value(row, name));
  const click = (name) => head(name).querySelector("button").click();
  click("median µs"); result.up = column("median µs"); result.sort = head("median µs").ariaSort;
  click("median µs"); result.down = column("median µs");
  click("WORDS"); result.names = column("WORDS");
  let copied = null;
  const clipboard = {writeText: async (text) => { copied = text; }};
  Object.defineProperty(navigator, "clipboard", {value: clipboard, configurable: true});
  table.querySelector("button.copy").click();
  await Promise.resolve();
  result.tsv = copied; result.heads = heads;
  result.wider = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const out = document.createElement("pre"); out.id = "probe"; out.textContent = JSON.stringify(result);
  document.body.append(out);
});</script>"""


def chromium(*arguments):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode("utf-8")


def probed(index, table, words):
    """A copy of the page that reports what happens to its first table with the column `table`; `words` is sorted too."""
    text = index.read_text(encoding="utf-8")
    probe = PROBE.replace("TABLE", table).replace("WORDS", words)
    copy = index.with_name(f"probed-{index.name}")
    copy.write_text(text.replace("<head>", "<head>" + CATCH).replace("</body>", probe + "</body>"), encoding="utf-8")
    return copy


def told_by(page, width):
    dumped = chromium(f"--window-size={width},900", "--virtual-time-budget=20000", "--dump-dom", page.as_uri())
    found = re.search(r'<pre id="probe">(.*?)</pre>', dumped, flags=re.DOTALL)
    assert found, "the page's script did not come to its end"
    return json.loads(found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    world = World()
    rows = world.sweep(["ring", "double_tree", "one_shot"], SIZES[:10]) + world.send_recv(SIZES[:20])
    rows[4] = failed(rows[4])
    file = write(folder / "r.jsonl", [world.run()] + rows)
    assert main([file, "-o", str(folder / "report")]) == 0
    index = folder / "report" / "index.html"
    return index, probed(index, "busbw", "algorithm")


@pytest.fixture(scope="module", params=[400, 1280])
def probe(report, request):
    return told_by(report[1], request.param)


def test_no_errors_and_all_figures_load(probe):
    assert probe["problems"] == [] and probe["broken"] == []


def test_nothing_is_wider_than_the_window(probe):
    assert probe["wider"] <= 0


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
    chromium(f"--window-size={width},{height}", f"--screenshot={picture}", report[0].as_uri())
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (width, height)
    pixels = imread(picture)[:, :, :3]
    assert 0.02 < (pixels < 0.5).any(axis=2).mean() < 0.5, "text and lines on a light page"


def test_prints_to_pdf(report, tmp_path):
    chromium("--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'p.pdf'}", report[0].as_uri())
    assert (tmp_path / "p.pdf").read_bytes()[:5] == b"%PDF-"
