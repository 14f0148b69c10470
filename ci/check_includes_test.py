"""Each check of ci/check_includes.py fails on a planted tree, and passes on the sound one that it was made from."""

import subprocess
import sys
from pathlib import Path

import pytest

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
    "collectives/plan/plan_test.cpp": '#include "bench/sweep/flags.h"\n',
    "bench/sweep/flags.h": '#pragma once\n#include "collectives/plan/plan.h"\n',
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
        ("collectives/plan/bad.cpp", '#include "bench/sweep/flags.h"\n', "collectives/plan/bad.cpp:1:", "may not include"),
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

