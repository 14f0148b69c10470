"""Records of training runs and of scaling in a made-up world: two ranks, pieces of round milliseconds."""
from dataclasses import dataclass, field
from typing import Any

from reports.tests.world import World, stats_of

MODEL = {"name": "nano", "parameters": 842496,
         "numbers": {"layers": 4, "hidden": 128, "heads": 4, "vocabulary": 256, "length": 128}}


def layout(dp: int = 1, tp: int = 1, pp: int = 1) -> dict[str, Any]:
    numbers = {"dp": dp, "tp": tp, "pp": pp}
    text = ",".join(f"{name}={value}" for name, value in numbers.items() if value > 1) or "dp=1"
    return {"text": text, "numbers": {**numbers, "zero": 0, "microbatches": 1}}


def timeline(ranks: int, forward: float, backward: float, reduce: float) -> dict[str, Any]:
    one = [["compute", "F", 0, 0, 0, 0.0, forward], ["compute", "B", 0, 0, 0, forward, forward + backward],
           ["reduce", "REDUCE_GRAD", 0, -1, 0, forward + backward, forward + backward + reduce]]
    return {"unit": "ms", "ranks": [one] * ranks}


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
            "tokens_a_step": 2048, "flop_convention": "6 N + 12 L H Q T", "peak_flops": 5e11, "steps": curve,
            "validation": {"loss": 1.9, "unigram": 3.5, "bigram": 2.78, "curve": [[5, 2.4], [steps, 1.9]]},
            "timed_step": steps, "timeline": timeline(2, 15.0, 30.0, 5.0),
            "parts_ms": {"forward": 15.0, "backward": 30.0, "exposed_reduce": 5.0, "bubble": 0.0},
            "memory_bytes": {"weights": 3 << 20, "gradients": 3 << 20, "optimizer": 6 << 20, "activations": 35 << 20,
                             "buffers": 0, "total": 47 << 20},
        }
        return {**record, **fields}

    def scaling(self, dp: int, mode: str = "weak", alone: float = 50.0, contended: float = 54.0,
                measured: float = 60.0, **fields: Any) -> dict[str, Any]:
        """All that contention adds is backward; all that it leaves is the reduction."""
        def step(kind: str, forward: float, backward: float, reduce: float) -> dict[str, Any]:
            whole = forward + backward + reduce
            return {"kind": kind, "step_ms": whole, "samples_ms": [whole], "stats": stats_of([whole]),
                    "parts_ms": {"forward": forward, "backward": backward, "exposed_reduce": reduce},
                    "timeline": timeline(dp, forward, backward, reduce)}
        steps = [step("isolated", 15.0, alone - 20, 5.0), step("contended", 15.0, contended - 20, 5.0),
                 step("measured", 15.0, contended - 20, 5.0 + measured - contended)]
        sequences = 8 * (dp if mode == "weak" else 1)
        record = {
            "record": "scaling", "run": self.run_name, "program": "scaling", "basis": self.basis, "mode": mode,
            "model": MODEL, "layout": layout(dp=dp), "dtype": "f32", "ranks": dp, "threads": 1,
            "oversubscribed": dp > 16, "sequences_a_step": sequences, "tokens_a_step": 128 * sequences,
            "steps": steps, "tokens_per_s": 128e3 * sequences / measured, "efficiency": 50.0 / measured,
            "slowdowns": [{"of": "B", "beside": "kernels of other ranks", "ranks": dp, "factor": 1.13, "samples": 40}]
            if dp > 1 else [],
        }
        return {**record, **fields}
