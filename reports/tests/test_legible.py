"""Pages of 1,400 px as a reader sees them: text of figures that can be read, tables that scroll in themselves, a line for each run."""
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from reports.__main__ import main
from reports.tests.looks import browsed, CHROMIUM
from reports.tests.test_overview import every_kind
from reports.tests.world import World, SIZES, write

WIDTH, PHONE, LEAST = 1400, 400, 9.0  # px

# Widths of figures, tables without a frame that scrolls, and heights of runs.
WORK = """
  for (const each of document.querySelectorAll("details")) { each.open = true; }
  const framed = (t) => ["auto", "scroll"].includes(getComputedStyle(t.parentElement).overflowX);
  found.images = Array.from(document.images, (i) => [i.getAttribute("src"), i.getBoundingClientRect().width]);
  const tables = Array.from(document.querySelectorAll("table"));
  found.unframed = tables.filter((t) => !framed(t)).map((t) => t.innerText.slice(0, 40));
  found.runs = Array.from(document.querySelectorAll("#runs tbody tr"), (r) => r.getBoundingClientRect().height);"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


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
    written = sorted((folder / "report").glob("*.html"))
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda page: browsed(page, WIDTH, WORK), written)
        phone = pool.map(lambda page: browsed(page, PHONE), written)
    names = [page.name for page in written]
    return folder / "report", dict(zip(names, found)), {f"{name} on a phone": page for name, page in zip(names, phone)}


def smallest_px(svg: str, width: float) -> float:
    view = float(re.search(r'viewBox="0 0 ([\d.]+) ', svg).group(1))
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)]
    return min(sizes) * width / view


def test_the_measure_is_of_the_smallest_text():
    svg = '<svg viewBox="0 0 500 300"><text style="font-size: 7px">a</text><text style="font-size: 12px">b</text></svg>'
    assert smallest_px(svg, 1000) == 14


def test_text_in_figures_can_be_read(pages):
    folder, found, _ = pages
    small = {f"{name}: {source}": px for name, page in found.items() for source, width in page["images"]
             if (px := smallest_px((folder / source).read_text(encoding="utf-8"), width)) < LEAST}
    assert sum(len(page["images"]) for page in found.values()) > 40 and small == {}


def test_pages_show_all_figures_without_errors_and_nothing_is_wider_than_the_window(pages):
    for name, page in {**pages[1], **pages[2]}.items():
        assert page["problems"] == [] and page["broken"] == [] and page["wider"] <= 0, name


def test_a_wide_table_scrolls_in_itself(pages):
    assert {name: page["unframed"] for name, page in pages[1].items() if page["unframed"]} == {}


def test_a_run_of_a_program_is_one_line(pages):
    folder, found, _ = pages
    text = (folder / "index.html").read_text(encoding="utf-8")
    runs = re.search(r'<section id="runs">.*?</section>', text, flags=re.DOTALL).group()
    assert runs.count("all_reduce_perf --ranks 2,4,8") == 2, "one of each file"
    assert "<td>of-2, of-4 and of-8</td>" in runs and "<td>2, 4 and 8</td>" in runs
    for name, page in found.items():
        assert page["runs"] and max(page["runs"]) < 30, f"{name}: a run takes more than a line of text"
