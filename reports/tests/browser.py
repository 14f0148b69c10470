"""Runs a page in a headless browser and returns the output and effects of its script as data."""
import json
import re
import shutil
import subprocess

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
