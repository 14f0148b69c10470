"""Names that a program prints are taken by the flag that they belong to; what a run would refuse at its end it refuses before it begins.

A list (`--list`, the "allowed" of a refusal, a table's rows) is read as a user reads it, and each of its names is given back.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from pathlib import Path

import pytest
from conftest import Programs, records_of

USAGE = 6
TINY = "--layers 1 --hidden 32 --length 16 --microbatch-size 1 --steps 1 --peak-gflops 100 --gemm packed --validation-sequences 1"


def run(programs: Programs, command: str, timeout: float = 60):
    return programs.run(*shlex.split(command), timeout=timeout)


def words_after(text: str, begin: str) -> list[str]:
    return next(line.removeprefix(begin) for line in text.splitlines() if line.startswith(begin)).split()


# Command with an unknown name: the refusal lists the names that are allowed. They are read one at a time, with --list or
# --print-plan, which keep the program from working.
LISTS_OF_REFUSALS = [
    "all_reduce_perf --ranks 8 --print-plan --algo {}", "all_gather_perf --ranks 8 --print-plan --algo {}",
    "reduce_scatter_perf --ranks 8 --print-plan --algo {}", "broadcast_perf --ranks 8 --print-plan --algo {}",
    "reduce_perf --ranks 8 --print-plan --algo {}", "alltoall_perf --ranks 8 --print-plan --algo {}",
    "gather_perf --ranks 8 --print-plan --algo {}", "scatter_perf --ranks 8 --print-plan --algo {}",
    "all_reduce_perf --ranks 2 --print-plan -o {}", "all_reduce_perf --ranks 2 --print-plan -d {}",
    "mini_train --list --dtype {}", "mini_train --list --recompute {}", "mini_train --list --gemm {}", "mini_train --list --cp-way {}",
    "mini_train --list --schedule {}", "mini_train --list --layout {}=1", "pipeline_perf --list --mode {}", "pipeline_perf --list --dtype {}",
    "simulate --layout tp=7919 --model {}", "simulate --layout tp=7919 --model nano --machine {}", "simulate --list --layout {}=1",
]


@pytest.mark.parametrize("command", LISTS_OF_REFUSALS)
def test_what_a_refusal_allows_is_taken(programs: Programs, command: str) -> None:
    refused = run(programs, command.format("nope"))
    assert refused.returncode == USAGE and "allowed: " in refused.stderr, refused.stderr
    names = re.split(r"[, ]+", refused.stderr.rsplit("allowed: ", 1)[1].partition(", or ")[0].strip())
    assert len(names) >= 2, refused.stderr
    for name in names:
        message = run(programs, command.format(name)).stderr
        unknown = re.search(r"unknown|not known|no such|not a|has no algorithm", message)
        assert unknown is None or f"{name}=1" in message and "no such" not in message, f"{command.format(name)}: {message}"


def test_each_listed_model_machine_and_schedule_is_taken(programs: Programs) -> None:
    listed = run(programs, "simulate --list").stdout
    models, machines, schedules = (words_after(listed, f"{what}: ") for what in ("models", "machines", "schedules"))
    assert len(models) > 20 and len(machines) > 5 and {"1f1b", "zb_1p", "zb_2p", "terapipe"} <= set(schedules)
    for words in [*(f"--model {model}" for model in models), *(f"--machine {machine}" for machine in machines),
                  *(f"--model nano --layout pp=1,schedule={schedule}" for schedule in schedules)]:
        message = run(programs, f"simulate {words if 'schedule' in words else words + ' --layout tp=7919'}").stderr
        assert "not known" not in message and ("tp is 7919" in message or "schedule" in words), message
    for row in run(programs, "mini_train --list").stdout.splitlines()[1:]:
        message = run(programs, f"mini_train --model {row.split()[0]} --pp 3 --schedule bpipe").stderr  # refused, but not for its name
        assert "bpipe" in message and "allowed: " in message, message


def test_each_listed_schedule_is_taken(programs: Programs) -> None:
    for line in run(programs, "pipeline_perf --list").stdout.splitlines():
        name = line.split()[0]
        assert "not known" not in run(programs, f"pipeline_perf --schedule {name}").stderr


def test_each_value_that_a_field_lists_is_taken(programs: Programs) -> None:
    """Lines such as "recompute: activations that the backward recomputes: none selective full; none"."""
    section, tried = "", 0
    for line in run(programs, "simulate --list").stdout.splitlines():
        if not line.startswith("  "):
            section = line
            continue
        name, _, takes = line.strip().partition(": ")
        values = takes.rpartition("; ")[0].rpartition(": ")[2].split()
        if len(values) < 2 or "or" in values or not all(re.fullmatch(r"\w+", value) for value in values) or takes.rpartition("; ")[2] not in values:
            continue  # no list of values: the default would be one of them
        for value in values:
            flag = f"--model gpt2-124m,{name}={value}" if "model" in section else f"--layout {name}={value}"
            message = run(programs, f"simulate --list {flag}").stderr
            tried += 1
            assert f"{name}={value}: " not in message, message
    assert tried > 30


@pytest.mark.parametrize("layout", ["tp=8,dp=4,pp=2,batch=32", "tp=4,cp=2,dp=2,pp=2,batch=32", "dp=1"])
def test_each_printed_order_is_taken(programs: Programs, layout: str, tmp_path: Path) -> None:
    words = f"--model gpt3-1.3b --machine dgx-h100 --layout {layout}"
    done = run(programs, f"simulate order {words} --json {tmp_path}/o.jsonl")
    assert done.returncode == 0, done.stderr
    points = [line for line in records_of(tmp_path / "o.jsonl") if line["record"] == "study"]
    for point in points:
        assert f" {point['series']}" in done.stdout
        again = run(programs, f"simulate {words},order={point['series']}")
        assert again.returncode == 0 and f"{point['values']['step_ms']:.2f}" in again.stdout, again.stderr


def test_each_listed_benchmark_is_taken(programs: Programs, tmp_path: Path) -> None:
    base = "kernels_bench --threads 1 --ceilings 0 --check 0 --cache warm"
    listed = run(programs, f"{base} --benchmark_list_tests").stdout.splitlines()
    assert len(listed) > 50 and not any("manual_time" in name for name in listed)
    for name in [*listed[::17], listed[-1]]:
        for given in (name, f"^{name}$", f"{name}/manual_time", f"^{name}/min_time:0.010/manual_time$"):
            assert name in run(programs, f"{base} --benchmark_list_tests '--benchmark_filter={given}'").stdout.splitlines(), given
    small = next(name for name in listed if name.startswith("gelu_fwd/f32/"))
    done = run(programs, f"{base} '--benchmark_filter=^{small}$' --benchmark_min_time=0.001 --benchmark_out={tmp_path}/k.json")
    assert done.returncode == 0 and small in done.stdout, done.stderr


def test_each_case_that_a_worker_names_is_printed_alike(programs: Programs) -> None:
    """gate_suite.txt: as many cases as in docs/gate.md."""
    suite = (Path(__file__).resolve().parent.parent / "ci" / "gate_suite.txt").read_text(encoding="utf-8")
    page = (Path(__file__).resolve().parent.parent / "docs" / "gate.md").read_text(encoding="utf-8")
    cases = 0
    for line in suite.splitlines():
        words = shlex.split(line, comments=True)
        if words:
            greeting = programs.run(*words[2:], "--serve").stdout.splitlines()[0]
            cases += greeting[greeting.index('"cases"'):].count('",') + 1
    assert f"has {cases} cases: " in page


# ---- Refused before the run.

OUTPUTS = [
    "mini_train {tiny} --export {to}", "mini_train {tiny} --trace {to}", "mini_train {tiny} --json {to}", "mini_train {tiny} --checkpoints {to}",
    "mini_train --data README.md --tokenize {to}", "pipeline_perf --mode emulated --t-f 30 --trace {to}",
    "pipeline_perf --mode emulated --t-f 30 --dump-csv {to}", "pipeline_perf --json {to}",
    "overlap_perf --mode emulated --ranks 2 --trace {to}", "overlap_perf --json {to}", "simulate --trace {to}", "simulate --chakra {to}",
    "simulate --json {to}", "simulate plan --gpus 1024 --batch 1024 --json {to}", "simulate map --json {to}", "simulate order --json {to}",
    "zero_bench --json {to}", "ddp_overlap_bench --json {to}", "tp_linear_bench --json {to}", "seqpar_bench --json {to}",
    "moe_bench --json {to}", "scaling --json {to}", "all_reduce_perf --ranks 2 --json {to}", "all_reduce_perf --ranks 2 -J {to}",
    "kernels_bench --json {to}", "kernels_bench --benchmark_out={to}",
    "tune --collectives all_reduce --ranks 2 --time-budget 30 --output {folder}/t/t.json --openmpi-rules {to}",
]


@pytest.mark.parametrize("command", OUTPUTS)
def test_an_output_that_cannot_be_written_is_refused_at_once(programs: Programs, command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    begin = time.monotonic()
    done = run(programs, command.format(tiny=TINY, to=tmp_path / "file" / "x", folder=tmp_path))  # a file in the place of a folder
    assert done.returncode == USAGE and str(tmp_path / "file" / "x") in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert time.monotonic() - begin < 20 and "step " not in done.stdout and "emulated in" not in done.stdout


@pytest.mark.parametrize(("words", "expected"), [
    ("--experts 4 --export {f}/w.safetensors", "allowed: experts=0"),
    ("--experts 4 --init-from {f}/w.safetensors", "allowed: experts=0"),
    ("--model nano,norm=rms --export {f}/w.safetensors", "--export"),
    ("--layers 4 --pp 2 --schedule terapipe --microbatches 4", "terapipe cuts sequences into slices, and slices is 1"),
    ("--layers 4 --pp 2 --schedule seq1f1b --microbatches 4", "seq1f1b cuts sequences into slices, and slices is 1"),
    ("--layers 4 --pp 2 --schedule seq1f1b_i --chunks 2 --microbatches 4", "seq1f1b_i cuts sequences into slices, and slices is 1"),
    ("--pp 2 --schedule seq1f1b --microbatches 4 --slices 2 --experts 4", "experts with slices of tokens"),
    ("--pp 2 --schedule seq1f1b --microbatches 4 --slices 2 --recompute full", "recompute is full"),
    ("--pp 2 --microbatches 4 --slices 2", "slices is 2"),
    ("--layers 4 --pp 2 --schedule bpipe --microbatches 4", "bpipe moves activations to other ranks, and 2 ranks"),
    ("--schedule bpipe", "bpipe moves activations to other ranks, and 1 ranks"),
    ("--layers 4 --pp 4 --schedule bpipe --microbatches 4 --experts 4", "schedule=bpipe of activations of experts"),
])
def test_what_a_run_cannot_end_or_do_is_refused_before_it(programs: Programs, words: str, expected: str, tmp_path: Path) -> None:
    done = run(programs, f"mini_train {TINY} {words.format(f=tmp_path)}")
    assert done.returncode == USAGE and expected.split(";")[0] in done.stderr and done.stdout == "", done.stderr + done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["scaling --layouts pp=2,microbatches=4,schedule={s}", "scaling --layouts dp=1 --simulate dp=2,pp=2,microbatches=4,schedule={s}",
                                     "pipeline_perf --mode real --stages 2 --microbatches 4 --slices 1 --schedule {s}"])
@pytest.mark.parametrize("schedule", ["terapipe", "seq1f1b", "bpipe"])
def test_no_program_trains_another_schedule_under_a_name(programs: Programs, command: str, schedule: str) -> None:
    if schedule == "bpipe":
        command = command.replace("--slices 1 ", "")
    done = run(programs, command.format(s=schedule))
    assert done.returncode == USAGE and re.search("slices is 1|4 microbatches need not|slices or evictions", done.stderr), done.stderr


def test_experts_on_tensor_parallel_ranks_are_refused_in_one_way(programs: Programs) -> None:
    for more in ("", "--sequence-parallel", "--cp-way colossal"):
        done = run(programs, f"mini_train {TINY} --experts 4 --tp 2 {more}")
        assert done.returncode == USAGE and "experts on tensor-parallel ranks; allowed: tp=1" in done.stderr, done.stderr


def losses(text: str) -> list[str]:
    return re.findall(r"^step +\d+ +loss (\S+)", text, re.MULTILINE)


def test_a_layouts_text_and_its_flags_train_alike(programs: Programs, tmp_path: Path) -> None:
    tiny = TINY.replace("--microbatch-size 1 ", "").replace("--steps 1", "--steps 2")
    runs = []
    for number, words in enumerate(("--dp 2", "--layout dp=2", "--layout tp=1 --dp 2")):
        done = run(programs, f"mini_train {tiny} {words} --json {tmp_path}/{number}.jsonl")
        assert done.returncode == 0, done.stderr
        _, record = records_of(tmp_path / f"{number}.jsonl")
        runs.append((losses(done.stdout), record["dtype"], record["tokens_per_step"], record["layout"]))
    assert runs[0] == runs[1] == runs[2] and runs[0][1:3] == ("f32", 2 * 8 * 16)


def test_a_learning_rate_of_zero_changes_no_weight(programs: Programs) -> None:
    """All validation losses are then equal; a rate above 0 changes them."""
    def validations(rate: str) -> list[str]:
        done = run(programs, f"mini_train {TINY.replace('--steps 1', '--steps 3')} --validate-every 1 --lr {rate}")
        assert done.returncode == 0, done.stderr
        return [f"{float(loss):.4f}" for loss in re.findall(r"validation loss (\d+\.\d+)", done.stdout)]

    still, moving = validations("0"), validations("1e-2")
    assert len(still) >= 2 and len(set(still)) == 1 and len(set(moving)) > 1


def test_threads_that_outnumber_the_cores_are_marked(programs: Programs, tmp_path: Path) -> None:
    threads = 2 * len(os.sched_getaffinity(0))
    for words, crowded in (("--threads 1", False), (f"--threads {threads}", True), (f"--dp {threads}", True)):
        done = run(programs, f"mini_train {TINY} {words} --json {tmp_path}/r.jsonl")
        assert done.returncode == 0, done.stderr
        begin, _ = records_of(tmp_path / "r.jsonl")
        assert ("# OVERSUBSCRIBED: " in done.stdout) == crowded == begin["oversubscribed"], done.stdout
