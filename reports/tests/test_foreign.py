"""Outputs of nccl-tests and OSU micro-benchmarks are read as our records; each line that cannot be read is refused by file and line."""
import json
import random
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.load import load
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
    "stray": (NCCL.replace("         512", "Killed\n     512"), "r.txt:13: 'Killed' is no line of a table"),
    "no rows": (NCCL[:NCCL.index("node1:12345")], "r.txt: no line of results; allowed: the whole output of a program of nccl-tests"),
    "no ranks": (NCCL.replace("#  Rank", "#"), "r.txt: no line '#  Rank 0 ... on HOST device 0' says how many ranks"),
    "osu without ranks": (OSU.split("\n", 1)[1].split("$")[0],
                          "r.txt:2: OSU's output does not say how many ranks there were; allowed: with --ranks"),
    "osu on as many ranks as there are digits": (OSU.replace("-np 4", "-np " + 5000 * "9"), "r.txt:3: OSU's output does not say how many ranks"),
    "osu on no rank": (OSU.replace("-np 4", "-np 0"), "r.txt:3: OSU's output does not say how many ranks"),
    "osu cut": (OSU.replace("           9.00             11.00         500", ""), "r.txt:8: 2 columns; allowed: 5, Size, Avg Latency(us)"),
    "osu word": (OSU.replace("10.00", "1o.00"), "r.txt:8: '1o.00' where a number must be; allowed: OSU's columns"),
    "osu stray": (OSU.replace("2048 ", "Abort 2048 "), "r.txt:8: 'Abort 2048"),
    "osu other test": (OSU_PAIRS.replace("MPI Latency", "MPI Non-blocking Allreduce Latency"),
                       "r.txt:1: 'Non-blocking Allreduce Latency Test' is not read; allowed: osu_latency, osu_bw"),
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
    texts = [json.dumps(changed(NCCL_JSON, path, value), indent=1) for path in paths_in(NCCL_JSON)
             for value in (None, "x", -1, 10**400, [None])]
    chance = random.Random(7)
    for text in 20 * [NCCL, OSU, OSU_PAIRS]:
        at = chance.randrange(len(text))
        other = chance.choice(["nan", "inf", "1e999", "-1", "N/A", "\n", " ", 30 * "9", "é"])
        texts.append(text[:at] + other + text[at + chance.randrange(4):])
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
