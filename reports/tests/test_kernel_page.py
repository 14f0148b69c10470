"""The kernels' page: structure, links, what is red, what is labelled; and in a headless browser."""
import re
import struct

import pytest

from reports.cli import main
from reports.tests.browser import CHROMIUM, chromium, probed, told_by
from reports.tests.kernel_world import WORKS, KernelWorld, kernel_failed, kernel_wrong, without_ceiling
from reports.tests.test_html import Structure
from reports.tests.world import SIZES, World, write

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
FEW = WORKS[::3]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Kernels with a wrong, a failed, a hostile and an unlimited one, simulated ones, and collectives beside them."""
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


def test_structure_and_links(page):
    out, text = page
    parsed = Structure(text)
    assert len(parsed.ids) == len(set(parsed.ids))
    for link in parsed.links:
        if link.startswith("#"):
            assert link[1:] in parsed.ids
        elif not link.startswith("data:"):
            assert (out / link).is_file(), link
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", text), "the page must need no network"


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


def test_hostile_text_is_escaped(page):
    assert "<script>alert" not in page[1] and "<b>evil" not in page[1] and "&lt;b&gt;evil" in page[1]


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


@pytest.fixture(scope="module", params=[400, 1280])
def probe(page, request):
    return told_by(probed(page[0] / "kernels.html", "GFLOP/s", "kernel"), request.param)


@needs_browser
def test_browser_shows_all_figures_without_errors(probe):
    assert probe["problems"] == [] and probe["broken"] == [] and probe["wider"] <= 0


@needs_browser
def test_browser_sorts_and_copies_the_kernels(probe):
    up = [float(value) for value in probe["up"] if value]
    assert up == sorted(up) and [float(v) for v in probe["down"] if v] == up[::-1] and probe["up"][-1] == ""
    assert probe["names"] == sorted(probe["names"]) and len(up) == 16 * len(FEW) - 1
    lines = probe["tsv"].rstrip("\n").split("\n")
    assert lines[0].split("\t") == probe["heads"] and len(lines) == len(up) + 2
    assert {len(line.split("\t")) for line in lines} == {len(probe["heads"])}


@needs_browser
def test_screenshot_shows_something(page, tmp_path):
    picture = tmp_path / "page.png"
    chromium("--window-size=1280,2400", f"--screenshot={picture}", (page[0] / "kernels.html").as_uri())
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (1280, 2400)
    from matplotlib.image import imread

    pixels = imread(picture)[:, :, :3]
    assert 0.02 < (pixels < 0.5).any(axis=2).mean() < 0.5, "text and lines on a light page"
