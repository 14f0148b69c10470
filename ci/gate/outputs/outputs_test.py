"""Every output of the gate, read back as its reader reads it: the table by its columns, Markdown by its cells, JUnit by an
XML parser, records by the report's loader."""
import argparse
import io
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gate.model import Change, Channel, CouldNotRun, Point, Report, Result, Series, Side, UsageError, Verdict
from gate.history import HistoryRule, report_of as history_report
from gate.outputs import add_arguments, prepare_outputs, with_earlier
from gate.outputs.markdown import junit, LONGEST, markdown
from gate.outputs.records import fingerprint, lines_of, text_of, this_machine, write_whole
from gate.outputs.terminal import COLUMNS, table, wants_colour
from reports.load import load

# ---- Made-up reports

BASE, HEAD = "0123456789abcdef" * 2 + "01234567", "fedcba9876543210" * 2 + "fedcba98"
HOSTILE = "line: <script>&\"x\"</script> | a`b``c\\d *e* [f](g) @name \x07\x1b[31m ü"


def timed(case: str, verdict: Verdict, ratio: float = 1.0, half: float = 0.01, **fields: object) -> Result:
    known = {"base": 12.5, "head": 12.5 * ratio, "ratio": ratio, "low": ratio - half, "high": ratio + half, "pairs": 12,
             "ratios": (ratio - half, ratio, ratio + half), "seconds": 0.75, "why": "12 pairs"}
    return Result(case, Channel.TIME, verdict, "us", **{**known, **fields})


def counted(case: str, base: float, head: float, unit: str = "bytes") -> Result:
    verdict = Verdict.SLOWER if head > base else Verdict.FASTER if head < base else Verdict.SAME
    return Result(case, Channel.EXACT, verdict, unit, base=base, head=head, ratio=head / base if base else None)


def report_of(*results: Result, notes: tuple[str, ...] = ()) -> Report:
    return Report("ab", Side("main", BASE, "0123456789ab"), Side("my-branch", HEAD, "fedcba987654"), 0.02, 0.9, results, 31.25, notes)


def mixed() -> Report:
    return report_of(
        timed("kernels: same", Verdict.SAME), timed("kernels: slower", Verdict.SLOWER, 1.051, 0.02, why="confirmed by 12 fresh pairs"),
        timed("kernels: unclear", Verdict.UNDECIDED, 1.018, 0.03, why="not clear after 24 pairs"),
        timed("kernels: faster", Verdict.FASTER, 0.96), Result(HOSTILE, Channel.TIME, Verdict.NEW, "us"),
        Result("kernels: went", Channel.TIME, Verdict.GONE, "us"), counted("plan: bytes", 1_048_576, 1_048_640),
        timed("kernels: early", Verdict.UNDECIDED, 1.0, low=None, high=None, why="the budget was spent"),
        notes=("machines differ | <not> *the same*",))


def history() -> Report:
    """A recent step of 10 % in one case, an old one in another, a third that is too short."""
    points = tuple(Point(f"2026-03-{i + 1:02d}T10:00:00Z", f"{i:040x}", f"r{i}.jsonl", 10.0 if i < 9 else 11.0) for i in range(14))
    step = Change(9, "000000000008..000000000009", 10.0, 11.0, True, 1.1, 1.08, 1.12, 0.001, True)
    old = Change(9, "000000000008..000000000009", 0.0, 11.0, True, None, None, None, 0.001, False)
    return history_report("records", HistoryRule(), (
        Series("kernels: recent", Channel.STORED, "us", "lower", points, (step,)),
        Series("plan: old", Channel.EXACT, "bytes", "lower", points, (old,)),
        Series("kernels: short", Channel.STORED, "us", "lower", points[:3], (), "3 points; 8 are needed")), 1.5, ())


EMPTY = report_of()
UNDECIDED = report_of(*(timed(f"kernels: {i}", Verdict.UNDECIDED, why="not clear after 24 pairs") for i in range(3)))
STARTED = "2026-11-21T23:45:49Z"


def prepared(*words: str) -> object:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.add_argument("--undecided", default="status")
    return prepare_outputs(parser.parse_args(words), words)


# --- the table


def test_the_table_is_worst_first_and_hides_what_is_the_same():
    lines = table(mixed(), show_all=False).splitlines()
    assert lines[0] == "main (0123456789ab) -> my-branch (fedcba987654), threshold 2 %"
    assert lines[1].startswith("note: machines differ") and lines[2].split() == list(COLUMNS)
    assert [line.split()[0] for line in lines[3:-1]] == ["slower", "slower", "undecided", "undecided", "gone", "new", "faster"]
    assert lines[-1] == "REGRESSION: 2 slower, 2 undecided, 1 gone, 1 new, 1 faster, 1 same; 8 cases in 31 s"
    assert "kernels: same" in table(mixed(), show_all=True)


def test_columns_are_aligned():
    lines = table(report_of(timed("a", Verdict.SLOWER, 1.051), timed("b", Verdict.SLOWER, 1.5)), show_all=True).splitlines()
    for name in ("case", "why"):
        assert len({line.index(text) for line, text in zip(lines[1:4], (name, {"case": "b", "why": "12 p"}[name],
                                                                          {"case": "a", "why": "12 p"}[name]))}) == 1
    assert lines[2].index("12.5 us") + len("12.5 us") == lines[3].index("12.5 us") + len("12.5 us")
    assert lines[2].split()[:3] == ["slower", "+50.0", "%"], "the worst is first"


def test_columns_that_say_nothing_are_left_out():
    assert table(report_of(counted("a", 8, 9)), show_all=False).splitlines()[1].split() == ["verdict", "change", "base", "head", "case"]


def test_colours_only_on_a_terminal_that_wants_them():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True
    assert wants_colour(Terminal(), {}) and wants_colour(Terminal(), {"NO_COLOR": ""})
    assert not wants_colour(Terminal(), {"NO_COLOR": "1"}) and not wants_colour(io.StringIO(), {})
    assert not wants_colour(Terminal(), {"TERM": "dumb"})
    plain, painted = (table(mixed(), show_all=True, colour=colour) for colour in (False, True))
    assert re.sub("\033\\[[0-9;]*m", "", painted) == plain and "\033" not in plain, "also where a name has escapes"
    assert len(set(re.findall(r"\033\[([0-9;]+)m(?:undecided|same|slower|faster)\033", painted))) == 4, "distinguishable"


@pytest.mark.parametrize("report, line", [
    (EMPTY, "pass: no cases; 0 cases in 31 s"), (UNDECIDED, "undecided: 3 undecided; 3 cases in 31 s"),
    (report_of(counted("a", 8, 8)), "pass: 1 same; 1 case in 31 s")])
def test_the_closing_line(report, line):
    assert table(report, show_all=False).splitlines()[-1] == line


# --- Markdown


def cells(row: str) -> list[str]:
    """As GitHub splits a row: at each '|' without a backslash before it."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def tables(text: str) -> list[list[list[str]]]:
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [[cells(row) for row in block.splitlines()] for block in found]


def test_markdown_says_the_verdict_first_and_folds_the_rest():
    text = markdown(mixed(), "python3 ci/gate.py ab --base main")
    assert text.startswith("### Performance gate: REGRESSION\n\n**2 of 8 cases are slower, kernels: slower most, by +5.1 %")
    notable, everything = tables(text)
    assert {len(row) for block in (notable, everything) for row in block} == {7}, "each row has the columns of its head"
    assert len(notable) == 2 + 7 and len(everything) == 2 + 8
    assert notable[2][0].endswith("slower") and notable[2][1] == "`kernels: slower`" and notable[2][2:4] == ["+5.1 %",
                                                                                                          "+3.1 to +7.1 %"]
    assert text.index("<details>") > text.index("kernels: faster") and text.count("<details>") == text.count("</details>") == 2
    assert "```\npython3 ci/gate.py ab --base main\n```" in text


def test_markdown_of_hostile_names():
    text = markdown(mixed(), "x ``` y")
    row = next(cells for cells in tables(text)[0] if "script" in cells[1])
    assert len(row) == 7 and row[1].startswith("```") and row[1].endswith("```"), "ticks in it need more ticks around it"
    outside = re.sub(r"(`+).*?\1", "", text)
    assert "<script>" not in outside and "<not>" not in outside and "*the same*" not in outside.replace("\\*", "")
    assert "@name" not in outside and "\n````\nx ``` y\n````\n" in text


def test_markdown_fits_a_comment():
    text = markdown(report_of(*(timed(f"kernels: {'long_' * 20}{i}", Verdict.SAME) for i in range(1000))), "x")
    assert LONGEST - 1000 < len(text) < LONGEST + 500 and re.search(r"\d+ more do not fit here", text)
    many = markdown(report_of(*(timed(f"k: {i}", Verdict.SLOWER, 1.1) for i in range(60))), "x")
    assert "35 more are in the list of all cases." in many


def test_markdown_of_nothing():
    text = markdown(EMPTY, "x")
    assert "No cases were compared." in text and tables(text) == []
    assert markdown(UNDECIDED, "x").startswith("### Performance gate: undecided\n")


# --- JUnit


def suite_of(text: str) -> ElementTree.Element:
    """Tests what GitLab's and Jenkins' readers rely on: names, counts that agree with the elements, numbers that are numbers."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites" and [child.tag for child in root] == ["testsuite"]
    suite = root[0]
    cases = suite.findall("testcase")
    for element in (root, suite):
        assert int(element.get("tests")) == len(cases) and int(element.get("errors")) == 0
        assert int(element.get("failures")) == len(suite.findall("testcase/failure"))
        assert int(element.get("skipped")) == len(suite.findall("testcase/skipped"))
        assert float(element.get("time")) >= 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
    for case in cases:
        assert case.get("name") and case.get("classname") and float(case.get("time")) >= 0
        assert len(case.findall("failure")) + len(case.findall("skipped")) <= 1
    return suite


def test_junit_fails_what_is_slower_and_skips_what_is_undecided():
    suite = suite_of(junit(mixed(), STARTED))
    kinds = {case.get("name"): [child.tag for child in case if child.tag != "system-out"] for case in suite.findall("testcase")}
    assert kinds["slower"] == ["failure"] and kinds["bytes"] == ["failure"] and kinds["unclear"] == ["skipped"]
    assert kinds["went"] == ["skipped"] and kinds["same"] == kinds["faster"] == []
    failure = next(case for case in suite.findall("testcase") if case.get("name") == "slower").find("failure")
    assert failure.get("message") == ("slower: +5.1 % (+3.1 to +7.1 %), base 12.5 us, head 13.14 us; confirmed by 12 fresh pairs")
    assert suite.findall("testcase")[0].get("classname") == "gate.kernels"
    assert suite.find("properties/property[@name='head']").get("value") == HEAD


def test_junit_of_hostile_names_and_of_nothing():
    names = [case.get("name") for case in suite_of(junit(mixed(), STARTED)).findall("testcase")]
    line, rest = HOSTILE.split(": ", 1)
    assert rest.replace("\x07", "\ufffd").replace("\x1b", "\ufffd") in names
    assert suite_of(junit(EMPTY, STARTED)).findall("testcase") == []


def test_junit_where_undecided_fails():
    assert suite_of(junit(UNDECIDED, STARTED)).get("skipped") == "3"
    suite = suite_of(junit(UNDECIDED, STARTED, undecided_fails=True))
    assert (suite.get("failures"), suite.get("skipped")) == ("3", "0")


# --- records


def loaded(tmp_path: Path, report: Report):
    (tmp_path / "r.jsonl").write_text(text_of(lines_of(report, ["ci/gate.py", "ab"], STARTED)))
    return load([str(tmp_path / "r.jsonl")])


def test_records_are_what_the_schema_says_and_lose_nothing(tmp_path):
    records = loaded(tmp_path, mixed())
    assert len(records.runs) == 1 and records.runs[0].gate.base.name == "main" and records.runs[0].gate.threshold == 0.02
    for line, result in zip(records.verdicts, mixed().results, strict=True):
        same = ("case", "unit", "base", "head", "ratio", "low", "high", "why", "pairs", "ratios", "seconds")
        assert all(getattr(line, name) == getattr(result, name) for name in same)
        assert (line.channel, line.verdict) == (result.channel.value, result.verdict.value)


def test_bounds_that_are_not_finite_are_unknown(tmp_path):
    odd = timed("a", Verdict.UNDECIDED, low=float("-inf"), high=float("inf"))
    assert (loaded(tmp_path, report_of(odd)).verdicts[0].low, loaded(tmp_path, report_of(odd)).verdicts[0].high) == (None, None)


def test_a_history_is_shown_by_every_output(tmp_path):
    records = loaded(tmp_path, history())
    assert [history.case for history in records.histories] == ["kernels: recent", "plan: old", "kernels: short"]
    assert records.histories[0].changes[0].ratio == 1.1 and len(records.histories[0].points) == 14
    shown = with_earlier(history())
    assert [result.verdict for result in shown.results] == [Verdict.SLOWER, Verdict.SAME, Verdict.SAME]
    text = table(shown, show_all=False)
    assert text.startswith("history of records (000000000000), threshold 2 %\n")
    assert "since 000000000008..000000000009" in text and text.endswith("REGRESSION: 1 slower, 2 same; 3 cases in 2 s")
    assert "note: earlier change, 2026-03-10: plan: old" in text
    assert len(suite_of(junit(shown, STARTED)).findall("testcase/failure")) == 1
    assert "`kernels: recent`" in markdown(shown, "x")


def test_the_page_of_a_history_has_its_changes_once(tmp_path):
    prepared("--html", str(tmp_path / "h.html"), "--records", str(tmp_path / "h.jsonl")).write(history())
    page = (tmp_path / "h.html").read_text()
    assert "earlier change, " not in page.lower() and "Every change point" in page and "2 of 3 cases changed over time" in page
    assert load([str(tmp_path / "h.jsonl")]).runs[0].gate.mode == "history"


def test_the_machine_is_told_as_our_programs_tell_it():
    machine = this_machine()
    assert re.fullmatch("[0-9a-f]{16}", machine["fingerprint"]) and machine["cores"] == len(os.sched_getaffinity(0))
    assert fingerprint({**machine, "mhz": 1.0}) == machine["fingerprint"], "the clock varies from run to run"
    assert fingerprint({**machine, "cores": 99}) != machine["fingerprint"]


# --- files


def test_all_files_are_written_and_parse(tmp_path, capsys):
    names = {name: str(tmp_path / f"o.{name}") for name in ("markdown", "junit", "records", "html")}
    outputs = prepared("--all", *(word for name, path in names.items() for word in (f"--{name}", path)))
    outputs.write(mixed())
    assert capsys.readouterr().out.rstrip().endswith("8 cases in 31 s")
    assert {path.name for path in tmp_path.iterdir()} == {f"o.{name}" for name in names}, "no partial file is left"
    suite_of(Path(names["junit"]).read_text())
    assert len(load([names["records"]]).verdicts) == 8
    page = Path(names["html"]).read_text()
    assert "REGRESSION: 2 of 8 cases are slower" in page and "<script>&" not in page
    command = json.loads(Path(names["records"]).read_text().splitlines()[0])["command"]
    assert command[:3] == ["ci/gate.py", "--all", "--markdown"] and "o.markdown" in command and str(tmp_path) not in str(command)


def test_files_tell_no_folders_of_this_machine(tmp_path, capsys):
    report = replace(mixed(), base=Side("/home/someone/before.jsonl and 3 more"))
    outputs = prepared(*(word for name in ("markdown", "junit", "records") for word in (f"--{name}", str(tmp_path / name))))
    outputs.write(report)
    assert all("before.jsonl and 3 more" in path.read_text() or path.name == "junit" for path in tmp_path.iterdir())
    assert all("someone" not in path.read_text() for path in tmp_path.iterdir()) and "someone" in capsys.readouterr().out


@pytest.mark.parametrize("report", [EMPTY, UNDECIDED], ids=["no cases", "all undecided"])
def test_a_page_of_little(tmp_path, report):
    prepared("--html", str(tmp_path / "p.html")).write(report)
    text = (tmp_path / "p.html").read_text()
    assert ("No cases were compared." in text) == (report is EMPTY) and ("3 of 3 cases are undecided" in text) == (report is UNDECIDED)


def test_what_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(CouldNotRun, match=r"--junit .*/gone/j.xml: No such file or directory; allowed: a file in a folder"):
        prepared("--junit", str(tmp_path / "gone" / "j.xml"))
    with pytest.raises(CouldNotRun, match=r"--html .*: it is there and no regular file"):
        prepared("--html", str(tmp_path))
    with pytest.raises(UsageError, match="--junit .*: --markdown has the same file"):
        prepared("--markdown", str(tmp_path / "a"), "--junit", str(tmp_path / "." / "a"))
    assert list(tmp_path.iterdir()) == [] and CouldNotRun.status == 4


def test_a_folder_that_goes_away_costs_one_line_and_not_the_others(tmp_path, capsys):
    (tmp_path / "sub").mkdir()
    outputs = prepared("--markdown", str(tmp_path / "sub" / "m.md"), "--junit", str(tmp_path / "j.xml"))
    (tmp_path / "sub").rmdir()
    with pytest.raises(CouldNotRun, match="--markdown .*No such file or directory; no file was left"):
        outputs.write(mixed())
    assert "REGRESSION" in capsys.readouterr().out and (tmp_path / "j.xml").exists()


@pytest.mark.parametrize(("error", "expected"), [(OSError(28, "No space left on device"), "No space left on device; no file was left"),
                                             (KeyboardInterrupt("stop"), "stop")])
def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path, monkeypatch, error, expected):
    target = tmp_path / "r"
    target.write_text("old")

    def fails(_: int) -> None:
        assert target.read_text() == "old"
        raise error
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises((CouldNotRun, KeyboardInterrupt), match=expected):
        write_whole(target, "new", "--records")
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_letters_that_the_terminal_lacks_do_not_lose_the_verdict(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    prepared().write(report_of(Result("ü: –", Channel.TIME, Verdict.NEW, "us")))
    sys.stdout.flush()
    assert b"pass: 1 new; 1 case in 31 s" in raw.getvalue()
