"""The deterministic channel: files of values, comparing, and counting a real program's instructions where valgrind is installed."""
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from gate.builds import build_at
from gate.cli import exit_status, main
from gate.deterministic import collect, compare_facts, count, Facts, KINDS, read_facts, write_facts
from gate.inputs.observation import Quantity
from gate.model import Channel, CouldNotRun, Report, Side, UsageError, Verdict
from gate.worker import Line, load_suite

TOOLS = {"tool": "valgrind-3.19.0", "compiler": "GNU 12.2.0"}


def facts(*values: tuple[Quantity, float], tools=TOOLS) -> Facts:
    return Facts("r", tools, dict(values))


def exact(value: float, better: str = "lower", case: str = "plan: bytes") -> tuple[Quantity, float]:
    return Quantity(case, Channel.EXACT, "bytes", better), value


def counted(value: float) -> tuple[Quantity, float]:
    return Quantity("kernel", Channel.INSTRUCTIONS, "instructions"), value


@pytest.mark.parametrize(("before", "after", "verdict"), [
    (exact(100), exact(100), Verdict.SAME), (exact(100), exact(101), Verdict.SLOWER), (exact(100), exact(99), Verdict.FASTER),
    (exact(0), exact(1), Verdict.SLOWER), (exact(100, "higher"), exact(99, "higher"), Verdict.SLOWER),
    (counted(1000), counted(1009), Verdict.SAME), (counted(1000), counted(1011), Verdict.SLOWER), (counted(1000), counted(980), Verdict.FASTER)])
def test_tolerances(before, after, verdict):
    results, notes = compare_facts(facts(before), facts(after), count_threshold=0.01)
    assert [result.verdict for result in results] == [verdict] and notes == []


def test_new_passes_and_gone_does_not():
    results, _ = compare_facts(facts(exact(1, case="old")), facts(exact(1, case="new")), 0.01)
    assert {result.case: result.verdict for result in results} == {"old": Verdict.GONE, "new": Verdict.NEW}
    side = Side("s")

    def status(undecided: str, *some):
        return exit_status(Report("exact", side, side, 0.01, 1.0, some, 0.0), undecided)
    assert [status(undecided, results[0]) for undecided in ("pass", "fail", "status")] == [0, 1, 3]
    assert status("status", results[1]) == 0


def test_a_difference_of_one_byte_is_told_whole():
    result = compare_facts(facts(exact(1 << 30)), facts(exact((1 << 30) + 1)), 0.01)[0][0]
    assert (result.base, result.head) == (1 << 30, (1 << 30) + 1) and result.ratio > 1 and "e+" not in result.why


def test_an_update_does_not_lose_counts(tmp_path, monkeypatch, capsys):
    """Without valgrind, a file with counts stays unchanged, and nothing is run."""
    monkeypatch.setattr("gate.deterministic.why_it_cannot_count", lambda: "valgrind is not installed")
    file, suite = tmp_path / "facts.jsonl", tmp_path / "suite"
    write_facts(file, facts(counted(5)))
    suite.write_text("made counts generation_bench\n")
    before = file.read_text()
    assert main(["exact", "--base", str(file), "--head", "nonsense", "--suite", str(suite), "--update"]) == 4
    assert "facts.jsonl would have no instruction counts: valgrind is not installed" in capsys.readouterr().err
    assert file.read_text() == before


def test_counts_of_other_tools_are_not_compared():
    results, notes = compare_facts(facts(exact(1), counted(1)), facts(exact(1), counted(2), tools={**TOOLS, "compiler": "Clang 14"}), 0.01)
    assert [result.channel for result in results] == [Channel.EXACT]
    assert "compiler GNU 12.2.0 and Clang 14" in notes[0]


def on_device(value: float) -> tuple[Quantity, float]:
    return Quantity("gpu-kernels: softmax: registers", Channel.DEVICE, "registers"), value


def test_kernels_of_gpus_are_compared_exactly_if_one_nvcc_compiled_them():
    nvcc = {**TOOLS, "nvcc": "NVIDIA 13.0.88"}
    results, notes = compare_facts(facts(on_device(1000), tools=nvcc), facts(on_device(1001), tools=nvcc), 0.01)
    assert [result.verdict for result in results] == [Verdict.SLOWER] and notes == []
    results, notes = compare_facts(facts(exact(1), on_device(2), tools=nvcc), facts(exact(1), on_device(3), tools={**nvcc, "nvcc": "14"}), 0.01)
    assert [result.channel for result in results] == [Channel.EXACT] and "GPU kernels are not compared" in notes[0]


def test_a_build_without_cuda_is_noted_and_loses_no_counts(tmp_path, capsys):
    """Neither a failure nor "gone"; and --update keeps the file's counts of GPU kernels."""
    suite, file = tmp_path / "suite", tmp_path / "facts.jsonl"
    suite.write_text("gpu-kernels device ptx_check counts\n")
    (tmp_path / "bin").mkdir()
    write_facts(file, facts(on_device(7), tools={"nvcc": "NVIDIA 13.0.88"}))
    words = ["exact", "--base", str(file), "--head", str(tmp_path), "--suite", str(suite), "--undecided", "fail"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "no GPU kernels were counted" in printed and "which a build with CUDA has" in printed
    assert main([*words, "--update"]) == 0 and read_facts(file, "--base").of(Channel.DEVICE) == dict([on_device(7)])


def test_a_file_of_values_comes_back(tmp_path):
    file = tmp_path / "facts.jsonl"
    values = (exact(3), exact(2.5, "higher", "b"), counted(12345678), on_device(64))
    write_facts(file, facts(*values))
    back = read_facts(file, "--base")
    assert back.values == dict(values) and back.counted_with == TOOLS
    assert [line for line in file.read_text().splitlines()[1:]] == sorted(file.read_text().splitlines()[1:])


@pytest.mark.parametrize("text", ["", "{}", '{"facts": 2}', "not json", '{"facts": 1, "counted_with": {}}\n{"case": "a"}'])
def test_a_broken_file_is_one_line(tmp_path, text):
    file = tmp_path / "facts.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match="--base .*facts.jsonl: not a file of exact values"):
        read_facts(file, "--base")


def test_suite_lines(tmp_path):
    file = tmp_path / "suite"
    file.write_text("# words\nplans records all_reduce_perf --algo 'a b'  # more\n\nmade counts generation_bench\n")
    assert load_suite(file, "KIND", KINDS) == [Line("plans", "records", ("all_reduce_perf", "--algo", "a b")),
                                               Line("made", "counts", ("generation_bench",))]
    file.write_text("plans guesses all_reduce_perf\n")
    with pytest.raises(UsageError, match="line 1: 'plans guesses all_reduce_perf'; allowed: NAME KIND COMMAND, KIND one of records, counts"):
        load_suite(file, "KIND", KINDS)


SERVER = """
    #include <cstdint>
    #include <cstdio>
    #include <cstring>
    extern "C" [[gnu::noinline]] double lockstep_served_run(const volatile std::int64_t* calls) {
      volatile double sum = 0;
      for (std::int64_t i = *calls * LOOPS; i > 0; --i) sum = sum + 1;
      return sum;
    }
    int main() {
      std::puts("{\\"serve\\": 1, \\"program\\": \\"fake\\", \\"cases\\": [\\"one\\", \\"two\\"]}");
      std::fflush(stdout);
      char line[256];
      while (std::fgets(line, sizeof line, stdin)) {
        std::int64_t calls = 0;
        std::sscanf(std::strstr(line, "calls") + 7, "%ld", &calls);
        std::printf("{\\"us\\": [%g]}\\n", lockstep_served_run(&calls) > 0 ? 1.0 : 2.0);
        std::fflush(stdout);
      }
    }
"""


def build_of(folder: Path, loops: int):
    (folder / "bin").mkdir(parents=True)
    source = folder / "server.cpp"
    source.write_text(textwrap.dedent(SERVER))
    subprocess.run(["g++", "-O1", f"-DLOOPS={loops}", "-o", str(folder / "bin" / "server"), str(source)], check=True)
    return build_at(folder, "--base")


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_instructions_are_counted_exactly(tmp_path):
    counts = [count(build_of(tmp_path / str(i), loops), ("server",)) for i, loops in enumerate((1000, 1000, 1100))]
    assert counts[0] == counts[1] and list(counts[0]) == ["one", "two"]
    per_loop = counts[0]["one"] / 1000
    assert per_loop == int(per_loop) >= 3  # load, add, store at least
    assert counts[2]["two"] == 1100 * per_loop


def test_a_program_that_fails_is_named(tmp_path):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "broken"
    program.write_text("#!/bin/sh\necho no such flag >&2\nexit 6\n")
    program.chmod(0o755)
    with pytest.raises(CouldNotRun, match="plans: broken ended with status 6: no such flag"):
        collect(build_at(tmp_path, "--head"), [Line("plans", "records", ("broken",))])
    with pytest.raises(CouldNotRun, match="absent is not there; build target absent"):
        collect(build_at(tmp_path, "--head"), [Line("plans", "records", ("absent",))])
