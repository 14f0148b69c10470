"""The stage runner and the scripts' handling of bad arguments."""

import contextlib
import fcntl
import os
import re
import subprocess
from pathlib import Path

CI = Path(__file__).resolve().parent

SCRIPT = """\
set -euo pipefail
source {ci}/stages.sh
stage_logs={logs}
stage_repeat="ci/run.sh"
{stages}
for name in {order}; do run_stage "$name"; done
printf '%s' "$stage_closing"
echo "passed: $stage_summary"
"""


def run_stages(tmp_path: Path, stages: str, order: str):
    script = SCRIPT.format(ci=CI, logs=tmp_path, stages=stages, order=order)
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True)


def test_a_stage_is_one_line_with_its_duration_and_the_runners_line_comes_again_at_the_end(tmp_path):
    stages = """
    stage_quiet() { echo noise; }
    stage_tests() { echo noise; close_with "100% tests passed"; count ctest 12; }
    stage_more() { count pytest 3; }
    """
    done = run_stages(tmp_path, stages, "quiet tests more")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert lines[0].split()[:2] == ["quiet", "ok"]
    assert lines[1].startswith("tests ") and lines[1].endswith("100% tests passed")
    assert lines[3] == "tests: 100% tests passed"
    assert lines[4] == "passed: ctest 12, pytest 3"
    assert "noise" in (tmp_path / "quiet.log").read_text()


def test_a_stage_that_fails_in_its_middle_stops_the_run_and_says_how_to_repeat_it(tmp_path):
    stages = """
    stage_bad() { echo before; ls /not/there; echo after; }
    stage_next() { true; }
    """
    done = run_stages(tmp_path, stages, "bad next")
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "/not/there" in done.stdout
    assert "after" not in done.stdout
    assert "next" not in done.stdout
    assert done.stdout.splitlines()[-1] == "ci/run.sh: stage bad failed with status 2; repeat it with: ci/run.sh bad"


def test_a_failure_inside_a_pipe_counts(tmp_path):
    done = run_stages(tmp_path, "stage_bad() { false | cat; }", "bad")
    assert done.returncode == 1


def run_script(name: str, *arguments: str):
    return subprocess.run([CI / name, *arguments], capture_output=True, text=True, cwd="/")


def test_unknown_arguments_are_named_with_what_is_allowed():
    for name, argument in [("run.sh", "deploy"), ("lint.sh", "--quick"), ("install.sh", "gpu")]:
        done = run_script(name, argument)
        assert done.returncode == 2, name
        assert argument in done.stderr, name


def test_the_stages_are_listed_from_any_folder():
    done = run_script("run.sh", "--list")
    assert done.stdout.split() == "install format includes configure build ctest pytest gate asan tidy tsan alone".split()


def test_a_stage_that_cannot_end_in_time_is_left_out_and_said():
    done = subprocess.run([CI / "run.sh", "tsan"], capture_output=True, text=True, env={**os.environ, "CI_END": "1"})
    assert done.returncode == 0
    assert done.stdout.startswith("tsan         left out: it takes up to ")
    assert done.stdout.rstrip().endswith(" s, without tsan")


def test_two_runs_do_not_build_in_the_same_folders():
    logs = CI.parent / "build" / "ci-logs"
    logs.mkdir(parents=True, exist_ok=True)
    with open(logs / "lock", "a") as lock:
        with contextlib.suppress(BlockingIOError):  # the run that runs this test may have it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        done = run_script("run.sh", "format")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"ci/run.sh: another run is building in /.*/build; allowed: one at a time\n", done.stderr)


def test_ci_leaves_no_stage_out():
    """The stages that ci/test.sh names and those that .ci/run adds are all stages, in their order."""
    texts = (CI / "test.sh").read_text(), (CI.parent / ".ci" / "run").read_text()
    named = [re.search(r"run\.sh\"((?: \w+)+)$", text, re.MULTILINE).group(1).split() for text in texts]
    assert sum(named, []) == run_script("run.sh", "--list").stdout.split()
