"""Tests the page as a file: structure, links, escaping, and a folder that is written completely or not at all."""
import gzip
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.html import write as write_module
from reports.load import load
from reports.tests.world import SIZES, World, failed, write, wrong

VOID = {"meta", "link", "img", "source", "br", "input"}


class Structure(HTMLParser):
    """Checks that elements nest; collects ids, links, text and rows."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.counts, self.words = [], [], [], {}, []
        self.feed(text)
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes[name] for name in ("href", "src", "srcset") if attributes.get(name)]
        if tag == "img":
            assert attributes.get("alt")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words).replace("\u00a0", " "))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of measured and emulated records with a wrong, a failed and a hostile row."""
    folder = tmp_path_factory.mktemp("report")
    world = World()
    rows = world.sweep(["ring", "double_tree", "one_shot"], SIZES[:12]) + world.send_recv()
    rows[0], rows[1] = wrong(rows[0]), failed(rows[1], "<script>alert(1)</script> & more")
    rows.append({**world.row("ring", 8, "broadcast"), "algorithm": "<b>evil</b>"})
    paced = World(run_name="run-2", run_fields={"basis": "emulated", "link": {"latency_us": 10, "gbps": 1.0}})
    (folder / "other").mkdir()
    files = [write(folder / "sweep.jsonl", [world.run()] + rows),
             write(folder / "other" / "sweep.jsonl", [paced.run()] + paced.sweep(["ring", "double_tree"], SIZES[:12]))]
    out = folder / "deep" / "report"
    assert main([*files, "-o", str(out)]) == 0
    return out, files, (out / "index.html").read_text(encoding="utf-8")


def test_first_screen_says_machine_runs_and_findings(page):
    text = Structure(page[2]).text
    head = text[:text.index("Before you read the numbers")]
    for part in ("Example CPU 2.6 GHz, 16 cores, 64 GiB", "all_reduce_perf: 8 ranks over local (threads)",
                 "double_tree is faster", "needs 6 messages one after another", "emulated link of 10 µs, 1 GB/s"):
        assert part in head


def test_wrong_and_failed_rows_are_red(page):
    rows = re.findall(r'<tr class="bad">.*?</tr>', page[2], flags=re.DOTALL)
    assert len(rows) == 4 and sum("17 elements differ" in row for row in rows) == 1
    assert "1 row had wrong results" in Structure(page[2]).text


def test_hostile_text_is_escaped(page):
    assert "<script>alert" not in page[2] and "<b>evil" not in page[2]
    assert "&lt;script&gt;alert(1)" in page[2] and "&lt;b&gt;evil" in page[2]


def test_emulated_is_labelled_in_heading_table_and_plot(page):
    out, _, text = page
    article = next(a for a in text.split("<article")[1:] if "not-measured" in a.split(">")[0])
    assert 'class="badge">emulated link of 10' in article.split("</h3>")[0]
    assert article.count('class="table-badge"') == article.count('<details class="data">') >= 2
    measured = next(a for a in text.split("<article")[1:] if "not-measured" not in a.split(">")[0])
    assert 'class="badge"' not in measured
    assert list((out / "figures").glob("*emulated-latency.svg"))


def test_raw_records_are_copied_under_different_names(page):
    out, files, _ = page
    copies = [out / "records" / name for name in ("sweep.jsonl.gz", "sweep-2.jsonl.gz")]
    assert [gzip.decompress(copy.read_bytes()) for copy in copies] == [Path(file).read_bytes() for file in files]
    read = [[(row.run.run, row.algorithm, row.samples_us) for row in load(names).rows] for names in (list(map(str, copies)), list(files))]
    assert read[0] == read[1]


def test_a_report_is_replaced_whole(simple_file, tmp_path):
    out = tmp_path / "report"
    assert main([simple_file, "-o", str(out)]) == 0
    (out / "stale.txt").write_text("old")
    assert main([simple_file, "-o", str(out)]) == 0
    assert not (out / "stale.txt").exists() and (out / "index.html").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report", "simple.jsonl"]


def test_a_failure_leaves_the_old_report(simple_file, tmp_path, monkeypatch, capsys):
    out = tmp_path / "report"
    assert main([simple_file, "-o", str(out)]) == 0
    before = (out / "index.html").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write_module, "render", full)
    assert main([simple_file, "-o", str(out)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert (out / "index.html").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report", "simple.jsonl"]


def test_a_failed_rename_puts_the_old_report_back(simple_file, tmp_path, monkeypatch):
    out = tmp_path / "report"
    assert main([simple_file, "-o", str(out)]) == 0
    rename = Path.rename

    def refuse_new(self, target):
        if ".new-" in self.name:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_new)
    assert main([simple_file, "-o", str(out)]) == 2
    assert (out / "index.html").exists()


def test_a_folder_that_is_not_a_report_is_not_touched(simple_file, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    for target in ("mine", "simple.jsonl"):
        assert main([simple_file, "-o", str(tmp_path / target)]) == 2
        assert "is not a report" in capsys.readouterr().err
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


def test_output_that_cannot_be_made(simple_file, tmp_path, capsys):
    assert main([simple_file, "-o", str(Path(simple_file) / "under" / "a" / "file")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_summary_prints_findings_and_writes_nothing(simple_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([simple_file, "--summary"]) == 0
    printed = capsys.readouterr().out
    assert "All-reduce, 8 ranks, float sum, measured:" in printed and "double_tree is faster" in printed
    assert not (tmp_path / "out").exists() and "report:" not in printed


def test_the_path_of_the_page_is_the_last_line(simple_file, tmp_path, capsys):
    assert main([simple_file, "-o", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {tmp_path / 'r' / 'index.html'}"


def test_every_row_failed_still_makes_a_page(tmp_path):
    world = World()
    file = write(tmp_path / "f.jsonl", [world.run()] + [failed(row) for row in world.sweep(["ring"], SIZES[:2])])
    assert main([file, "-o", str(tmp_path / "r")]) == 0
    assert "Nothing here was timed correctly" in (tmp_path / "r" / "index.html").read_text()
