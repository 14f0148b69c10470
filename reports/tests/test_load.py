"""Strictness of the loader: each kind of bad file gives one line that names file, line and fault."""
import json

import pytest

from reports.cli import main
from reports.errors import ReportError
from reports.load import load
from reports.tests.kernel_world import WORKS, KernelWorld
from reports.tests.world import World, write

WORLD = World()
KERNELS = KernelWorld(run_name="run-1")


def lines_with(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def row(**fields):
    return WORLD.row("ring", 1024, **fields)


def kernel(**fields):
    return KERNELS.kernel(WORKS[0], **fields)


def without(record, name):
    return {key: value for key, value in record.items() if key != name}


BAD = {
    "empty file": ("", "the file is empty"),
    "not JSON": ("hello\n", ":1: not JSON"),
    "blank line": (lines_with(WORLD.run()) + "\n" + lines_with(row()), ":2: not JSON"),
    "cut off": (lines_with(WORLD.run()) + lines_with(row())[:100], "the file seems to be cut off here"),
    "not an object": ("[1]\n", ":1: must be a JSON object"),
    "NaN": (lines_with(WORLD.run(), row(time_us=float("nan"))), ":2: NaN is not a JSON number"),
    "unknown kind": (lines_with({"record": "note"}), ":1: field 'record' is \"note\""),
    "other version": (lines_with({**WORLD.run(), "version": 2}, row()), ":1: record format version 2"),
    "no version": (lines_with(without(WORLD.run(), "version")), ":1: record format version null"),
    "missing field": (lines_with(WORLD.run(), without(row(), "bytes")), ":2: field 'bytes' is missing"),
    "wrong type": (lines_with(WORLD.run(), row(ranks="8")), ":2: field 'ranks' is \"8\", must be of type integer"),
    "negative": (lines_with(WORLD.run(), row(bytes=-1)), ":2: field 'bytes' is -1, must be at least 0"),
    "nested": (lines_with({**WORLD.run(), "git": {"revision": "x"}}), ":1: field 'git.dirty' is missing"),
    "no time": (lines_with(WORLD.run(), row(time_us=None)), ":2: field 'time_us' is null"),
    "unknown status": (lines_with(WORLD.run(), row(status="fine")), "must be one of ok, wrong, failed"),
    "row before run": (lines_with(row(), WORLD.run()), ":1: row of run 'run-1', but no run line"),
    "mixed basis": (lines_with(WORLD.run(), row(basis="emulated")), ":2: the row is emulated but its run is measured"),
    "run twice": (lines_with(WORLD.run(), row(), WORLD.run()), ":3: run 'run-1' was already given at"),
    "no rows": (lines_with(WORLD.run()), "no records but 1 run line"),
    "kernel before run": (lines_with(kernel()), ":1: kernel of run 'run-1', but no run line"),
    "ceiling before run": (lines_with(KERNELS.ceilings()[0]), ":1: ceiling of run 'run-1', but no run line"),
    "kernel of mixed basis": (lines_with(WORLD.run(), kernel(basis="simulated")), "the kernel is simulated but"),
    "unknown bound": (lines_with(WORLD.run(), kernel(bound="disk")), "must be one of memory, compute, launch, null"),
    "kernel without time": (lines_with(WORLD.run(), kernel(time_us=None)), ":2: field 'time_us' is null"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_gives_one_line_and_exit_code_2(name, tmp_path, capsys):
    text, expected = BAD[name]
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    assert main([str(file), "-o", str(tmp_path / "report")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert str(file) in err and expected in err
    assert not (tmp_path / "report").exists()


def test_a_stopped_programs_file_is_read_up_to_its_last_whole_line_and_said_to_be_partial(tmp_path, capsys):
    file = tmp_path / "rows.partial.jsonl"
    file.write_text(lines_with(WORLD.run(), row()) + lines_with(row())[:100])
    records = load([str(file)])
    assert len(records.rows) == 1 and records.runs[0].partial
    assert main([str(file), "--summary"]) == 0
    assert "1 run has a partial record, from a program that was stopped before its end" in capsys.readouterr().out
    whole = load([write(tmp_path / "rows.jsonl", [WORLD.run(), row()])])
    assert not whole.runs[0].partial


def test_missing_file_directory_and_binary(tmp_path, capsys):
    binary = tmp_path / "b.jsonl"
    binary.write_bytes(b"\xff\xfe")
    cases = {tmp_path / "no.jsonl": "no such file", tmp_path: "cannot be read", binary: "not UTF-8"}
    for name, expected in cases.items():
        assert main([str(name), "--summary"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and str(name) in err and expected in err


def test_bad_flags_are_one_line(capsys):
    for arguments in ([], ["x.jsonl", "--what"]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_unknown_fields_are_ignored_everywhere(tmp_path):
    run, one = WORLD.run(), row()
    run["extra"] = run["machine"]["extra"] = one["extra"] = one["stats"]["extra"] = one["plan"]["extra"] = {"a": [1]}
    records = load([write(tmp_path / "r.jsonl", [run, one])])
    assert records.rows[0].bytes == 1024 and records.rows[0].plan.steps == 14
    assert records.rows[0].run.machine.cores == 16


def test_files_may_be_concatenated_and_runs_interleave(tmp_path):
    other = World(run_name="run-2", ranks=4)
    records = load([write(tmp_path / "r.jsonl", [WORLD.run(), row(), other.run(), other.row("ring", 8), row()])])
    assert [r.run.run for r in records.rows] == ["run-1", "run-2", "run-1"]


def test_kernels_and_ceilings_are_read(tmp_path):
    one = kernel(extra=1)
    records = load([write(tmp_path / "k.jsonl", [WORLD.run(), *KERNELS.ceilings(), one, row()])])
    assert len(records.ceilings) == len(KERNELS.ceilings()) and len(records.rows) == 1
    read = records.kernels[0]
    assert (read.kernel, read.median_us, read.cores) == (one["kernel"], one["stats"]["median"], (0,))
    assert read.intensity == one["flops"] / one["bytes"] and read.checked and read.run is records.runs[0]


def test_null_where_unknown_is_fine(tmp_path):
    run = WORLD.run()
    run["machine"].update(cpu=None, memory_bytes=None, caches=None, mhz=None, kernel=None)
    run["git"] = {"revision": "unknown", "dirty": None}
    records = load([write(tmp_path / "r.jsonl", [run, row(stats=None, samples_us=[], plan=None, wrong=None)])])
    assert records.runs[0].machine.cpu is None and records.rows[0].stats is None


def test_loading_raises_only_report_errors(tmp_path):
    with pytest.raises(ReportError):
        load([str(tmp_path / "absent")])
