"""Benchmarks as workers (bench/serve/orders.h): their cases, their answers, and that they end with their orders."""
import json
import subprocess

import pytest
from conftest import Programs

WORKERS = {
    "kernels": ["kernels_bench", "--threads", "1", "--cache", "warm", "--benchmark_filter=^residual_add/f32/B8_T128_C256"],
    "sweep": ["all_reduce_perf", "--ranks", "3", "-b", "4K", "-e", "64K", "-f", "16", "--algo", "ring,two_shot"],
    "generation": ["generation_bench"],
    "some generation": ["generation_bench", "--filter", "^plan/all_reduce/ring/"],
    "simulate": ["simulate", "--model", "gpt3-1.3b", "--layout", "tp=2,pp=2,dp=2,batch=16"],
    "training": ["mini_train", "--dp", "2", "--batch", "1"],
    "buckets": ["ddp_overlap_bench", "--dp", "2", "--batch", "1"],
    "sharding": ["zero_bench", "--dp", "2", "--batch", "1", "--zero", "3", "--prefetch", "1", "--dtype", "f32"],
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
    assert answers[0]["error"].endswith("LOCKSTEP_PLANTED_PERCENT: 'many'; allowed: a number from 0 to 1000")
    for name in ("kernels", "sweep", "generation"):
        _, answers, _ = talk(programs, WORKERS[name], [order(0, 1, 1)])
        assert len(answers[0]["us"]) == 1


def test_rows_of_a_sweep_are_named(programs):
    hello, _, _ = talk(programs, WORKERS["sweep"], [])
    assert hello["cases"] == [f"all_reduce/{algorithm}/float/sum/{size}B/ranks:3/local" for size in (4096, 65536)
                              for algorithm in ("ring", "two_shot")]


@pytest.mark.parametrize(("line", "told"), [
    ("run", "not a JSON object: run"), ("{}", '"case" is missing or wrong; allowed: 0 to'), (order(99, 1, 1), '"case"'),
    (order(0, 0, 1), '"runs" is missing or wrong; allowed: 1 to'), (order(0, 1, -1), '"calls"')])
def test_a_wrong_order_is_answered_and_the_next_is_obeyed(programs, line, told):
    _, answers, done = talk(programs, WORKERS["planted"], [line, order(1, 1, 1)])
    assert done.returncode == 0
    assert told in answers[0]["error"] and len(answers[1]["us"]) == 1


@pytest.mark.parametrize(("command", "told"), [
    (["all_reduce_perf", "--ranks", "2,4", "-b", "4K", "-e", "4K"], "--serve: 2 sessions; allowed: one number of ranks"),
    (["zero_bench", "--dp", "2"], "--serve: 10 rows; allowed: one"),
    (["tp_linear_bench"], "layers; allowed: one"),
    (["ddp_overlap_bench", "--dp", "2,4"], "--serve: 2 rows; allowed: one"),
    (["generation_bench", "--filter", "("], "--filter (: "),
    (["generation_bench", "--filter", "^nothing$"], "--filter ^nothing$: no such case"),
    (["gate_planted", "nothing"], "no such cases; allowed: alone, collective"),
    (["kernels_bench", "--benchmark_filter=^nothing$"], "--benchmark_filter matches no benchmark")])
def test_what_cannot_be_served_is_refused(programs, command, told):
    done = subprocess.run([str(programs.folder / command[0]), *command[1:], "--serve"], capture_output=True, text=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 6 and done.stdout == "" and told in done.stderr and done.stderr.count("\n") == 1
