"""Tests the page's text for whole files: sentences, nothing mixed or hidden; and how strict the loader is."""

import json

import pytest

from reports.analysis.findings import main_findings, summary_text
from reports.check import notes_on_collectives, notes_on_runs
from reports.__main__ import main
from reports.schema import ReportError
from reports.load import load
from reports.pages.collectives import MOST, ordered, shown_labels
from reports.tests.kernel_world import KernelWorld, WORKS
from reports.tests.world import ALGORITHMS, failed, SIZES, World, write, wrong


MANY = [name for name in ALGORITHMS if name not in ("pairwise", "shift")]


def notes(records_and_analysis, level=None):
    records, analysis = records_and_analysis
    return " ".join(note.text for note in notes_on_collectives(records, analysis) if level in (None, note.level))


def test_why_names_steps_bytes_alpha_beta_and_both_crossings(analysis_of):
    world = World(alpha=5, beta=2e-3, noise=0.003)
    _, analysis = analysis_of([world.run()] + world.sweep(["ring", "double_tree"]) + world.send_recv())
    why = analysis[0].why
    assert "double_tree needs 6 messages one after another, ring 14" in why
    assert "of double_tree sends 2 bytes for each byte of the message, of ring 1.75" in why
    assert "With 5 µs per message and 0.5 GB/s (fitted to send/recv)" in why
    assert "just these ranges (crossing near 81 KiB; measured near" in why
    assert analysis[0].bounds.startswith("ring turns from latency-bound to bandwidth-bound near 20 KiB")


def test_the_program_s_own_prediction_is_taken_first(analysis_of):
    world = World(alpha=5, beta=2e-3, noise=0.003)
    rows = world.sweep(["ring", "double_tree", "tree"])
    for row in rows:
        row["plan"]["predicted_us"] = world.time_us(row["algorithm"], row["bytes"])
    why = analysis_of([world.run()] + rows)[1][0].why
    assert "Played out message by message" in why and "predict just these ranges (crossing near 81 KiB" in why


def test_where_the_model_is_wrong_that_is_said(analysis_of):
    world = World(alpha=5, beta=2e-3, noise=0.003)
    rows = world.sweep(["ring", "double_tree"])
    for row in rows:
        if row["algorithm"] == "ring" and row["bytes"] >= 1 << 20:
            row["stats"] = {name: v if name == "count" else 3 * v for name, v in row["stats"].items()}
    why = analysis_of([world.run()] + rows + world.send_recv())[1][0].why
    assert "The measurement shows the opposite at 7 sizes, 64 MiB among them, where double_tree is faster" in why


def test_several_trees_and_rings_are_compared_by_their_best(analysis_of):
    world = World(noise=0.003)
    result = analysis_of([world.run()] + world.sweep(["ring", "double_tree", "tree:radix=4", "tree"]))[1][0]
    assert result.answer.startswith("The best tree is faster up to") and "ring from" in result.answer
    assert "Trees run: double_tree, tree and tree:radix=4." in result.best


@pytest.mark.parametrize("names, expected", [
    (["ring", "two_shot"], "no tree was run"), (["double_tree", "two_shot"], "no ring was run"),
    (["ring"], "no tree was run"), (["one_shot", "two_shot"], "")])
def test_no_answer_without_both(analysis_of, names, expected):
    world = World()
    result = analysis_of([world.run()] + world.sweep(names))[1][0]
    assert expected in result.answer and (expected or result.answer == "")
    assert result.best


def test_emulated_and_measured_are_never_in_one_panel(analysis_of):
    world = World()
    paced = World(run_name="run-2", run_fields={"basis": "emulated", "link": {"latency_us": 10, "gbps": 1.0}})
    slower = World(run_name="run-3", run_fields={"basis": "emulated", "link": {"latency_us": 90, "gbps": 1.0}})
    both = analysis_of(*[[w.run()] + w.sweep(["ring", "tree"]) for w in (world, paced, slower)])
    assert len(both[1]) == 3
    for result in both[1]:
        assert {(row.basis, row.run.link) for row in result.lines} == {
            (result.first.basis, result.first.run.link)}
    assert both[1][1].headline == "All-reduce, 8 ranks, float sum, emulated link of 10 µs, 1 GB/s"
    assert "are emulated" in notes(both)


def test_two_machines_are_said_and_kept_apart(analysis_of):
    line = World()
    other = World(run_name="run-2", alpha=9)
    other.run_fields = {"machine": {**line.run()["machine"], "fingerprint": "ffff", "cpu": "Other CPU"}}
    both = analysis_of([line.run()] + line.sweep(["ring"]), [other.run()] + other.sweep(["tree"]))
    assert [[s.label for s in r.series] for r in both[1]] == [["ring"], ["tree"]]
    text = notes(both, "warning")
    assert "2 machines" in text and "machine 1 is Example CPU" in text and "machine 2 is Other CPU" in text
    assert [r.name.endswith(f"machine {i}") for i, r in enumerate(both[1], start=1)] == [True, True]


def test_builds_dirt_days_and_debug_are_said(analysis_of):
    line = World()
    other = World(run_name="run-2", run_fields={
        "git": {"revision": "beef" * 10, "dirty": True}, "started": "2026-03-03T00:00:00Z",
        "build": {"compiler": "g++", "flags": "-O0", "type": "Debug"}})
    both = analysis_of([line.run()] + line.sweep(["ring"]), [other.run()] + other.sweep(["ring"]))
    text = notes(both, "warning")
    for part in ("2 builds", "uncommitted changes", "Build type Debug", "2 days, 2026-03-01 to 2026-03-03"):
        assert part in text
    assert len(both[1]) == 2


def test_oversubscription_is_said_for_the_ranks_it_holds_for(analysis_of):
    world = World(ranks=8, run_fields={"oversubscribed": True})
    world.run_fields["machine"] = {**world.run()["machine"], "cores": 4}
    rows = world.sweep(["ring"]) + [{**row, "ranks": 2} for row in world.sweep(["ring"])]
    _, analysis = analysis_of([world.run()] + rows)
    caveats = {finding.headline.split(",")[1].strip(): finding.caveat for finding in main_findings(analysis)}
    assert caveats["8 ranks"].startswith("More ranks than cores: 8 ranks on 4 cores") and caveats.get("2 ranks", "") == ""


def test_wrong_and_failed_rows_are_said_and_not_timed(analysis_of):
    world = World()
    rows = world.sweep(["ring", "tree"])
    rows[0], rows[3] = wrong(rows[0]), failed(rows[3])
    both = analysis_of([world.run()] + rows)
    errors = notes(both, "error")
    assert "1 row had wrong results" in errors and "all_reduce ring at 8 ranks" in errors and "1 row failed" in errors
    assert {s.label: min(s.sizes) for s in both[1][0].series} == {"ring": 8, "tree": 8} | {"ring": 16}
    text = notes(both, "warning")
    assert "ring has no time at 8 B." in text and "tree has no time at 16 B." in text


def test_algorithms_at_different_sizes_are_not_compared(analysis_of):
    world = World()
    both = analysis_of([world.run()] + world.sweep(["ring"], SIZES[:2]) + world.sweep(["tree"], SIZES[2:3]))
    assert both[1][0].best == "ring and tree were run at different sizes, so which is faster is unknown."


def test_all_rows_failed_still_makes_a_result(analysis_of):
    world = World()
    both = analysis_of([world.run()] + [failed(row) for row in world.sweep(["ring", "tree"], SIZES[:3])])
    assert both[1][0].best == "Nothing here was timed correctly."
    assert "6 rows failed" in notes(both, "error") and summary_text(main_findings(both[1]))


def test_size_zero_is_said_and_not_plotted(analysis_of):
    world = World()
    both = analysis_of([world.run()] + world.sweep(["ring"], [0, 8, 16], collective="all_gather"))
    assert both[1][0].sizes == [8, 16] and len(both[1][0].lines) == 3
    assert "1 row of 0 bytes" in notes(both)


def test_placements_are_not_mixed(analysis_of):
    world = World()
    rows = world.sweep(["ring"]) + [{**row, "in_place": True, "time_us": 1e9} for row in world.sweep(["ring"])]
    panel = analysis_of([world.run()] + rows)[1][0]
    assert not panel.in_place and panel.series[0].pooled == 0 and panel.series[0].points[0].stats.max < 1e8
    only = analysis_of([world.run()] + rows[len(SIZES):])[1][0]
    assert only.in_place and len(only.series[0].points) == len(SIZES)


def test_transports_share_a_panel_with_their_names(analysis_of):
    local, mpi = World(), World(run_name="run-2", run_fields={"transport": "mpi", "rank_kind": "mpi"}, alpha=20)
    rows = [{**row, "executor": "message"} for row in mpi.sweep(["ring", "double_tree"])]
    library = [{**row, "algorithm": "library", "executor": "library", "plan": None} for row in mpi.sweep(["ring"])]
    here = [local.run()] + local.sweep(["ring", "double_tree"])
    result = analysis_of(here, [mpi.run()] + rows + library)[1][0]
    assert {s.label for s in result.series} == {
        "ring (local)", "double_tree (local)", "ring (mpi)", "double_tree (mpi)", "library (mpi)"}
    assert len(result.duels) == 2
    assert "double_tree (local) is faster" in result.answer and "double_tree (mpi) is faster" in result.answer
    assert ordered([result])[0].startswith("ring ")


def test_the_same_rows_of_two_runs_are_pooled_and_said(analysis_of):
    line, two = World(samples=20), World(run_name="run-2", seed=2, samples=10)
    both = analysis_of([line.run()] + line.sweep(["ring"]), [two.run()] + two.sweep(["ring"]))
    point = both[1][0].series[0].points[0]
    assert point.stats.count == 30 and point.stats.ci_low <= point.time_us <= point.stats.ci_high
    assert "had their samples put together, for ring" in notes(both)


def test_unverified_rows_are_said(analysis_of):
    world = World(samples=3)
    text = notes(analysis_of([world.run()] + [{**row, "wrong": None} for row in world.sweep(["ring"])]))
    assert "The results of 24 rows were not verified" in text


def test_many_algorithms_show_ring_tree_and_winners(analysis_of):
    world = World(noise=0.003)
    result = analysis_of([world.run()] + world.sweep(MANY))[1][0]
    shown = shown_labels(result)
    assert len(shown) == MOST and {"ring", "double_tree", "one_shot", "two_shot"} <= set(shown)
    assert {span.answer for span in result.fastest} <= set(shown)


def test_findings_lead_with_ring_or_tree_and_are_few(analysis_of):
    worlds = [World(ranks=ranks, run_name=f"run-{ranks}") for ranks in (2, 4, 8)]
    lists = [[w.run()] + w.sweep(["ring", "double_tree"]) + w.sweep(["pairwise", "bruck"], collective="all_to_all")
             for w in worlds]
    results = analysis_of(*lists)[1]
    found = main_findings(results)
    assert [f.headline.split(", float")[0] for f in found] == [
        "All-reduce", "All-to-all",  # over sizes and ranks
        "All-reduce, 2 ranks", "All-reduce, 4 ranks", "All-reduce, 8 ranks", "All-to-all, 8 ranks"]
    panels = [f for f in found if f.anchor.startswith("panel-")]
    assert all(results[int(f.anchor.split("-")[1]) - 1].statements[0][0] == f.text for f in panels)
    assert summary_text(found).count("\n") == 2 * len(found) - 1


# Strictness of the loader: each kind of bad file gives one line that names file, line and fault.

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
    "kind of an earlier version before run": (lines_with({"record": "layer", "run": "run-1"}), ":1: layer of run \"run-1\", but no run line"),
    "only kinds of earlier versions": (lines_with(WORLD.run(), {"record": "layer", "run": "run-1"}),
                                       "no records but 1 run line; bad.jsonl: 1 line of kind 'layer', of an earlier version, left out"),
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


def test_lines_of_kinds_of_earlier_versions_are_left_out_with_a_note(tmp_path):
    former = [{"record": kind, "run": "run-1", "anything": 1} for kind in ("layer", "experts", "layer")]
    file = tmp_path / "old.jsonl"
    file.write_text(lines_with(WORLD.run(), former[0], row(), *former[1:]))
    records = load([str(file)])
    assert len(records.rows) == 1
    note = ("old.jsonl: 2 lines of kind 'layer' and 1 line of kind 'experts', of an earlier version, left out; run all_reduce_perf again: "
            "what they had is in records of kind 'step'")
    assert [told.text for told in notes_on_runs(records) if "earlier" in told.text] == [note]
    assert records.rows[0].run.notes == (note,)


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
    binary.write_bytes(b"\xff\x00")
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
    run, line = WORLD.run(), row()
    run["extra"] = run["machine"]["extra"] = line["extra"] = line["stats"]["extra"] = line["plan"]["extra"] = {"a": [1]}
    records = load([write(tmp_path / "r.jsonl", [run, line])])
    assert records.rows[0].bytes == 1024 and records.rows[0].plan.steps == 14
    assert records.rows[0].run.machine.cores == 16


def test_files_may_be_concatenated_and_runs_interleave(tmp_path):
    other = World(run_name="run-2", ranks=4)
    records = load([write(tmp_path / "r.jsonl", [WORLD.run(), row(), other.run(), other.row("ring", 8), row()])])
    assert [r.run.run for r in records.rows] == ["run-1", "run-2", "run-1"]


def test_kernels_and_ceilings_are_read(tmp_path):
    line = kernel(extra=1)
    records = load([write(tmp_path / "k.jsonl", [WORLD.run(), *KERNELS.ceilings(), line, row()])])
    assert len(records.ceilings) == len(KERNELS.ceilings()) and len(records.rows) == 1
    read = records.kernels[0]
    assert (read.kernel, read.median_us, read.cores) == (line["kernel"], line["stats"]["median"], (0,))
    assert read.intensity == line["flops"] / line["bytes"] and read.checked and read.run is records.runs[0]


def test_null_where_unknown_is_fine(tmp_path):
    run = WORLD.run()
    run["machine"].update(cpu=None, memory_bytes=None, caches=None, mhz=None, kernel=None)
    run["git"] = {"revision": "unknown", "dirty": None}
    records = load([write(tmp_path / "r.jsonl", [run, row(stats=None, samples_us=[], plan=None, wrong=None)])])
    assert records.runs[0].machine.cpu is None and records.rows[0].stats is None


def test_loading_raises_only_report_errors(tmp_path):
    with pytest.raises(ReportError):
        load([str(tmp_path / "absent")])
