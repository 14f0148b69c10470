"""The report reads, draws and describes the records of pipeline_perf, overlap_perf and simulate."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.analysis.steps.cases import cases_of
from reports.analysis.steps.lanes import lanes_of
from reports.cli import main
from reports.load import load
from reports.plots.memory_lines import total_of
from reports.records import ScheduleLine

STEP = ("--stages", "4", "--microbatches", "8", "--t-f", "2", "--t-i", "2.5", "--t-w", "1.5", "--t-comm", "0.3")


def written_steps(programs, path: Path, *words: str) -> str:
    done = programs.run(*words, "--json", str(path))
    assert done.returncode == 0, done.stderr
    return str(path)


@pytest.fixture(scope="module")
def schedules(programs, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("steps") / "schedules.jsonl"
    return written_steps(programs, path, "pipeline_perf", "--schedule", "all", *STEP)


def exposed_by_chart(line: ScheduleLine) -> list[float]:
    return [sum(end - start for start, end in one.exposed) for one in lanes_of(line.timeline)]


def test_charts_hatch_what_the_program_counts_as_exposed(schedules: str) -> None:
    lines = load([schedules]).schedules
    assert len(lines) >= 18
    for line in lines:
        for drawn, counted in zip(exposed_by_chart(line), line.exposed_ms):
            assert drawn == pytest.approx(counted), line.schedule


def test_what_is_drawn_is_what_is_counted(schedules: str) -> None:
    for line in load([schedules]).schedules:
        computed = [[t for t in rank if t.lane == "compute"] for rank in line.timeline]
        assert max(t.end for rank in computed for t in rank) == pytest.approx(line.makespan_ms)
        assert max(sum(t.end - t.start for t in rank) for rank in computed) == pytest.approx(line.work_ms)
        held = [max(value for _, value in total_of(kinds.values())) for kinds in line.memory.of_rank]
        assert held == pytest.approx(line.peak_activations.until_w), line.schedule


def test_simulated_and_emulated_of_one_schedule_stand_in_one_chart(programs, schedules: str, tmp_path: Path) -> None:
    emulated = written_steps(programs, tmp_path / "e.jsonl", "pipeline_perf", "--mode", "emulated", "--repeat", "1", *STEP)
    (cases,) = cases_of(load([schedules, emulated]).schedules).values()
    assert [[line.basis for line in case.lines] for case in cases if case.name == "1f1b"] == [["simulated", "emulated"]]


def test_pages_of_all_programs(programs, tmp_path: Path) -> None:
    trace = tmp_path / "zb.json"
    files = [
        written_steps(programs, tmp_path / "p.jsonl", "pipeline_perf", "--schedule", "zb_h1", *STEP, "--trace", str(trace)),
        written_steps(programs, tmp_path / "o.jsonl", "overlap_perf", "--bucket-cap-mb", "1,25", "--layers", "4"),
        written_steps(programs, tmp_path / "s.jsonl", "simulate", "--layout", "tp=8,pp=8,dp=2,batch=64", "--sweep",
                "microbatch=1:2"),
    ]
    assert main([*files, "-o", str(tmp_path / "report")]) == 0
    page, other = (tmp_path / "report" / name for name in ("schedules.html", "simulations.html"))
    text = page.read_text(encoding="utf-8")
    assert "zb_h1" in text and "overlap-1" in text and 'href="traces/zb.json"' in text
    assert "microbatch=2" in other.read_text(encoding="utf-8")
