"""Every command of the GPU script against the programs that are built, without a GPU: flags that were renamed, cases that
no filter chooses any more and files that are not there must not first be seen on a machine that is lent by the minute."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CI = ROOT / "ci"
USAGE = 6  # core::Failure
NO_GPU = re.compile(r"no CUDA device: |built without (CUDA|NCCL)|not built in")
HAS_GPU = Path("/dev/nvidiactl").exists()


@dataclass(frozen=True)
class GpuStep:
    file: str
    name: str
    words: tuple[str, ...]  # from the program on, without what runs it

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"

    @property
    def program(self) -> str:
        return self.words[0].rsplit("/", 1)[1]


def steps() -> list[GpuStep]:
    """A command may begin with settings and with a tool; the program is the first word in a folder of ours."""
    found = []
    for file in ("gpu_steps.txt", "gpu_sanitize_steps.txt"):
        for line in (CI / file).read_text(encoding="utf-8").splitlines():
            if line.startswith("#") or not line.strip():
                continue
            name, _, _, command = line.split("|", 3)
            words = command.split()
            first = next(k for k, word in enumerate(words) if re.match(r"\{[BS]\}/", word))
            found.append(GpuStep(file, name.strip(), tuple(words[first:])))
    return found


def steps_in(folder: str) -> list[GpuStep]:
    return [step for step in steps() if step.words[0].startswith(folder)]


def steps_on_gpus() -> list[GpuStep]:
    return [step for step in steps_in("{B}/bin/") if "cpu" not in step.words]


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU: the script itself says whether the commands work")
@pytest.mark.parametrize("step", steps_on_gpus(), ids=str)
def test_a_program_knows_its_flags_and_lacks_nothing_but_a_gpu(programs, tmp_path, step):
    words = [word.replace("{O}", str(tmp_path)) for word in step.words[1:]]
    done = programs.run(step.program, *words)
    said = done.stdout + done.stderr
    assert done.returncode not in (0, USAGE), said
    assert NO_GPU.search(said), said


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


def filter_of(step: GpuStep, flag: str) -> str | None:
    return next((word.partition("=")[2] for word in step.words if word.startswith(flag + "=")), None)


@pytest.mark.parametrize("step", [step for step in steps_in("{B}/bin/kernels_bench")], ids=str)
def test_each_alternative_of_a_filter_of_kernels_chooses_some(programs, step):
    """Kernels and shapes are the same on both devices, so that the CPU's list will do."""
    chosen = filter_of(step, "--benchmark_filter")
    before, alternatives, after = re.fullmatch(r"(.*?)\((.*)\)(.*)", chosen).groups()
    listed = programs.run("kernels_bench", "--device", "cpu", "--threads", "1", "--benchmark_list_tests").stdout
    for alternative in alternatives.split("|"):
        assert re.search(before + alternative + after, listed), f"{alternative} chooses nothing"


@pytest.mark.parametrize("step", steps_in("{B}/tests/"), ids=str)
def test_a_filter_of_tests_chooses_some(programs, step):
    program = programs.folder.parent / "tests" / step.program
    if not program.exists():
        pytest.skip(f"{step.program} is built with CUDA only")
    chosen = filter_of(step, "--gtest_filter") or "*"
    listed = programs.run(str(program), "--gtest_list_tests", f"--gtest_filter={chosen}").stdout
    assert re.search(r"^  \w", listed, re.MULTILINE), f"{chosen} chooses nothing"


@pytest.mark.parametrize("step", steps_in("{S}/"), ids=str)
def test_a_script_is_there_and_names_the_flags_that_it_gets(step):
    script = CI / step.program
    text = script.read_text(encoding="utf-8")
    compile(text, str(script), "exec")
    for word in step.words[1:]:
        if word.startswith("-"):
            assert f'"{word}"' in text


def test_words_that_are_filled_in_are_those_that_the_script_knows():
    known = set(re.findall(r"'(\{\w+\})'", (CI / "gpu_check.sh").read_text(encoding="utf-8")))
    for file in ("gpu_steps.txt", "gpu_sanitize_steps.txt"):
        rows = [line for line in (CI / file).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        assert set(re.findall(r"\{\w+\}", "\n".join(rows))) <= known
