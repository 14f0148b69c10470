"""Lines of docs/record_format.md that the gate makes itself: of its calibration, and of its tests."""
import json
import statistics
from collections.abc import Sequence
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
    """On one thread, unchecked."""
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
