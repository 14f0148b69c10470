"""The checks of each source that ci/lint.sh runs, on made-up trees."""
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from check_alone import parsing
from source_groups import groups, LARGEST_GROUP, local_names

CI = Path(__file__).resolve().parent

# ---- ci/check_alone.py finds errors that a build of several sources as one hides

SOURCES = {
    "core/a.h": "#pragma once\ninline int one() { return 1; }\n",
    "core/a.cpp": '#include "core/a.h"\nint a() { return one(); }\n',
    "core/b.cpp": "int b() { return 2; }\n",
    "core/none.h": "#pragma once\nstruct None {};\n",
    "core/shown.h": "#pragma once\n#include <not_installed.h>\n",
    "includes.txt": "core:\ncore/shown.h shows not_installed.h\n",
}


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def planted_build(root: Path, files: dict[str, str], flags: str) -> Path:
    """A tree with a build folder that compiles each of its sources alone."""
    plant(root, files)
    database = [{"directory": str(root), "file": str(path), "command": f"c++ {flags} -I{root} -o x.o -c {path}"}
                for path in sorted(root.glob("core/*.cpp"))]
    plant(root, {"build/dev/compile_commands.json": json.dumps(database)})
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return planted_build(tmp_path, SOURCES, "-Wshadow -Werror")


def check(root: Path, *arguments: str):
    command = [sys.executable, CI / "check_alone.py", "--root", root, "--build", root / "build/dev", *arguments]
    command += ["--table", root / "includes.txt"]
    return subprocess.run(command, capture_output=True, text=True)


def test_only_what_makes_code_is_left_out_of_a_command():
    command = "/usr/bin/ccache /usr/bin/c++ -DA=\"b\" -I/r -O2 -g -DNDEBUG -Wall -o core/a.dir/a.cpp.o -c /r/core/a.cpp"
    assert parsing(command) == '/usr/bin/c++ -fsyntax-only -DA="b" -I/r -DNDEBUG -Wall /r/core/a.cpp'


def test_sources_that_passed_are_remembered_until_a_header_changes(tree):
    assert "3 files, 0 unchanged since they passed, 0 with errors" in check(tree).stdout
    assert "3 files, 3 unchanged since they passed, 0 with errors" in check(tree).stdout
    (tree / "core/a.h").write_text("#pragma once\ninline int two() { return 2; }\n")
    done = check(tree)
    assert done.returncode == 1
    assert "core/a.cpp:2" in done.stdout and "2 unchanged since they passed, 1 with errors" in done.stdout


@pytest.mark.parametrize("text", ["int b() { return one(); }\n", "int b(int x) { { int x = 1; return x; } }\n"])
def test_a_missing_include_and_a_hidden_name_are_found_and_not_remembered(tree, text):
    (tree / "core/b.cpp").write_text(text)
    for _ in range(2):
        done = check(tree)
        assert done.returncode == 1
        assert "core/b.cpp:1" in done.stdout and "1 with errors" in done.stdout
    assert not (tree / "x.o").exists()


def test_a_header_that_leans_on_its_includer_is_found(tree):
    (tree / "core/none.h").write_text("#pragma once\ninline std::string name() { return {}; }\n")
    done = check(tree)
    assert done.returncode == 1
    assert "core/none.h:1: does not compile alone" in done.stdout


def test_check_alone_names_a_file_that_is_not_built(tree):
    done = check(tree, "core/c.cpp")
    assert done.returncode != 0
    assert "core/c.cpp" in done.stderr


# ---- ci/tidy.py finds a planted finding, remembers what was clean, and looks again when a header changes

def tidy(root: Path, *arguments: str):
    command = [sys.executable, CI / "tidy.py", "--root", root, "--build", root / "build/dev", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def tidy_tree(tmp_path: Path) -> Path:
    if shutil.which("clang-tidy-14") is None:
        pytest.skip("clang-tidy-14 is not installed")
    return planted_build(tmp_path, {
        ".clang-tidy": "Checks: '-*,modernize-use-nullptr'\nWarningsAsErrors: '*'\nHeaderFilterRegex: '/core/'\n",
        "core/a.h": "#pragma once\ninline int* nothing() { return nullptr; }\n",
        "core/a.cpp": '#include "core/a.h"\nint* a() { return nothing(); }\n',
        "core/b.cpp": "int b() { return 1; }\n",
        "core/b_test.cpp": "int* b_test() { return 0; }\n",
    }, "")


def test_clean_sources_are_remembered(tidy_tree):
    assert "2 files, 0 unchanged since they were clean, 0 with findings" in tidy(tidy_tree).stdout
    assert "2 files, 2 unchanged since they were clean, 0 with findings" in tidy(tidy_tree).stdout


def test_a_finding_fails_and_is_not_remembered(tidy_tree):
    plant(tidy_tree, {"core/b.cpp": "int* b() { return 0; }\n"})
    for _ in range(2):
        done = tidy(tidy_tree)
        assert done.returncode == 1
        assert "core/b.cpp:1:19: error: use nullptr" in done.stdout
        assert "1 with findings" in done.stdout


def test_a_changed_header_is_seen_through_its_includer(tidy_tree):
    assert tidy(tidy_tree).returncode == 0
    plant(tidy_tree, {"core/a.h": "#pragma once\ninline int* nothing() { return 0; }\n"})
    done = tidy(tidy_tree)
    assert done.returncode == 1
    assert "core/a.h:2" in done.stdout
    assert "2 files, 1 unchanged" in done.stdout


def test_tests_are_linted_when_asked(tidy_tree):
    assert tidy(tidy_tree, "--tests").returncode == 1


def test_tidy_names_a_file_that_is_not_built(tidy_tree):
    done = tidy(tidy_tree, "core/c.cpp")
    assert done.returncode != 0
    assert "core/c.cpp" in done.stderr


# ---- ci/source_groups.py sees the names that two sources cannot both have

GROUPED = """
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
    assert local_names(GROUPED) == {"kBrace", "kEnd", "Names", "Pair", "fail", "all", "Suite_Name"}


def planted(tmp_path: Path, **texts: str) -> list[Path]:
    plant(tmp_path, {f"{name}.cpp": text for name, text in texts.items()})
    return [tmp_path / f"{name}.cpp" for name in texts]


def test_sources_with_one_name_are_kept_apart(tmp_path):
    a, b, c = planted(tmp_path, a="namespace {\nint at() {\n}\n}", b="namespace {\nint at() {\n}\n}", c="int c();")
    assert groups([a, b, c]) == [[a, c], [b]]


def test_what_highway_compiles_again_stays_alone(tmp_path):
    a, b, c = planted(tmp_path, a="int a();", b="#include <hwy/foreach_target.h>", c="int c();")
    assert groups([a, b, c]) == [[a, c], [b]]


def test_groups_are_not_larger_than_the_largest(tmp_path):
    paths = planted(tmp_path, **{f"s{i}": "" for i in range(LARGEST_GROUP + 1)})
    assert [len(group) for group in groups(paths)] == [LARGEST_GROUP, 1]
