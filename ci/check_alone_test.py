"""ci/check_alone.py finds errors that a build of several sources as one hides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from check_alone import parsing

CI = Path(__file__).resolve().parent
SOURCES = {
    "core/a.h": "#pragma once\ninline int one() { return 1; }\n",
    "core/a.cpp": '#include "core/a.h"\nint a() { return one(); }\n',
    "core/b.cpp": "int b() { return 2; }\n",
    "core/none.h": "#pragma once\nstruct None {};\n",
    "core/shown.h": "#pragma once\n#include <not_installed.h>\n",
    "includes.txt": "core:\ncore/shown.h shows not_installed.h\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    database = [{"directory": str(tmp_path), "file": str(path), "command": f"c++ -Wshadow -Werror -I{tmp_path} -o x.o -c {path}"}
                for path in sorted(tmp_path.glob("core/*.cpp"))]
    (tmp_path / "build/dev").mkdir(parents=True)
    (tmp_path / "build/dev/compile_commands.json").write_text(json.dumps(database))
    return tmp_path


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


def test_a_file_that_is_not_built_is_named(tree):
    done = check(tree, "core/c.cpp")
    assert done.returncode != 0
    assert "core/c.cpp" in done.stderr
