"""Sides as users name them, and suites."""
import subprocess
from pathlib import Path

import pytest
from gate.builds import build_at, resolve
from gate.cli import main
from gate.errors import CouldNotRun, UsageError
from gate.suite import Line, load_suite


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project with a program, and a second commit that breaks its build."""
    root = tmp_path / "project"
    root.mkdir()

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e", *words], check=True, capture_output=True)
    git("init", "-q")
    (root / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(p CXX)\n"
                                         "set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)\nadd_executable(tool tool.cpp)\n")
    (root / "tool.cpp").write_text("int main() { return 0; }\n")
    git("add", "-A")
    git("commit", "-qm", "works")
    (root / "tool.cpp").write_text("int main() { return }\n")
    git("commit", "-qam", "breaks")
    return root


def test_a_revision_is_built_once(repository, tmp_path):
    cache = tmp_path / "cache"
    build = resolve("HEAD~1", "--base", ["tool"], repository, cache, [])
    assert subprocess.run([build.program("tool")], check=False).returncode == 0
    assert len(build.side.revision) == 40 and build.side.name == "HEAD~1"
    log = next(cache.glob("*/build.log"))
    configured = log.read_text().count("Configuring done")
    again = resolve("HEAD~1", "--base", ["tool"], repository, cache, [])
    assert again.folder == build.folder and log.read_text().count("Configuring done") == configured == 1
    resolve("HEAD~1", "--base", ["tool"], repository, cache, ["-DOTHER=1"])  # other flags are another build
    assert log.read_text().count("Configuring done") == 2


def test_a_broken_revision_says_where_to_look(repository, tmp_path):
    with pytest.raises(CouldNotRun, match=r"cmake --build failed with status 1; its output is in .*build.log"):
        resolve("HEAD", "--head", ["tool"], repository, tmp_path / "cache", [])


def test_neither_build_nor_revision(repository, tmp_path):
    with pytest.raises(UsageError, match="--head nonsense: neither a build folder with bin/ nor a revision of project"):
        resolve("nonsense", "--head", ["tool"], repository, tmp_path, [])
    with pytest.raises(UsageError, match="no build folder"):
        build_at(tmp_path, "--build")


def test_suite(tmp_path):
    file = tmp_path / "suite"
    file.write_text("kernels one kernels_bench --threads 1 # words\nranks all all_reduce_perf\n")
    assert load_suite(file) == [Line("kernels", True, ("kernels_bench", "--threads", "1")), Line("ranks", False, ("all_reduce_perf",))]


@pytest.mark.parametrize(("text", "told"), [
    ("", "no line"), ("kernels one", "line 1: 'kernels one'; allowed: NAME CORES COMMAND"),
    ("kernels some kernels_bench", "cores 'some'; allowed: one, all"), ("a one x\na one y", "line 2: a second 'a'")])
def test_broken_suites(tmp_path, text, told):
    file = tmp_path / "suite"
    file.write_text(text)
    with pytest.raises(UsageError, match=told):
        load_suite(file)


@pytest.mark.parametrize("words", [["--budget", "0s"], ["--budget", "soon"], ["--threshold", "x"], ["--threshold"], ["--suite", "/no/such"], ["--head", "nonsense"]])
def test_usage_errors_are_one_line_and_status_2(words, capsys):
    assert main(["ab", "--base", "nonsense", "--head", "nonsense", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gate.py: ") and error.count("\n") == 1 and "allowed: " in error
