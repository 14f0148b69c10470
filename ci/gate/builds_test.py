"""Sides as users name them, and suites."""
import fcntl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from gate.ab_test import is_alive
from gate.builds import build_at, differences, left_out, resolve
from gate.cli import main
from gate.model import CouldNotRun, Side, UsageError
from gate.worker import Line, load_suite, run_in_group


# A script in the place of a program, as looking for a compiler takes seconds.
PROJECT = """
cmake_minimum_required(VERSION 3.20)
if(DEFINED FAILS)
  message(FATAL_ERROR "as asked")
endif()
if(NOT DEFINED LANGUAGE)
  set(LANGUAGE NONE)
endif()
project(p LANGUAGES ${LANGUAGE})
add_custom_target(tool ${CMAKE_COMMAND} -E copy ${PROJECT_SOURCE_DIR}/tool ${PROJECT_BINARY_DIR}/bin/tool)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project with a program, and a second commit that breaks its build."""
    root = tmp_path / "project"
    root.mkdir()

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e", *words], check=True, capture_output=True)
    git("init", "-q")
    (root / "CMakeLists.txt").write_text(PROJECT)
    (root / "tool").write_text("#!/bin/sh\n")
    (root / "tool").chmod(0o755)
    git("add", "-A")
    git("commit", "-qm", "works")
    (root / "tool").unlink()
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


def test_who_builds_the_same_revision_waits(repository, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    folder = resolve("HEAD~1", "--base", ["tool"], repository, cache, []).folder.parent
    with (folder / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with monkeypatch.context() as short, pytest.raises(CouldNotRun, match=r"another process has held .*/lock for 0.3 s"):
            short.setattr("gate.builds.BUILD_DEADLINE_S", 0.3)
            resolve("HEAD~1", "--base", ["tool"], repository, cache, [])
        released = []

        def release() -> None:
            released.append(True)
            fcntl.flock(other, fcntl.LOCK_UN)
        threading.Timer(0.5, release).start()
        resolve("HEAD~1", "--base", ["tool"], repository, cache, [])
        assert released


def test_a_broken_revision_says_where_to_look(repository, tmp_path):
    with pytest.raises(CouldNotRun, match=r"cmake --build failed with status 1; its output is in .*build.log"):
        resolve("HEAD", "--head", ["tool"], repository, tmp_path / "cache", [])


def test_flags_that_failed_are_forgotten(repository, tmp_path):
    cache = tmp_path / "cache"
    with pytest.raises(CouldNotRun, match="cmake -S failed"):
        resolve("HEAD~1", "--base", ["tool"], repository, cache, ["-DFAILS=1"])
    build = resolve("HEAD~1", "--base", ["tool"], repository, cache, [])
    assert build.program("tool").is_file()


def test_what_an_interrupted_extraction_left_is_no_source(repository, tmp_path):
    cache = tmp_path / "cache"
    revision = subprocess.run(["git", "-C", str(repository), "rev-parse", "HEAD~1"], capture_output=True, text=True, check=True).stdout.strip()
    partial = cache / revision / "source.partial"
    partial.mkdir(parents=True)
    (partial / "CMakeLists.txt").write_text("half of it")
    resolve("HEAD~1", "--base", ["tool"], repository, cache, [])
    assert sorted(path.name for path in (cache / revision).iterdir()) == ["build", "build.log", "lock", "source"]


def test_builds_of_other_flags_are_told(repository, tmp_path):
    def build(name: str, *flags: str) -> Path:
        return resolve("HEAD~1", "--base", ["tool"], repository, tmp_path / name, ["-DLANGUAGE=CXX", *flags]).folder
    same, other = build("one"), build("other", "-DCMAKE_BUILD_TYPE=Debug")
    assert differences(same, same) == []
    assert differences(same, other) == ["the builds differ in more than their source: flags -O3 -DNDEBUG and -g, type Release and Debug"]
    assert differences(same, tmp_path) == []


def test_changes_that_are_not_committed_are_told(repository):
    revision = subprocess.run(["git", "-C", str(repository), "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    head, folder = Side("HEAD", revision, revision[:12]), Side("build/dev", revision, "dev")
    assert left_out([folder, head], repository) == []
    (repository / "CMakeLists.txt").write_text("")
    assert left_out([folder, folder], repository) == []
    assert left_out([folder, head], repository)[0].startswith("HEAD is built as committed: changes of the working tree are not in it")


def test_a_tool_that_hangs_ends_with_what_it_started(tmp_path):
    pid = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        run_in_group(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], 0.5)
    for _ in range(50):  # its new parent may not have waited for it yet
        if not is_alive(int(pid.read_text())):
            return
        time.sleep(0.1)
    raise AssertionError("sleep lives on")


def test_neither_build_nor_revision(repository, tmp_path):
    with pytest.raises(UsageError, match="--head nonsense: neither a build folder with bin/ nor a revision of project"):
        resolve("nonsense", "--head", ["tool"], repository, tmp_path, [])
    with pytest.raises(UsageError, match="no build folder"):
        build_at(tmp_path, "--build")


def test_suite(tmp_path):
    file = tmp_path / "suite"
    file.write_text("kernels one kernels_bench --threads 1 # words\nranks all all_reduce_perf\n")
    assert load_suite(file) == [Line("kernels", "one", ("kernels_bench", "--threads", "1")), Line("ranks", "all", ("all_reduce_perf",))]


@pytest.mark.parametrize(("text", "expected"), [
    ("", "no line"), ("kernels one", "line 1: 'kernels one'; allowed: NAME CORES COMMAND"),
    ("kernels some kernels_bench", "line 1: 'kernels some kernels_bench'; allowed: NAME CORES COMMAND, CORES one of one, all"),
    ("kernels one kernels_bench '^gelu", "line 1: No closing quotation"), ("a one x\na one y", "line 2: a second 'a'")])
def test_broken_suites(tmp_path, text, expected):
    file = tmp_path / "suite"
    file.write_text(text)
    with pytest.raises(UsageError, match=expected):
        load_suite(file)


@pytest.mark.parametrize("words", [["--budget", "0s"], ["--budget", "soon"], ["--threshold", "x"], ["--threshold"], ["--suite", "/no/such"], ["--head", "nonsense"]])
def test_usage_errors_are_one_line_and_status_2(words, capsys):
    assert main(["ab", "--base", "nonsense", "--head", "nonsense", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gate.py: ") and error.count("\n") == 1 and "allowed: " in error


@pytest.mark.parametrize(("error", "expected"), [
    (ValueError("ours"), "ValueError: ours"), (KeyboardInterrupt(), "interrupted; nothing was written"),
    (OSError(28, "No space left on device", "/f"), "/f: No space left on device")])
def test_no_error_is_a_regression(monkeypatch, capsys, error, expected):
    def fails(_):
        raise error
    monkeypatch.setattr("gate.ab.run", fails)
    assert main(["ab", "--base", "a", "--head", "b"]) == 4
    assert capsys.readouterr().err.endswith(expected + "\n")


def test_what_python_lacks_is_one_line(tmp_path):
    """A missing numpy that shadows all installed ones."""
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')\n")
    gate = Path(__file__).resolve().parents[1] / "gate.py"
    done = subprocess.run([sys.executable, str(gate), "--help"], env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, f"gate.py: needs Python's numpy, which {sys.executable} has not; allowed: "
                                                 "/usr/bin/python3 ci/gate.py, for which ci/install.sh report installs it\n")
