"""The workflows of docs/examples: YAML, with commands that the gate takes, and nothing of anybody's own machines."""
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from gate.cli import parser

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples"
NAMES = ("gate_github.yml", "gate_gitlab.yml")


def plain_lines(text: str) -> list[str]:
    """The lines of a file in the little of YAML that our examples need: mappings and lists by two blanks, text in blocks."""
    lines, block = [], None  # indentation of the key that opened a block of text
    for number, line in enumerate(text.splitlines(), start=1):
        indent = len(line) - len(line.lstrip(" "))
        if block is not None and (not line.strip() or indent > block):
            continue
        block = None
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        assert "\t" not in line and line == line.rstrip() and indent % 2 == 0, f"line {number}: {line!r}"
        assert re.fullmatch(r"(?:- )?(?:[\w./-]+: ?.*|[^:{}]*|[^{}]*\$\S.*|- >)", line.strip()), f"line {number}: {line!r}"
        lines.append(line)
        if re.search(r"(?::|-) [|>]$", line):
            block = indent
    return lines


def read(name: str) -> Any:
    try:
        import yaml
    except ImportError:
        return None
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def commands(name: str) -> list[list[str]]:
    """Commands of the gate, as the shell sees them; variables are replaced by a revision."""
    text = re.sub(r"\$\{\{.*?\}\}|\$\w+", "main", (FOLDER / name).read_text(encoding="utf-8"))
    return [shlex.split(found) for found in re.findall(r"python3 ci/gate\.py((?:[^\n]*\n(?=\s+--))+[^\n]*)", text)]


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_yaml(name):
    assert plain_lines((FOLDER / name).read_text(encoding="utf-8"))
    pytest.importorskip("yaml", reason="python3-yaml is not installed; only the shape of lines was looked at")
    assert isinstance(read(name), dict)


@pytest.mark.parametrize("broken", ["a:\n\t- b", "a:\n   b: c", "a: b \n", "a\n{"])
def test_the_reader_refuses_what_is_broken(broken):
    with pytest.raises(AssertionError):
        plain_lines(broken)


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
    if github is None:
        pytest.skip("python3-yaml is not installed")
    assert set(github["jobs"]) == {"exact", "times"} and "needs" not in github["jobs"]["times"]
    assert gitlab["times"]["allow_failure"] == {"exit_codes": 3} and "allow_failure" not in gitlab["exact"]
    assert gitlab["exact"]["artifacts"]["reports"] == {"junit": "exact.xml"}
    steps = [step["run"] for job in github["jobs"].values() for step in job["steps"] if "gate.py" in step.get("run", "")]
    assert len(steps) == 2 and all("\n" not in step.strip() for step in steps), "one line for the shell"
    scripts = [line for job in ("exact", "times") for line in gitlab[job]["script"]]
    assert all("\n" not in line.strip() for line in scripts)
