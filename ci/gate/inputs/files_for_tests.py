"""Files of each format, as their programs write them, with numbers that a test chooses."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gate.outputs.records import text_of
from reports.lines import Line, line_of, stats_of


def run_line(run: str, revision: str = "a" * 40, fingerprint: str = "m1", started: str = "2026-01-01T00:00:00Z",
             program: str = "kernels_bench", basis: str = "measured") -> Line:
    return line_of("run", run, run=run, program=program, command=[program], started=started, git={"revision": revision, "dirty": False},
                   machine={"fingerprint": fingerprint, "cores": 2}, transport="local", rank_kind="threads", basis=basis)


def kernel_line(run: str, kernel: str, bound: str | None, samples_us: Sequence[float], num_bytes: float = 0) -> Line:
    return line_of("kernel", run, run=run, kernel=kernel, shape="fixed", dtype="f64", bytes=num_bytes, iterations=len(samples_us),
                   samples_us=list(samples_us), stats=stats_of(samples_us), time_us=sum(samples_us) / len(samples_us), bound=bound)


def all_reduce_line(run: str, samples_us: Sequence[float], num_bytes: int) -> Line:
    return line_of("row", run, run=run, collective="all_reduce", algorithm="two_shot", executor="direct", transport="local", ranks=2,
                   bytes=num_bytes, count=num_bytes // 4, dtype="float", op="sum", iterations=len(samples_us), samples_us=list(samples_us),
                   stats=stats_of(samples_us), time_us=sum(samples_us) / len(samples_us))


def write_kernels(path: Path, run: str, cases: Mapping[str, Sequence[float]], bound: str | None = "compute", num_bytes: float = 8,
                  **run_fields: Any) -> Path:
    """A run of kernels_bench: samples in us by kernel."""
    lines = [kernel_line(run, kernel, bound, samples, num_bytes) for kernel, samples in cases.items()]
    path.write_text(text_of([run_line(run, **run_fields), *lines]))
    return path


def google(cases: Mapping[str, Sequence[float]], **context: Any) -> str:
    """Repetitions by name in ns; a mean of them as an aggregate, which is wrong on purpose."""
    entries: list[dict[str, Any]] = []
    for name, times in cases.items():
        entries += [{"name": name, "run_name": name, "run_type": "iteration", "repetitions": len(times), "repetition_index": i,
                     "threads": 1, "iterations": 100, "real_time": 2 * time, "cpu_time": time, "time_unit": "ns"}
                    for i, time in enumerate(times)]
        entries.append({"name": f"{name}_mean", "run_name": name, "run_type": "aggregate", "aggregate_name": "mean",
                        "iterations": len(times), "real_time": 1e9, "cpu_time": 1e9, "time_unit": "ns"})
    return json.dumps({"context": {"date": "2026-01-01T00:00:00+00:00", "host_name": "h", "num_cpus": 2, **context},
                       "benchmarks": entries})


NCCL_HEAD = """# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  12345 on      node1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  12345 on      node1 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
"""
NCCL_COLUMNS = """#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""
