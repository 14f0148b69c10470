"""Each check of ci/check_includes.py and ci/check_words.py fails on a planted tree, and passes on a sound one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from check_words import check_file


CI = Path(__file__).resolve().parent
TABLE = """\
core:
collectives: core
collectives/plan: core collectives
collectives/plan (tests): bench
bench: core collectives collectives/plan
core/mpi_calls.h shows stdio.h
"""
SOUND = {
    "core/error.h": "#pragma once\n#include <string>\nstruct Error { std::string text; };\n",
    "core/mpi_calls.h": "#pragma once\n#include <stdio.h>\n",
    "core/error.cpp": '#include "core/error.h"\n#include <fmt/format.h>\n#include "core/mpi_calls.h"\n',
    "core/pack.cuh": "#pragma once\n#include <cuda_bf16.h>\n",
    "core/rows.cuh": '#pragma once\n#include "core/pack.cuh"\n',
    "core/rows.cu": '#include "core/rows.cuh"\n',
    "core/lanes-inl.h": "#pragma once\n#include <hwy/highway.h>\n",
    "core/sums-inl.h": '#pragma once\n#include "core/lanes-inl.h"\n',
    "core/sums.cpp": '#include "core/sums-inl.h"\n',
    "collectives/collective.h": '#pragma once\n#include "core/error.h"\ninline Error none() { return {}; }\n',
    "collectives/plan/plan.h": '#pragma once\n#include "collectives/collective.h"\n',
    "collectives/plan/plan_test.cpp": '#include "bench/collective_perf/flags.h"\n',
    "bench/collective_perf/flags.h": '#pragma once\n#include "collectives/plan/plan.h"\n',
}


def check(tmp_path: Path, changes: dict[str, str], table: str = TABLE):
    for name, text in {**SOUND, **changes}.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "includes.txt").write_text(table)
    command = [sys.executable, CI / "check_includes.py", "--root", tmp_path / "tree", "--table", tmp_path / "includes.txt"]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_sound_tree_passes(tmp_path):
    done = check(tmp_path, {})
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines() == ["include check: 13 files, 0 problems"]


@pytest.mark.parametrize(
    "name, text, place, words",
    [
        ("core/bad.cpp", '\n#include "collectives/collective.h"\n', "core/bad.cpp:2:", "core may not include"),
        ("collectives/bad.h", '#include "collectives/plan/plan.h"\n', "collectives/bad.h:1:", "allowed: collectives core"),
        ("collectives/plan/bad.cpp", '#include "bench/collective_perf/flags.h"\n', "collectives/plan/bad.cpp:1:", "may not include"),
        ("core/bad.h", "#include <fmt/format.h>\n", "core/bad.h:1:", "<fmt/format.h> in a header"),
        ("core/bad.h", "#include <unistd.h>\n", "core/bad.h:1:", "the C++ standard library and our own"),
        ("core/bad.h", '#include "core/mpi_calls.h"\n', "core/bad.h:1:", "only sources may include it"),
        ("core/bad.h", '#include "core/pack.cuh"\n', "core/bad.h:1:", "only .cu and .cuh files may include it"),
        ("core/bad.h", '#include "core/lanes-inl.h"\n', "core/bad.h:1:", "only .cpp and -inl.h files may include it"),
        ("core/bad-inl.h", "#include <fmt/format.h>\n", "core/bad-inl.h:1:", "<fmt/format.h> in a header"),
        ("core/bad.cpp", '#include "error.h"\n', "core/bad.cpp:1:", "write its path from the root"),
        ("kernels/bad.cpp", "", "kernels/bad.cpp:1:", "no row"),
    ],
)
def test_a_wrong_edge_is_named_with_what_is_allowed(tmp_path, name, text, place, words):
    done = check(tmp_path, {name: text})
    assert done.returncode == 1
    problems = done.stdout.splitlines()[:-1]
    assert len(problems) == 1
    assert problems[0].startswith(place) and words in problems[0]


def test_a_cycle_in_the_table_is_found(tmp_path):
    done = check(tmp_path, {}, table=TABLE.replace("core:", "core: bench"))
    assert done.returncode == 1
    assert "the table has a cycle: core -> bench -> c" in done.stdout


def test_a_cycle_of_folders_below_one_row_is_found(tmp_path):
    changes = {
        "core/text/csv.h": '#pragma once\n#include "core/error.h"\n',
        "core/text/csv_test.cpp": '#include "core/error.h"\n',
        "core/error_test.cpp": '#include "core/text/csv.h"\n',
    }
    assert check(tmp_path, changes).returncode == 0  # a test may include what includes its folder
    done = check(tmp_path, {**changes, "core/read.cpp": '\n#include "core/text/csv.h"\n'})
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "folders include each other in a cycle: core -> core/text -> core; allowed: one direction",
        '  core/read.cpp:2 includes "core/text/csv.h"',
        '  core/text/csv.h:2 includes "core/error.h"',
        "include check: 17 files, 1 problems",
    ]


def test_a_line_that_is_not_understood_stops_it(tmp_path):
    done = check(tmp_path, {}, table="core may include bench\n")
    assert done.returncode == 1
    assert "includes.txt:1: neither" in done.stderr


# ---- ci/check_words.py: what it finds and what it lets pass. Examples are put together here, so that this file passes it.

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
    assert word in cpp[0] and "name its subject first" in cpp[0]
    quotes = '"' * 3
    python = findings(tmp_path, "ci/a.py", f"{quotes}{word} it is.{quotes}", "", f"# {word} it is", f"x = 1  # {word} x")
    assert [line.split(": ")[0] for line in python] == ["ci/a.py:1", "ci/a.py:3", "ci/a.py:4"]
    assert len(findings(tmp_path, "ci/a.sh", f"# {word} it is", "true")) == 1


def test_comments_with_a_subject_questions_and_wrapped_lines_pass(tmp_path):
    assert findings(tmp_path, "core/a.h", "// Returns the bytes", "// of a rank.", "// What if it is empty? Then 0.", "int often; // often") == []
    assert findings(tmp_path, "core/b.cpp", 'auto url = "http://x//"; auto text = " // Of";') == []
    assert findings(tmp_path, "docs/a.md", "# What it costs", "Of all ways this is one.") == []


@pytest.mark.parametrize(
    ("wording", "meant"),
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
def test_a_rate_without_per_is_found_in_every_kind_of_file(tmp_path, wording, meant):
    line = wording.format("a")
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


def test_folders_of_bench_include_each_other_over_at_most_three_levels():
    included: dict[str, set[str]] = {}
    for path in (CI.parent / "bench").glob("*/*"):
        if path.suffix in {".h", ".cpp"} and not path.stem.endswith("_test"):
            named = re.findall(r'^#include "bench/(\w+)/', path.read_text(), re.MULTILINE)
            included.setdefault(path.parent.name, set()).update(name for name in named if name != path.parent.name)

    def levels(folder: str) -> int:
        return 1 + max((levels(other) for other in included.get(folder, ())), default=0)

    assert included and max(levels(folder) for folder in included) <= 3, included
