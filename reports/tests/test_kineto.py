"""PyTorch profiler's traces as records: a made-up profile whose parts are known, its page, and broken input."""
import gzip
import json

import pytest

from reports.report import report_of
from reports.analysis.training.runs import predicted_text, speed_text
from reports.__main__ import main as report_main
from reports.pages.training import tables_of
from reports.kineto import main, merged, Trace, Work
from reports.load import load
from reports.tests.step_world import LayoutWorld
from reports.tests.world import write

MAIN, AUTOGRAD = 100, 101  # the host's threads


def simulated(tmp_path, **fields):
    """A step of 100 ms on two ranks, tensor- and data-parallel or not."""
    world = LayoutWorld()
    parts = {"forward": 40.0, "backward": 40.0, "recompute": 0.0, "optimizer": 5.0, "exposed_tensor": 0.0, "exposed_pipeline": 0.0,
             "exposed_gather": 0.0, "exposed_reduce": 15.0, "exposed_copy": 0.0, "bubble": 0.0}
    model = {"name": "gpt3-1.3b", "parameters": 10 ** 9, "numbers": {"layers": 24, "sequence": 2048}}
    step = world.simulation(2, 1, 1, model=model, parts_ms=parts, step_ms=100.0, global_batch=4, mfu=0.5, sent_bytes={"data": 4e6}, **fields)
    return write(tmp_path / "simulated.jsonl", [world.run(), step])


class Profile:
    """Steps of 100 ms that the host issues in the first 10 ms of each; the device lags by 5 ms. Times below are ms."""

    def __init__(self, steps=3, metadata=True):
        self.events, self.correlation, self.metadata = [], 0, metadata
        for n in range(steps):
            self._step(n, 1000.0 * n / 10)

    def add(self, cat, name, begin, length, tid=MAIN, **args):
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": 1e6 + 1e3 * begin, "dur": 1e3 * length, "args": args})

    def kernel(self, name, issued, begin, length, tid=MAIN, cat="kernel", **args):
        self.correlation += 1
        self.add("cuda_runtime", "cudaLaunchKernel", issued, 0.01, tid, correlation=self.correlation)
        self.add(cat, name, begin, length, 7, correlation=self.correlation, **args)

    def _step(self, n, at):
        """Forward 40 ms, backward 30 ms, concurrent with 10 ms of a reduction that lasts for 15 more, 5 ms idle, optimizer 4 ms, copy 1 ms."""
        self.add("user_annotation", f"ProfilerStep#{n + 10}", at, 100.0)
        self.kernel("gemm", at + 1, at + 5, 40)
        self.add("cpu_op", "autograd::engine::evaluate_function: CheckpointFunctionBackward", at + 2, 1.0, AUTOGRAD)
        self.add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", at + 2.1, 0.1, AUTOGRAD)  # within it
        self.kernel("gemm", at + 2.5, at + 45, 30, AUTOGRAD)
        fields = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 10 ** 6, "Out msg nelems": 10 ** 6, "Group size": 2,
                "Process Group Ranks": "[0, 1]"}
        if self.metadata:
            self.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", at + 3, at + 65, 25, AUTOGRAD, **fields)
        else:  # as older profilers: on the host
            self.add("cpu_op", "record_param_comms", at + 3, 0.1, AUTOGRAD, **{"External id": 7 + n, **fields})
            self.kernel("ncclKernel_AllReduce_RING_LL_Sum_bf16", at + 3, at + 65, 25, AUTOGRAD, **{"External id": 7 + n})
        self.add("user_annotation", "Optimizer.step#AdamW.step", at + 5, 1.0)
        self.kernel("adam", at + 5.5, at + 95, 4)
        self.kernel("Memcpy DtoH (Device -> Pinned)", at + 7, at + 99, 1, cat="gpu_memcpy")

    def write(self, path, **fields):
        data = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
                "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2, "nccl_version": "2.21.5"},
                "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": self.events, **fields}
        text = json.dumps(data)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return str(path)


def measured(tmp_path, *traces, **fields):
    out = tmp_path / "measured.jsonl"
    assert main_of([*traces, "--beside", simulated(tmp_path, **fields), "-o", str(out)]) == 0
    return load([str(out)]).trainings[0]


def main_of(arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["reports.kineto", *arguments])
        return main()


@pytest.mark.parametrize("metadata", [True, False])
def test_parts_of_a_step_are_those_of_the_trace(tmp_path, metadata):
    line = measured(tmp_path, Profile(metadata=metadata).write(tmp_path / "r0.json"), Profile(metadata=metadata).write(tmp_path / "r1.json.gz"))
    parts = {name: round(ms, 6) for name, ms in line.parts_ms.items() if ms > 1e-6}
    assert parts == {"forward": 40, "backward": 30, "exposed_reduce": 15, "optimizer": 4, "exposed_copy": 1, "around": 10}
    assert [round(step.ms, 6) for step in line.steps] == [100, 100, 100]  # the first from its start on the host
    assert [step.step for step in line.steps] == [11, 12, 13]
    (row,) = line.profile.collectives
    assert (row.collective, row.ranks, row.bytes, row.calls, round(row.ms, 6)) == ("all_reduce", 2, 2_000_000, 1, 25)
    assert (line.profile.sent_bytes, line.profile.predicted_sent_bytes) == (2e6, 4e6)
    assert line.predicted.gap == "backward, 10.00 ms shorter than predicted"
    assert line.predicted.error == pytest.approx(0.0)
    assert line.tokens_per_step == 8192 and line.steps[0].mfu == pytest.approx(0.5)
    assert line.run.machine.gpus == ("NVIDIA H100", "NVIDIA H100") and line.run.libraries == {"nccl": "2.21.5"}


def test_each_moment_counts_once():
    """Kernels before collectives before copies, whichever began first; of kernels the one that began first."""
    works = [Work(0, 50, 0, "exposed_reduce"), Work(10, 30, 0, "backward"), Work(20, 40, 0, "forward"), Work(0, 70, 0, "exposed_copy"),
             Work(45, 60, 0, "exposed_gather"), Work(90, 120, 0, "forward"), Work(80, 81, 0, "forward")]
    trace = Trace("t", [(1, 0.0)], works, 0, "GPU", {}, "", ends=[100.0])
    assert trace.parts_us(0) == {"exposed_reduce": 20, "backward": 20, "forward": 21, "exposed_gather": 10, "exposed_copy": 10, "around": 19}
    assert merged([(5, 6), (0, 3), (1, 2), (3, 4)]) == [(0, 4), (5, 6)]


def test_a_group_of_neighbours_as_large_as_tp_is_a_tensor_group(tmp_path):
    layout = {"text": "tp=2", "numbers": {"tp": 2, "dp": 1, "pp": 1}}
    line = measured(tmp_path, Profile().write(tmp_path / "r0.json"), layout=layout)
    assert round(line.parts_ms["exposed_tensor"], 6) == 15 and line.parts_ms["exposed_reduce"] == 0


@pytest.mark.parametrize("name, ours, part", [
    ("_allgather_base", "all_gather", "exposed_gather"), ("_reduce_scatter_base", "reduce_scatter", "exposed_reduce"),
    ("allreduce_coalesced", "all_reduce", "exposed_reduce"), ("all_to_allv", "all_to_all", "exposed_tensor"), ("send", "send_recv", "exposed_pipeline"),
    ("_reduce_oop", "reduce", "exposed_reduce"), ("broadcast", "broadcast", "exposed_gather"), ("new_thing", "new_thing", "exposed_reduce")])
def test_names_of_collectives(tmp_path, name, ours, part):
    profile = Profile()
    for event in profile.events:
        if "Collective name" in event["args"]:
            event["args"]["Collective name"] = name
    line = measured(tmp_path, profile.write(tmp_path / "r0.json"))
    assert [row.collective for row in line.profile.collectives] == [ours]
    assert round(line.parts_ms[part], 6) == 15


def test_the_page_has_the_measured_and_the_simulated_step(tmp_path, capsys):
    run = measured(tmp_path, Profile().write(tmp_path / "r0.json"))
    files = [str(tmp_path / "measured.jsonl"), str(tmp_path / "simulated.jsonl")]
    (result,) = report_of(load(files)).results("training")
    assert predicted_text(result.lines).startswith("Predicted: 1 step, off by 0")
    assert "on the fullest rank" not in speed_text(run)
    tables = tables_of(result.lines)
    assert [[cell.text for cell in line.cells][1:4] for line in tables["Collectives of profiled steps"].lines] == [
        ["all_reduce", "2", "1.907 MiB"], ["all, measured", "–", "–"], ["all, simulated", "–", "–"]]
    assert tables["Every run of the records"].lines[0].cells[6].text == "–"
    assert report_main([*files, "-o", str(tmp_path / "page")]) == 0
    text = (tmp_path / "page" / "training.html").read_text()
    assert "Collectives of profiled steps" in text and "Predicted and measured steps" in text
    assert "the largest gap" in capsys.readouterr().out


@pytest.mark.parametrize("change, what", [
    (lambda data: data.pop("traceEvents"), "has no list traceEvents"),
    (lambda data: data.update(traceEvents=[line for line in data["traceEvents"] if line["cat"] != "user_annotation"]), "has no step"),
    (lambda data: data.update(traceEvents=[line for line in data["traceEvents"] if line["cat"] not in ("kernel", "gpu_memcpy")]), "has no kernels"),
    (lambda data: data["traceEvents"][3].update(dur=-1), "event 3 ('autograd::engine::evaluate_function: CheckpointFunctionBackw'): dur is -1; allowed: microseconds"),
    (lambda data: data["traceEvents"][0].update(ts=10**400), "event 0 ('ProfilerStep#10'): ts is 1000000000000000000000000000000000000000; allowed: microseconds"),
    (lambda data: data["distributedInfo"].update(world_size=16), "was recorded on 16 ranks, and the simulated step has 2"),
    (lambda data: [line for line in data["traceEvents"] if line["name"] == "ProfilerStep#12"][0].update(name="ProfilerStep#13"), "has other steps than"),
    (lambda data: data["traceEvents"][0].update(ts=1e9), "ProfilerStep#11 has no kernels of its own"),
])
def test_refuses_in_one_line_that_names_the_file(tmp_path, capsys, change, what):
    good, bad = Profile().write(tmp_path / "good.json"), tmp_path / "bad.json"
    data = json.loads((tmp_path / "good.json").read_text())
    change(data)
    bad.write_text(json.dumps(data))
    out = tmp_path / "measured.jsonl"
    assert main_of([good, str(bad), "--beside", simulated(tmp_path), "-o", str(out)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"reports.kineto: {bad}: ") and what in message and message.count("\n") == 1
    assert not out.exists()


def with_sends(around, inner="record_param_comms", kernels=3, parts=("all_to_all",)):
    """A profile with point-to-point kernels, of 1 ms each, that the host launched within a call."""
    profile = Profile()
    for n in range(3):
        at = 100.0 * n
        if around:
            profile.add("cpu_op", around, at + 3.4, 0.5, AUTOGRAD)
        if inner:
            profile.add("cpu_op", inner, at + 3.45, 0.4, AUTOGRAD, **{"Collective name": parts[0], "dtype": "Half", "In msg nelems": 10 ** 6,
                                                                    "Out msg nelems": 10 ** 6, "Group size": 2})
        for k in range(kernels):
            profile.kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", at + 3.5 + k / 100, at + 90.5 + k, 1, AUTOGRAD)
    return profile


@pytest.mark.parametrize("around, inner, stated, ours", [
    ("c10d::alltoall_base_", "record_param_comms", "all_to_allv", "all_to_all"), ("nccl:all_to_all", None, "", "all_to_all"),
    ("c10d::reduce_scatter_", None, "", "reduce_scatter"), ("_c10d_functional::all_gather_into_tensor", None, "", "all_gather"),
    ("c10d::reduce_scatter_", "record_param_comms", "send", "reduce_scatter"), ("c10d::send", "record_param_comms", "send", "send_recv"),
    (None, None, "", "send_recv")])
def test_sends_within_a_collectives_call_are_that_collective(tmp_path, around, inner, stated, ours):
    line = measured(tmp_path, with_sends(around, inner, parts=(stated,)).write(tmp_path / "r0.json"))
    row = next(row for row in line.profile.collectives if row.collective != "all_reduce")
    assert row.collective == ours and round(row.ms, 6) == 3 and row.calls == (3 if ours == "send_recv" else 1)
    pipeline = line.parts_ms["exposed_pipeline"]
    assert (pipeline > 0) == (ours == "send_recv")
    if stated == "all_to_allv":  # three kernels, and the call's bytes once
        assert row.bytes == 2_000_000 and row.sent_bytes == 1e6


def test_each_event_of_the_format_is_taken_or_noted(tmp_path, capsys):
    """Categories of libkineto's ActivityType.cpp (PyTorch 2.9), and one that does not exist."""
    profile = Profile()
    known = ["cpu_op", "user_annotation", "gpu_user_annotation", "gpu_memcpy", "gpu_memset", "kernel", "cuda_runtime", "cuda_driver",
             "cpu_instant_event", "python_function", "overhead", "cuda_sync", "cuda_event", "fwdbwd", "ac2g"]
    for name in [*known, "mtia_runtime", "xpu_runtime", "new_category"]:
        profile.add(name, "event", 1.0, 0.5)
    profile.events.append({"ph": "B", "name": "half", "cat": "kernel", "ts": 1.0})
    profile.kernel("late", 5000, 5000, 1)  # of no step
    path = profile.write(tmp_path / "r0.json")
    line = measured(tmp_path, path)
    noted = " ".join(line.run.notes)
    assert all(word in noted for word in ("mtia_runtime", "xpu_runtime", "new_category", "(3)", "half", "outside of the profiled steps", "late"))
    unknown = next(note for note in line.run.notes if "unknown categories" in note)
    assert not any(name in unknown for name in known)
    message = capsys.readouterr().err
    assert message.count("\n") == len(line.run.notes) == message.count("reports.kineto: note: r0.json: ")
    assert report_main([str(tmp_path / "measured.jsonl"), "-o", str(tmp_path / "page")]) == 0
    assert "outside of the profiled steps" in (tmp_path / "page" / "index.html").read_text()


def test_a_trace_with_a_byte_order_mark_is_read(tmp_path):
    path = Profile().write(tmp_path / "r0.json")
    (tmp_path / "r0.json").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "r0.json").read_bytes())
    assert measured(tmp_path, path).profile.ranks == 1
