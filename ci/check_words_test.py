"""Tests what the check of wording finds and what it lets pass. Examples are put together here, so that this file passes it."""

import subprocess
import sys
from pathlib import Path

import pytest

from check_words import check_file

SCRIPT = Path(__file__).resolve().parent / "check_words.py"


def findings(tmp_path: Path, name: str, *lines: str) -> list[str]:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return check_file(tmp_path, path)


@pytest.mark.parametrize("word", ["Of", "What", "Who", "Whose", "of"])
def test_an_answer_without_its_question_is_found_wherever_a_comment_begins(tmp_path, word):
    cpp = findings(tmp_path, "core/a.h", f"// {word} the rank.", "int a;", f"int b;  // {word} b", "//", f"// {word} c")
    assert [line.split(": ")[0] for line in cpp] == ["core/a.h:1", "core/a.h:3", "core/a.h:5"]
    assert word in cpp[0] and "say its subject first" in cpp[0]
    quotes = '"' * 3
    python = findings(tmp_path, "ci/a.py", f"{quotes}{word} it is.{quotes}", "", f"# {word} it is", f"x = 1  # {word} x")
    assert [line.split(": ")[0] for line in python] == ["ci/a.py:1", "ci/a.py:3", "ci/a.py:4"]
    assert len(findings(tmp_path, "ci/a.sh", f"# {word} it is", "true")) == 1


def test_comments_with_a_subject_questions_and_wrapped_lines_pass(tmp_path):
    assert findings(tmp_path, "core/a.h", "// Returns the bytes", "// of a rank.", "// What if it is empty? Then 0.", "int often; // often") == []
    assert findings(tmp_path, "core/b.cpp", 'auto url = "http://x//"; auto text = " // Of";') == []
    assert findings(tmp_path, "docs/a.md", "# What it costs", "Of all ways this is one.") == []


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("tokens {} second", "tokens per second"),
        ("1e9 bytes {} second", "bytes per second"),
        ("GB {} rank", "GB per rank"),
        ("TFLOP/s {} GPU", "TFLOP/s per GPU"),
        ("({} GPU)", "(per GPU)"),
        ("3 ms {} step", "ms per step"),
        ("a line {} rank", "a line per rank"),
        ("one {} rank", "one per rank"),
    ],
)
def test_a_rate_without_per_is_found_in_every_kind_of_file(tmp_path, said, meant):
    line = said.format("a")
    for name in ("core/a.cpp", "ci/a.py", "docs/a.md", "reports/html/a.html"):
        found = findings(tmp_path, name, "x" if name.endswith(".md") else "", f"text {line} text")
        assert len(found) == 1 and f'write "{meant}"' in found[0], name
    assert findings(tmp_path, "docs/a.md", f"text {meant} text") == []


def test_articles_that_are_no_rates_pass(tmp_path):
    text = ["It is written once a second, and a second time.", "bytes that a rank sends; one rank and a step; blocks a message until a rank ends"]
    assert findings(tmp_path, "docs/a.md", *text, "such a step a rank takes") == []


def test_a_long_line_is_found_in_docs_alone(tmp_path):
    long = "word " * 30
    assert len(findings(tmp_path, "docs/a.md", long, "```", long, "```")) == 2
    assert findings(tmp_path, "ci/a.txt", long) == []


def test_the_exit_status_tells_findings_from_none(tmp_path):
    (tmp_path / "README.md").write_text("tokens {} second\n".format("a"))
    for status, text in [(1, "README.md:1: "), (0, "words: 1 files, 0 findings")]:
        done = subprocess.run([sys.executable, SCRIPT, "--root", tmp_path], capture_output=True, text=True)
        assert (done.returncode, done.stdout.startswith(text)) == (status, True), done.stdout + done.stderr
        (tmp_path / "README.md").write_text("tokens per second\n")


def test_the_repository_passes():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
