"""The records that a whole run of ci/gpu_check.sh leaves, made up: numbers such as an H200 might give, on a machine whose
name says that they are not real. `python3 -m reports.tests.gpu_check_world OUT` writes them, to look at the pages."""
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable

from reports.tests.kernel_world import KernelWorld, Record, Work, gpu_world
from reports.tests.world import layout, stats_of, TrainingWorld, World, write

GPU = "MADE-UP H200"
COPY_GBPS, LAUNCH_US = 4000.0, 2.1
GEMM_GFLOPS = {"f32": 48e3, "bf16": 760e3, "f16": 765e3}
SIZES = [8 << k for k in range(26)]  # 8 B to 256 MiB
MACHINE = {**World().run()["machine"], "cpu": "Made-up CPU", "fingerprint": "madeup00", "gpus": [GPU]}
DEVICE = {"pci_id": "0000:1b:00.0", "power_limit_watts": 700.0, "mig": False, "mps": False}
LIBRARIES = {"cuda": "13.0", "cuda_driver": "13.0", "nvidia_driver": "580.82.07"}
STATE = {"pci_id": "0000:1b:00.0", "sm_mhz": 1980.0, "memory_mhz": 3201.0, "temperature_c": 46.0, "power_watts": 318.4,
         "clock_limits": []}
CLOCKS = {"before": [STATE], "repeats": 1, "most_repeats": 2, "most_change": 0.03, "disturbance": None}


def gpu_of(ranks: int) -> dict[str, Any]:
    label = "shared GPU" if ranks > 1 else "a GPU a rank"
    return {"gpus": 1, "ranks_per_gpu": ranks, "label": label, "clock_mhz": 1980.0, "devices": [DEVICE]}


def run_fields(ranks: int, transport: str, **fields: Any) -> dict[str, Any]:
    return {"machine": MACHINE, "transport": transport, "gpu": gpu_of(ranks), "libraries": LIBRARIES, **fields}


@dataclass
class SharedGpu(World):
    """Time of ranks that share one memory: 2 p n bytes at a share of a copy's speed, twice as fast from the second-level cache."""

    share: float = 0.9
    start_us: float = 3.0

    def time_us(self, algorithm: str, size: int) -> float:
        factor, steps = {"two_shot": (1.0, 1.6), "one_shot": ((self.ranks + 1) / 2, 1.0), "library": (1.35, 3.2),
                         "ring": (1.6, 1.2 * self.ranks)}[algorithm]
        speed = COPY_GBPS * self.share * (2 if 2 * self.ranks * size < 40e6 else 1)
        return self.start_us * steps + factor * 2 * self.ranks * size / speed / 1e3

    def row(self, algorithm: str, size: int, collective: str = "all_reduce", **fields: Any) -> dict[str, Any]:
        known = super().row("two_shot", size, collective)
        own = {"algorithm": algorithm, "queued_us": 1.9, "graph_iterations": 0, "gpu_states": [STATE],
               "gpu_clocks": CLOCKS}
        return {**known, **own, **_times(self, algorithm, size), **fields}


def _times(world: World, algorithm: str, size: int) -> dict[str, Any]:
    """Times of an algorithm for which World has no number of steps."""
    samples = [world.time_us(algorithm, size) * (1 + 0.01 * ((k * 7) % 5 - 2)) for k in range(world.samples)]
    mean = sum(samples) / len(samples)
    return {"samples_us": samples, "stats": stats_of(samples), "time_us": mean, "algbw_gbps": size / mean / 1e3,
            "busbw_gbps": 2 * (world.ranks - 1) / world.ranks * size / mean / 1e3, "plan": None}


def all_reduces() -> Iterable[Record]:
    for ranks in (2, 4, 8):
        ours = SharedGpu(ranks=ranks, run_name=f"cuda-{ranks}", run_fields=run_fields(ranks, "cuda"))
        yield ours.run()
        yield from ours.sweep(["two_shot", "one_shot", "ring"], SIZES, executor="cuda")
        nccl = run_fields(ranks, "nccl", libraries={**LIBRARIES, "nccl": "2.30.3"})
        theirs = SharedGpu(ranks=ranks, run_name=f"nccl-{ranks}", run_fields=nccl)
        yield theirs.run()
        yield from theirs.sweep(["library"], SIZES, executor="library")


@dataclass
class GpuKernels(KernelWorld):
    """Ceilings as kernels_bench measures them on a GPU: one copy, products, a launch."""

    def ceilings(self, threads: Iterable[int] | None = None) -> list[Record]:
        speed = self.speed
        self.speed = 1.0
        found = [self._ceiling(1, "copy", "memory", None, COPY_GBPS, "gbps"),
                 *(self._ceiling(1, "gemm", None, dtype, value, "gflops") for dtype, value in GEMM_GFLOPS.items()),
                 self._ceiling(1, "launch", None, None, LAUNCH_US, "us")]
        self.speed = speed
        return found

    def limit(self, work: Work, dtype: str, size: float, threads: int, cache: str) -> tuple[str, float]:
        flops, moved = self.cost(work, dtype, size)
        limits = {"memory": moved / COPY_GBPS / 1e3, "compute": flops / GEMM_GFLOPS[dtype] / 1e3, "launch": LAUNCH_US}
        bound = max(limits, key=lambda name: limits[name])
        return bound, limits[bound]


def kernels() -> list[Record]:
    fields = run_fields(1, "local", program="kernels_bench", command=["kernels_bench", "--device", "cuda"])
    like = gpu_world()
    world = GpuKernels(device="cuda", threads=(1,), timings=like.timings, dtypes=("bf16",), caches=("cold",), sizes=(8,),
                       run_name="kernels", run_fields=fields)
    return [{**one, "gpu_states": [STATE], "gpu_clocks": CLOCKS} if one["record"] == "kernel" else one for one in world.records()]


def training(name: str, batch: int, ranks: int, text: dict[str, Any], tokens_per_s: float) -> list[Record]:
    world = TrainingWorld(name, run_fields={**run_fields(ranks, "cuda"), "ranks": ranks})
    tokens = 1024 * batch
    model = {"name": "custom", "parameters": 124475904,
             "numbers": {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 50304, "length": 1024}}
    ms = 1e3 * tokens / tokens_per_s
    steps = [{"step": n, "loss": 10.9 - 2.9 * n / (n + 6), "norm": 1.0, "rate": 3e-4, "skipped": False,
              "ms": ms * (9 if n == 1 else 1), "tokens_per_s": tokens_per_s / (9 if n == 1 else 1),
              "mfu": 8.2e8 * tokens_per_s / (GEMM_GFLOPS["bf16"] * 1e9) / (9 if n == 1 else 1)} for n in range(1, 31)]
    energy = {"source": "nvml", "devices": 1, "steps": 29, "seconds": 29 * ms / 1e3, "joules_per_step": 0.61 * ms,
              "watts": 610.0, "tokens_per_joule": tokens / (0.61 * ms)}
    parts = {"forward": 0.31 * ms, "backward": 0.62 * ms, "optimizer": 0.05 * ms, "exposed_reduce": 0.02 * ms}
    timeline = {"unit": "ms", "ranks": [[["compute", "F", 0, 0, 0, 0.0, 0.31 * ms],
                                         ["compute", "B", 0, 0, 0, 0.31 * ms, 0.93 * ms]]] * ranks}
    gib = float(1 << 30)
    memory = {"weights": 0.7 * gib, "gradients": 0.5 * gib, "optimizer": 0.9 * gib, "activations": 0.55 * batch * gib,
              "buffers": 0.1 * gib}
    return [world.run(), {**world.training(), "steps": steps} | dict(
        model=model, layout=text, dtype="bf16", ranks=ranks, tokens_per_step=tokens, energy=energy,
        parts_ms=parts, timeline=timeline, timed_step=30, data="synthetic",
        peak_flops=GEMM_GFLOPS["bf16"] * 1e9, memory_bytes={**memory, "total": sum(memory.values())},
        validation={"loss": 8.2, "unigram": 3.5, "bigram": 2.8, "curve": [[30, 8.2]]})]


def trainings() -> dict[str, list[Record]]:
    graph = training("train-graph", 32, 1, layout(), 399e3)
    graph[1]["graph"] = True
    return {"train_graph": graph, "train_32": training("train-32", 32, 1, layout(), 395e3),
            "train_64": training("train-64", 64, 1, layout(), 402e3),
            "train_dp2": training("train-dp2", 32, 2, layout(dp=2), 301e3),
            "train_tp2": training("train-tp2", 32, 2, layout(tp=2), 214e3)}


def write_all(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    files = {"all_reduce": list(all_reduces()), "kernels": kernels(), **trainings()}
    return [write(folder / f"{name}.jsonl", records) for name, records in files.items()]


if __name__ == "__main__":
    print("\n".join(write_all(Path(sys.argv[1]))))
