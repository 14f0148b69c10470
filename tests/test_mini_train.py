"""mini_train as a user runs it: layouts, checkpoints, exports, refusals, ranks under mpirun that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import MPIRUN, Programs, records_of


SMALL = ("--layers", "2", "--hidden", "32", "--length", "16", "--microbatch-size", "4", "--steps", "4", "--lr", "3e-3",
         "--peak-gflops", "100")


def mini_train(programs: Programs, *words: str) -> subprocess.CompletedProcess[str]:
    done = programs.run("mini_train", *SMALL, *words)
    assert done.returncode == 0, done.stderr
    return done


def losses_of(done: subprocess.CompletedProcess[str]) -> list[float]:
    """Losses of the steps, then of the validation at the end."""
    steps = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    ending = next(line for line in done.stdout.splitlines() if line.startswith("# validation loss"))
    return [float(line.split("loss")[1].split()[0]) for line in steps] + [float(ending.split()[3])]


def test_a_run_says_what_it_is_and_where_its_time_went(programs: Programs) -> None:
    done = mini_train(programs, "--dp", "2", "--zero", "1")
    text = done.stdout
    assert "# GPT nano,layers=2,hidden=32,sequence=16: 2 layers, hidden 32" in text and "dp 2, tp 1, pp 1, ZeRO 1; 8 sequences of 16 tokens" in text
    assert "6 N + 12 L H Q T" in text and "--peak-gflops" in text
    assert "#   forward" in text and "#   backward" in text and "exposed: gathers of weights" in text
    assert len(losses_of(done)) == 5
    assert "# MFU reached" not in text


@pytest.mark.parametrize("words", [
    "--pp 4 --schedule bpipe",
    "--cp 2 --cp-way colossal",
    "--pp 2 --schedule terapipe --slices 4",
    "--pp 2 --schedule seq1f1b --slices 7:5:4",
    "--pp 2 --schedule seq1f1b_i --chunks 2 --slices 2 --recompute selective",
])
def test_moved_work_trains_and_writes_as_one_rank_does(programs: Programs, words: str) -> None:
    more = ("--layers", "4", "--sample", "12", "--prompt", "the cat", "--temperature", "0")
    line, other = (mini_train(programs, *more, *layout.split())
                  for layout in ("--microbatches 1", f"{words} --microbatch-size 1 --microbatches 4"))
    assert losses_of(other) == pytest.approx(losses_of(line), rel=1e-4)
    assert other.stdout.split("the cat")[1:] == line.stdout.split("the cat")[1:] != []


def test_more_than_all_of_the_peak_is_said_to_be_wrong(programs: Programs) -> None:
    text = mini_train(programs, "--peak-gflops", "1e-6").stdout
    assert "more than 100 % is impossible: the peak, 1000 FLOP/s (--peak-gflops), is too low" in text


def test_a_killed_run_leaves_the_record_of_its_steps(programs: Programs, tmp_path: Path) -> None:
    path = tmp_path / "t.partial.jsonl"
    command = [str(programs.folder / "mini_train"), *SMALL, "--steps", "100000", "--json", str(tmp_path / "t.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (not path.exists() or b'"loss"' not in path.read_bytes()):
            time.sleep(0.05)
        time.sleep(3)  # rewritten once per second
        running.kill()
    assert not (tmp_path / "t.jsonl").exists()
    run, training = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert run["record"] == "run" and training["record"] == "training"
    assert len(training["steps"]) >= 3 and training["validation"] is None and training["timeline"]


@pytest.mark.parametrize("layout", [
    ("--dp", "2", "--microbatch-size", "2", "--zero", "3"), ("--dp", "4", "--microbatch-size", "1", "--zero", "2", "--shard-ranks", "2"), ("--tp", "2", "--sequence-parallel"),
    ("--pp", "2", "--schedule", "zb_h1", "--microbatches", "2", "--microbatch-size", "2"),
])
def test_layouts_print_the_losses_of_one_rank(programs: Programs, layout: tuple[str, ...]) -> None:
    for program, other in zip(losses_of(mini_train(programs)), losses_of(mini_train(programs, *layout)), strict=True):
        assert other == pytest.approx(program, abs=2e-4)  # four decimals


def gemm_of(folder: Path, programs: Programs, *words: str) -> dict:
    """The record's fields on matrix products; the heading must agree with them."""
    done = mini_train(programs, *words, "--json", str(folder / "run.jsonl"))
    gemm = json.loads((folder / "run.jsonl").read_text().splitlines()[-1])["gemm"]
    assert f"# matrix products: {gemm['implementation']}" in done.stdout
    return gemm


def test_products_are_computed_by_one_implementation_that_is_said_and_can_be_repeated(programs: Programs, tmp_path: Path) -> None:
    probed = gemm_of(tmp_path, programs, "--dp", "2", "--checkpoints", str(tmp_path / "probed"))
    assert probed["chosen_by"] == "probe" and probed["implementation"] in probed["probe_us"]
    assert all(us > 0 for us in probed["probe_us"].values())
    assert gemm_of(tmp_path, programs, "--resume", str(tmp_path / "probed"), "--steps", "5") == {
        "implementation": probed["implementation"], "chosen_by": "checkpoint", "probe_us": {}}
    for name in probed["probe_us"]:
        expected = {"implementation": name, "chosen_by": "flag", "probe_us": {}}
        assert gemm_of(tmp_path, programs, "--gemm", name, "--checkpoints", str(tmp_path / name)) == expected
        assert gemm_of(tmp_path, programs, "--resume", str(tmp_path / name), "--steps", "5")["implementation"] == name
    assert gemm_of(tmp_path, programs, "--gemm", "per-shape")["implementation"] == "per-shape"


def test_a_run_goes_on_from_its_checkpoint_and_gives_files_to_others(programs: Programs, tmp_path: Path) -> None:
    whole = losses_of(mini_train(programs))
    folder, exported = tmp_path / "checkpoints", tmp_path / "gpt.safetensors"
    first = losses_of(mini_train(programs, "--steps", "2", "--warmup", "0", "--min-lr", "3e-4", "--checkpoints", str(folder)))
    assert len(first) == 3 and (folder / "latest").is_file()
    done = mini_train(programs, "--resume", str(folder), "--tp", "2", "--export", str(exported), "--sample", "5")
    rest = losses_of(done)
    assert len(rest) == 3 and "# sample" in done.stdout
    assert rest[-1] < whole[0]
    header = json.loads(exported.read_bytes()[8:8 + int.from_bytes(exported.read_bytes()[:8], "little")])
    assert header["h.0.attn.c_attn.weight"]["shape"] == [32, 96]  # Hugging Face's layout: [inputs, outputs]
    assert not (tmp_path / "gpt.safetensors.checkpoint").exists()
    config = tmp_path / "config.json"
    known = {"model_type": "gpt2", "n_layer": 2, "n_head": 4}
    config.write_text(json.dumps(known | {"of_next_year": 1, "another": [2], "use_cache": True}))
    done = mini_train(programs, "--init-from", str(exported), "--steps", "1")
    assert losses_of(done)[0] < whole[0] - 0.1
    assert done.stderr == f"note: {config}: 2 unknown settings are not used: another, of_next_year\n"
    # Settings that the trainer does not run are refused before anything is printed.
    config.write_text(json.dumps(known | {"scale_attn_weights": False, "sliding_window": 4}))
    done = programs.run("mini_train", *SMALL, "--init-from", str(exported), "--steps", "1")
    assert done.returncode != 0 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "scale_attn_weights is false" in done.stderr and "sliding_window is 4, below the " in done.stderr


def test_replicas_of_shards_are_told_in_heading_record_and_trace(programs: Programs, tmp_path: Path) -> None:
    trace, records = tmp_path / "trace.json", tmp_path / "records.jsonl"
    done = mini_train(programs, "--dp", "4", "--microbatch-size", "1", "--zero", "3", "--shard-ranks", "2", "--trace", str(trace), "--json",
                      str(records))
    assert "dp 4, tp 1, pp 1, ZeRO 3 over 2 ranks in 2 replicas; 4 sequences" in done.stdout
    layout = json.loads(records.read_text(encoding="utf-8").splitlines()[1])["layout"]
    assert layout["numbers"]["shard_ranks"] == 2 and layout["text"] == "dp=4,zero=3,shard_ranks=2"
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    lanes = {event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    groups = {event["args"].get("group") for event in events if event.get("ph") == "X"}
    assert "replicas" in lanes and {"data", "replicas"} <= groups


def test_a_trace_has_every_rank(programs: Programs, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    mini_train(programs, "--pp", "2", "--microbatches", "2", "--microbatch-size", "2", "--trace", str(trace))
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert len({event["pid"] for event in events if event.get("ph") == "X"}) == 2


def test_emulated_links_are_said_wherever_their_times_are(programs: Programs, tmp_path: Path) -> None:
    trace, records = tmp_path / "trace.json", tmp_path / "records.jsonl"
    done = mini_train(programs, "--dp", "2", "--link", "latency_us=10,gbps=1", "--trace", str(trace), "--json", str(records))
    assert "# EMULATED links of 10 us and 1 GB/s" in done.stdout
    assert '"emulated' in trace.read_text(encoding="utf-8") and '"measured' not in trace.read_text(encoding="utf-8")
    assert {json.loads(line)["basis"] for line in records.read_text(encoding="utf-8").splitlines()} == {"emulated"}
    assert "EMULATED" not in mini_train(programs, "--dp", "2").stdout


def test_batch_counts_the_sequences_of_an_optimizer_step(programs: Programs) -> None:
    def refusal(*words: str) -> str:
        done = programs.run("mini_train", "--layers", "1", *words)
        assert done.returncode == 6 and done.stdout == ""
        return done.stderr

    assert "--microbatch-size 8 without --batch" in refusal("--batch", "8", "--dp", "2")
    assert "--microbatch-size 8 without --batch" in refusal("--batch", "8", "--microbatches", "2")
    assert "allowed: multiples of 8" in refusal("--batch", "12", "--dp", "2", "--microbatch-size", "4")
    assert "allowed: 16" in refusal("--batch", "8", "--dp", "2", "--microbatch-size", "4", "--microbatches", "2")
    two = mini_train(programs, "--dp", "2", "--batch", "16")
    assert "2 microbatches; 16 sequences of 16 tokens per step, 4 per microbatch" in two.stdout, two.stdout
    assert losses_of(two) == losses_of(mini_train(programs, "--dp", "2", "--microbatches", "2"))
    alone = ("--layers", "1", "--hidden", "32", "--length", "16", "--steps", "1", "--batch", "3", "--peak-gflops", "1")
    assert "3 sequences of 16 tokens per step, 3 per microbatch" in programs.run("mini_train", *alone).stdout


@pytest.mark.parametrize(("words", "text"), [
    (["--tp", "3"], "layout: tp is 3, and heads is 4; allowed: 1 2 4"),
    (["--pp", "4"], "allowed: at most one stage a layer"),
    (["--dp", "4", "--zero", "3", "--shard-ranks", "3"], "layout: shard_ranks is 3, and dp x cp is 4; allowed: 1 2 4"),
    (["--dp", "4", "--shard-ranks", "2"], "layout: shard_ranks is 2; allowed: 0, as zero is 0"),
    (["--dp", "4", "--zero", "3", "--compression", "topk:density=0.1"], "or --shard-ranks less than --dp"),
    (["--zero", "4"], "--zero 4: out of range; allowed: an integer from 0 to 3"),
    (["--schedule", "pipedream", "--pp", "2", "--microbatches", "4"],
     "which trains on old weights, together with tied_embeddings=yes; allowed: tied_embeddings=no"),
    (["--schedule", "dualpipe", "--pp", "2", "--microbatches", "2"], "microbatches is 2; allowed: at least 4"),
    (["--schedule", "nonsense"], "nonsense"),
    (["--model", "huge"], "'huge' is not known; allowed: nano"),
    (["--dtype", "f64"], "--dtype f64: not known; allowed: f32 bf16 f16"),
    (["--transport", "nccl"], "--transport nccl together with --device cpu; allowed: --device cuda, or --transport local"),
    (["--graph"], "--graph needs --device cuda"),
    (["--graph", "--device", "cuda", "--pp", "2"], "--graph together with --pp 2: stages exchange messages through the host"),
    (["--transport", "tcp"], "--transport tcp: not known; allowed: local mpi nccl"),
    (["--length", "99999"], "--length 99999: out of range; allowed: 1 to"),
    (["--data", "/nonexistent"], "/nonexistent"),
    (["--data", "/dev/null"], "/dev/null"),
    (["--microbatch-size", "10000000"], "--microbatch-size 10000000: out of range"),
    (["--microbatch-size", "1000000", "--length", "128"], "what helps: --recompute full"),
    (["--resume", "/nonexistent"], "/nonexistent"),
    (["--algo", "pigeon", "--dp", "2"], "'pigeon'"),
    (["--algo", "one_shot"], "--algo one_shot"),
    (["--attention", "wgmma"], "--attention together with --device cpu; allowed: --device cuda"),
    (["--attention", "flash"], "--attention flash: not known; allowed: auto mma wgmma"),
    (["--attention", "wgmma", "--device", "cuda", "--dtype", "bf16"], "columns of bf16; allowed: 64 or 128 "
     "columns with --dtype bf16 or f16, or --attention mma"),
    (["--gemm", "cublas"], "--gemm cublas: not known; allowed: probe per-shape packed onednn"),
    (["--gemm", "onednn", "--dtype", "f16"], "--gemm onednn is not available on this machine for f16; allowed: probe, per-shape, packed"),
    (["--frobnicate"], "unknown argument '--frobnicate'"),
])
def test_refusals_are_one_line(programs: Programs, words: list[str], text: str) -> None:
    done = programs.run("mini_train", *SMALL, *words)
    assert done.returncode == 6 and len(done.stderr.splitlines()) == 1 and text in done.stderr, done.stderr


@pytest.mark.parametrize(("words", "text"), [
    (["--device", "gpu"], "--device"), (["--device", "cuda:"], "--device"), (["--device", "cuda:1x"], "--device"),
    (["--device", "cuda", "--link", "latency_us=10,gbps=1"], "--link"),
    (["--device", "cuda:0", "--compression", "bf16", "--dp", "2"], "--compression"),
])
def test_devices_that_are_none_and_what_none_can_do(programs: Programs, words: list[str], text: str) -> None:
    done = programs.run("mini_train", *SMALL, *words)
    assert done.returncode == 6 and len(done.stderr.splitlines()) == 1 and text in done.stderr, done.stderr


def test_without_a_gpu_the_device_is_refused_with_the_reason(programs: Programs) -> None:
    done = programs.run("mini_train", *SMALL, "--device", "cuda")
    if done.returncode == 0:
        pytest.skip("a GPU is here")
    assert len(done.stderr.splitlines()) == 1 and "--device cuda" in done.stderr, done.stderr


def test_a_damaged_checkpoint_is_refused_by_name(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    mini_train(programs, "--checkpoints", str(folder))
    file = next(folder.glob("step-*/*.safetensors"))
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 4
    file.write_bytes(contents)
    done = programs.run("mini_train", *SMALL, "--resume", str(folder))
    assert done.returncode == 7 and len(done.stderr.splitlines()) == 1 and file.name in done.stderr, done.stderr


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
@pytest.mark.parametrize("layout", [
    ("--dp", "2", "--pp", "2", "--microbatches", "2", "--zero", "1"),
    ("--dp", "2", "--pp", "2", "--microbatches", "2", "--zero", "1", "--schedule", "chimera"),
    ("--dp", "4", "--microbatches", "2", "--zero", "3", "--shard-ranks", "2"),
    ("--dp", "2", "--tp", "2", "--sequence-parallel", "--zero", "3"),
    ("--dp", "2", "--cp", "2", "--zero", "1"),
    ("--cp", "4", "--cp-way", "lightseq"),  # ranks with nothing to send
    # messages that wait for their receives
    ("--dp", "2", "--pp", "2", "--layers", "4", "--microbatches", "4", "--length", "64", "--schedule", "dualpipe"),
])
def test_ranks_of_mpirun_print_the_same_losses(mpi_programs: Programs, threads: str, layout: tuple[str, ...]) -> None:
    words = (*layout, "--microbatch-size", "1", "--gemm", "packed")  # a probe could choose differently in each run
    command = [*MPIRUN, "-n", "4", str(mpi_programs.folder / "mini_train"), "--transport", "mpi", "--mpi-threads", threads,
               *SMALL, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert losses_of(done) == losses_of(mini_train(mpi_programs, *words))
    expected = "overlap with kernels" if threads == "multiple" else "nothing overlaps"
    assert f"MPI_THREAD_{threads.upper()}: " in done.stdout and expected in done.stdout


def test_a_killed_rank_ends_all(mpi_programs: Programs) -> None:
    command = [*MPIRUN, "-n", "2", str(mpi_programs.folder / "mini_train"), "--transport", "mpi", "--dp", "2", *SMALL,
               "--steps", "100000", "--timeout", "5"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    while not run.stdout.readline().startswith("step"):
        assert run.poll() is None
    children = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True, check=True).stdout.split()
    os.kill(int(children[-1]), signal.SIGKILL)
    killed = time.monotonic()
    run.communicate(timeout=30)
    assert run.returncode != 0 and time.monotonic() - killed < 20


# mini_train --sync as a user runs it: losses, records, lines about stragglers, refusals, ranks under mpirun.

def training_of(programs: Programs, path: Path, *words: str) -> dict:
    mini_train(programs, "--dp", "2", "--json", str(path), *words)
    return next(line for line in records_of(path) if line["record"] == "training")


def test_summed_gradients_print_the_losses_of_the_all_reduce(programs: Programs) -> None:
    wanted = losses_of(mini_train(programs, "--dp", "2", "--gemm", "packed"))
    for way in ("root", "server:servers=2"):
        assert losses_of(mini_train(programs, "--dp", "2", "--gemm", "packed", "--sync", way)) == wanted


def test_records_say_how_replicas_agreed_and_what_they_sent(programs: Programs, tmp_path: Path) -> None:
    within = training_of(programs, tmp_path / "1.jsonl")
    average = training_of(programs, tmp_path / "2.jsonl", "--sync", "average:every=2")
    assert "sync" not in within and within["basis"] == average["basis"] == "measured"
    assert average["sync"] == {"way": "average:every=2", "every": 2}
    sent = [step["sent_bytes"] for step in average["steps"]]
    assert sent == [0, sent[1], sent[1], 2 * sent[1]], "after steps 2 and 4"
    assert sent[1] == pytest.approx(within["steps"][0]["sent_bytes"], rel=1e-3), "as much as the gradients of a step"


def test_a_straggler_is_emulated_and_predicted(programs: Programs, tmp_path: Path) -> None:
    words = ("--sync", "async:staleness=1", "--straggler", "replica=1,factor=2,step_ms=10")
    text = mini_train(programs, "--dp", "2", *words).stdout
    assert "# EMULATED straggler: replica=1,factor=2,step_ms=10; these times alone give " in text
    assert "the server on rank 2; a gradient misses " in text
    program = training_of(programs, tmp_path / "1.jsonl", *words)
    assert program["basis"] == "emulated" and program["ranks"] == 3
    assert 10 <= program["sync"]["predicted_ms"] <= 20 and program["sync"]["missed_most"] <= 3
    # Sleeps are no shorter; but a server that gets no core may start its clock late in the first step.
    assert sum(step["ms"] for step in program["steps"]) >= 3 * program["sync"]["predicted_ms"]


@pytest.mark.parametrize(("words", "text"), [
    (["--dp", "2", "--sync", "ring"], "--sync ring"), (["--dp", "2", "--sync", "average:every=0"], "every=0"),
    (["--sync", "root"], "--dp 2 or more"), (["--dp", "2", "--sync", "root", "--zero", "1"], "--zero 0"),
    (["--dp", "2", "--sync", "server:servers=3"], "servers=1 to --dp"),
    (["--dp", "2", "--tp", "2", "--sync", "async"], "--tp 1"), (["--dp", "2", "--straggler", "replica=0,factor=2"], "--sync"),
    (["--dp", "2", "--sync", "root", "--straggler", "replica=2,factor=2"], "replica=0 to 1"),
    (["--dp", "2", "--sync", "root", "--predict", "one-switch"], "--predict"),
])
def test_refusals_of_sync_are_one_line(programs: Programs, words: list[str], text: str) -> None:
    done = programs.run("mini_train", *SMALL, *words)
    assert done.returncode == 6 and len(done.stderr.splitlines()) == 1 and text in done.stderr, done.stderr


@pytest.mark.parametrize(("ranks", "way"), [(2, "diloco:every=2"), (3, "async:staleness=1")])
def test_ranks_of_mpirun_print_the_losses_of_threads(mpi_programs: Programs, ranks: int, way: str) -> None:
    words = ("--dp", "2", "--gemm", "packed", "--sync", way)
    done = subprocess.run([*MPIRUN, "-n", str(ranks), str(mpi_programs.folder / "mini_train"), "--transport", "mpi", *SMALL,
                           *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert losses_of(done) == losses_of(mini_train(mpi_programs, *words))
