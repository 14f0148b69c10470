"""Outputs of nccl-tests and OSU micro-benchmarks are read as our records; each line that cannot be read is refused by file and line."""
import json
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.foreign import processes_of, Text
from reports.load import load
from reports.nccl_tests import json_lines
from reports.osu import text_lines as osu_lines
from reports.schema import ReportError

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
NCCL, OSU = ((EXAMPLES / name).read_text() for name in ("nccl_tests.txt", "osu.txt"))

NCCL_JSON = {
    "version": 3, "args": ["/opt/all_reduce_perf", "-J", "x.json"], "start_time": "2026-01-01T00:00:00Z",
    "config": {"nthreads": 2, "ngpus": 4, "devices": [{"rank": 0, "pid": 1, "hostname": "node1", "device_info": "NVIDIA H100"}]},
    "results": [{"size": 8, "count": 2, "type": "float", "redop": "sum", "root": "    -1", "actual_iterations": 3,
                 "out_of_place": {"time": 13.0, "alg_bw": 0.1, "bus_bw": 0.2, "nwrong": 0},
                 "out_of_place_per_iter": {"times_us": [12.0, 13.0, 14.0]}, "in_place": None}]}

OSU_PAIRS = """# OSU MPI Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)  P50 Tail Lat(us)  P99 Tail Lat(us)
8                       1.50              1.40              2.00

# OSU MPI Bandwidth Test v7.4
# Datatype: MPI_CHAR.
# Size      Bandwidth (MB/s)        Validation P50 Tail BW(MB/s)
1048576             10485.76              Pass          10485.00
2097152             10485.76              Fail          10485.00
"""


def read(tmp_path: Path, text: str, name: str = "r.txt", **more):
    (tmp_path / name).write_text(text)
    return load([str(tmp_path / name)], **more)


def test_nccl_text(tmp_path):
    found = read(tmp_path, NCCL)
    (run,) = found.runs
    assert (run.program, run.ranks, run.machine.hosts, run.rank_kind, run.transport) == ("alltoall_perf", 2, 2, "mpi", "nccl")
    assert run.machine.gpu_models == "2 × NVIDIA H100 80GB HBM3" and run.libraries == {"nccl-tests": "2.19.6"} and run.is_foreign
    assert [(row.collective, row.bytes, row.in_place, row.time_us, row.status, row.wrong) for row in found.rows] == [
        ("all_to_all", 512, False, 10.24, "ok", 0), ("all_to_all", 512, True, 11.0, "ok", None),
        ("all_to_all", 1024, False, 20.48, "wrong", 2), ("all_to_all", 1024, True, 21.0, "ok", None)]


def test_nccl_text_of_older_versions_is_named_by_its_command(tmp_path):
    older = "\n".join(line for line in NCCL.splitlines() if "Collective test" not in line and "version" not in line)
    found = read(tmp_path, f"$ mpirun -np 2 ./build/all_gather_perf -b 8\n{older}\n$ ./build/reduce_perf_mpi\n{older}\n")
    assert [row.collective for row in found.rows] == 4 * ["all_gather"] + 4 * ["reduce"]
    assert [run.ranks for run in found.runs] == [2, 2]


def test_nccl_json_keeps_the_times_of_each_call(tmp_path):
    found = read(tmp_path, json.dumps(NCCL_JSON, indent=1), "n.json")
    (row,) = found.rows
    assert (row.collective, row.ranks, row.samples_us, row.stats.median, row.busbw_gbps) == ("all_reduce", 8, (12.0, 13.0, 14.0), 13.0, 0.2)
    assert (row.run.started, row.run.command[0]) == ("2026-01-01T00:00:00Z", "all_reduce_perf")


def test_osu_collectives_have_our_sizes_and_the_ranks_of_the_command(tmp_path):
    first, second, gather = read(tmp_path, OSU).rows
    assert (first.collective, first.ranks, first.bytes, first.op, first.iterations) == ("all_reduce", 4, 4, "sum", 1000)
    assert first.dtype == "int32"
    assert (second.time_us, second.algbw_gbps, second.busbw_gbps) == (10.0, 0.2048, pytest.approx(0.2048 * 1.5))
    assert (gather.collective, gather.ranks, gather.bytes, gather.count, gather.dtype) == ("all_gather", 8, 8192, 8192, "int8")
    assert gather.run.libraries == {"OSU micro-benchmarks": "5.9, MPI-CUDA"}


def test_osu_pairs_are_two_ranks_and_a_bandwidth_is_a_time(tmp_path):
    latency, good, bad = read(tmp_path, OSU_PAIRS).rows
    assert (latency.collective, latency.ranks, latency.time_us) == ("osu_latency", 2, 1.5)
    assert (good.collective, good.time_us, good.algbw_gbps, good.status) == ("osu_bw", pytest.approx(100.0), pytest.approx(10.48576), "ok")
    assert bad.status == "wrong"


def test_a_report_is_made_of_both_and_says_where_they_are_from(tmp_path, capsys):
    (tmp_path / "nccl.txt").write_text(NCCL.replace("       2    21.00", "       0    21.00"))
    (tmp_path / "osu.txt").write_text(OSU_PAIRS.replace("Fail", "Pass") + OSU.split("\n", 1)[1])
    files = [str(tmp_path / name) for name in ("nccl.txt", "osu.txt")]
    assert main([*files, "--ranks", "4", "-o", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    page = (tmp_path / "out" / "index.html").read_text()
    assert "read from the output of OSU micro-benchmarks and nccl-tests" in page and "Osu-bw" in page and "All-to-all" in page
    assert "not the optimised build" not in page and "1 core" not in page


BROKEN = {
    "cut row": (NCCL.replace("    21.00    0.05    0.02     N/A", "    21.00"), "r.txt:14: 10 columns; allowed: size"),
    "word": (NCCL.replace("10.24", "ten"), "r.txt:13: 'ten' where a number must be; allowed: nccl-tests' columns"),
    "row after a word": (NCCL.replace("         512", "Killed   512"), "r.txt:13: 'Killed   512"),
    "torn row": (NCCL.replace("    10.24", "node1:1:2 [0] NCCL WARN x", 1)[:NCCL.index("    10.24") + 20] + "\n", "has no end"),
    "no rows": (NCCL[:NCCL.index("node1:12345")], "r.txt: no line of results; allowed: the whole output of a program of nccl-tests"),
    "no ranks": (NCCL.replace("#  Rank", "#").replace("alltoall", "broadcast"),
                 "r.txt: no line '#  Rank 0 ... on HOST device 0': it is not known how many ranks there were; allowed: --ranks N"),
    "ranks that cannot be": (NCCL.replace("0.03 ", "0.09 "), "r.txt: the heading has 2, which busbw / algbw contradicts"),
    "nccl columns": (NCCL.replace("algbw", "rate"), "r.txt:10: columns size count type redop root time rate busbw"),
    "osu without ranks": (OSU.split("\n", 1)[1].split("$")[0],
                          "r.txt:2: OSU's output does not state the number of ranks; allowed: with --ranks"),
    "osu on as many ranks as there are digits": (OSU.replace("-np 4", "-np " + 5000 * "9"), "r.txt:3: OSU's output does not state the number of ranks"),
    "osu on no rank": (OSU.replace("-np 4", "-np 0"), "r.txt:3: OSU's output does not state the number of ranks"),
    "osu cut": (OSU.replace("           9.00             11.00         500", ""), "r.txt:8: 2 columns; allowed: 5, Size, Avg Latency(us)"),
    "osu word": (OSU.replace("10.00", "1o.00"), "r.txt:8: '1o.00' where a number must be; allowed: OSU's columns"),
    "osu stray": (OSU.replace("2048 ", "Abort 2048 "), "r.txt:8: 'Abort 2048"),
    "no osu test that is read": ("# OSU MPI Barrier Latency Test v7.4\n# Avg Latency(us)\n 12.57\n",
                                 "tests that are not read, skipped: 'Barrier Latency Test'"),
    "osu columns": (OSU_PAIRS.replace("Bandwidth (MB/s)", "Gbit/s"),
                    "r.txt:8: columns Size, Gbit/s, Validation, P50 Tail BW(MB/s); allowed: Size and a column of"),
    "osu empty": (OSU_PAIRS[:40], "r.txt: no line of results; allowed: the whole output of an OSU"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, name):
    text, words = BROKEN[name]
    with pytest.raises(ReportError) as error:
        read(tmp_path, text)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", [NCCL, OSU, OSU_PAIRS], ids=["nccl", "osu", "osu pairs"])
def test_an_output_that_is_cut_anywhere_is_refused_or_its_rows_are_whole(tmp_path, text):
    whole = {(row.collective, row.bytes, row.in_place): row.time_us for row in read(tmp_path, text).rows}
    for end in range(len(text) - 400, len(text), 4):
        try:
            rows = read(tmp_path, text[:end]).rows
        except ReportError:
            continue
        assert all(whole[(row.collective, row.bytes, row.in_place)] == row.time_us for row in rows)


# ---- Text as it reaches us

def nccl(collective="all_reduce", ranks=2, heading=True, algbw=(10.49, 83.89), factor=None, processes=None, per_process=1, rows=None,
         closing="# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.0\n", wrong="#wrong", more=""):
    """A table of nccl-tests with rows of 1 and 32 MiB in 100 and 400 us."""
    factor = 2 * (ranks - 1) / ranks if factor is None else factor
    devices = [f"#  Rank {n * per_process + k:2} Group  0 Pid {90 + n:6} on {f'n{n}':>10} device {k:2} [0000:10:00] NVIDIA A100"
               for n in range(processes if processes is not None else ranks // per_process) for k in range(per_process)]
    lines = [f"# nThread 1 nGpus {per_process} minBytes 1048576 maxBytes 33554432 step: 32(factor) iters: 20 graph: 0", "#", "# Using devices", *devices]
    names = f"# Collective test starting: {collective}_perf\n" if heading else ""
    table = ["#                                                              out-of-place                       in-place",
             "#       size         count      type   redop    root" + 2 * f"     time   algbw   busbw  {wrong}" + more,
             "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)"]
    timed = [f"{size:12}  {size // 4:12}     float     sum      -1" + 2 * f"   {us:.2f}  {rate:6.2f}  {factor * rate:6.2f}       0"
             for size, us, rate in ((1 << 20, 100, algbw[0]), (1 << 25, 400, algbw[1]))]
    return names + "\n".join([*lines, *table, *(timed if rows is None else rows)]) + "\n" + closing


OSU_FULL = OSU.split("$ srun")[0]
TWO = [(1 << 20, 100.0), (1 << 20, 100.0), (1 << 25, 400.0), (1 << 25, 400.0)]


def times(records):
    return [(row.bytes, row.time_us) for row in records.rows]


def noted(records):
    return " ".join(note for run in records.runs for note in run.notes or ())


PREFIXES = ["[1,0]<stdout>:", "[prterun-n1-42@1,0]<stdout>: ", "Sat Jul 11 10:00:00 2026[1,0]<stdout>:", "[0] ", "0: ", " 0: ", "n1: ", "[rank0]: ",
            "[default0]:", "2026-07-11T10:00:00.123456789Z ", "2026-07-11T10:00:00.123456789Z stdout F ", "Jul 11 10:00:00 ", "[10:00:00.123] ",
            "Jul 11 10:00:00 n1 slurm[123]: ", "[2026-07-11 10:00:00] ", "nccl-1  | ", "[pod/nccl-launcher-x7f/nccl] ", "launcher-x7f nccl ",
            "I0711 10:00:00.123456 123 file.cc:1] ", "1752228000.123456 ", "1752228000 ", "#12 0.345 ", "(worker pid=123, ip=10.0.0.1) ", "> ",
            "    ", "\t", "[   12.345678] "]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_of_launchers_and_logs_are_no_part_of_a_line(tmp_path, prefix):
    def prefixed(text):  # seconds go on
        return "".join(prefix.replace(":00:00", f":00:{n % 60:02}") + line + "\n" for n, line in enumerate(text.splitlines()))
    assert times(read(tmp_path, prefixed(nccl()))) == TWO
    assert times(read(tmp_path, prefixed(OSU_FULL))) == [(4, 2.5), (2048, 10.0)]
    (row,) = read(tmp_path, prefixed(json.dumps(NCCL_JSON, indent=1)), "n.json").rows
    assert row.ranks == 8


@pytest.mark.parametrize("change", [
    lambda text: text.encode("utf-16"), lambda text: b"\xfe\xff" + text.encode("utf-16-be"), lambda text: b"\xef\xbb\xbf" + text.encode(),
    lambda text: text.replace("\n", "\r\n").encode(), lambda text: text.replace("\n", "\r").encode(), lambda text: text.replace("\n", "\r\r\n").encode(),
    lambda text: "".join(f"\x1b[1;32m{line}\x1b[0m\x1b[K\n" for line in text.splitlines()).encode()])
def test_encodings_ends_of_lines_and_colours(tmp_path, change):
    for name, text, found in (("n.txt", nccl(), TWO), ("o.txt", OSU_FULL, [(4, 2.5), (2048, 10.0)]), ("n.json", json.dumps(NCCL_JSON) + "\n", [(8, 13.0)])):
        (tmp_path / name).write_bytes(change(text))
        assert times(load([str(tmp_path / name)])) == found


STAMPS = ["", "[2026-07-11 10:00:00] ", "2026-07-11T10:00:00.123Z ", "[Fri Jul 11 10:00:00 2026] ", "10:00:00.5 ", "[10:00:00] ", "W0711 10:00:00.1 "]


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("message", ["n1:11:55 [0] NCCL INFO Channel 00 : 0[0] -> 1[0] via P2P", "[n1:123] 3 more processes have sent help message",
                                     "srun: error: n1: task 0: Killed", "Killed", "4 processes are left", "n1: Test NCCL failure common.cu:958 'x'"])
def test_messages_between_rows_are_left_out_with_a_count(tmp_path, stamp, message):
    for text, found, mark in ((nccl(), TWO, "    33554432"), (OSU_FULL, [(4, 2.5), (2048, 10.0)], "2048 ")):
        records = read(tmp_path, text.replace(mark, f"{stamp}{message}\n10%\r100%\r{mark}", 1))
        assert times(records) == found and f"skipped ({3 if text == nccl() else 4}): line" in noted(records)


def test_a_row_within_which_nccl_printed_a_message_is_put_together(tmp_path):
    torn = nccl().replace("33554432       8388608     float     sum      -1", "33554432       8388608     float     sum      -1n1:1:2 [0] NCCL INFO x\nn1:1:3 [0] NCCL INFO y\n")
    assert times(read(tmp_path, torn)) == TWO


# ---- Ranks, collectives and runs of nccl-tests

@pytest.mark.parametrize("text, ranks", [
    (nccl(ranks=16, per_process=8), 16), (nccl(ranks=16, per_process=16).replace("Rank 15 Group  0 Pid     90 on         n0 device 15 [0000:10:00] NVIDIA A100", "Rank 15 Group  0 Pid   on..."), 16),
    (nccl(ranks=8, processes=0), 8), (nccl(ranks=8, processes=3), 8), (nccl("all_gather", 24, factor=23 / 24, processes=0), 24),
    ("srun -N 2 --ntasks-per-node=4 broadcast_perf\n" + nccl("broadcast", 8, factor=1, processes=0), 8),
    (nccl(ranks=2, processes=4).replace("Rank  2 Group  0", "Rank  2 Group  1").replace("Rank  3 Group  0", "Rank  3 Group  1"), 2)])
def test_ranks_are_threads_gpus_processes_or_those_of_the_bandwidths(tmp_path, text, ranks):
    records = read(tmp_path, text)
    assert {row.ranks for row in records.rows} == {ranks} == {run.ranks for run in records.runs} and times(records) == TWO


def test_ranks_of_the_user_replace_those_of_the_file(tmp_path):
    records = read(tmp_path, nccl(), ranks=4)
    assert records.rows[0].ranks == 4 and "--ranks replaced (1): 2" in noted(records)
    assert read(tmp_path, nccl("broadcast", 2, factor=1, processes=0), ranks=4).rows[0].ranks == 4


def test_processes_without_mpi_are_no_ranks_of_each_other(tmp_path):
    text = nccl(ranks=2, factor=0).replace("Rank  1", "Rank  0")
    records = read(tmp_path, text)
    assert records.rows[0].ranks == 1 and "processes without MPI, which ran alone at the same time (2)" in noted(records)


def test_tables_of_a_file_are_runs_and_unnamed_ones_are_never_pooled(tmp_path, capsys):
    assert [run.ranks for run in read(tmp_path, nccl() + nccl(ranks=4)).runs] == [2, 4]
    assert len(read(tmp_path, nccl(closing="") + nccl(closing="")).runs) == 2
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "r.txt").write_text(nccl(heading=False, algbw=(10.49, 83.89 if folder == "a" else 83.91)))
    files = [str(tmp_path / folder / "r.txt") for folder in ("a", "b")]
    assert len({row.collective for row in load(files).rows}) == 2
    assert len({row.collective for row in read(tmp_path, 2 * nccl(heading=False)).rows}) == 2
    assert len({row.collective for row in read(tmp_path, "$ mpirun -np 2 ./all_reduce_perf\n" + 2 * nccl(heading=False)).rows}) == 2
    assert {row.collective for row in load(files, collective="reduce_scatter", ranks=2).rows} == {"reduce_scatter"}
    assert {row.collective for row in read(tmp_path, nccl(heading=False) + "# Collective test concluded: all_reduce_perf\n").rows} == {"all_reduce"}
    assert main([*files, "--summary"]) == 0
    out, err = capsys.readouterr()
    assert out.count("NOTE: r.txt: tables that do not name their collective, kept apart (--collective NAME names it) (1): line ") == 2
    assert err.count("reports: note: r.txt: tables that do not name") == 2 == err.count("\n")


def test_a_file_given_twice_is_refused_in_one_line(tmp_path, capsys):
    for name, text in (("n.txt", nccl()), ("o.txt", OSU_FULL), ("n.json", json.dumps(NCCL_JSON))):
        (tmp_path / name).write_text(text)
        assert main(2 * [str(tmp_path / name)]) == 2
        message = capsys.readouterr().err
        assert "was already given" in message and message.count("\n") == 1


def test_a_deviation_in_an_old_table_is_not_a_number_of_wrong_elements(tmp_path):
    old = nccl(wrong="error").replace("       0", "   1e+00")
    assert {(row.status, row.wrong) for row in read(tmp_path, old).rows} == {("ok", 0)}
    doubtful = read(tmp_path, old.replace("values : 0 OK", "values : 3 FAILED"))
    assert {row.wrong for row in doubtful.rows} == {None} and "counts wrong values, in no row (1): 3" in noted(doubtful)
    starred = read(tmp_path, nccl().replace("       0\n", "      0*\n", 1))  # rccl-tests
    assert [row.status for row in starred.rows] == ["ok", "wrong", "ok", "ok"]


@pytest.mark.parametrize("change, places, statuses", [
    (lambda text: text.replace("-1   100.00   10.49   10.49       0", "-1" + 32 * " "), [True, False, True], {"ok"}),  # a replayed trace
    (lambda text: text.replace("   400.00   83.89   83.89       0\n", "\n"), [False, True, False], {"ok"}),
    (lambda text: text.replace("400.00   83.89   83.89       0\n", "N/A  N/A  N/A  N/A\n"), [False, True, False], {"ok"}),
    (lambda text: text.replace("400.00   83.89   83.89       0\n", "0.00   inf   inf  N/A\n"), [False, True, False, True], {"ok", "failed"}),
    (lambda text: text.replace("out-of-place                       in-place", "in-place").replace("#wrong     time   algbw   busbw  #wrong", "#wrong")
     .replace("       0   100.00   10.49   10.49       0", "       0").replace("       0   400.00   83.89   83.89       0", "       0"), [True, True], {"ok"}),
])
def test_rows_with_one_placement(tmp_path, change, places, statuses):
    found = read(tmp_path, change(nccl())).rows
    assert [row.in_place for row in found] == places and {row.status for row in found} == statuses


# The columns and fields that nccl-tests 2.19 (src/util.cu), its older versions and rccl-tests (src/common.cu) print: "taken" or noted by name.
NCCL_COLUMNS = {"timestamp": "2026-07-11 10:00:00", "i_min": "1", "i_max": "2", "i_p99": "3", "i_cv%": "4", "algo": "RING", "proto": "LL", "channels": "24"}
NCCL_FIELDS = ("version start_time args env nccl_version config results out_of_bounds average_bus_bandwidth errors end_time").split()
CONFIG_FIELDS = ("nthreads ngpus minimum_bytes maximum_bytes step_factor step_bytes warmup_iters iterations aggregated_iterations validation graph "
                 "blocking_collectives per_iter_timing per_iter_skip parallel_init unalign devices").split()
ITERATION_FIELDS = "min_us max_us avg_us p50_us p95_us p99_us stdev_us cv_pct times_us per_process_max_times_us".split()


def test_each_column_of_nccl_tests_is_taken_or_noted(tmp_path):
    after = [name for name in NCCL_COLUMNS if not name.startswith("i_")]
    text = nccl(more="  " + "  ".join(after)).replace("       0\n", "       0  " + "  ".join(NCCL_COLUMNS[name] for name in after) + "\n")
    inner = [name for name in NCCL_COLUMNS if name.startswith("i_")]
    text = text.replace("#wrong", "#wrong " + " ".join(inner)).replace("       0  ", "       0  1 2 3 4  ")
    records = read(tmp_path, text)
    assert times(records) == TWO
    notes = next(note for note in records.runs[0].notes if "columns that are not kept" in note)
    assert "(12)" in notes and "i_min" in notes
    assert "columns that are not kept (1): energy" in noted(read(tmp_path, nccl(more="  energy").replace("       0\n", "       0  1.5\n")))


def test_each_field_of_nccl_tests_json_is_taken_or_noted(tmp_path):
    document = {**NCCL_JSON, **{name: 1 for name in NCCL_FIELDS if name not in NCCL_JSON}, "errors": ["it failed"], "out_of_bounds": {"count": 1},
                "new": 1, "config": {**{name: 1 for name in CONFIG_FIELDS}, **NCCL_JSON["config"], "newer": 1}}
    entry = {**NCCL_JSON["results"][0], "experiment_name": "x", "newest": 1}
    entry["out_of_place_per_iter"] = {name: [13.0] for name in ITERATION_FIELDS}
    entry["out_of_place"] = {**entry["out_of_place"], "last": 1}
    records = read(tmp_path, json.dumps({**document, "results": [entry]}), "n.json")
    source = Text("n.json", json.dumps({**document, "results": [entry]}))
    json_lines(source)
    assert set(source.left["fields that are not kept"]) == {
        "new", "config.newer", "results.newest", "results.out_of_place.last", "results.experiment_name", "env", "end_time", "average_bus_bandwidth",
        "results.out_of_place_per_iter.per_process_max_times_us"}
    assert all(words in noted(records) for words in ("fields that are not kept (9)", "'it failed'", "counts wrong values, in no row"))
    assert records.runs[0].libraries == {"nccl-tests": "3, NCCL 1"}


def test_json_of_several_runs_with_warnings_between(tmp_path):
    records = read(tmp_path, "WARNING: a\n" + json.dumps(NCCL_JSON) + "\n" + json.dumps(NCCL_JSON, indent=1) + "\nbye\n", "n.json")
    assert len(records.runs) == 2 == len(records.rows) and "lines outside of the JSON, skipped (2): line 1 'WARNING: a'" in noted(records)


# ---- OSU

LAUNCHES = {
    "mpirun -np 1 -host a ./osu_x : -np 1 -host b ./osu_x": 2, "mpiexec -n 4 ./osu_x : -n 4 ./osu_x : -n 8 ./osu_x": 16, "srun -N2 --ntasks-per-node=4 ./osu_x": 8,
    "srun -N 2 -n 8 osu_x": 8, "srun -n8 osu_x": 8, "srun --nodes=2 --ntasks 6 ./osu_x": 6, "srun --nodes 4 --tasks-per-node 2 osu_x": 8, "srun -N2 osu_x": 2,
    "srun -N1 -n4 ./osu_x : -N1 -n4 ./osu_x": 8, "jsrun -n 4 -a 2 -g 1 -c 7 ./osu_x": 8, "jsrun --nrs=4 --tasks_per_rs=2 ./osu_x": 8, "jsrun -n4 ./osu_x": 4,
    "jsrun -p 8 ./osu_x": 8, "aprun -n 8 -N 4 ./osu_x": 8, "mpiexec.hydra -n 8 -ppn 4 ./osu_x": 8, "mpiexec.hydra -ppn 4 -hosts a,b ./osu_x": 8,
    "mpirun --host a:4,b:4 ./osu_x": 8, "mpirun -H a,b -npernode 4 ./osu_x": 8, "mpirun -H a,b -N 4 osu_x": 8, "mpirun --map-by ppr:4:node -H a,b osu_x": 8,
    "mpirun_rsh -np 8 -hostfile h ./osu_x": 8, "ibrun -n 8 osu_x": 8, "flux run -N2 -n8 osu_x": 8, "flux run -N2 --tasks-per-node=4 osu_x": 8,
    "lrun -N 2 -T 4 osu_x": 8, "mpirun -np 2 ./osu_x -m 8:64 -n 5": 2, "time /opt/bin/mpirun -n 8 -x A=b numactl -l ./osu_x": 8,
    "mpirun --map-by ppr:4:node --hostfile h osu_x": 0, "mpirun -np $N osu_x": 0, "mpirun -np 4 osu_x : -np $N osu_x": 0,
    "mpirun -np 4 other": None, "./osu_x -n 4": None, "srun: job 4 queued -n 4": None}


@pytest.mark.parametrize("command", LAUNCHES)
def test_processes_of_a_command(command):
    assert processes_of(command, r"\bosu_\w+") == LAUNCHES[command]


# Titles of the programs of OSU micro-benchmarks 7.4 (c/mpi, c/openshmem, c/upc, c/xccl), which are read or noted by name
OSU_READ = {"MPI Allreduce Latency Test": "all_reduce", "MPI-CUDA Broadcast Latency Test": "broadcast", "MPI Reduce_scatter Latency Test": "reduce_scatter",
            "MPI All-to-All Personalized Exchange Latency Test": "all_to_all", "MPI All-to-Allv Personalized Exchange Latency Test": "all_to_all_v",
            "MPI Gather Latency Test": "gather", "MPI Scatter Latency Test": "scatter", "MPI Reduce Latency Test": "reduce", "NCCL Allgather Latency Test": "all_gather",
            "MPI Latency Test": "osu_latency", "MPI Bandwidth Test": "osu_bw", "MPI Bi-Directional Bandwidth Test": "osu_bibw", "MPI Multi Latency Test": "osu_multi_lat"}
OSU_NOTED = ["MPI Barrier Latency Test", "MPI Allgatherv Latency Test", "MPI Gatherv Latency Test", "MPI Scatterv Latency Test", "MPI All-to-Allw Personalized Exchange Latency Test",
             "MPI Reduce_scatter_block Latency Test", "MPI Non-blocking Allreduce Latency Test", "MPI Neighborhood Allgather Latency Test", "MPI Persistent Allreduce Latency Test",
             "MPI Multiple Bandwidth / Message Rate Test", "MPI Multi-threaded Latency Test", "MPI Multi-process Latency Test", "MPI Partitioned Latency Test", "MPI Init Test",
             "MPI Hello World Test", "MPI_Put Latency Test", "MPI_Get Bandwidth Test", "MPI_Put Bi-directional Bandwidth Test", "MPI_Accumulate latency Test",
             "MPI_Compare_and_swap latency Test", "OpenSHMEM Put Test", "OpenSHMEM Barrier Latency Test", "UPC MEMPUT Test", "UPC++ Async Copy (Put) Test"]


def test_each_test_of_osu_is_taken_or_noted(tmp_path):
    def table(title):
        columns = "Bandwidth (MB/s)" if "Bandwidth" in title else "Avg Latency(us)"
        return f"# OSU {title} v7.4\n# Datatype: MPI_CHAR.\n# Size   {columns}\n1024    2.00\n\n"
    records = read(tmp_path, "mpirun -n 4 ./osu_x\n" + "".join(map(table, [*OSU_NOTED[:3], *OSU_READ, *OSU_NOTED[3:]])))
    assert [row.collective for row in records.rows] == list(OSU_READ.values())
    source = Text("o.txt", "".join(map(table, ["MPI Latency Test", *OSU_NOTED])))
    osu_lines(source)
    (left,) = source.left.values()
    assert [name.strip("'") for name in left] == [title.removeprefix("MPI ") for title in OSU_NOTED]


def test_each_column_of_osu_is_taken_or_noted(tmp_path):
    columns = ["Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations", "Validation", "P50 Tail Lat(us)", "P90 Tail Lat(us)", "P99 Tail Lat(us)"]
    for gap in ("   ", " "):
        records = read(tmp_path, f"mpirun -n 4 osu_allreduce\n# OSU MPI Allreduce Latency Test v7.4\n# Size{gap}{gap.join(columns)}\n8 2.5 2 3 100 Pass 2 3 4\n")
        assert (records.rows[0].iterations, records.rows[0].wrong) == (100, 0)
        assert "columns that are not kept (5): Min Latency(us), Max Latency(us), P50 Tail Lat(us), ..." in noted(records)


@pytest.mark.parametrize("end", ["$ $\n", "$$\n", "$", "[u@h d]$ exit\nlogout\n", "root@h:/# \n", "(base) u@h:~$ cat x\n1 2 3\n", "% \n", "-----\n"])
def test_prompts_end_a_table(tmp_path, end):
    line = OSU_FULL.split("[node1")[0]
    records = read(tmp_path, line + end + ("" if end == "$" else "\n" + line))
    assert times(records) == (1 if end == "$" else 2) * [(4, 2.5)] and not [run for run in records.runs if "rows" in noted(records)]


def changed(document, path, value):
    """A copy with one value replaced."""
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = changed(document[path[0]], path[1:], value)
    return copy


def paths_in(value, path=()):
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths_in(value[key], (*path, key))


def test_no_wrong_value_ends_in_anything_but_a_refusal(tmp_path):
    """Texts that are changed at random are in ci/gate/inputs/fuzz_test.py."""
    texts = [json.dumps(changed(NCCL_JSON, path, value), indent=1) for path in paths_in(NCCL_JSON)
             for value in (None, "x", -1, 10**400, [None])]
    refused = 0
    for text in texts:
        try:
            read(tmp_path, text, ranks=4)
        except ReportError as error:  # anything else fails the test
            assert "\n" not in str(error)
            refused += 1
    assert refused > len(texts) / 3


def test_ranks_must_be_a_number(capsys):
    assert main(["x.txt", "--ranks", "two"]) == 2
    assert "--ranks: two: allowed: a whole number from 1" in capsys.readouterr().err
