"""The workflows of docs/examples: YAML, with commands that the gate takes, and nothing of anybody's own machines."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gate.cli import main, parser
from gate.rule import _signed_rank_distribution, Rule
from gate.worker import load_suite


FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples"
NAMES = ("gate_github.yml", "gate_gitlab.yml")


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def commands(name: str) -> list[list[str]]:
    """Commands of the gate, as the shell sees them; variables are replaced by a revision."""
    text = re.sub(r"\$\{\{.*?\}\}|\$\w+", "main", (FOLDER / name).read_text(encoding="utf-8"))
    return [shlex.split(found) for found in re.findall(r"python3 ci/gate\.py((?:[^\n]*\n(?=\s+--))+[^\n]*)", text)]


@pytest.mark.parametrize("name", NAMES)
def test_commands_are_those_of_the_gate(name):
    found = [parser().parse_args(words) for words in commands(name)]
    assert [arguments.command for arguments in found] == ["exact", "ab"]
    for arguments in found:
        assert arguments.markdown and arguments.junit and arguments.html and len(arguments.cmake) == 2
    assert found[1].budget == "120s" and found[1].records


@pytest.mark.parametrize("name", NAMES)
def test_what_a_job_hands_over_is_what_it_writes(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    for job in ("exact", "times"):
        assert re.search(rf"path(s:\s+-|:) {job}\.\*", text) and f"--markdown {job}.md" in text and f"--junit {job}.xml" in text
    assert "if: always()" in text or "when: always" in text, "also where it fails"


def test_jobs_stand_apart():
    """The deterministic one can be required by itself."""
    github, gitlab = (read(name) for name in NAMES)
    assert set(github["jobs"]) == {"exact", "times"} and "needs" not in github["jobs"]["times"]
    assert gitlab["times"]["allow_failure"] == {"exit_codes": 3} and "allow_failure" not in gitlab["exact"]
    assert gitlab["exact"]["artifacts"]["reports"] == {"junit": "exact.xml"}
    steps = [step["run"] for job in github["jobs"].values() for step in job["steps"] if "gate.py" in step.get("run", "")]
    assert len(steps) == 2 and all("\n" not in step.strip() for step in steps), "one line for the shell"
    scripts = [line for job in ("exact", "times") for line in gitlab[job]["script"]]
    assert all("\n" not in line.strip() for line in scripts)


# docs/gate.md against the gate: it accepts the page's commands, the table of probabilities is the rule's, links have targets.

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "gate.md").read_text(encoding="utf-8")


def blocks() -> list[str]:
    return re.findall(r"^```(?:sh)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def page_commands() -> list[list[str]]:
    lines = [line.removeprefix("$ ") for block in blocks() for line in block.splitlines()]
    return [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("/usr/bin/python3 ci/gate.py ")]


def test_commands_are_taken():
    found = [parser().parse_args(["--head" if word == "--" else word for word in words]) for words in page_commands()]
    assert {arguments.command for arguments in found} == {"ab", "exact", "compare", "history", "store", "calibrate"}


def test_every_flag_of_the_outputs_is_told(capsys):
    with pytest.raises(SystemExit):
        main(["ab", "--help"])
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--base", "--head", "--build-cache"}
    assert [flag for flag in sorted(flags) if flag not in PAGE] == []


def test_the_suite_of_the_example_is_one(tmp_path):
    suite = next(block for block in blocks() if block.startswith("# NAME"))
    (tmp_path / "suite.txt").write_text(suite)
    assert [(line.name, line.one_core) for line in load_suite(tmp_path / "suite.txt")] == [("kernels", True), ("rings", False),
                                                                                         ("plans", True)]


def chances_of_passing(rule: Rule, trials: int = 20_000) -> list[tuple[float, float] | None]:
    """Probabilities that the lower bound lies above the centre: exact at each look, and by simulation at that look or before. None at
    looks with too few pairs for a bound of that error."""
    noise = np.random.default_rng(1).standard_normal((trials, rule.looks[-1]))
    passed, found = np.zeros(trials, dtype=bool), []
    for pairs in rule.looks:
        values = noise[:, :pairs]
        ranks = np.abs(values).argsort(axis=1).argsort(axis=1) + 1
        distribution = np.array(_signed_rank_distribution(pairs))
        outside = int(np.searchsorted(distribution, rule.error, side="right"))
        if outside == 0:
            found.append(None)
            continue
        passed |= (ranks * (values < 0)).sum(axis=1) < outside
        found.append((float(distribution[outside - 1]), float(passed.mean())))
    return found


def assert_shown(shown: list[str], chances: tuple[float, float] | None, so_far_within: float) -> None:
    if chances is None:
        assert shown == ["none", "none"]
        return
    at, so_far = (float(text.removesuffix(" %")) for text in shown)
    assert at == pytest.approx(100 * chances[0], abs=0.06)
    assert so_far == pytest.approx(100 * chances[1], abs=so_far_within)


def test_the_table_of_chances_is_that_of_the_rule():
    chance = r"(none|[\d.]+ %)"
    rows = re.findall(rf"^\| (\d+) \| {chance} \| {chance} \| {chance} \| {chance} \|$", PAGE, re.MULTILINE)
    assert tuple(int(row[0]) for row in rows) == Rule().looks
    first, second = chances_of_passing(Rule()), chances_of_passing(replace(Rule(), error=Rule().confirm_error))
    for (_, *shown), chances, chances_again in zip(rows, first, second, strict=True):
        assert_shown(shown[:2], chances, so_far_within=0.7)
        assert_shown(shown[2:], chances_again, so_far_within=0.5)
    both = first[-1][1] * second[-1][1]
    assert f"**{100 * both:.1f} %**" in PAGE


def test_links_lead_somewhere():
    heads = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)}
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (link[1:] in heads) if link.startswith("#") else (DOCS / link.split("#")[0]).exists(), link
