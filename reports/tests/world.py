"""Records of a made-up world in which time = alpha * steps + beta * bytes holds exactly, or with stated noise."""
import json
import random
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Any, Callable, Iterable, Optional

import numpy as np

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8 << k for k in range(0, 24)]  # 8 B to 64 MiB


def _lg(ranks: int) -> int:
    return ceil(log2(ranks)) if ranks > 1 else 0


# Steps, and bytes of the busiest rank for a byte of the message, by ranks.
ALGORITHMS: dict[str, Callable[[int], tuple[int, float]]] = {
    "ring": lambda p: (2 * (p - 1), 2 * (p - 1) / p),
    "double_tree": lambda p: (2 * _lg(p), 2.0),
    "tree": lambda p: (2 * _lg(p), 3.0),
    "tree:radix=4": lambda p: (2 * ceil(log2(p) / 2), 5.0),
    "recursive_doubling": lambda p: (_lg(p), float(_lg(p))),
    "halving_doubling": lambda p: (2 * _lg(p), 2 * (p - 1) / p),
    "bruck": lambda p: (_lg(p), float(p - 1)),
    "one_shot": lambda p: (1, float(p - 1)),
    "two_shot": lambda p: (2, 2 * (p - 1) / p),
    "hierarchical:group=4": lambda p: (2 * _lg(p) + 2, 2.2),
    "ring:lanes=4": lambda p: (2 * (p - 1), 2 * (p - 1) / p),
    "grid_ring": lambda p: (4 * (_lg(p) - 1) or 2, 2.1),
    "pairwise": lambda p: (p - 1, (p - 1) / p),
    "shift": lambda p: (1, 1.0),
}


@dataclass
class World:
    """alpha in microseconds per message, beta in microseconds a byte; noise is the sigma of a log-normal factor."""

    alpha: float = 5.0
    beta: float = 1e-3
    noise: float = 0.01
    ranks: int = 8
    samples: int = 20
    seed: int = 1
    run_name: str = "run-1"
    run_fields: dict[str, Any] = field(default_factory=dict)

    def time_us(self, algorithm: str, size: int) -> float:
        steps, wire = ALGORITHMS[algorithm](self.ranks)
        return self.alpha * steps + self.beta * wire * size

    def run(self) -> dict[str, Any]:
        record = {
            "record": "run", "version": 1, "run": self.run_name, "program": "all_reduce_perf",
            "command": ["all_reduce_perf", "-b", "8", "-e", "64M", "-f", "2"], "started": "2026-03-01T12:00:00Z",
            "git": {"revision": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
            "build": {"compiler": "g++ 12.2.0", "flags": "-O3 -march=native", "type": "Release"},
            "machine": {"fingerprint": "a1b2c3d4", "cpu": "Example CPU 2.6 GHz", "cores": 16,
                        "memory_bytes": 64 << 30, "kernel": "Linux 6.1",
                        "caches": {"l1d_bytes": 32768, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20}, "mhz": 2600.0,
                        "gpus": [], "hosts": 1},
            "libraries": {"mpi": "Open MPI 4.1.4"}, "ranks": self.ranks, "transport": "local",
            "rank_kind": "threads", "oversubscribed": False, "seed": 1, "link": None, "basis": "measured",
        }
        record.update(self.run_fields)
        return record

    def row(self, algorithm: str, size: int, collective: str = "all_reduce", **fields: Any) -> dict[str, Any]:
        run = self.run()
        steps, wire = ALGORITHMS[algorithm](self.ranks)
        # The same numbers for the same row, whatever was made before it.
        rng = random.Random(f"{self.seed} {algorithm} {size} {collective} {self.ranks}")
        exact = self.time_us(algorithm, size)
        samples = [exact * rng.lognormvariate(0, self.noise) for _ in range(self.samples)]
        mean = float(np.mean(samples))
        factor = {"all_reduce": 2 * (self.ranks - 1) / self.ranks}.get(collective, 1.0)
        record = {
            "record": "row", "run": self.run_name, "collective": collective, "algorithm": algorithm,
            "executor": "direct", "transport": run["transport"], "ranks": self.ranks, "bytes": size,
            "count": size // 4, "dtype": "float", "op": "sum" if "reduce" in collective else "none",
            "root": -1, "in_place": False, "basis": run["basis"], "status": "ok", "error": None, "wrong": 0,
            "iterations": len(samples), "time_us": mean, "algbw_gbps": size / mean / 1e3,
            "busbw_gbps": factor * size / mean / 1e3, "samples_us": samples, "stats": stats_of(samples),
            "plan": {"steps": steps, "wire_bytes_max": int(wire * size),
                     "wire_bytes_total": int(wire * size) * self.ranks, "predicted_us": None},
        }
        record.update(fields)
        return record

    def sweep(self, algorithms: Iterable[str], sizes: Iterable[int] = SIZES, collective: str = "all_reduce",
              **fields: Any) -> list[dict[str, Any]]:
        return [self.row(name, size, collective, **fields) for size in sizes for name in algorithms]

    def send_recv(self, sizes: Iterable[int] = SIZES) -> list[dict[str, Any]]:
        return self.sweep(["shift"], sizes, "send_recv")


def stats_of(samples: list[float]) -> dict[str, Any]:
    p5, median, p95, p99, low, high = np.percentile(samples, [5, 50, 95, 99, 40, 60])
    return {"count": len(samples), "median": float(median), "mean": float(np.mean(samples)), "min": min(samples),
            "max": max(samples), "p5": float(p5), "p95": float(p95), "p99": float(p99), "ci_low": float(low),
            "ci_high": float(high)}


def failed(row: dict[str, Any], error: str = "rank 3 was lost") -> dict[str, Any]:
    nothing = {"time_us": None, "algbw_gbps": None, "busbw_gbps": None, "samples_us": [], "stats": None}
    return {**row, **nothing, "status": "failed", "error": error, "wrong": None, "iterations": 0}


def wrong(row: dict[str, Any], elements: int = 17) -> dict[str, Any]:
    return {**row, "status": "wrong", "wrong": elements}


def write(path, records: Iterable[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def known_crossover(world: World, first: str, second: str) -> Optional[float]:
    """The size at which the model's times of the two are equal."""
    (steps_a, wire_a), (steps_b, wire_b) = ALGORITHMS[first](world.ranks), ALGORITHMS[second](world.ranks)
    return None if wire_a == wire_b else world.alpha * (steps_b - steps_a) / (world.beta * (wire_a - wire_b))
