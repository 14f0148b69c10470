"""Kernel and ceiling records of a made-up machine, in which each kernel reaches a known share of its limit."""
import random
from dataclasses import dataclass, field
from typing import Any, Iterable, Optional

from reports.tests.world import World, stats_of

Record = dict[str, Any]
TOKENS, HIDDEN, VOCABULARY = 1024, 768, 50257
WIDTH = {"f32": 4, "bf16": 2, "f16": 2, "e4m3": 1, "e5m2": 1}


@dataclass(frozen=True)
class Work:
    """A kernel's declared bytes and FLOPs per element of its activations, and the share of its limit that it reaches."""

    kernel: str
    flops: float
    bytes: float  # at 4 bytes per element; half in bf16
    share: float
    stream: str = "copy"
    elements: int = TOKENS * HIDDEN


WORKS = [
    Work("gemm_bias_gelu_fwd", 2 * 4 * HIDDEN, 24, 0.72), Work("gemm_dgrad", 2 * 4 * HIDDEN, 24, 0.64),
    Work("gemm_wgrad", 2 * 4 * HIDDEN, 24, 0.58), Work("attention_fwd", 2 * TOKENS, 16, 0.47),
    Work("attention_bwd", 5 * TOKENS, 32, 0.39), Work("layernorm_fwd", 8, 8, 0.93),
    Work("layernorm_bwd", 14, 12, 0.88), Work("rmsnorm_fwd", 4, 8, 0.95),
    Work("residual_rmsnorm_fwd", 5, 16, 0.91), Work("softmax_fwd", 5, 8, 0.81), Work("softmax_bwd", 4, 12, 0.41),
    Work("cross_entropy", 6, 8, 0.84, elements=64 * VOCABULARY), Work("gelu_fwd", 12, 8, 0.86),
    Work("gelu_bwd", 20, 12, 0.79), Work("residual_add", 1, 12, 0.97, "triad"), Work("dropout", 1, 8, 0.9),
    Work("embedding_fwd", 1, 8, 0.76), Work("embedding_bwd", 1, 12, 0.55), Work("adamw", 15, 28, 0.98, "triad"),
    Work("momentum", 4, 20, 0.96, "triad"), Work("sum_of_squares", 2, 4, 0.99, "read"),
    Work("finite_check", 0, 4, 0.97, "read"), Work("cast", 0, 6, 0.96), Work("quantize_int8", 3, 5, 0.83),
    Work("dequantize_int8", 1, 5, 0.87), Work("pack_bucket", 0, 8, 0.9),
]
TINY = Work("clip_factor", 3, 8, 0.7, elements=8)

# Ceilings of one thread: GB/s by level and stream, GFLOP/s by dtype and loop.
BANDWIDTH = {"l1": {"copy": 210, "read": 330, "triad": 260}, "l2": {"copy": 74, "read": 96, "triad": 82},
             "l3": {"copy": 21, "read": 28, "triad": 24}, "memory": {"copy": 11.2, "read": 13.1, "triad": 11.9}}
PEAK = {"f32": {"fma": 168, "gemm": 151}, "bf16": {"fma": 2900, "gemm": 1450}}
LAUNCH_US = 1.6


@dataclass
class KernelWorld:
    works: Iterable[Work] = tuple(WORKS)
    dtypes: Iterable[str] = ("f32", "bf16")
    sizes: Iterable[float] = (1, 1 / 16)  # shares of the work's elements; the second fits a cache
    threads: Iterable[int] = (1, 2)
    caches: Iterable[str] = ("warm", "cold")
    timings: Iterable[str] = ("host",)
    device: str = "cpu"
    speed: float = 1.0
    noise: float = 0.02
    samples: int = 30
    run_name: str = "kernels-1"
    run_fields: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Record:
        fields = {"program": "kernels_bench", "command": ["kernels_bench", "--json", "kernels.jsonl"], "libraries":
                  {"oneDNN": "2.6.0"}, **self.run_fields}
        return World(run_name=self.run_name, ranks=1, run_fields=fields).run()

    def ceilings(self, threads: Optional[Iterable[int]] = None) -> list[Record]:
        found = []
        for n in threads or self.threads:
            found += [self._ceiling(n, name, level, None, value * self._scale(n, level), "gbps")
                      for level, streams in BANDWIDTH.items() for name, value in streams.items()]
            found += [self._ceiling(n, name, None, dtype, value * n * self.speed, "gflops")
                      for dtype, loops in PEAK.items() for name, value in loops.items()]
            found.append(self._ceiling(n, "launch", None, None, LAUNCH_US, "us"))
        return found

    def _scale(self, threads: int, level: str) -> float:
        """Rate of several threads: memory is shared, so that two threads get less than twice the rate of one."""
        return self.speed * (threads ** 0.6 if level == "memory" else threads)

    def _ceiling(self, threads: int, name: str, level, dtype, value: float, unit: str) -> Record:
        rng = random.Random(f"{threads} {name} {level} {dtype}")
        samples = [value * (1 - abs(rng.gauss(0, 0.01))) for _ in range(10)]
        return {"record": "ceiling", "run": self.run_name, "device": self.device, "threads": threads, "name": name,
                "level": level, "dtype": dtype, "value": value, "unit": unit, "samples": samples,
                "stats": stats_of(samples)}

    def limit(self, work: Work, dtype: str, size: float, threads: int, cache: str) -> tuple[str, float]:
        """The binding ceiling and its time in microseconds."""
        flops, moved = self.cost(work, dtype, size)
        near = cache == "warm" and moved < 2e6 * threads
        level = "memory" if not near else "l1" if moved < 48e3 * threads else "l2"
        bandwidth = BANDWIDTH[level][work.stream] * self._scale(threads, level)
        peak = max(PEAK[dtype if dtype in PEAK else "f32"].values()) * threads * self.speed
        limits = {"memory": moved / bandwidth / 1e3, "compute": flops / peak / 1e3, "launch": LAUNCH_US}
        bound = max(limits, key=lambda name: limits[name])
        return bound, limits[bound]

    @staticmethod
    def cost(work: Work, dtype: str, size: float) -> tuple[float, float]:
        elements = max(int(work.elements * size), 1)
        return work.flops * elements, work.bytes * elements * WIDTH[dtype] / 4

    def kernel(self, work: Work, dtype: str = "f32", size: float = 1, threads: int = 1, cache: str = "cold",
               timing: str = "host", **fields: Any) -> Record:
        bound, ceiling_us = self.limit(work, dtype, size, threads, cache)
        rng = random.Random(f"{work.kernel} {dtype} {size} {threads} {cache} {timing}")
        # Caches and bf16 are harder to keep busy.
        share = work.share * (0.85 if cache == "warm" and bound == "memory" else 1) * (0.95 if dtype != "f32" else 1)
        samples = [ceiling_us / share * rng.lognormvariate(0, self.noise) for _ in range(self.samples)]
        stats = stats_of(samples)
        flops, moved = self.cost(work, dtype, size)
        rows = max(int(work.elements * size) // HIDDEN, 1)
        record = {
            "record": "kernel", "run": self.run_name, "kernel": work.kernel, "shape": f"N{rows}_C{HIDDEN}",
            "dtype": dtype, "device": self.device, "threads": threads, "cores": list(range(threads)), "cache": cache,
            "timing": timing, "implementation": "onednn" if work.kernel.startswith("gemm") else None,
            "basis": self.run()["basis"], "status": "ok", "checked": True, "error": None, "flops": flops,
            "bytes": moved, "operands": [{"name": "x", "access": "read", "dtype": dtype, "bytes": int(moved)}],
            "iterations": len(samples), "time_us": stats["mean"], "samples_us": samples, "stats": stats,
            "gbps": moved / stats["median"] / 1e3, "gflops": flops / stats["median"] / 1e3,
            "bound": bound, "ceiling_us": ceiling_us, "share": ceiling_us / stats["median"],
        }
        record.update(fields)
        return record

    def kernels(self) -> list[Record]:
        return [self.kernel(work, dtype, size, threads, cache, timing) for work in self.works for dtype in self.dtypes
                for size in self.sizes for threads in self.threads for cache in self.caches for timing in self.timings]

    def records(self) -> list[Record]:
        return [self.run(), *self.ceilings(), *self.kernels()]


def gpu_world(**fields: Any) -> KernelWorld:
    """The same kernels on a made-up GPU, timed by events and as a graph."""
    machine = {**World().run()["machine"], "gpus": ["Example GPU 80GB"]}
    return KernelWorld(**{"device": "cuda", "threads": (1,), "timings": ("events", "graph"), "speed": 200.0,
                          "run_name": "kernels-gpu", "run_fields": {"machine": machine}, **fields})


def without_ceiling(record: Record) -> Record:
    return {**record, "bound": None, "ceiling_us": None, "share": None}


def kernel_failed(record: Record, error: str = "cudaErrorLaunchFailure") -> Record:
    nothing = {"time_us": None, "samples_us": [], "stats": None, "gbps": None, "gflops": None, "iterations": 0}
    return {**without_ceiling(record), **nothing, "status": "failed", "error": error}


def kernel_wrong(record: Record, error: str = "element 5 of y: 1.25, must be 1.5") -> Record:
    return {**record, "status": "wrong", "error": error}


def kernel_count(run: str, **fields: Any) -> Record:
    """A made-up kernel of 65,536 elements, which issues 90 machine instructions for each."""
    return {"record": "kernel_count", "run": run, "kernel": "scale", "shape": "N65536", "dtype": "f32", "choice": "", "elems": 65536,
            "bytes": 524288, "flops": 65536, "entry": "scale_kernel<4>", "launches": 1, "grid": [64, 1, 1], "block": [256, 1, 1],
            "cluster": [1, 1, 1], "static_shared_bytes": 0, "dynamic_shared_bytes": 0, "registers": 16, "spill_bytes": 0, "resident_blocks": 8,
            "resident_threads": 2048, "instructions": {"integer": 655360, "memory": 32768}, "warp_instructions": 21504, "global_requests": 1024,
            "global_sectors": 16384, "global_bytes": 524288, "shared_requests": 0, "shared_wavefronts": 0, "shared_wavefronts_least": 0,
            "by_atomics": False, "multiply_adds": 0, "sass": {"instructions": 65536 * 90.0, "special": 65536.0}, **fields}
