"""Every command of the GPU script against the programs that are built, without a GPU: renamed flags,
filters that match no case and missing files must be found before a GPU machine is in use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CI = ROOT / "ci"
LISTS = ("gpu_steps_first.txt", "gpu_steps_second.txt", "gpu_steps_sanitize.txt")
USAGE = 6  # core::Failure
NO_GPU = re.compile(r"no CUDA device: |built without (CUDA|NCCL)|not built in")
HAS_GPU = Path("/dev/nvidiactl").exists()


@dataclass(frozen=True)
class GpuStep:
    file: str
    name: str
    limit_s: int
    words: tuple[str, ...]  # from the program on, without what runs it

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"

    @property
    def program(self) -> str:
        return self.words[0].rsplit("/", 1)[1]


def steps_of(file: str, text: str) -> list[GpuStep]:
    """A command may begin with settings and with a tool; the program is the first word in one of our folders."""
    found = []
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        name, seconds, _, command = line.split("|", 3)
        words = command.split()
        first = next(k for k, word in enumerate(words) if re.match(r"\{[BS]\}/", word))
        found.append(GpuStep(file, name.strip(), int(seconds.split("/")[1]), tuple(words[first:])))
    return found


def steps() -> list[GpuStep]:
    return [step for file in LISTS for step in steps_of(file, (CI / file).read_text(encoding="utf-8"))]


def steps_in(folder: str) -> list[GpuStep]:
    return [step for step in steps() if step.words[0].startswith(folder)]


def steps_on_gpus() -> list[GpuStep]:
    return [step for step in steps_in("{B}/bin/") if "cpu" not in step.words]


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU: the script itself reports whether the commands work")
@pytest.mark.parametrize("step", steps_on_gpus(), ids=str)
def test_a_program_knows_its_flags_and_lacks_nothing_but_a_gpu(programs, tmp_path, step):
    words = [word.replace("{O}", str(tmp_path)) for word in step.words[1:]]
    done = programs.run(step.program, *words)
    text = done.stdout + done.stderr
    assert done.returncode not in (0, USAGE), text
    assert NO_GPU.search(text), text


def test_what_the_script_runs_on_the_cpu_works(programs, tmp_path):
    for step in steps_in("{B}/bin/"):
        if "cpu" in step.words:
            words = [word.replace("{O}", str(tmp_path)) for word in step.words[1:]]
            words[words.index("--steps") + 1] = "1"
            done = programs.run(step.program, *words)
            assert done.returncode == 0, done.stdout + done.stderr


def test_a_flag_that_is_not_known_would_be_seen(programs):
    for step in {step.program: step for step in steps_in("{B}/bin/")}.values():
        done = programs.run(step.program, *step.words[1:], "--no-such-flag", "1")
        assert done.returncode == USAGE, done.stdout + done.stderr


TEST_DEADLINE_S = int(re.search(r"kGpuTestDeadline\{(\d+)\}", (ROOT / "testing/core/fixtures.h").read_text())[1])


def deadline_problem(step: GpuStep) -> str | None:
    """A program times out and names the peer before the script kills the step: the limit allows two timeouts."""
    if step.words[0].startswith("{S}"):
        return None
    deadline_s = TEST_DEADLINE_S
    if step.words[0].startswith("{B}/bin/"):
        if "-T" not in step.words:
            return "passes no -T"
        deadline_s = int(step.words[step.words.index("-T") + 1])
    if "sanitize" not in step.file and not 4 <= deadline_s <= 6:
        return f"waits {deadline_s} s; allowed: 4 to 6"
    return f"waits {deadline_s} s of {step.limit_s} s; allowed: a third" if 3 * deadline_s > step.limit_s else None


@pytest.mark.parametrize("step", steps(), ids=str)
def test_what_hangs_says_so_before_it_is_killed(step):
    assert deadline_problem(step) is None


@pytest.mark.parametrize("row, problem", [
    ("a | 5/30 | gpu | {B}/bin/mini_train --device cuda", "passes no -T"),
    ("a | 5/30 | gpu | {B}/bin/mini_train --device cuda -T 60", "waits 60 s; allowed: 4 to 6"),
    ("a | 5/14 | gpu | {B}/bin/mini_train --device cuda -T 5", "waits 5 s of 14 s; allowed: a third"),
    ("a | 5/8  | gpu | {B}/tests/core_device_gpu_test", f"waits {TEST_DEADLINE_S} s of 8 s; allowed: a third")])
def test_a_step_that_would_be_killed_first_is_seen(row, problem):
    assert deadline_problem(steps_of("gpu_steps_first.txt", row)[0]) == problem


def test_tests_on_gpus_have_no_deadlines_of_their_own():
    """Except those that expect one to pass, which are shorter."""
    files = [file for file in ROOT.glob("[a-z]*/**/*_gpu_test.cpp") if "build" not in file.parts]
    assert len(files) >= 5
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "testing/core/fixtures.h" in text, file
        assert not re.search(r"make_cuda_device\(|chrono::(seconds|minutes)\(", text), file


def test_what_compute_sanitizer_repeats_is_a_test_of_one_rank():
    for file in LISTS:
        for line in (CI / file).read_text(encoding="utf-8").splitlines():
            if not line.startswith("#") and "again" in line.split("|")[2]:
                assert re.search(r"\{B\}/tests/cuda_kernels_gpu_test", line)


def test_every_family_of_kernels_has_a_step_and_a_process():
    """Names are those that the registry gives to the test's parameters."""
    text = (ROOT / "kernels/registry.h").read_text(encoding="utf-8")
    families = set(re.findall(r'KernelFamily\{"(\w+)"', text))
    chosen = [filter_of(step, "--gtest_filter") for step in steps() if step.file == LISTS[0] and step.name.startswith("test-")]
    assert families and sorted(f"*/{family}" for family in families) == sorted(chosen)


def filter_of(step: GpuStep, flag: str) -> str | None:
    return next((word.partition("=")[2] for word in step.words if word.startswith(flag + "=")), None)


@pytest.mark.parametrize("step", [step for step in steps_in("{B}/bin/kernels_bench")], ids=str)
def test_each_alternative_of_a_filter_of_kernels_chooses_some(programs, step):
    """Kernels and shapes are the same on both devices, so the CPU's list is sufficient."""
    chosen = filter_of(step, "--benchmark_filter")
    before, alternatives, after = re.fullmatch(r"(.*?)\((.*)\)(.*)|.*", chosen).groups(default="")
    before = before or (chosen if not alternatives else "")
    listed = programs.run("kernels_bench", "--device", "cpu", "--threads", "1", "--benchmark_list_tests").stdout
    for alternative in alternatives.split("|"):
        assert re.search(before + alternative + after, listed, re.MULTILINE), f"{alternative} chooses nothing"


@pytest.mark.parametrize("step", steps_in("{B}/tests/"), ids=str)
def test_a_filter_of_tests_chooses_some(programs, step):
    program = programs.folder.parent / "tests" / step.program
    if not program.exists():
        pytest.skip(f"{step.program} is built with CUDA only")
    for pattern in (filter_of(step, "--gtest_filter") or "*").split(":"):
        listed = programs.run(str(program), "--gtest_list_tests", f"--gtest_filter={pattern}").stdout
        assert re.search(r"^  \w", listed, re.MULTILINE), f"{pattern} chooses nothing"


@pytest.mark.parametrize("step", steps_in("{S}/"), ids=str)
def test_a_script_is_there_and_names_the_flags_that_it_gets(step):
    script = CI / step.words[0].removeprefix("{S}/")
    text = script.read_text(encoding="utf-8")
    compile(text, str(script), "exec")
    for word in step.words[1:]:
        if word.startswith("-"):
            assert f'"{word}"' in text


def test_words_that_are_filled_in_are_those_that_the_script_knows():
    known = set(re.findall(r"'(\{\w+\})'", (CI / "gpu_check.sh").read_text(encoding="utf-8")))
    for file in LISTS:
        rows = [line for line in (CI / file).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        assert set(re.findall(r"\{\w+\}", "\n".join(rows))) <= known
