"""Pages of 1,400 px as a reader sees them: text of figures that can be read, tables that scroll in themselves, a line for each run."""
import json
import re
from html import unescape

import pytest

from reports.__main__ import main
from reports.tests.test_browser import CHROMIUM, chromium
from reports.tests.test_overview import every_kind
from reports.tests.world import World, SIZES, write

WIDTH, LEAST = 1400, 9.0  # px

# Writes into the page what the browser made of it: widths of figures, and of tables beside those of their frames.
PROBE = """<script>window.addEventListener("load", async () => {
  for (const image of document.images) { image.loading = "eager"; }
  for (const each of document.querySelectorAll("details")) { each.open = true; }
  await Promise.all(Array.from(document.images, (i) => i.decode()));
  const framed = (t) => ["auto", "scroll"].includes(getComputedStyle(t.parentElement).overflowX);
  const out = document.createElement("pre"); out.id = "probe";
  out.textContent = JSON.stringify({
    images: Array.from(document.images, (i) => [i.getAttribute("src"), i.getBoundingClientRect().width]),
    tables: Array.from(document.querySelectorAll("table"), (t) => [t.innerText.slice(0, 40), framed(t)]),
    runs: Array.from(document.querySelectorAll("#runs tbody tr"), (r) => r.getBoundingClientRect().height),
    wider: document.documentElement.scrollWidth - document.documentElement.clientWidth});
  document.body.append(out);
});</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def shown(page, width=WIDTH):
    copy = page.with_name(f"probed-{page.name}")
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"), encoding="utf-8")
    dumped = chromium(f"--window-size={width},2000", "--virtual-time-budget=20000", "--dump-dom", copy.as_uri())
    copy.unlink()
    return json.loads(unescape(re.search(r'<pre id="probe">(.*?)</pre>', dumped, flags=re.DOTALL).group(1)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder of a report of every kind of record and of three records of one program's run, and what a browser shows of each page."""
    folder = tmp_path_factory.mktemp("legible")
    sweeps = [World(ranks=ranks, run_name=f"of-{ranks}", run_fields={"command": ["all_reduce_perf", "--ranks", "2,4,8"]})
              for ranks in (2, 4, 8)]
    records = [record for world in sweeps for record in (world.run(), *world.sweep(["ring", "double_tree"], SIZES[::2]))]
    again = World(ranks=2, run_name="again", run_fields={"command": ["all_reduce_perf", "--ranks", "2,4,8"]})
    files = [write(folder / "r.jsonl", records), write(folder / "s.jsonl", [again.run(), *again.sweep(["ring"], SIZES[:3]), *every_kind()])]
    assert main([*files, "-o", str(folder / "report")]) == 0
    return folder / "report", {page.name: shown(page) for page in sorted((folder / "report").glob("*.html"))}


def smallest_px(svg: str, width: float) -> float:
    view = float(re.search(r'viewBox="0 0 ([\d.]+) ', svg).group(1))
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)]
    return min(sizes) * width / view


def test_the_measure_is_of_the_smallest_text():
    svg = '<svg viewBox="0 0 500 300"><text style="font-size: 7px">a</text><text style="font-size: 12px">b</text></svg>'
    assert smallest_px(svg, 1000) == 14


def test_text_in_figures_can_be_read(pages):
    folder, found = pages
    small = {f"{name}: {source}": px for name, page in found.items() for source, width in page["images"]
             if (px := smallest_px((folder / source).read_text(encoding="utf-8"), width)) < LEAST}
    assert sum(len(page["images"]) for page in found.values()) > 40 and small == {}


def test_a_wide_table_scrolls_in_itself(pages):
    for name, page in pages[1].items():
        assert page["wider"] <= 0, name
        assert [text for text, framed in page["tables"] if not framed] == [], name


def test_a_run_of_a_program_is_one_line(pages):
    folder, found = pages
    text = (folder / "index.html").read_text(encoding="utf-8")
    runs = re.search(r'<section id="runs">.*?</section>', text, flags=re.DOTALL).group()
    assert runs.count("all_reduce_perf --ranks 2,4,8") == 2, "one of each file"
    assert "<td>of-2, of-4 and of-8</td>" in runs and "<td>2, 4 and 8</td>" in runs
    for name, page in found.items():
        assert page["runs"] and max(page["runs"]) < 30, f"{name}: a run takes more than a line of text"
