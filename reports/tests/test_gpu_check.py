"""The pages of a whole run of the GPU script, from made-up records: what they say of GPUs and of energy."""
import json

import pytest

from reports.analysis.report import report_of
from reports.cli import main
from reports.load import load
from reports.plots import style
from reports.plots.frame import Heading
from reports.plots.part_bars import memory_figure
from reports.tests import gpu_check_world as world


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return world.write_all(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module")
def report(files):
    return report_of(load(files))


def test_runs_name_the_gpu_and_whether_ranks_share_it_and_no_threads_of_the_cpu(report):
    result = report.trainings[0]
    assert result.name.endswith("1024 tokens per sequence, on MADE-UP H200")
    told = result.findings[0].text
    assert told.startswith("dp=1, bf16, 65,536 tokens per step: 163 ms, 402,000 tokens/s")
    assert "659 tokens a joule at 610 W of 1 GPU. After" in told
    assert len(result.runs) == 5 and result.fastest.tokens_a_step == 65536


def test_memory_of_gigabytes_is_in_gigabytes(report):
    with style.context():
        axes = memory_figure(report.trainings[0], Heading("title", "subtitle", "")).axes[0]
    assert "(GiB)" in axes.get_xlabel() and 37 < max(patch.get_x() + patch.get_width() for patch in axes.patches) < 38


def test_pages(files, tmp_path):
    assert main([*files, "-o", str(tmp_path)]) == 0
    pages = {name: (tmp_path / f"{name}.html").read_text(encoding="utf-8") for name in ("index", "kernels", "training")}
    assert all("MADE-UP H200" in text for text in pages.values())
    assert "tp=2, bf16, shared GPU, 32,768 tokens per step" in pages["training"]
    assert "tokens/J" in pages["training"] and "thread per rank" not in pages["training"]
    rows = (tmp_path / "collectives.html").read_text(encoding="utf-8")
    assert "two_shot (cuda)" in rows and "library (nccl)" in rows


def test_without_a_meter_there_is_no_column_of_energy(tmp_path):
    records = [{key: value for key, value in line.items() if key != "energy"} for line in world.trainings()["train_32"]]
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in records), encoding="utf-8")
    assert main([str(file), "-o", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "tokens/J" not in page and "joule" not in page
