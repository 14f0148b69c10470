"""ci/tidy.py finds a planted finding, remembers what was clean, and looks again when a header changes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from source_groups import groups, LARGEST_GROUP, local_names


CI = Path(__file__).resolve().parent
pytestmark = pytest.mark.skipif(shutil.which("clang-tidy-14") is None, reason="clang-tidy-14 is not installed")


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def tidy(root: Path, *arguments: str):
    command = [sys.executable, CI / "tidy.py", "--root", root, "--build", root / "build/dev", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    plant(
        tmp_path,
        {
            ".clang-tidy": "Checks: '-*,modernize-use-nullptr'\nWarningsAsErrors: '*'\nHeaderFilterRegex: '/core/'\n",
            "core/a.h": "#pragma once\ninline int* nothing() { return nullptr; }\n",
            "core/a.cpp": '#include "core/a.h"\nint* a() { return nothing(); }\n',
            "core/b.cpp": "int b() { return 1; }\n",
            "core/b_test.cpp": "int* b_test() { return 0; }\n",
        },
    )
    database = [
        {"directory": str(tmp_path), "file": str(path), "command": f"c++ -I{tmp_path} -c {path}"}
        for path in sorted(tmp_path.glob("core/*.cpp"))
    ]
    plant(tmp_path, {"build/dev/compile_commands.json": json.dumps(database)})
    return tmp_path


def test_clean_sources_are_remembered(tree):
    assert "2 files, 0 unchanged since they were clean, 0 with findings" in tidy(tree).stdout
    assert "2 files, 2 unchanged since they were clean, 0 with findings" in tidy(tree).stdout


def test_a_finding_fails_and_is_not_remembered(tree):
    plant(tree, {"core/b.cpp": "int* b() { return 0; }\n"})
    for _ in range(2):
        done = tidy(tree)
        assert done.returncode == 1
        assert "core/b.cpp:1:19: error: use nullptr" in done.stdout
        assert "1 with findings" in done.stdout


def test_a_changed_header_is_seen_through_its_includer(tree):
    assert tidy(tree).returncode == 0
    plant(tree, {"core/a.h": "#pragma once\ninline int* nothing() { return 0; }\n"})
    done = tidy(tree)
    assert done.returncode == 1
    assert "core/a.h:2" in done.stdout
    assert "2 files, 1 unchanged" in done.stdout


def test_tests_are_linted_when_asked(tree):
    assert tidy(tree, "--tests").returncode == 1


def test_a_file_that_is_not_built_is_named(tree):
    done = tidy(tree, "core/c.cpp")
    assert done.returncode != 0
    assert "core/c.cpp" in done.stderr


# ci/source_groups.py sees the names that two sources cannot both have.

SOURCE = """
using core::Error;
namespace a {
namespace {

constexpr char kBrace = '{';
const char* const kEnd = "\\"}"; // }
using Names = int;
struct Pair {
  int first;
};
[[noreturn]] void fail(int code) {
  int inner = code;
}
template <class T>
std::vector<T> all(const T& one) { return {one}; }
TEST(Suite, Name) {}

}  // namespace
int outer() { return 1; }
}  // namespace a
"""


def test_names_are_those_of_unnamed_namespaces_and_tests():
    assert local_names(SOURCE) == {"kBrace", "kEnd", "Names", "Pair", "fail", "all", "Suite_Name"}


def planted(tmp_path: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        paths.append(tmp_path / f"{name}.cpp")
        paths[-1].write_text(text)
    return paths


def test_sources_with_one_name_are_kept_apart(tmp_path):
    a, b, c = planted(tmp_path, a="namespace {\nint at() {\n}\n}", b="namespace {\nint at() {\n}\n}", c="int c();")
    assert groups([a, b, c]) == [[a, c], [b]]


def test_what_highway_compiles_again_stays_alone(tmp_path):
    a, b, c = planted(tmp_path, a="int a();", b="#include <hwy/foreach_target.h>", c="int c();")
    assert groups([a, b, c]) == [[a, c], [b]]


def test_groups_are_not_larger_than_the_largest(tmp_path):
    paths = planted(tmp_path, **{f"s{i}": "" for i in range(LARGEST_GROUP + 1)})
    assert [len(group) for group in groups(paths)] == [LARGEST_GROUP, 1]
