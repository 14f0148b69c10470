"""Claims: mistakes of claims.json, tests that fail when they should, conditions found in records, bases that are kept apart, the page."""
import json

import pytest

from reports.claims.data import EXACT, Relation, exact_lines, load_claims, load_suite
from reports.claims.verdict import HOLDS, NOT, ONLY_IF, UNDECIDED, UNKNOWN, UNTESTED, exact_verdicts, settle
from reports.__main__ import main
from reports.schema import ReportError
from reports.load import load
from reports.tests.world import KIB, World, write

COMMANDS = {"sweep": ("all_reduce_perf", "-b", "1K"), "emulated": ("all_reduce_perf", "--link", "gbps=1")}
TIME = {"lines": "sweep", "field": "stats.median"}


def by(algorithm, lines="sweep"):
    return {"lines": lines, "where": {"algorithm": algorithm, "in_place": False}, "field": "stats.median"}


TREE_WINS = {"basis": "measured", "shows": "tree over ring", "value": by("double_tree"), "over": by("ring"), "along": "bytes",
             "axis": "message size", "axis_unit": "bytes", "test": {"at_most": 1}}
STEPS = {"basis": "counted", "shows": "steps of the tree over the ring's", "value": {**by("double_tree"), "field": "plan.steps", "pick": "most"},
         "over": {**by("ring"), "field": "plan.steps", "pick": "most"}, "test": {"at_most": 1}}


def claims(tmp_path, *evidence, **fields):
    file = tmp_path / "claims.json"
    given = {"evidence": list(evidence)} if evidence else {}
    file.write_text(json.dumps({"claims": [{"name": "a-claim", "claim": "Trees win.", "source": "a survey", **given, **fields}]}))
    return load_claims(file, COMMANDS)


def run_of(world, command):
    return {**world.run(), "command": [*command, "--json", "out.jsonl"]}


@pytest.fixture()
def records(tmp_path):
    """Trees are faster up to about 45 KiB where a message starts in 5 us: 6 steps and 2 bytes a byte against 14 and 1.75."""
    world = World(noise=0.0)
    lines = [run_of(world, COMMANDS["sweep"])] + [world.row(name, size, in_place=False) for name in ("ring", "double_tree")
                                                  for size in (KIB, 16 * KIB, 128 * KIB, 256 * KIB, 1024 * KIB)]
    return load([str(write(tmp_path / "r.jsonl", lines))])


def settled(tmp_path, records, *evidence, **fields):
    return settle(claims(tmp_path, *evidence, **fields), records, COMMANDS)[0]


@pytest.mark.parametrize("test, good, bad", [
    (Relation("at_most", 1, 0.02), (0.5, 1.019), (1.021, 7)), (Relation("at_least", 10, 0.1), (9.01, 80), (8.9, -1)),
    (Relation("near", 84, 0.05), (80, 88), (79, 89)), (Relation("between", 1.2, 0.0, 1.33), (1.2, 1.33), (1.19, 1.34))])
def test_a_relation_holds_and_fails(test, good, bad):
    assert all(test.holds(value) for value in good) and not any(test.holds(value) for value in bad)


def test_what_intervals_leave_open_is_undecided(tmp_path):
    """Times of which the intervals have both answers decide no claim; the same times with narrow intervals do."""
    for spread, verdict in ((0.9, UNDECIDED), (0.001, ONLY_IF)):
        world = World(ranks=8)
        lines = world.sweep(["ring", "double_tree"])
        for line in lines:
            median = line["stats"]["median"]
            line["stats"].update(ci_low=median * (1 - spread), ci_high=median * (1 + spread))
        file = write(tmp_path / f"{verdict}.jsonl", [run_of(world, next(iter(COMMANDS.values()))), *lines])
        assert settled(tmp_path, load([file]), TREE_WINS).verdict == verdict


def test_a_condition_is_found_where_lines_cross(tmp_path, records):
    record = settled(tmp_path, records, TREE_WINS)
    assert record.verdict == ONLY_IF
    words = record.condition.split()  # 8 steps of 5 us are worth 160,000 times a quarter of a byte at 1 ns
    assert words[:5] == ["message", "size", "up", "to", "about"] and float(words[5]) == pytest.approx(156, rel=0.05) and words[6] == "KiB"


def test_a_verdict_turns_with_the_test(tmp_path, records):
    assert settled(tmp_path, records, {**TREE_WINS, "test": {"at_most": 2}}).verdict == HOLDS
    assert settled(tmp_path, records, {**TREE_WINS, "test": {"at_most": 0.1}}).verdict == NOT
    assert settled(tmp_path, records, {**TREE_WINS, "at": "last"}).verdict == NOT


def test_bases_are_kept_apart_and_a_contradiction_is_stated(tmp_path, records):
    slow = {**TREE_WINS, "test": {"at_most": 0.1}}
    record = settled(tmp_path, records, STEPS, slow)
    assert record.verdict == HOLDS and record.others == ["measured: does not hold"]
    assert exact_verdicts([record]) == {"a-claim": HOLDS}


def test_what_is_unknown_stays_unknown(tmp_path, records):
    emulated = {**TREE_WINS, "basis": "emulated", "value": by("double_tree", "emulated"), "over": by("ring", "emulated")}
    assert settled(tmp_path, records, emulated).verdict == UNKNOWN
    assert settled(tmp_path, records, {**TREE_WINS, "basis": "simulated"}).verdict == UNKNOWN, "measured rows are no simulated ones"
    assert settled(tmp_path, records, not_testable="needs a GPU").verdict == UNTESTED


def test_only_runs_of_the_very_command_count(tmp_path):
    world = World(noise=0.0)
    file = write(tmp_path / "r.jsonl", [{**world.run(), "command": ["all_reduce_perf", "-b", "2K"]}, world.row("ring", KIB)])
    assert settle(claims(tmp_path, TREE_WINS), load([str(file)]), COMMANDS) == []


def test_two_values_at_one_point_are_refused(tmp_path, records):
    both = {**TREE_WINS, "value": {**TIME, "where": {}}}
    with pytest.raises(ReportError, match="'tree over ring': .* where bytes is 1024; allowed: one record at each point, or 'pick'"):
        settled(tmp_path, records, both)


@pytest.mark.parametrize("change, expected", [
    ({"basis": "guessed"}, "a-claim, evidence, 0, basis: 'guessed' is not one of"),
    ({"test": {"at_most": 1, "at_least": 2}}, "a-claim, evidence, 0, test: "),
    ({"along": "bytes", "axis": None}, "a-claim, evidence, 0, axis: None is not of type 'string'"),
    ({"colour": "red"}, "a-claim, evidence, 0: Additional properties are not allowed"),
    ({"value": by("ring", "other")}, "a-claim, evidence 0: no line of claims.suite matches 'other'"),
    ({"basis": "counted"}, "a-claim, evidence 0: 'stats.median' is not counted; allowed with basis counted: plan.steps")])
def test_a_mistake_is_one_line(tmp_path, change, expected):
    with pytest.raises(ReportError, match="claims.json: ") as caught:
        claims(tmp_path, {**TREE_WINS, **change})
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_a_claim_has_evidence_or_a_reason(tmp_path):
    with pytest.raises(ReportError, match="a-claim"):
        claims(tmp_path)


def test_the_claims_of_the_suite(tmp_path):
    """Every claim has a source; counted and simulated evidence needs no wall-clock time; every line of the suite is used."""
    commands = load_suite()
    every = load_claims()
    exact = exact_lines(every, commands)
    assert len(every) >= 20 and all(claim.source for claim in every)
    assert not [name for name, command in exact.items() if "emulated" in command or "--link" in command and command[0] != "overlap_perf"]
    unused = [name for name in commands if not any(selection.takes(name) for claim in every for line in claim.evidence
                                                   for selection in line.selections)]
    assert unused == []
    assert all(any(line.basis in EXACT for line in claim.evidence) or claim.not_testable or claim.name in ("compression", "stragglers", "optimizer-loss") for claim in every)


def test_the_page(tmp_path, capsys):
    world = World(noise=0.0)
    command = load_suite()["measured-all-reduce"]
    lines = [run_of(world, command)] + [world.row(name, size, in_place=False) for name in ("ring", "double_tree")
                                        for size in (KIB, 16 * KIB, 64 * KIB, 256 * KIB)]
    assert main([str(write(tmp_path / "r.jsonl", lines)), "-o", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert "measured: holds only if message size up to" in page.replace("\u00a0", " ")
    assert "not run" in page and " ".join(command) in page
    assert list((tmp_path / "report" / "figures").glob("claim-tree-small-*.svg"))
