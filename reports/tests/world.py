"""Records of made-up worlds, whose numbers the tests know: collectives, layers, training, the gate."""
import json
import random
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Any, Callable, Iterable, Optional

import numpy as np

from reports import lines
from reports.analysis.training.layers import EXPERTS_PARTS

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8 << k for k in range(0, 24)]  # 8 B to 64 MiB


def _lg(ranks: int) -> int:
    return ceil(log2(ranks)) if ranks > 1 else 0


# ---- Collectives: time = alpha * steps + beta * bytes holds exactly, or with stated noise

# Steps, and bytes of the busiest rank per byte of the message, by number of ranks.
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
        # The same random numbers for the same row, whichever rows were made before it.
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
    low, high = map(float, np.percentile(samples, [40, 60]))
    return {**lines.stats_of(samples), "ci_low": low, "ci_high": high}


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


# Records of steps, and of parts of steps

GROUPS = ("choices", "sizes", "counts", "figures", "series")


def step_line(part: str, run_name: str, program: str, basis: str, ranks: int, fields: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A record; `fields` belong to it, or to a group that has their name. Maps in groups are written as "name.key"."""
    record = {"record": "step", "run": run_name, "program": program, "basis": basis, "part": part, "ranks": ranks, "threads": 1,
              "dtype": "f32", "status": "ok", "error": None, **{group: _flat(given.pop(group, {})) for group in GROUPS}, **given}
    for name, value in fields.items():
        group = next((record[group] for group in GROUPS if name in record[group]), record)
        group[name] = value
    return record


def _flat(group: dict[str, Any]) -> dict[str, Any]:
    return {name if key is None else f"{name}.{key}": line for name, value in group.items()
            for key, line in (value.items() if isinstance(value, dict) else ((None, value),))}


# Records of tensor-parallel layers in a made-up world: kernels of 4 ms, communication that is half hidden in 2 tiles.

LAYER_SIZES = {"batch": 4.0, "length": 128.0, "hidden": 256.0, "heads": 8.0, "vocabulary": 8191.0}
UNIT = 4 * 128 * 256 * 4  # E in f32, bytes


def _time(direction: str, mode: str, samples: list[float], kernels: list[float], communication: float) -> dict[str, Any]:
    has_both = mode in ("serial", "async")
    exposed = [a - b for a, b in zip(samples, kernels)] if has_both else []
    whole = sorted(samples)[(len(samples) - 1) // 2]
    products = 0.0 if mode == "communication" else (whole - communication) * 0.75
    return {"direction": direction, "mode": mode, "samples_us": samples, "stats": stats_of(samples),
            "parts_us": {"products": products, "other_kernels": products / 3, "communication": communication},
            "exposed_us": exposed, "exposed_stats": stats_of(exposed) if exposed else None}


def _times(kernels: list[float], serial: float, overlapped: float) -> list[dict[str, Any]]:
    """Both directions in all modes; communication takes 1 ms alone, and adds `serial` or `overlapped` to the kernels."""
    added = {"kernels": 0.0, "communication": None, "serial": serial, "async": overlapped}
    return [_time(direction, mode, [900.0, 1000.0, 1100.0] if more is None else [us + more for us in kernels], kernels,
                  1000.0 if more is None else more)
            for direction in ("forward", "backward") for mode, more in added.items()]


@dataclass
class LayerWorld:
    run_name: str = "layers-1"
    basis: str = "measured"
    run_fields: dict[str, Any] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        fields = {"program": "tp_linear_bench", "command": ["tp_linear_bench"], "libraries": {}, "basis": self.basis}
        return World(ranks=2, run_name=self.run_name, run_fields={**fields, **self.run_fields}).run()

    def layer(self, name: str = "mlp", sequence_parallel: bool = False, tiles: int = 1, serial: float = 1000.0,
              overlapped: float = 1000.0, units: float = 4.0, **fields: Any) -> dict[str, Any]:
        """Kernels take 2000 us each way; communication adds `serial` or `overlapped` to them."""
        return step_line(
            "layer", self.run_name, "tp_linear_bench", self.basis, 2, fields, times=_times([1990.0, 2000.0, 2010.0], serial, overlapped),
            choices={"layer": name, "grid": "none", "sequence_parallel": sequence_parallel, "tiles": tiles, "algorithm": "ring"},
            sizes=dict(LAYER_SIZES), counts={"sent_bytes": units * UNIT / 2, "formula_bytes": units * UNIT / 2, "wrong": 0},
            figures={"forward_sent_bytes": units * UNIT / 4, "memory_bytes": 8.0 * UNIT, "unlike": 0}, checked_passes=8)


# Records of attention over sequences that ranks share, in a made-up world: times grow with the square of the length.

@dataclass
class ContextWorld:
    run_name: str = "context-1"
    basis: str = "measured"
    run_fields: dict[str, Any] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        fields = {"program": "seqpar_bench", "command": ["seqpar_bench"], "libraries": {}, "basis": self.basis}
        return World(ranks=4, run_name=self.run_name, run_fields={**fields, **self.run_fields}).run()

    def context(self, way: str = "ring", length: int = 1024, exposed: float = 500.0, load: float = 1.0,
                **fields: Any) -> dict[str, Any]:
        """Kernels take 2 ms each way at 1,024 tokens; communication takes 1 ms alone and adds `exposed` us."""
        scale = (length / 1024) ** 2
        others = (4 - load) / 3
        sent = {"forward": 1000.0 * length, "backward": 2000.0 * length}
        simulated = {"simulated_exposed_us": fields.pop("simulated_exposed_us")} if "simulated_exposed_us" in fields else {}
        return step_line(
            "context", self.run_name, "seqpar_bench", self.basis, 4, fields,
            times=_times([1990.0 * scale, 2000.0 * scale, 2010.0 * scale], 1000.0, exposed), choices={"way": way, "causal": True},
            sizes={"batch": 1.0, "length": float(length), "heads": 8.0, "head_columns": 64.0},
            counts={"sent_bytes": sent, "pairs": 0.125 * load},
            figures={"formula_bytes": sent, "peak_bytes": 4096 * length, "difference": 1e-6, "allowed_difference": 1e-5, **simulated},
            series={"pairs_of_rank": [0.125 * others] * 3 + [0.125 * load], "kernels_us": [4000.0 * others] * 3 + [4000.0 * load]},
            checked_passes=8)


# Records of training runs and of scaling in a made-up world: two ranks, pieces of round milliseconds.

MODEL = {"name": "nano", "parameters": 842496,
         "numbers": {"layers": 4, "hidden": 128, "heads": 4, "vocabulary": 256, "length": 128}}


def layout(dp: int = 1, tp: int = 1, pp: int = 1) -> dict[str, Any]:
    numbers = {"dp": dp, "tp": tp, "pp": pp}
    text = ",".join(f"{name}={value}" for name, value in numbers.items() if value > 1) or "dp=1"
    return {"text": text, "numbers": {**numbers, "zero": 0, "microbatches": 1}}


def timeline(ranks: int, forward: float, backward: float, reduce: float) -> dict[str, Any]:
    line = [["compute", "F", 0, 0, 0, 0.0, forward], ["compute", "B", 0, 0, 0, forward, forward + backward],
           ["reduce", "REDUCE_GRAD", 0, -1, 0, forward + backward, forward + backward + reduce]]
    return {"unit": "ms", "ranks": [line] * ranks}


@dataclass
class TrainingWorld:
    run_name: str = "training-1"
    basis: str = "measured"
    run_fields: dict[str, Any] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        fields = {"program": "mini_train", "command": ["mini_train"], "libraries": {}, "basis": self.basis}
        return World(ranks=2, run_name=self.run_name, run_fields={**fields, **self.run_fields}).run()

    def training(self, steps: int = 10, **fields: Any) -> dict[str, Any]:
        curve = [{"step": n, "loss": 1.5 + 4 / n, "norm": 1.0, "rate": 1e-3, "skipped": False,
                  "ms": 1000.0 if n <= 3 else 50.0, "tokens_per_s": 2.048e3 if n <= 3 else 40960.0,
                  "mfu": 0.02 if n <= 3 else 0.4} for n in range(1, steps + 1)]
        record = {
            "record": "training", "run": self.run_name, "program": "mini_train", "basis": self.basis, "model": MODEL,
            "layout": layout(dp=2), "schedule": "1f1b", "dtype": "f32", "ranks": 2, "threads": 1, "data": "GPL-3",
            "tokens_per_step": 2048, "flop_convention": "6 N + 12 L H Q T", "peak_flops": 5e11, "steps": curve,
            "validation": {"loss": 1.9, "unigram": 3.5, "bigram": 2.78, "curve": [[5, 2.4], [steps, 1.9]]},
            "timed_step": steps, "timeline": timeline(2, 15.0, 30.0, 5.0),
            "parts_ms": {"forward": 15.0, "backward": 30.0, "exposed_reduce": 5.0, "bubble": 0.0},
            "memory_bytes": {"weights": 3 << 20, "gradients": 3 << 20, "optimizer": 6 << 20, "activations": 35 << 20,
                             "buffers": 0, "total": 47 << 20},
        }
        return {**record, **fields}

    def scaling(self, dp: int, mode: str = "weak", alone: float = 50.0, contended: float = 54.0,
                measured: float = 60.0, **fields: Any) -> dict[str, Any]:
        """Contention explains the additional time of the backward; the unexplained rest of the measured time is in the reduction."""
        def step(mode: str, forward: float, backward: float, reduce: float) -> dict[str, Any]:
            parts = {"forward": 1e3 * forward, "backward": 1e3 * backward, "exposed_reduce": 1e3 * reduce}
            whole = sum(parts.values())
            return {"direction": "step", "mode": mode, "samples_us": [whole], "stats": stats_of([whole]), "parts_us": parts,
                    "exposed_stats": None, "timeline": timeline(dp, forward, backward, reduce)}
        times = [step("isolated", 15.0, alone - 20, 5.0), step("contended", 15.0, contended - 20, 5.0),
                 step("measured", 15.0, contended - 20, 5.0 + measured - contended)]
        sequences = 8 * (dp if mode == "weak" else 1)
        slowdowns = [{"of": "B", "beside": "kernels of other ranks", "ranks": dp, "factor": 1.13, "samples": 40}] if dp > 1 else []
        efficiency = {"value": 50.0 / measured, "ideal_speedup": float(dp), "verdict": "loss", "losses": []}
        return step_line(
            "scaling", self.run_name, "scaling", self.basis, dp, fields, model=MODEL, layout=layout(dp=dp), oversubscribed=dp > 16,
            choices={"mode": mode}, sizes={"sequences_per_step": sequences, "tokens_per_step": 128 * sequences}, times=times,
            figures={"tokens_per_s": 128e3 * sequences / measured}, series={"rounds_ms": []}, slowdowns=slowdowns,
            **({"efficiency": efficiency} if self.basis == "simulated" else {}))


# Records of the gate in a made-up world: pairs with the requested centre and interval.

BASE, HEAD = "0123456789abcdef" * 2 + "01234567", "fedcba9876543210" * 2 + "fedcba98"


@dataclass
class GateWorld:
    run_name: str = "gate-1"
    threshold: float = 0.02
    notes: list[str] = field(default_factory=list)

    def run(self, **fields: Any) -> dict[str, Any]:
        gate = {"mode": "ab", "base": {"name": "main", "revision": BASE, "source": "0123456789ab"},
                "head": {"name": "my-branch", "revision": HEAD, "source": "fedcba987654"}, "threshold": self.threshold,
                "confidence": 0.9, "seconds": 31.5, "notes": self.notes}
        own = {"program": "gate.py", "command": ["ci/gate.py", "ab", "--base", "main"], "libraries": {"python": "3.11.2"},
               "build": {"compiler": None, "flags": None, "type": None}, "git": {"revision": HEAD, "dirty": None},
               "rank_kind": "processes", "seed": None, "gate": gate}
        return World(ranks=1, run_name=self.run_name, run_fields={**own, **fields}).run()

    def case(self, name: str, verdict: str = "same", ratio: Optional[float] = 1.0, half: float = 0.01,
             **fields: Any) -> dict[str, Any]:
        """A case of 12.5 us before, with pairs at the bounds and the centre of the ratio."""
        known = ratio is not None
        low, high = (ratio - half * ratio, ratio + half * ratio) if known else (None, None)
        record = {"record": "verdict", "run": self.run_name, "case": name, "channel": "time", "verdict": verdict, "unit": "us",
                  "base": 12.5 if known or verdict == "gone" else None, "head": 12.5 * ratio if known else None, "ratio": ratio,
                  "low": low, "high": high, "why": "12 pairs" if known else "", "pairs": 12 if known else 0,
                  "ratios": [low, ratio, high] if known else [], "seconds": 0.8 if known else 0.0}
        return {**record, **fields}

    def count(self, name: str, before: float, after: float, unit: str = "bytes") -> dict[str, Any]:
        ratio = after / before if before else None
        verdict = "slower" if after > before else "faster" if after < before else "same"
        return self.case(name, verdict, ratio, channel="exact", unit=unit, base=before, head=after, low=None, high=None,
                         ratios=[], pairs=0, why="", seconds=0.0)

    def history(self, name: str, values: list[float], ats: list[int], recent: bool = True, **fields: Any) -> dict[str, Any]:
        """Times with changes before the points `ats`, each between different levels."""
        points = [{"time": f"2026-03-{1 + i % 28:02d}T10:00:00Z", "revision": f"{i:040x}", "source": f"r{i}.jsonl", "value": value}
                  for i, value in enumerate(values)]
        changes = []
        for at in ats:
            ratio = values[at] / values[at - 1]
            changes.append({"at": at, "blame": f"{at - 1:012x}..{at:012x}", "before": values[at - 1], "after": values[at],
                            "worse": ratio > 1, "ratio": ratio, "low": 0.98 * ratio, "high": 1.02 * ratio, "p": 0.001,
                            "recent": recent and at == ats[-1]})
        record = {"record": "history", "run": self.run_name, "case": name, "channel": "stored", "unit": "us", "better": "lower",
                  "why": "", "points": points, "changes": changes}
        return {**record, **fields}


def sharding(stage: int, **fields: Any) -> dict[str, Any]:
    """A row of zero_bench with this stage of ZeRO on 2 ranks."""
    held = {"weights": 4e6 / (2 if stage == 3 else 1), "gradients": 4e6 / (2 if stage > 1 else 1),
            "optimizer": 8e6 / (2 if stage > 0 else 1)}
    sent = {"weights": 4e6, "gradients": 4e6, "over_replicas": 0.0}
    samples = [5000.0, 6000.0, 7000.0]
    step = {"direction": "step", "mode": "measured", "samples_us": samples, "stats": stats_of(samples), "parts_us": {"update": 900.0},
            "exposed_stats": None}
    return step_line(
        "sharding", "zero", "zero_bench", "measured", 2, fields, model=MODEL, layout=layout(dp=2), times=[step],
        choices={"zero_stage": stage, "shard_ranks": 2, "secondary_ranks": 0, "near_ranks": 0, "prefetch": True, "microbatches": 1,
                 "gradient_dtype": "f32", "optimizer": "adamw", "compression": "none", "weight_compression": "none", "offload": "none",
                 "update": "step_end"},
        counts={"padded_elems": 1e6, "held_bytes": held, "formula_bytes": held, "sent_bytes": sent, "formula_sent_bytes": sent},
        figures={"peak_bytes": {**held, "total": sum(held.values())},
                 "offloaded_bytes": dict.fromkeys(("optimizer", "gradients", "parameters", "activations"), 0.0)})


# ---- Records of mixtures of experts in a made-up world: half of the time is the experts'

def experts_run(run_name: str = "experts-1", basis: str = "measured", **run_fields: Any) -> dict[str, Any]:
    fields = {"program": "moe_bench", "command": ["moe_bench"], "libraries": {}, "basis": basis, **run_fields}
    return World(ranks=4, run_name=run_name, run_fields=fields).run()


def experts_line(run_name: str = "experts-1", basis: str = "measured", load_of: float = 1.0, us: float = 700.0,
                 **fields: Any) -> dict[str, Any]:
    """A record in which each direction takes `us`, half in the experts."""
    times = [{"direction": direction, "mode": mode, "samples_us": [us] * 7, "stats": stats_of([us] * 7), "exposed_stats": None,
              "parts_us": {part: us / 2 if part == "experts" else us / 12 for part in EXPERTS_PARTS}}
             for direction in ("forward", "backward") for mode in ("serial", "async")]
    return step_line(
        "experts", run_name, "moe_bench", basis, 4, fields, times=times,
        choices={"experts": 8, "top_k": 2, "capacity_factor": 0.0, "skew": load_of, "algorithm": "auto"},
        sizes={"tokens": 512.0, "hidden": 256.0, "ffn": 1024.0, "shared": 0.0},
        counts={"sent_bytes": 1e6, "formula_bytes": 1e6, "dropped": 0, "most_rows": 1400, "wrong": 0},
        figures={"load": load_of, "copies": 4096, "mean_rows": 1024.0, "experts_slowest_us": us * 0.6, "experts_mean_us": us * 0.5},
        checked_passes=10)
