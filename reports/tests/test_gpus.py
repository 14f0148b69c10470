"""Tests rows of GPUs: their model is in the headings, cuda and nccl share a plot, and a GPU's records load with and without
the fields on how ranks share it."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from reports.report import report_of
from reports.__main__ import main
from reports.load import load
from reports.plots import style
from reports.page import Heading
from reports.plots.frame import new_figure
from reports.plots.stacked_bars import memory_figure
from reports.pages.collectives import subtitle
from reports.tests.kernel_world import gpu_world, WORKS
from reports.tests.world import layout, SIZES, TrainingWorld, World, write


H200 = {**World().run()["machine"], "gpus": ["NVIDIA H200"]}
SHARED = {"gpus": 1, "ranks_per_gpu": 8, "label": "shared GPU", "clock_mhz": 1980.0}


def gpu_records(machine=H200, gpu=SHARED):
    cuda = World(run_name="cuda", run_fields={"machine": machine, "transport": "cuda", "gpu": gpu})
    nccl = World(run_name="nccl", alpha=9.0, run_fields={"machine": machine, "transport": "nccl", "gpu": gpu})
    rows = cuda.sweep(["two_shot", "one_shot"], SIZES[:6], executor="cuda")
    peers = [{**row, "algorithm": "library", "plan": None} for row in nccl.sweep(["ring"], SIZES[:6], executor="library")]
    return [cuda.run(), *rows, nccl.run(), *peers]


def test_cuda_and_nccl_are_series_of_one_panel_that_names_the_gpu(analysis_of):
    results = analysis_of(gpu_records())[1]
    assert len(results) == 1
    assert {series.label for series in results[0].series} == {"two_shot (cuda)", "one_shot (cuda)", "library (nccl)"}
    assert results[0].headline.endswith("measured, on NVIDIA H200, shared by the ranks")
    assert "cuda and nccl  ·  NVIDIA H200, shared by the ranks  ·" in subtitle("latency", results[0])


def test_rows_of_transports_that_take_turns_are_series_of_one_panel(analysis_of):
    """Such a sweep writes the runs of all its transports first; then their rows alternate."""
    records = gpu_records()
    runs = [record for record in records if record["record"] == "run"]
    of_cuda = [record for record in records if record["record"] == "row" and record["transport"] == "cuda"]
    of_nccl = [record for record in records if record["record"] == "row" and record["transport"] == "nccl"]
    mixed = [row for pair in zip(of_cuda, of_nccl) for row in pair] + of_cuda[len(of_nccl):]
    assert len(runs) == 2 and {row["run"] for row in mixed} == {run["run"] for run in runs}
    results = analysis_of([*runs, *mixed])[1]
    assert len(results) == 1
    assert {series.label for series in results[0].series} == {"two_shot (cuda)", "one_shot (cuda)", "library (nccl)"}
    assert all(len(series.points) == 6 for series in results[0].series)


@pytest.mark.parametrize("gpus, gpu, expected", [
    (["NVIDIA H200"] * 8, {**SHARED, "gpus": 8, "ranks_per_gpu": 1, "label": "a GPU a rank"}, "8 × NVIDIA H200"),
    (["NVIDIA H200"], None, "NVIDIA H200"), ([], SHARED, "GPUs of unknown model, shared by the ranks")])
def test_gpus_are_named(analysis_of, gpus, gpu, expected):
    result = analysis_of(gpu_records({**H200, "gpus": gpus}, gpu))[1][0]
    assert result.gpus == expected


def test_rows_of_the_cpu_of_a_machine_with_a_gpu_do_not_name_it(analysis_of):
    world = World(run_fields={"machine": H200})
    result = analysis_of([world.run(), *world.sweep(["ring"], SIZES[:4])])[1][0]
    assert result.gpus == "" and "NVIDIA" not in result.headline + subtitle("latency", result)


def test_a_long_line_below_the_title_is_broken_between_its_parts_and_stays_on_the_figure():
    parts = ["All-reduce", "8 ranks", "float sum", "cuda and nccl", "NVIDIA H100 80GB HBM3, shared by the ranks",
             "out of place", "grey strip: within 5 % of the fastest"]
    short, _ = new_figure(Heading("A title", "one part", ""))
    figure, top = new_figure(Heading("A title", "  ·  ".join(parts), "EMULATED"))
    FigureCanvasAgg(figure).draw()
    texts = {text.get_text(): text.get_window_extent() for text in figure.texts}
    line = next(text for text in texts if "\n" in text)
    assert [part for half in line.split("\n") for part in half.split("  ·  ")] == parts
    assert texts[line].x1 <= figure.bbox.x1
    assert texts["EMULATED"].y1 <= texts[line].y0 and texts["EMULATED"].y0 >= top * figure.bbox.height
    assert figure.get_figheight() > short.get_figheight()


# Pages of GPUs: their sentences on what was shared, and on energy.

GIB = float(1 << 30)


def training(name, ranks=1, text=layout(), tokens_per_s=402e3, batch=64):
    """A run of a small GPT whose energy was counted, with round numbers such as an H200 might give."""
    gpu = {**SHARED, "ranks_per_gpu": ranks, "label": "shared GPU" if ranks > 1 else "a GPU a rank"}
    world = TrainingWorld(name, run_fields={"machine": H200, "transport": "cuda", "gpu": gpu, "ranks": ranks})
    tokens, ms = 1024 * batch, 1e3 * 1024 * batch / tokens_per_s
    steps = [{**step, "ms": ms, "tokens_per_s": tokens_per_s} for step in world.training(30)["steps"]]
    energy = {"source": "nvml", "devices": 1, "steps": 29, "seconds": 29 * ms / 1e3, "joules_per_step": 0.61 * ms,
              "watts": 610.0, "tokens_per_joule": tokens / (0.61 * ms)}
    record = world.training(
        layout=text, dtype="bf16", ranks=ranks, tokens_per_step=tokens, energy=energy,
        memory_bytes={"weights": 2 * GIB, "activations": 0.55 * batch * GIB, "total": (2 + 0.55 * batch) * GIB})
    return [world.run(), {**record, "steps": steps}]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    graph = training("graph", tokens_per_s=399e3, batch=32)
    graph[1]["graph"] = True
    kernels = gpu_world(works=WORKS[:3], run_fields={"machine": H200}).records()
    runs = [training("train"), graph, training("tp2", 2, layout(tp=2), 214e3, 32)]
    lines = [*gpu_records(), *kernels, *(line for run in runs for line in run)]
    return write(tmp_path_factory.mktemp("gpu") / "g.jsonl", lines)


@pytest.fixture(scope="module")
def result(file):
    return report_of(load([file])).results("training")[0]


def test_runs_name_the_gpu_and_whether_ranks_share_it_and_no_threads_of_the_cpu(result):
    assert result.name.endswith("128 tokens per sequence, on NVIDIA H200")
    text = result.findings[0].text
    assert text.startswith("dp=1, bf16, 65,536 tokens per step: 163 ms, 402,000 tokens/s")
    assert "659 tokens per joule at 610 W of 1 GPU. After" in text
    assert len(result.lines) == 3 and result.fastest.tokens_per_step == 65536


def test_memory_of_gigabytes_is_in_gigabytes(result):
    with style.context():
        axes = memory_figure(result, Heading("title", "subtitle", "")).axes[0]
    assert "(GiB)" in axes.get_xlabel() and 37 < max(patch.get_x() + patch.get_width() for patch in axes.patches) < 38


def test_pages(file, tmp_path):
    assert main([file, "-o", str(tmp_path)]) == 0
    pages = {name: (tmp_path / f"{name}.html").read_text(encoding="utf-8") for name in ("index", "kernels", "training")}
    assert all("NVIDIA H200" in text for text in pages.values())
    assert "tp=2, bf16, shared GPU, 32,768 tokens per step" in pages["training"]
    assert "tokens/J" in pages["training"] and "thread per rank" not in pages["training"]
    rows = (tmp_path / "collectives.html").read_text(encoding="utf-8")
    assert "two_shot (cuda)" in rows and "library (nccl)" in rows


def test_without_a_meter_there_is_no_column_of_energy(tmp_path):
    lines = [{key: value for key, value in line.items() if key != "energy"} for line in training("train")]
    file = write(tmp_path / "t.jsonl", lines)
    assert main([file, "-o", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "tokens/J" not in page and "joule" not in page
