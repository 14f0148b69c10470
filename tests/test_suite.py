"""suite as a user runs it: its lists, lines that fail, refusals; and benchmarks as workers, which the gate starts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import Programs, ROOT


USAGE = 6

# The report's pages and the programs whose records they need.
SUBJECTS = {"all_reduce_perf", "kernels_bench", "ddp_overlap_bench", "zero_bench", "tp_linear_bench", "pipeline_perf",
            "overlap_perf", "simulate", "mini_train", "scaling"}


# A line for each page, as short as possible.
STEP = "--model nano --layers 4 --length 16 --microbatch-size 1 --steps 2 --warmup 1 --dp 2"
TRAINED = "--layers 2 --hidden 32 --heads 2 --length 16"
SMALL = f"""
collectives 1 all_reduce_perf --ranks 2 -b 8 -e 64K -f 64 -n 3 --algo ring,tree
kernels 1 kernels_bench --benchmark_filter=gelu_fwd/f32/B4_T64 --benchmark_min_time=0.01 --threads 1 --ceilings 0
buckets 1 ddp_overlap_bench {STEP} --bucket-cap-mb 0,0.75
sharding 1 zero_bench {STEP} --dtype f32
layers 1 tp_linear_bench --rounds 1 --warmup 1 --hidden 32 --heads 4 --batch 2 --length 16 --block row --tiles 2
schedules 1 pipeline_perf --schedule gpipe,1f1b
simulations 1 simulate --layout pp=8,batch=8
training 1 mini_train {TRAINED} --microbatch-size 2 --steps 3 --lr 1e-3
scaling 1 scaling {TRAINED} --batch 2 --steps 1 --layouts dp=1
"""


def lines_of(programs: Programs, *words: str) -> list[list[str]]:
    return [line.split() for line in programs.output("suite", "--list", *words).splitlines()]


def test_the_quick_suite_has_a_line_for_each_page_of_the_report(programs: Programs) -> None:
    lines = lines_of(programs)
    names = [line[0] for line in lines]
    assert names == sorted(set(names)), "a record file each, in the order of the list"
    assert SUBJECTS <= {line[2] for line in lines}
    assert all((programs.folder / line[2]).exists() and float(line[1]) > 0 for line in lines)


# A kernel of each family of kernels/registry.h.
FAMILIES = {"gemm": "gemm_fwd", "attention": "attention_fwd", "attention_decode": "attention_decode", "attention_merge": "attention_merge",
            "copy": "copy_rows", "activation": "gelu_fwd", "rotary": "rotary_fwd", "softmax": "softmax_fwd", "norm": "layernorm_fwd",
            "residual": "residual_add", "cross_entropy": "cross_entropy", "embedding": "embedding_fwd", "optimizer": "adamw",
            "cast": "cast", "quantize": "quantize_int8", "compress": "encode_signs", "fp8": "gemm_fp8", "bucket": "pack_bucket",
            "reduction": "reduction", "moe": "router_fwd"}


def test_the_quick_suite_times_every_family_of_kernels(programs: Programs) -> None:
    registry = (ROOT / "kernels" / "registry.h").read_text()
    assert set(re.findall(r'KernelFamily\{"(\w+)"', registry)) == set(FAMILIES), "a family's kernel belongs into the quick suite"
    words = next(line[2:] for line in lines_of(programs) if line[2] == "kernels_bench")
    chosen = next(word for word in words if word.startswith("--benchmark_filter="))
    listed = programs.run("kernels_bench", chosen, "--benchmark_list_tests").stdout.splitlines()
    assert set(FAMILIES.values()) <= {name.split("/")[0] for name in listed}


@pytest.mark.parametrize("suite", ["quick", "claims"])
def test_a_suite_uses_flags_that_the_programs_have(programs: Programs, suite: str) -> None:
    for name, _, program, *words in lines_of(programs, "--suite", suite):
        listed = programs.run(program, "--help").stdout
        for word in words:
            assert not word.startswith("-") or word.split("=")[0] in listed, (name, word)


def test_the_claims_suite_is_the_file(programs: Programs) -> None:
    written = [line.split("#")[0].split() for line in (ROOT / "bench" / "suite" / "claims.suite").read_text().splitlines()]
    assert lines_of(programs, "--suite", "claims") == [line for line in written if line]


def test_a_list_is_a_suite(programs: Programs, tmp_path: Path) -> None:
    text = programs.run("suite", "--list").stdout
    suite = tmp_path / "mine.suite"
    suite.write_text("# mine\n\n" + text, encoding="utf-8")
    assert programs.run("suite", "--list", "--suite", str(suite)).stdout == text


def test_a_line_that_fails_is_told_and_the_others_run(programs: Programs, tmp_path: Path) -> None:
    suite = tmp_path / "suite.txt"
    suite.write_text("bad 1 pipeline_perf --stages none\n"
                     "good 1 sendrecv_perf --ranks 2 -b 8 -e 8 -w 1 --algo direct --time-budget {seconds}\n", encoding="utf-8")
    records = tmp_path / "records"
    records.mkdir()
    (records / "bad.jsonl").write_text("of an earlier run\n", encoding="utf-8")
    done = programs.run("suite", "--suite", str(suite), "--out", str(records), "--time-budget", "1")
    assert done.returncode == USAGE
    (text,) = [line for line in done.stderr.splitlines() if line.startswith("suite: ")]
    assert text.startswith("suite: bad: ended with status 6; 'pipeline_perf --stages none'")
    assert "--stages none: not an integer" in text and str(records / "bad.txt") in text
    run = json.loads((records / "good.jsonl").read_text(encoding="utf-8").splitlines()[0])
    name, seconds = run["command"][-4:-2]
    assert name == "--time-budget" and 0.5 < float(seconds) <= 1, "the share of the bad line is not lost"
    assert {path.name for path in records.iterdir()} == {"bad.txt", "good.jsonl", "good.txt"}
    assert "# Out of bounds values : 0 OK" in (records / "good.txt").read_text(encoding="utf-8")


def test_a_line_that_takes_too_long_is_killed(programs: Programs, tmp_path: Path) -> None:
    suite = tmp_path / "suite.txt"
    suite.write_text("long 1 sendrecv_perf --ranks 2 -b 8 -e 8 -n 1000000000 --algo direct\nshort 1 pipeline_perf\n",
                     encoding="utf-8")
    done = programs.run("suite", "--suite", str(suite), "--out", str(tmp_path / "records"), "--timeout", "2", timeout=60)
    assert done.returncode == 4 and "suite: long: was killed at its deadline" in done.stderr
    assert (tmp_path / "records" / "short.jsonl").exists()


def test_what_is_no_program_is_refused_before_anything_runs(programs: Programs, tmp_path: Path) -> None:
    suite = tmp_path / "suite.txt"
    for command, text in (("all_reduce", "no program 'all_reduce'; allowed: those of"),
                          ("../bin/suite", "no program '../bin/suite'")):
        suite.write_text(f"good 1 pipeline_perf\nbad 1 {command}\n", encoding="utf-8")
        assert f"suite line 'bad': {text}" in programs.refusal("suite", "--suite", str(suite), "--out", str(tmp_path / "none"))
        assert not (tmp_path / "none").exists()
    suite.write_text("good -1 pipeline_perf\n", encoding="utf-8")
    assert f"{suite}:1: allowed: NAME WEIGHT COMMAND, the weight above 0" in programs.refusal("suite", "--suite", str(suite))


def test_the_records_of_all_programs_make_one_report(programs: Programs, tmp_path: Path) -> None:
    suite, records, report = (tmp_path / name for name in ("all.suite", "records", "report"))
    suite.write_text(SMALL, encoding="utf-8")
    programs.output("suite", "--suite", str(suite), "--out", str(records), "--time-budget", "5")
    made = subprocess.run(["/usr/bin/python3", "-m", "reports", *map(str, sorted(records.glob("*.jsonl"))), "-o", str(report)],
                          cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr
    names = [line.split()[0] for line in SMALL.split("\n") if line]
    page = (report / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<section id="(\w+)" class="card">', page) == names
    assert all((report / f"{name}.html").is_file() for name in names)
    sizes = [path.stat().st_size for path in (report / "figures").iterdir()]
    assert sum(sizes) / len(sizes) < 40_000


# Benchmarks as workers (bench/serve/orders.h): their cases, their answers, and that they end with their orders.

WORKERS = {
    "kernels": ["kernels_bench", "--threads", "1", "--cache", "warm", "--benchmark_filter=^residual_add/f32/B8_T128_C256"],
    "sweep": ["all_reduce_perf", "--ranks", "3", "-b", "4K", "-e", "64K", "-f", "16", "--algo", "ring,two_shot"],
    "generation": ["generation_bench"],
    "some generation": ["generation_bench", "--filter", "^plan/all_reduce/ring/"],
    "simulate": ["simulate", "--model", "gpt3-1.3b", "--layout", "tp=2,pp=2,dp=2,batch=16"],
    "training": ["mini_train", "--dp", "2", "--microbatch-size", "1"],
    "buckets": ["ddp_overlap_bench", "--dp", "2", "--microbatch-size", "1"],
    "sharding": ["zero_bench", "--dp", "2", "--microbatch-size", "1", "--zero", "3", "--prefetch", "1", "--dtype", "f32"],
    "layers": ["tp_linear_bench", "--block", "mlp", "--tp", "2", "--sequence-parallel", "1", "--hidden", "64", "--tiles", "2"],
    "planted": ["gate_planted", "alone"],
    "planted ranks": ["gate_planted", "collective"],
}


def talk(programs: Programs, command: list[str], orders: list[str]) -> tuple[dict, list[dict], subprocess.CompletedProcess]:
    done = subprocess.run([str(programs.folder / command[0]), *command[1:], "--serve"], input="".join(line + "\n" for line in orders),
                          capture_output=True, text=True, timeout=60, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[0], lines[1:], done


def order(case: int, runs: int, calls: int) -> str:
    return json.dumps({"case": case, "runs": runs, "calls": calls})


@pytest.mark.parametrize("command", WORKERS.values(), ids=WORKERS)
def test_every_case_runs(programs, command):
    hello, _, _ = talk(programs, command, [])
    cases = hello["cases"]
    assert hello["serve"] == 1 and hello["program"] == command[0] and len(set(cases)) == len(cases) >= 1
    _, answers, done = talk(programs, command, [order(case, 2, 3) for case in range(min(len(cases), 5))])
    assert done.returncode == 0 and done.stderr == ""
    assert len(answers) == min(len(cases), 5)
    for answer in answers:
        assert len(answer["us"]) == 2 and all(us > 0 for us in answer["us"])


def test_answers_are_of_one_length(programs):
    """Texts of other lengths would leave the heap in another state: counts of instructions would not repeat."""
    orders = "".join(order(case, 1, calls) + "\n" for case in (0, 1) for calls in (1, 3, 7, 100, 1000))
    done = subprocess.run([str(programs.folder / "gate_planted"), "alone", "--serve"], input=orders, capture_output=True, text=True,
                          timeout=60, check=True)
    answers = done.stdout.splitlines()[1:]
    assert len(answers) == 10 and len(set(answers)) == 10 and len({len(answer) for answer in answers}) == 1


def test_only_the_planted_program_reads_the_planted_percentage(programs, monkeypatch):
    """Except in a build for the gate's self-test (LOCKSTEP_PLANT), where all do."""
    cache = programs.folder.parent / "CMakeCache.txt"
    if cache.is_file() and "LOCKSTEP_PLANT:BOOL=ON" in cache.read_text():
        pytest.skip("a build with LOCKSTEP_PLANT=ON")
    monkeypatch.setenv("LOCKSTEP_PLANTED_PERCENT", "many")
    _, answers, _ = talk(programs, WORKERS["planted"], [order(0, 1, 1)])
    assert answers[0]["error"].endswith("LOCKSTEP_PLANTED_PERCENT=many: not a number; allowed: a number from 0 to 1000")
    for name in ("kernels", "sweep", "generation"):
        _, answers, _ = talk(programs, WORKERS[name], [order(0, 1, 1)])
        assert len(answers[0]["us"]) == 1


def test_rows_of_a_sweep_are_named(programs):
    hello, _, _ = talk(programs, WORKERS["sweep"], [])
    assert hello["cases"] == [f"all_reduce/{algorithm}/float/sum/{size}B/ranks:3/local" for size in (4096, 65536)
                              for algorithm in ("ring", "two_shot")]


@pytest.mark.parametrize(("line", "expected"), [
    ("run", "order: not JSON: "), ("[]", "not a JSON object: []"), ("{}", '"case" is missing or wrong; allowed: 0 to'), (order(99, 1, 1), '"case"'),
    (order(0, 0, 1), '"runs" is missing or wrong; allowed: 1 to'), (order(0, 1, -1), '"calls"')])
def test_a_wrong_order_is_answered_and_the_next_is_obeyed(programs, line, expected):
    _, answers, done = talk(programs, WORKERS["planted"], [line, order(1, 1, 1)])
    assert done.returncode == 0
    assert expected in answers[0]["error"] and len(answers[1]["us"]) == 1


def test_a_worker_without_another_mode_has_a_help(programs):
    done = programs.run("generation_bench", "--help")
    assert done.returncode == 0 and "--filter" in done.stdout and "--serve" in done.stdout
    done = programs.run("generation_bench")
    assert done.returncode == 6 and "--serve is missing; allowed: [--filter REGEX] --serve" in done.stderr


@pytest.mark.parametrize(("command", "expected"), [
    (["all_reduce_perf", "--ranks", "2,4", "-b", "4K", "-e", "4K"], "--serve: 2 sessions; allowed: one number of ranks"),
    (["zero_bench", "--dp", "2"], "--serve: 10 rows; allowed: one"),
    (["tp_linear_bench"], "layers; allowed: one"),
    (["ddp_overlap_bench", "--dp", "2,4"], "--serve: 2 rows; allowed: one"),
    (["generation_bench", "--filter", "("], "--filter (: "),
    (["generation_bench", "--filter", "^nothing$"], "--filter ^nothing$: no such case"),
    (["gate_planted", "nothing"], "no such cases; allowed: alone, collective"),
    (["kernels_bench", "--benchmark_filter=^nothing$"], "--benchmark_filter matches no benchmark")])
def test_what_cannot_be_served_is_refused(programs, command, expected):
    done = subprocess.run([str(programs.folder / command[0]), *command[1:], "--serve"], capture_output=True, text=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 6 and done.stdout == "" and expected in done.stderr and done.stderr.count("\n") == 1
