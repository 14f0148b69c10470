"""How figures and pages look: texts that lie apart and on their figure, and what a browser makes of a page."""
import json
import re
import shutil
import subprocess
from html import unescape
from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

# Inserted before the script of a page; errors are written into the page, which is dumped.
_CATCH = """<script>window.problems = [];
window.addEventListener("error", (e) => problems.push(String(e.message || e.target.src || e.target.href)), true);
window.addEventListener("unhandledrejection", (e) => problems.push(String(e.reason)));</script>"""

# Inserted after it: loads all figures, and writes what was found into the page.
_PROBE = """<script>window.addEventListener("load", async () => {
  const found = {problems, broken: []};
  for (const image of document.images) { image.loading = "eager"; }
  await Promise.all(Array.from(document.images, (i) => i.decode().catch(() => found.broken.push(i.src))));
  WORK
  found.wider = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const out = document.createElement("pre"); out.id = "probe"; out.textContent = JSON.stringify(found);
  document.body.append(out);
});</script>"""


def chromium(*arguments):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode("utf-8")


def browsed(page, width, work=""):
    """Finds in a browser, on a page: problems of its script, broken figures, pixels beyond the window; and what `work` puts
    into `found`."""
    copy = page.with_name(f"probed-{width}-{page.name}")
    text = page.read_text(encoding="utf-8").replace("<head>", "<head>" + _CATCH)
    copy.write_text(text.replace("</body>", _PROBE.replace("WORK", work) + "</body>"), encoding="utf-8")
    dumped = chromium(f"--window-size={width},2000", "--virtual-time-budget=20000", "--dump-dom", copy.as_uri())
    copy.unlink()
    found = re.search(r'<pre id="probe">(.*?)</pre>', dumped, flags=re.DOTALL)
    assert found, "the page's script did not come to its end"
    return json.loads(unescape(found.group(1)))


def slanted(text):
    return text.get_rotation() not in (0, 90)


def texts_of(figure):
    """Every text with its own box, as the box of an annotation would extend to its point."""
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


def expect_apart(figure, wide=1.0, high=3.0, edge=0.0):
    """No text is outside of the figure by more than `edge` pixels; no two straight ones share more than `wide` by `high`."""
    boxes = texts_of(figure)
    for text, box in boxes:
        assert figure.bbox.x0 - edge <= box.x0 and box.x1 <= figure.bbox.x1 + edge, text.get_text()
        assert figure.bbox.y0 - edge <= box.y0 and box.y1 <= figure.bbox.y1 + edge, text.get_text()
    for (text, box), (other, other_box) in combinations([box for box in boxes if not slanted(box[0])], 2):
        width = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        height = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert width <= wide or height <= high, f"{text.get_text()!r} lies on {other.get_text()!r}"
