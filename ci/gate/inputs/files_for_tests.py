"""Record lines (docs/record_format.md) that the gate makes itself, for its calibration and its tests; and files of each format."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


Line = dict[str, Any]


def stats_of(samples: Sequence[float]) -> Line:
    ordered = sorted(samples)
    last = len(ordered) - 1

    def at(percent: float) -> float:
        place = last * percent / 100
        low = int(place)
        return ordered[low] + (ordered[min(low + 1, last)] - ordered[low]) * (place - low)
    return {"count": len(ordered), "median": statistics.median(ordered), "mean": statistics.fmean(ordered), "min": ordered[0],
            "max": ordered[-1], "p5": at(5), "p95": at(95), "p99": at(99), "ci_low": None, "ci_high": None}


def kernel_line(run: str, kernel: str, bound: str | None, samples_us: Sequence[float], iterations: int, work_bytes: float = 0,
                flops: float = 0, shape: str = "fixed") -> Line:
    """A kernel's line, on one thread, unchecked."""
    median = statistics.median(samples_us)
    return {"record": "kernel", "run": run, "kernel": kernel, "shape": shape, "dtype": "f64", "device": "cpu", "threads": 1,
            "cores": [], "cache": "warm", "timing": "host", "implementation": None, "basis": "measured", "status": "ok",
            "checked": False, "error": None, "flops": flops, "bytes": work_bytes, "operands": [], "iterations": iterations,
            "time_us": statistics.fmean(samples_us), "samples_us": list(samples_us), "stats": stats_of(samples_us),
            "gbps": work_bytes / median / 1e3, "gflops": flops / median / 1e3, "bound": bound, "ceiling_us": None, "share": None}


def all_reduce_line(run: str, samples_us: Sequence[float], iterations: int, num_bytes: int) -> Line:
    """A row of two ranks, f32, unchecked; each sends half of its part to the other, twice."""
    gbps = num_bytes / statistics.median(samples_us) / 1e3
    return {"record": "row", "run": run, "collective": "all_reduce", "algorithm": "two_shot", "executor": "direct",
            "transport": "local", "ranks": 2, "bytes": num_bytes, "count": num_bytes // 4, "dtype": "float", "op": "sum", "root": -1,
            "in_place": False, "basis": "measured", "status": "ok", "error": None, "wrong": None, "iterations": iterations,
            "time_us": statistics.fmean(samples_us), "algbw_gbps": gbps, "busbw_gbps": gbps, "samples_us": list(samples_us),
            "stats": stats_of(samples_us), "plan": None}


def text_of(lines: Sequence[Line]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


# Files of each format, as their programs write them, with numbers that a test chooses.

def run_line(run: str, revision: str = "a" * 40, fingerprint: str = "m1", started: str = "2026-01-01T00:00:00Z",
             program: str = "kernels_bench", basis: str = "measured") -> Line:
    return {"record": "run", "version": 1, "run": run, "program": program, "command": [program], "started": started,
            "git": {"revision": revision, "dirty": False}, "build": {"compiler": None, "flags": None, "type": None},
            "machine": {"fingerprint": fingerprint, "cpu": None, "cores": 2, "memory_bytes": None, "kernel": None, "caches": None,
                        "mhz": None, "gpus": [], "hosts": 1},
            "libraries": {}, "ranks": 1, "transport": "local", "rank_kind": "threads", "oversubscribed": False, "seed": None,
            "link": None, "basis": basis}


def write_kernels(path: Path, run: str, cases: Mapping[str, Sequence[float]], bound: str | None = "compute", num_bytes: float = 8,
                  **run_fields: Any) -> Path:
    """A run of kernels_bench: samples in us by kernel."""
    lines = [kernel_line(run, kernel, bound, samples, len(samples), num_bytes) for kernel, samples in cases.items()]
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
