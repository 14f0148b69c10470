"""Tests that files of each format are read, and that broken files are refused with a reason."""

import json

import pytest

from gate.model import Channel, UsageError
from gate.inputs.files import _of_process, files_of, read, read_file
from gate.inputs.files_for_tests import (
    all_reduce_line, google, kernel_line, NCCL_COLUMNS, NCCL_HEAD, run_line, text_of, write_kernels)
from gate.inputs.observation import by_quantity, notes_of
from gate.inputs.records import KINDS
from reports.foreign import Text, utc
from reports.schema import kind_schema
from reports.tests.world import ContextWorld, experts_line, experts_run, LayerWorld, TrainingWorld, World
from reports.tests.kernel_world import KernelWorld, WORKS
from reports.tests.step_world import LayoutWorld, StepWorld


def times(path) -> dict[str, list[tuple[float, ...]]]:
    return {quantity.case: [observed.values for observed in runs] for quantity, runs in by_quantity(read([str(path)], "BASE")).items()
            if quantity.channel is Channel.STORED}


def facts(path) -> dict[str, list[float]]:
    return {quantity.case: [observed.typical for observed in runs] for quantity, runs in by_quantity(read([str(path)], "BASE")).items()
            if quantity.channel is Channel.EXACT}


def test_records_become_times_and_facts_and_say_their_run(tmp_path):
    path = write_kernels(tmp_path / "r.jsonl", "r1", {"gelu": [3.0, 4.0]}, revision="b" * 40, fingerprint="m7", num_bytes=64)
    observations = read([str(path)], "BASE")
    origin = observations[0].origin
    assert (origin.run, origin.source, origin.revision, origin.fingerprint) == ("r1", "r.jsonl", "b" * 40, "m7")
    name = "gelu/f64/fixed/cpu/threads:1/warm"
    assert times(path) == {name: [(3.0, 4.0)]}
    assert facts(path) == {f"{name}: flops": [0], f"{name}: bytes": [64], f"{name}: failures": [0]}


def test_runs_stay_apart_and_what_a_run_measures_twice_is_put_together(tmp_path):
    lines = [run_line("r1"), kernel_line("r1", "k", None, [1.0]), kernel_line("r1", "k", "memory", [2.0]),
             run_line("r2"), kernel_line("r2", "k", "compute", [5.0])]
    (tmp_path / "r.jsonl").write_text(text_of(lines))
    assert list(times(tmp_path).values()) == [[(1.0, 2.0), (5.0,)]]


def test_a_wrong_row_has_no_time_and_one_failure_and_a_simulated_one_is_exact(tmp_path):
    row = all_reduce_line("r1", [2.0], 64) | {"plan": {"steps": 2, "wire_bytes_max": 64, "wire_bytes_total": 128, "predicted_us": None}}
    wrong = row | {"status": "wrong", "bytes": 128}
    (tmp_path / "m.jsonl").write_text(text_of([run_line("r1"), row, wrong]))
    simulated = [run_line("r2", basis="simulated"), row | {"run": "r2", "basis": "simulated", "time_us": 7.5}]
    (tmp_path / "s.jsonl").write_text(text_of(simulated))
    assert [name.split("/")[-2] for name in times(tmp_path / "m.jsonl")] == ["64B"]
    found = facts(tmp_path / "m.jsonl")
    assert [value for name, value in found.items() if name.endswith("128B/out-of-place: failures")] == [[1]]
    assert [value for name, value in found.items() if name.endswith(": plan.wire_bytes_total")] == [[128], [128]]
    assert not times(tmp_path / "s.jsonl")
    assert [value for name, value in facts(tmp_path / "s.jsonl").items() if name.endswith(": time_us")] == [[7.5]]


def test_google_repetitions_are_one_run_by_the_time_that_the_name_chooses(tmp_path):
    (tmp_path / "g.json").write_text(google({"BM_a/8": [1000.0, 1200.0], "BM_a/8/real_time": [1000.0], "BM_b/min_time:0.5/manual_time": [500.0]}))
    assert times(tmp_path / "g.json") == {"BM_a/8": [(1.0, 1.2)], "BM_a/8/real_time": [(2.0,)], "BM_b/manual_time": [(1.0,)]}
    assert facts(tmp_path / "g.json")["BM_a/8: failures"] == [0]


def notes(path) -> str:
    return " ".join(notes_of(read([str(path)], "BASE")))


def entry(name: str, **fields) -> dict:
    return {"name": name, "iterations": 100, "real_time": 100.0, "cpu_time": 100.0, "time_unit": "ns", **fields}


def test_google_entries_without_a_time_do_not_refuse_the_others(tmp_path):
    entries = [entry("BM_good"), entry("BM_tick", cpu_time=0.0), entry("BM_nan", cpu_time=float("nan")), entry("BM_back", cpu_time=-1.0),
               entry("BM_bad", error_occurred=True, error_message="out of memory"), entry("BM_not", skipped=True, skip_message="no GPU")]
    (tmp_path / "g.json").write_text(json.dumps({"context": {}, "benchmarks": entries}))
    assert times(tmp_path / "g.json") == {"BM_good": [(0.1,)]}
    assert facts(tmp_path / "g.json") == {"BM_good: failures": [0], "BM_bad: failures": [1], "BM_not: failures": [0]}
    listed = notes(tmp_path / "g.json")
    assert "without a time above 0, left out (3): BM_tick ('cpu_time' is 0), BM_nan" in listed and "failed or were skipped (2): BM_bad 'out of memory'" in listed


@pytest.mark.parametrize("names, cases", [
    (["BM_a", "BM_a", "BM_a_mean", "BM_a_median", "BM_a_stddev", "BM_a_cv"], {"BM_a"}), (["BM_mean", "BM_median"], {"BM_mean", "BM_median"}),
    (["BM_a/8", "BM_a/8_mean", "BM_a_BigO", "BM_a_RMS", "BM_b", "BM_b_mean"], {"BM_a/8", "BM_b", "BM_a_BigO", "BM_a_RMS"}),
    (["BM_b", "BM_a_mean", "BM_a_median", "BM_a_stddev"], {"BM_b"})])
def test_aggregates_of_old_versions_are_no_cases(tmp_path, names, cases):
    """Before 1.5 an entry had no run_type. A case may be called "..._mean" where no other entry has the name without it."""
    (tmp_path / "g.json").write_text(json.dumps({"context": {}, "benchmarks": [entry(name) for name in names]}))
    assert set(times(tmp_path / "g.json")) == cases
    left = len(names) - sum(name in cases for name in names)
    assert (f"aggregates, left out ({left})" in notes(tmp_path / "g.json")) == (left > 0)


# Fields that google/benchmark 1.9 writes (src/json_reporter.cc) for a run and an aggregate; user counters have names of their own.
GOOGLE_FIELDS = {"name": "BM_a", "family_index": 0, "per_family_instance_index": 0, "run_name": "BM_a", "run_type": "iteration", "repetitions": 1,
                 "repetition_index": 0, "threads": 1, "iterations": 100, "real_time": 100.0, "cpu_time": 100.0, "time_unit": "ns", "label": "x",
                 "error_occurred": False, "error_message": "", "skipped": False, "skip_message": "", "bytes_per_second": 1.0, "items_per_second": 1.0,
                 "allocs_per_iter": 1.0, "max_bytes_used": 1, "my_counter": 3.0}


def test_complexities_of_old_versions_are_no_cases(tmp_path):
    fits = [{"name": "BM_a_BigO", "cpu_coefficient": 1.0, "real_coefficient": 1.0, "big_o": "N", "time_unit": "ns"}, {"name": "BM_a_RMS", "rms": 0.1}]
    (tmp_path / "g.json").write_text(json.dumps({"context": {}, "benchmarks": [entry("BM_a/8"), *fits]}))
    assert set(times(tmp_path / "g.json")) == {"BM_a/8"}


def test_each_google_field_is_taken_or_noted(tmp_path):
    (tmp_path / "g.json").write_text(json.dumps({"context": {}, "benchmarks": [GOOGLE_FIELDS], "new": 1}))
    assert times(tmp_path / "g.json") == {"BM_a": [(0.1,)]}
    source = Text("g.json", (tmp_path / "g.json").read_text())
    list(_of_process(json.loads(source.text), source, ""))
    assert set(source.left["fields that are not kept"]) == {"new", "label", "bytes_per_second", "items_per_second", "allocs_per_iter", "max_bytes_used", "my_counter"}
    assert "g.json: fields that are not kept (7): new, label, bytes_per_second, ..." in notes(tmp_path / "g.json")


@pytest.mark.parametrize("encoded", [
    lambda text: text.encode("utf-16"), lambda text: b"\xef\xbb\xbf" + text.encode(), lambda text: ("***WARNING*** CPU scaling is enabled\n" + text).encode(),
    lambda text: "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines()).encode(), lambda text: text.replace("\n", "\r\n").encode()])
def test_google_json_as_it_reaches_us(tmp_path, encoded):
    text = json.dumps(json.loads(google({"BM_a": [1000.0], "BM_b": [10.0]})), indent=2)
    (tmp_path / "g.json").write_bytes(encoded(text))
    assert times(tmp_path / "g.json") == {"BM_a": [(1.0,)], "BM_b": [(0.01,)]}
    (tmp_path / "g.json").write_text(text + "\n" + text)  # two processes
    assert times(tmp_path / "g.json") == {"BM_a": [(1.0,), (1.0,)], "BM_b": [(0.01,), (0.01,)]}


def test_google_revision_comes_of_the_context(tmp_path):
    (tmp_path / "g.json").write_text(google({"BM_a": [1.0]}, revision="cafe"))
    assert {observed.origin.revision for observed in read([str(tmp_path)], "BASE")} == {"cafe"}


@pytest.mark.parametrize("text, meant", [("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z"), ("2026-01-01 10:00:00", "2026-01-01T10:00:00Z"),
                                         ("yesterday", "yesterday")])
def test_times_of_all_formats_have_an_order(text, meant):
    assert utc(text) == meant


ROW = "           8             2     float     sum      -1    12.90    0.00    0.00       0    13.90    0.00    0.00       0\n"
CASE = "all_reduce/library/library/nccl/threads/ranks:2/float/sum/8B"


@pytest.mark.parametrize("table", [NCCL_COLUMNS + ROW, NCCL_COLUMNS.replace(" time ", " cputime ") + ROW.replace("0\n", "N/A\n")])
def test_nccl_text(tmp_path, table):
    (tmp_path / "n.txt").write_text(NCCL_HEAD + table + "# Out of bounds values : 0 OK\n")
    assert times(tmp_path / "n.txt") == {f"{CASE}/out-of-place": [(12.9,)], f"{CASE}/in-place": [(13.9,)]}


def test_nccl_text_without_an_operation_and_with_wrong_elements(tmp_path):
    text = NCCL_HEAD.replace("all_reduce", "all_gather") + NCCL_COLUMNS
    text += "          64             8     float              -1    12.90    0.00    0.00       0    13.90    0.00    0.00       3\n"
    (tmp_path / "n.txt").write_text(text)
    assert times(tmp_path) == {"all_gather/library/library/nccl/threads/ranks:2/float/64B/out-of-place": [(12.9,)]}  # what is wrong has no time
    assert facts(tmp_path)["all_gather/library/library/nccl/threads/ranks:2/float/64B/in-place: failures"] == [1]


def test_columns_of_our_sweeps_tell_cases_apart(tmp_path):
    text = NCCL_HEAD + NCCL_COLUMNS.replace("#wrong\n", "#wrong  ranks  algorithm\n")
    for algorithm, us in (("ring", "12.90"), ("two_shot", "7.50")):
        text += f"  8  2  float  sum  -1  {us}  0.00  0.00  0  N/A  N/A  N/A  N/A  4  {algorithm}\n"
    (tmp_path / "n.txt").write_text(text)
    case = "nccl/nccl/threads/ranks:4/float/sum/8B/out-of-place"
    assert times(tmp_path) == {f"all_reduce/ring/{case}": [(12.9,)], f"all_reduce/two_shot/{case}": [(7.5,)]}


def test_nccl_json_means_the_cases_of_the_text(tmp_path):
    device = {"rank": 0, "hostname": "node1", "device_info": "NVIDIA H100 80GB HBM3"}
    entry = {"size": 8, "count": 2, "type": "float", "redop": "sum", "root": "    -1",
             "out_of_place": {"time": 12.9, "alg_bw": 0, "bus_bw": 0, "nwrong": 0},
             "out_of_place_per_iter": {"times_us": [12.0, 13.0, 14.0]},
             "in_place": {"time": 13.9, "alg_bw": 0, "bus_bw": 0, "nwrong": None}}
    (tmp_path / "n.json").write_text(json.dumps({"version": 3, "args": ["build/all_reduce_perf_mpi"], "start_time": "2026",
                                                 "config": {"nthreads": 1, "ngpus": 2, "devices": [device]}, "results": [entry]}))
    (tmp_path / "n.txt").write_text(NCCL_HEAD + NCCL_COLUMNS + ROW)
    assert times(tmp_path / "n.json") == {f"{CASE}/out-of-place": [(12.0, 13.0, 14.0)], f"{CASE}/in-place": [(13.9,)]}
    prints = {observed.origin.fingerprint for observed in read([str(tmp_path)], "BASE")}
    assert len(prints) == 1 and prints != {"unknown"}


GOOD = text_of([run_line("r1"), kernel_line("r1", "k", None, [1.0])])
BROKEN = {
    "cut.jsonl": (GOOD[:-40], "cut.jsonl:2: not JSON"),
    "foreign.jsonl": ('{"record": "car"}\n', "foreign.jsonl:1: field 'record' is \"car\""),
    "empty.json": ("", "empty.json: the file is empty"),
    "text.txt": ("hello\n", "text.txt:1: 'hello'; allowed: our records"),
    "other.json": ('{"a": 1}', "other.json: JSON without 'benchmarks' or 'results'"),
    "unit.json": (google({"BM": [1.0]}).replace('"ns"', '"days"'), "benchmarks[0]: field 'time_unit' is 'days'; allowed: ns"),
    "zero.json": (google({"BM": [0.0]}), "zero.json: benchmarks without a time above 0, left out (1): BM ('cpu_time' is 0)"),
    "word.json": (google({"BM": [1.0]}).replace('"cpu_time": 1.0', '"cpu_time": "1"'), "benchmarks[0]: field 'cpu_time' is \"1\"; allowed: a number"),
    "stopped.json": (google({"BM": [1.0]})[:-20], "stopped.json:1: not JSON"),
    "none.json": (google({}), "none.json: no benchmark"),
    "table.txt": (NCCL_HEAD + "  8  2  float  sum  -1  1  0  0  0  1  0  0  0\n", "table.txt:10: a line of results, but no line"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_get_one_line(tmp_path, name):
    text, words = BROKEN[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as error:
        read([str(tmp_path / name)], "BASE")
    assert words in str(error.value) and "\n" not in str(error.value) and "allowed" in str(error.value)


def test_files_folders_and_globs(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "notes.md", ".hidden.jsonl"):
        (tmp_path / name).write_text(GOOD)
    names = ["a.jsonl", "b.jsonl"]
    assert [path.name for path in files_of(str(tmp_path), "BASE")] == names
    assert [path.name for path in files_of(str(tmp_path / "*.jsonl"), "BASE")] == names
    assert [path.name for path in files_of(str(tmp_path / "notes.md"), "BASE")] == ["notes.md"]
    with pytest.raises(UsageError, match="BASE .*: no such file"):
        files_of(str(tmp_path / "x*"), "BASE")


def test_a_file_that_is_meant_twice_is_read_once(tmp_path):
    path = write_kernels(tmp_path / "r.jsonl", "r1", {"k": [1.0]})
    assert len(read([str(path), str(tmp_path)], "BASE")) == len(read([str(path)], "BASE"))


# Every kind of our lines, as the report's tests make them up, becomes cases with a name, times and facts.

def schedules():
    world = StepWorld()
    return [world.run(), world.schedule("1f1b"), world.overlap(25)]


MADE = {  # lines, which channels they have, and a fact that must be among theirs
    "row": (lambda: [World().run(), World().row("ring", 1024)], {Channel.STORED, Channel.EXACT}, "plan.steps"),
    "kernel": (lambda: [KernelWorld().run(), KernelWorld().kernel(WORKS[0])], {Channel.STORED, Channel.EXACT}, "flops"),
    "ceiling": (lambda: [KernelWorld().run(), *KernelWorld().ceilings()], {Channel.STORED}, None),
    "schedule": (schedules, {Channel.EXACT}, "makespan_ms"),
    "simulation": (lambda: [LayoutWorld().run(), LayoutWorld().simulation(8, 4, 4)], {Channel.EXACT}, "memory_bytes.total"),
    "training": (lambda: [TrainingWorld().run(), TrainingWorld().training()], {Channel.STORED, Channel.EXACT}, "memory_bytes.total"),
    "scaling": (lambda: [TrainingWorld().run(), TrainingWorld().scaling(2)], {Channel.STORED, Channel.EXACT}, None),
    "experts": (lambda: [experts_run(), experts_line()], {Channel.STORED, Channel.EXACT}, "sent_bytes"),
    "layer": (lambda: [LayerWorld().run(), LayerWorld().layer()], {Channel.STORED, Channel.EXACT}, "sent_bytes"),
    "context": (lambda: [ContextWorld().run(), ContextWorld().context()], {Channel.STORED, Channel.EXACT}, "sent_bytes.forward"),
}


@pytest.mark.parametrize("kind", MADE)
def test_each_kind_is_read(tmp_path, kind):
    lines, channels, fact = MADE[kind]
    (tmp_path / "r.jsonl").write_text(text_of(lines()))
    found = read_file(tmp_path / "r.jsonl")
    assert {observed.quantity.channel for observed in found} == channels
    assert len({observed.quantity for observed in found}) == len(found)  # lines that differ have names that differ
    assert all(observed.values and "//" not in observed.quantity.case for observed in found)
    assert fact is None or any(observed.quantity.case.endswith(f": {fact}") for observed in found)


@pytest.mark.parametrize("kind", KINDS)
def test_facts_are_of_fields_that_there_are(kind):
    fields = set(kind_schema(kind)["properties"])
    assert {fact.path.split(".")[0] for fact in KINDS[kind].facts} <= fields
