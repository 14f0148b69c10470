"""ddp_overlap_bench and zero_bench as a user runs them, and all programs of several ranks on ranks of mpirun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import MPIRUN, Programs, records_of, ROOT
from reports.load import load
from reports.records import Step


SMALL = ["--model", "nano", "--layers", "4", "--length", "16", "--microbatch-size", "1", "--steps", "2", "--warmup", "1"]


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def report_of(records: Path, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "reports", str(records), "-o", str(folder)], cwd=ROOT,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_row_of_buckets_is_checked_and_recorded(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "ddp.jsonl"
    done = programs.run("ddp_overlap_bench", *SMALL, "--dp", "2,3", "--bucket-cap-mb", "0,0.75", "--link",
                        "none;latency_us=20,gbps=2", "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = rows_of(done.stdout)
    assert len(rows) == 8 and all(row[-1] == "0" for row in rows)
    assert "EMULATED" in done.stdout and "in bucket order in 8 of 8 rows" in done.stdout
    lines = records_of(file)
    runs = {line["run"]: line for line in lines if line["record"] == "run"}
    steps = [line for line in lines if line["record"] == "schedule"]
    assert len(runs) == len(steps) == 8
    assert all(run["oversubscribed"] == (run["ranks"] > run["machine"]["cores"]) for run in runs.values())
    for step in steps:
        run, overlap = runs[step["run"]], step["overlap"]
        assert step["basis"] == run["basis"] == ("emulated" if run["link"] else "measured")
        reduced = [task for task in step["timeline"]["ranks"][0] if task[0] == "reduce"]
        assert len(reduced) == overlap["collectives"] and len(step["samples_ms"]) == 2
        assert (overlap["collectives"] == 1) == (overlap["bucket_cap_bytes"] == 0)
        assert overlap["reductions"]["status"] == "ok" and len(overlap["reductions"]["exposed_samples_ms"]) == 2


def test_codes_send_less_and_say_so(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "codes.jsonl"
    ways = ["none", "bf16", "int8", "int4", "fp8", "sign", "topk:density=0.01", "threshold:at=0.001:density=0.01",
            "randomk:density=0.01", "powersgd:rank=4"]
    done = programs.run("ddp_overlap_bench", *SMALL, "--dp", "2", "--compression", ",".join(ways), "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row[2] for row in rows_of(done.stdout)] == ways
    by_compression = {line["overlap"]["reductions"]["compression"]: line["overlap"]["reductions"] for line in records_of(file)
            if line["record"] == "schedule"}
    sent = {name: line["sent_bytes"] for name, line in by_compression.items()}
    assert all(line["sent_bytes"] == line["formula_bytes"] and line["wrong"] == 0 for line in by_compression.values())
    assert sent["bf16"] == sent["none"] / 2
    # One byte per value, and a scale for 256 of them (fp8: 128); blocks of shares are not all full.
    assert 65 / 256 <= sent["int8"] / sent["none"] < 0.26 and 66 / 256 <= sent["fp8"] / sent["none"] < 0.27
    assert 33 / 256 <= sent["int4"] / sent["none"] < 0.14 and 9 / 256 <= sent["sign"] / sent["none"] < 0.04
    assert sent["topk:density=0.01"] / sent["none"] == pytest.approx(0.02, rel=0.1)  # a value and an index
    assert sent["threshold:at=0.001:density=0.01"] == sent["topk:density=0.01"]
    assert sent["randomk:density=0.01"] / sent["none"] == pytest.approx(0.01, rel=0.1)
    assert by_compression["none"]["relative_error"] < 1e-6 < by_compression["int8"]["relative_error"] < by_compression["int4"]["relative_error"] < 0.5


def test_all_rows_hold_and_send_what_formulas_say(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "zero.jsonl"
    done = programs.run("zero_bench", *SMALL, "--dp", "2", "--microbatches", "2", "--grad-dtype", "f32,bf16", "--json",
                        str(file))
    assert done.returncode == 0, done.stderr
    assert "stage 0: 120 GB, stage 1: 31.41 GB, stage 2: 16.64 GB, stage 3: 1.875 GB" in done.stdout
    lines = load([str(file)]).steps
    assert len(lines) == len(rows_of(done.stdout)) == 15
    kinds = ("weights", "gradients", "optimizer")
    for line in lines:
        assert line.status == "ok" and line.error is None
        assert [line.held_bytes[kind] for kind in kinds] == [line.formula_bytes[kind] for kind in kinds]
    narrow = {line.zero_stage: line for line in lines if line.gradient_dtype == "bf16" and line.prefetch}
    psi = narrow[0].padded_elems
    states = {stage: sum(narrow[stage].held_bytes[kind] for kind in kinds) for stage in narrow}
    # 16 psi, 4 psi + 12 psi / 2, 2 psi + 14 psi / 2, 16 psi / 2 (arXiv:1910.02054, section 5)
    assert states == {0: 16 * psi, 1: 10 * psi, 2: 9 * psi, 3: 8 * psi}
    sent = {stage: sum(narrow[stage].sent_bytes.values()) for stage in narrow}
    assert (sent[0], sent[1], sent[2]) == (2 * psi, 2 * psi, 3 * psi)  # times 2 bytes, (n-1)/n; (m+1) psi


def simulated_bytes(programs: Programs, line: Step, layout: str, path: Path) -> dict[str, float]:
    """Results of `simulate` for the model of a line of zero_bench."""
    assert line.padded_elems == line.model.parameters  # so both count the same elements
    numbers = {name: int(value) for name, value in line.model.numbers.items()}
    model = (f"layers={numbers['layers']},hidden={numbers['hidden']},heads={numbers['heads']},vocabulary={numbers['vocabulary']},"
             "sequence=128,dropout=no")
    done = programs.run("simulate", "--model", model, "--layout", layout, "--json", str(path))
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text(encoding="utf-8").splitlines()[1])["sent_bytes"]


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("momentum", 1), ("rmsprop", 1), ("adam", 2), ("adamw", 2)])
def test_each_optimizer_holds_its_states_and_no_more(programs: Programs, tmp_path: Path, optimizer: str, states: int) -> None:
    counted = tmp_path / "zero.jsonl"
    done = programs.run("zero_bench", *SMALL, "--zero", "0,1", "--dtype", "f32,bf16", "--optimizer", optimizer, "--json", str(counted))
    assert done.returncode == 0 and "# 4 rows hold and send exactly the bytes of the formulas" in done.stdout, done.stderr
    for line in load([str(counted)]).steps:
        bytes_per_parameter = 4 * states + (0 if line.dtype == "f32" else 4)
        shards = 2 if line.zero_stage == 1 else 1
        assert line.optimizer == optimizer
        assert line.held_bytes["optimizer"] == bytes_per_parameter * line.padded_elems / shards


def test_zero_plus_plus_sends_what_the_simulator_counts(programs: Programs, tmp_path: Path) -> None:
    """Weights as codes, backwards from a secondary copy, gradients as codes in two hops."""
    counted = tmp_path / "zero.jsonl"
    done = programs.run("zero_bench", *SMALL, "--dp", "4", "--zero", "3", "--microbatches", "2", "--dtype", "bf16", "--prefetch", "1",
                        "--secondary-ranks", "2", "--weight-compression", "int8", "--compression", "int4", "--near-ranks", "2",
                        "--json", str(counted))
    assert done.returncode == 0, done.stderr
    assert "# 1 rows hold and send exactly the bytes of the formulas" in done.stdout
    line, = load([str(counted)]).steps
    layout = "dp=4,zero=3,batch=8,secondary_ranks=2,weight_compression=int8,compression=int4,near_ranks=2"
    predicted = simulated_bytes(programs, line, layout, tmp_path / "simulated.jsonl")
    sent = line.sent_bytes
    assert (sent["weights"], sent["secondary"]) == (predicted["data"], predicted["secondary"])
    assert (sent["gradients"], sent["near"]) == (predicted["far"], predicted["near"])


def test_a_plain_stage_3_has_no_parts_of_zero_plus_plus(programs: Programs, tmp_path: Path) -> None:
    """Neither with codes, which are exchanged in one hop."""
    file = tmp_path / "zero.jsonl"
    done = programs.run("zero_bench", *SMALL, "--dp", "2", "--zero", "3", "--dtype", "f32", "--prefetch", "1", "--compression",
                        "none,int8", "--json", str(file))
    assert done.returncode == 0, done.stderr
    lines = load([str(file)]).steps
    assert [line.compression for line in lines] == ["none", "int8"]
    assert all(line.sent_bytes.keys() == {"weights", "gradients", "over_replicas"} for line in lines)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_replicas_of_shards_send_what_the_simulator_counts(programs: Programs, tmp_path: Path, stage: int) -> None:
    """The same model and layout: two sets of two ranks, two microbatches, bf16 with gradients in f32."""
    counted, simulated = tmp_path / "zero.jsonl", tmp_path / "simulated.jsonl"
    done = programs.run("zero_bench", *SMALL, "--dp", "4", "--zero", str(stage), "--shard-ranks", "2", "--microbatches", "2",
                        "--dtype", "bf16", "--prefetch", "1", "--json", str(counted))
    assert done.returncode == 0, done.stderr
    line, = load([str(counted)]).steps
    assert line.shard_ranks == 2 and line.status == "ok"
    predicted = simulated_bytes(programs, line, f"dp=4,zero={stage},shard_ranks=2,batch=8", simulated)
    sent = line.sent_bytes
    assert sent["over_replicas"] == predicted["replicas"] > 0
    assert sent["weights"] + sent["gradients"] == predicted["data"]


def test_the_report_shows_both(programs: Programs, tmp_path: Path) -> None:
    ddp, zero, both = (tmp_path / f"{name}.jsonl" for name in ("ddp", "zero", "both"))
    assert programs.run("ddp_overlap_bench", *SMALL, "--json", str(ddp)).returncode == 0
    assert programs.run("zero_bench", *SMALL, "--dp", "4", "--shard-ranks", "0,2", "--dtype", "f32", "--json",
                        str(zero)).returncode == 0
    both.write_text(ddp.read_text(encoding="utf-8") + zero.read_text(encoding="utf-8"), encoding="utf-8")
    report_of(both, tmp_path / "page")
    buckets = (tmp_path / "page" / "buckets.html").read_text(encoding="utf-8")
    assert "counted in the plans that ran: equal to the formula" in buckets
    page = (tmp_path / "page" / "sharding.html").read_text(encoding="utf-8")
    assert "ZeRO 3, gathered when needed" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert (tmp_path / "page" / "figures" / "sharding-1-memory.svg").exists()
    assert (tmp_path / "page" / "figures" / "buckets-1-exposed.svg").exists()


TRAINING = {"ddp_overlap_bench": [], "zero_bench": [], "tp_linear_bench": [], "scaling": [], "mini_train": [],
            "pipeline_perf": ["--mode", "real"]}


@pytest.mark.parametrize("program", TRAINING)
@pytest.mark.parametrize("words, expected", [
    (["--device", "gpu"], "--device gpu: not a device; allowed: cpu cuda cuda:0 cuda:1 ..."),
    (["--transport", "shm"], "--transport shm: not known; allowed: local mpi nccl"),
    (["--transport", "nccl"], "--transport nccl together with --device cpu; allowed: --device cuda, or --transport local"),
    (["--mpi-threads", "some"], "--mpi-threads some: not known; allowed: multiple funneled"),
])
def test_all_training_programs_have_the_same_places(programs: Programs, program: str, words: list[str], expected: str) -> None:
    done = programs.run(program, *TRAINING[program], *words)
    assert done.returncode == 6 and not done.stdout and done.stderr == f"{program}: {expected}\n"


@pytest.mark.parametrize("program", TRAINING)
def test_a_device_that_is_not_there_is_said_not_to_be(programs: Programs, program: str) -> None:
    absent = programs.run("all_reduce_perf", "--transport", "cuda", "--ranks", "2", "-b", "4", "-e", "4")
    if absent.returncode == 0:
        pytest.skip("there is a GPU")
    done = programs.run(program, *TRAINING[program], "--device", "cuda")
    assert done.returncode != 0 and not done.stdout
    assert done.stderr.startswith(f"{program}: --device cuda: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("program, words, expected", [
    ("pipeline_perf", ["--device", "cpu"], "--device without --mode real"),
    ("pipeline_perf", ["--mode", "emulated", "--transport", "mpi"], "--transport without --mode real"),
    ("scaling", ["--transport", "mpi"], "ranks of mpirun: layouts have different numbers of ranks"),
    ("zero_bench", ["--serve", "--transport", "mpi"], "--serve works only with --transport local"),
    ("tp_linear_bench", ["--link", "gbps=1", "--transport", "mpi"], "--link emulates links between local ranks"),
    ("ddp_overlap_bench", ["--dp", "1"], "--dp 1 has nothing to reduce"),
    ("ddp_overlap_bench", ["--link", "fast"], "--link fast: has no '='; allowed: latency_us gbps"),
    ("ddp_overlap_bench", ["--algo", "pigeon"], "pigeon"),
    ("ddp_overlap_bench", ["--algo", "library"], "library"),
    ("ddp_overlap_bench", ["--algo", "one_shot"], "one_shot"),
    ("ddp_overlap_bench", ["--algo", "ring:lanes=99"], "ring:lanes=99"),
    ("ddp_overlap_bench", ["--microbatch-size", "1048576"], "needs"),
    ("ddp_overlap_bench", ["--compression", "none,int2"], "--compression int2"),
    ("ddp_overlap_bench", ["--compression", "int8", "--dtype", "bf16", "--grad-dtype", "bf16"], "--compression is int8"),
    ("ddp_overlap_bench", ["--bucket-cap-mb", "-1"], "--bucket-cap-mb -1"),
    ("ddp_overlap_bench", ["--heads", "7"], "heads"),
    ("zero_bench", ["--zero", "4"], "--zero"),
    ("zero_bench", ["--dtype", "f32", "--grad-dtype", "bf16"], "--grad-dtype"),
    ("zero_bench", ["--dtype", "int8"], "not known"),
    ("zero_bench", ["--length", "100000"], "--length 100000: out of range; allowed: 1 to 256"),
    ("zero_bench", ["--colour"], "--colour"),
    ("zero_bench", ["--dp", "4", "--shard-ranks", "3"], "layout: shard_ranks is 3, and dp x cp is 4; allowed: 1 2 4"),
    ("zero_bench", ["--shard-ranks", "1"], "--shard-ranks 1 shards nothing"),
    ("zero_bench", ["--dp", "4", "--zero", "3", "--secondary-ranks", "4"],
     "layout: secondary_ranks is 4, and dp x cp is 4; allowed: 0, or a divisor of that from 2 to 2"),
    ("zero_bench", ["--dp", "4", "--zero", "3", "--compression", "int4", "--near-ranks", "3"], "layout: near_ranks is 3"),
    ("mini_train", ["--dp", "4", "--zero", "2", "--secondary-ranks", "2"],
     "layout: secondary_ranks is 2, and zero is 2; allowed: 0, or zero=3"),
])
def test_what_is_refused_gets_one_line(programs: Programs, program: str, words: list[str], expected: str) -> None:
    done = programs.run(program, *words)
    assert done.returncode == 6 and expected in done.stderr and not done.stdout
    assert len(done.stderr.strip().splitlines()) == 1


# Sweeps, and benchmarks of training steps and layers, on ranks of mpirun.

LAYERS = ["--rounds", "1", "--warmup", "1", "--hidden", "32", "--heads", "4", "--batch", "2", "--length", "16", "--tiles", "2",
          "--vocabulary", "61"]
SMALL_STEP = ["--model", "nano", "--layers", "4", "--length", "16", "--microbatch-size", "1", "--steps", "2", "--warmup", "1"]


def under_mpi(programs: Programs, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*MPIRUN, "-n", "2", str(programs.folder / program), "--transport", "mpi", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def sweep(programs: Programs, processes: int, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """No transport is named: that of mpirun's ranks is meant."""
    command = [*MPIRUN, "-n", str(processes), str(programs.folder / program), "-b", "4", "-e", "16K", "-f", "64", "-n", "2", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("processes,threads,gpus,program", [(2, 2, 1, "all_reduce_perf"), (3, 1, 2, "alltoallv_perf")])
def test_ranks_of_sweeps_are_processes_times_threads_times_gpus(mpi_programs: Programs, tmp_path: Path, processes: int,
                                                                threads: int, gpus: int, program: str) -> None:
    file = tmp_path / "sweep.jsonl"
    done = sweep(mpi_programs, processes, program, "-t", str(threads), "-g", str(gpus), "--algo", "all", "-d", "int32",
                 "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    run, *rows = records_of(file)
    ranks = processes * threads * gpus
    assert (run["ranks"], run["mpi_processes"], run["gpus_per_thread"], run["rank_kind"]) == (ranks, processes, gpus, "mpi")
    assert rows and all(row["status"] == "ok" and row["wrong"] == 0 and row["ranks"] == ranks for row in rows)
    assert not any(row["algorithm"] == "library" for row in rows), "of which a process is one rank"
    assert done.stdout.count("Collective test starting") == 1
    assert f"{ranks} ranks ({processes} processes of MPI, {threads * gpus} threads in each)" in done.stdout
    places = [line.split() for line in done.stdout.splitlines() if line.startswith("#  Rank")]
    assert [int(place[2]) for place in places] == list(range(ranks))
    pids = [place[6] for place in places]
    assert len(set(pids)) == processes
    assert pids == [pid for pid in dict.fromkeys(pids) for _ in range(threads * gpus)], "ranks of a process follow each other"


@pytest.mark.parametrize("words,line", [
    (("-t", "2", "--algo", "library"), "--algo library with -t times -g of 2: a process is one rank to MPI's own collectives"),
    (("--ranks", "4"), "--ranks: under mpirun each process is one rank, and there are 2; allowed: 2, or -t for several"),
])
def test_ranks_that_cannot_be_are_refused_by_one_line(mpi_programs: Programs, words: tuple[str, ...], line: str) -> None:
    done = sweep(mpi_programs, 2, "broadcast_perf", *words)
    assert done.returncode == 6 and line in done.stderr and done.stderr.count("allowed:") == 1, done.stderr


def ddp(programs: Programs, *words: str) -> subprocess.CompletedProcess[str]:
    return under_mpi(programs, "ddp_overlap_bench", *SMALL_STEP, *words)


def rows_and_run(done: subprocess.CompletedProcess[str], file: Path) -> tuple[list[list[str]], dict]:
    """Rows of the one rank that prints, and the run of its records."""
    assert done.returncode == 0, done.stderr
    run = next(line for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()) if line["record"] == "run")
    assert run["transport"] == run["rank_kind"] == "mpi" and run["ranks"] == 2
    return [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")], run


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_shards_of_processes_hold_and_send_what_formulas_say(mpi_programs: Programs, tmp_path: Path, threads: str) -> None:
    file = tmp_path / "zero.jsonl"
    done = under_mpi(mpi_programs, "zero_bench", *SMALL_STEP, "--dtype", "f32", "--mpi-threads", threads, "--json", str(file))
    rows, _ = rows_and_run(done, file)
    assert [row[:2] for row in rows] == [["2", stage] for stage in "01233"] and not any("WRONG" in row for row in rows)


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_layers_of_processes_are_right_and_send_by_formula(mpi_programs: Programs, tmp_path: Path, threads: str) -> None:
    file = tmp_path / "layers.jsonl"
    done = under_mpi(mpi_programs, "tp_linear_bench", *LAYERS, "--mpi-threads", threads, "--json", str(file))
    rows, _ = rows_and_run(done, file)
    assert len(rows) == 5 * 2 * 2 + 1 and all(row[18] == row[19] and row[20] == "0" for row in rows)


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_sequences_that_processes_share_are_one_ranks(mpi_programs: Programs, tmp_path: Path, threads: str) -> None:
    file = tmp_path / "sequences.jsonl"
    done = under_mpi(mpi_programs, "seqpar_bench", "--rounds", "1", "--length", "96", "--heads", "4", "--head-columns", "8",
                     "--mpi-threads", threads, "--json", str(file))
    rows, _ = rows_and_run(done, file)
    assert [row[:2] for row in rows] == [[way, "2"] for way in ("ring", "zigzag", "allgather", "ulysses", "lightseq", "colossal")]
    assert "6 rows give one rank's results and send exactly the bytes of the lists" in done.stdout


def test_stages_of_processes_run_every_schedule_that_is_asked_for(mpi_programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "stages.jsonl"
    done = under_mpi(mpi_programs, "pipeline_perf", "--mode", "real", "--layers", "1", "--hidden", "32", "--microbatches",
                     "4", "--schedule", "1f1b,zb_h1", "--repeat", "1", "--json", str(file))
    rows, _ = rows_and_run(done, file)
    assert [row[:3] for row in rows] == [["1f1b", "2", "4"], ["zb_h1", "2", "4"]]
    done = under_mpi(mpi_programs, "pipeline_perf", "--mode", "real", "--stages", "3")
    assert done.returncode == 6 and not done.stdout and "1f1b is for 3 ranks, and mpirun has started 2" in done.stderr


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_ranks_wait_a_step_and_not_for_all_that_rank_0_times_alone(mpi_programs: Programs, threads: str) -> None:
    done = under_mpi(mpi_programs, "pipeline_perf", "--mode", "real", "--layers", "1", "--hidden", "64", "--microbatches", "1",
                     "--repeat", "200", "--timeout", "1", "--mpi-threads", threads)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", ["multiple", "funneled"])
def test_buckets_between_processes_are_right_and_recorded(mpi_programs: Programs, tmp_path: Path, threads: str) -> None:
    file = tmp_path / "ddp.jsonl"
    done = ddp(mpi_programs, "--mpi-threads", threads, "--bucket-cap-mb", "0.25,0", "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
    assert [row[0].rstrip("*") for row in rows] == ["2", "2"] and all(row[-1] == "0" for row in rows)  # none wrong
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    runs = [line for line in lines if line["record"] == "run"]
    assert len(runs) == 2 and {run["transport"] for run in runs} == {run["rank_kind"] for run in runs} == {"mpi"}
    assert all(f"MPI_THREAD_{threads.upper()}" in run["libraries"]["mpi"] for run in runs)


def test_other_numbers_of_replicas_and_emulated_links_are_refused(mpi_programs: Programs) -> None:
    done = ddp(mpi_programs, "--dp", "4")
    assert done.returncode != 0 and "the layout has 4 ranks, mpirun has started 2" in done.stderr
    done = ddp(mpi_programs, "--link", "latency_us=1,gbps=1")
    assert done.returncode != 0 and "--link emulates links between local ranks" in done.stderr
