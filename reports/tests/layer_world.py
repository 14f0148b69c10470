"""Records of tensor-parallel layers in a made-up world: kernels of 4 ms, communication that is half hidden in 2 tiles."""
from dataclasses import dataclass, field
from typing import Any

from reports.tests.world import World, stats_of

LAYER_SIZES = {"batch": 4.0, "length": 128.0, "hidden": 256.0, "heads": 8.0, "vocabulary": 8191.0}
UNIT = 4 * 128 * 256 * 4  # E in f32, bytes


def _time(direction: str, way: str, samples: list[float], kernels: list[float], communication: float) -> dict[str, Any]:
    has_both = way in ("serial", "async")
    exposed = [a - b for a, b in zip(samples, kernels)] if has_both else []
    whole = sorted(samples)[(len(samples) - 1) // 2]
    products = 0.0 if way == "communication" else (whole - communication) * 0.75
    return {"direction": direction, "way": way, "samples_us": samples, "stats": stats_of(samples),
            "parts_us": {"products": products, "other_kernels": products / 3, "communication": communication},
            "exposed_us": exposed, "exposed_stats": stats_of(exposed) if exposed else None}


@dataclass
class LayerWorld:
    run_name: str = "layers-1"
    basis: str = "measured"
    run_fields: dict[str, Any] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        fields = {"program": "tp_linear_bench", "command": ["tp_linear_bench"], "libraries": {}, "basis": self.basis}
        return World(ranks=2, run_name=self.run_name, run_fields={**fields, **self.run_fields}).run()

    def layer(self, name: str = "mlp", sequence_parallel: bool = False, tiles: int = 1, serial: float = 1000.0,
              beside: float = 1000.0, units: float = 4.0, **fields: Any) -> dict[str, Any]:
        """Kernels take 2000 us each way; communication adds `serial` or `beside` to them."""
        kernels = [1990.0, 2000.0, 2010.0]
        times = []
        for direction in ("forward", "backward"):
            for way, more in (("kernels", 0.0), ("communication", None), ("serial", serial), ("async", beside)):
                samples = [900.0, 1000.0, 1100.0] if more is None else [us + more for us in kernels]
                times.append(_time(direction, way, samples, kernels, 1000.0 if more is None else more))
        record = {
            "record": "layer", "run": self.run_name, "program": "tp_linear_bench", "basis": self.basis, "layer": name,
            "ranks": 2, "grid": None, "threads": 1, "sequence_parallel": sequence_parallel, "tiles": tiles, "dtype": "f32",
            "sizes": LAYER_SIZES, "algorithm": "ring", "times": times, "sent_bytes": units * UNIT / 2,
            "formula_bytes": units * UNIT / 2, "forward_sent_bytes": units * UNIT / 4, "memory_bytes": 8.0 * UNIT, "checked_passes": 8, "wrong": 0, "unlike": 0, "status": "ok",
            "error": None,
        }
        return {**record, **fields}
