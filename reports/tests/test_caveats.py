"""Limits of a finding stand with it: ranks that share cores, few samples; in each subject, on its page and on the first one."""
import re

import pytest

from reports.__main__ import main
from reports.analysis.findings import summary_text
from reports.html.overview import story_of
from reports.report import report_of
from reports.load import load
from reports.tests.test_html import Structure
from reports.tests.kernel_world import KernelWorld
from reports.tests.step_world import StepWorld
from reports.tests.world import experts_line, experts_run, LayerWorld, sharding, SIZES, TrainingWorld, World, write

CROWDED = "More ranks than cores: {} ranks on 1 core, so times include waiting for a core."


def on_one_core(run):
    return {**run, "oversubscribed": True, "machine": {**run["machine"], "cores": 1}}


def collectives(few=False):
    world = World(ranks=8)
    rows = world.sweep(["ring", "double_tree"], SIZES[:6])
    if few:
        rows = [{**row, "samples_us": row["samples_us"][:3], "stats": {**row["stats"], "count": 3}} for row in rows]
    return [world.run(), *rows]


def zero():
    return [World(ranks=2, run_name="zero", run_fields={"program": "zero_bench"}).run(), sharding(0), sharding(3)]


def emulated():
    world = StepWorld(basis="emulated", run_name="emulated")
    return [world.run(), *world.sweep()]


def layers():
    world = LayerWorld()
    return [world.run(), world.layer()]


def experts():
    return [experts_run(), experts_line()]


def kernels():
    return KernelWorld().records()


def training():
    world = TrainingWorld()
    return [world.run(), world.training(20, basis=world.basis)]


@pytest.mark.parametrize("make", [collectives, zero, emulated, layers, experts, training])
def test_ranks_that_share_cores_are_named_with_each_finding(tmp_path, make):
    run, *lines = make()
    for crowded in (False, True):
        report = report_of(load([write(tmp_path / "r.jsonl", [on_one_core(run) if crowded else run, *lines])]))
        assert report.findings
        for finding in report.findings:
            assert (CROWDED.format(lines[0].get("ranks") or run["ranks"]) in finding.caveat) == crowded, finding
            assert (finding.caveat in summary_text([finding])), "the terminal has it too"


def test_few_samples_are_counted_with_the_finding(tmp_path):
    report = report_of(load([write(tmp_path / "r.jsonl", collectives(few=True))]))
    assert report.findings and all(re.match(r"\d+ of \d+ rows have fewer than 10 samples\.", finding.caveat) for finding in report.findings)


@pytest.mark.parametrize("also_emulated", [False, True])
def test_what_was_simulated_has_neither_cores_nor_samples(tmp_path, also_emulated):
    worlds = [StepWorld(), *([StepWorld(basis="emulated", run_name="emulated")] if also_emulated else [])]
    report = report_of(load([write(tmp_path / f"{world.basis}.jsonl", [on_one_core(world.run()), *world.sweep()]) for world in worlds]))
    assert [finding.caveat for finding in report.findings if finding.badge == "simulated"] == [""]


def test_a_caveat_is_in_the_same_item_as_its_finding_on_both_pages(tmp_path):
    run, *lines = zero()
    rows = collectives()
    file = write(tmp_path / "r.jsonl", [on_one_core(run), *lines, on_one_core(rows[0]), *rows[1:]])
    assert main([file, "-o", str(tmp_path / "report")]) == 0
    for name in ("index.html", "sharding.html", "collectives.html"):
        text = (tmp_path / "report" / name).read_text(encoding="utf-8")
        items = re.findall(r"<li[^>]*><a href=.*?</li>", text, flags=re.DOTALL)
        assert items and all("than cores" in Structure(item).text.replace("\xa0", " ") for item in items), name


@pytest.mark.parametrize("make", [collectives, emulated, layers, experts, training, kernels])
@pytest.mark.parametrize("share", [None, 0.03, 0.4])
def test_times_that_other_programs_disturbed_give_no_finding(tmp_path, make, share):
    run, *lines = make()
    report = report_of(load([write(tmp_path / "r.jsonl", [{**run, "others_share": share}, *lines])]))
    assert report.findings
    for finding in report.findings:
        is_limited = "other programs had 40 % of its processors' time" in finding.text
        assert is_limited == (share == 0.4), finding
        assert not (is_limited and finding.caveat), "one reason is enough"


def test_bytes_and_losses_stand_whatever_other_programs_did(tmp_path):
    for make, part in ((zero, "Between steps a rank holds"), (training, "the validation loss is")):
        run, *lines = make()
        found = report_of(load([write(tmp_path / "r.jsonl", [{**run, "others_share": 0.4}, *lines])])).findings
        assert any(part in line.text for line in found), [line.text for line in found]


def test_the_first_page_shows_no_step_that_other_programs_disturbed(tmp_path):
    run, *lines = training()
    for share, expected in ((0.4, False), (0.02, True)):
        report = report_of(load([write(tmp_path / f"{share}.jsonl", [{**run, "others_share": share}, *lines])]))
        sentences = story_of(report).sentences
        assert ("of the step" in sentences[0]) == expected and len(sentences) == 1, sentences
