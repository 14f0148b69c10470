"""Records of attention whose sequence ranks share, in a made-up world: times grow with the square of the length."""
from dataclasses import dataclass, field
from typing import Any

from reports.tests.layer_world import _time
from reports.tests.world import World


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
        kernels = [1990.0 * scale, 2000.0 * scale, 2010.0 * scale]
        times = []
        for direction in ("forward", "backward"):
            for form, more in (("kernels", 0.0), ("communication", None), ("serial", 1000.0), ("async", exposed)):
                samples = [900.0, 1000.0, 1100.0] if more is None else [us + more for us in kernels]
                times.append(_time(direction, form, samples, kernels, 1000.0 if more is None else more))
        others = (4 - load) / 3
        record = {
            "record": "context", "run": self.run_name, "program": "seqpar_bench", "basis": self.basis, "way": way,
            "ranks": 4, "threads": 1, "causal": True, "dtype": "f32",
            "sizes": {"batch": 1.0, "length": float(length), "heads": 8.0, "head_columns": 64.0}, "times": times,
            "pairs": [0.125 * others] * 3 + [0.125 * load], "kernels_us": [4000.0 * others] * 3 + [4000.0 * load],
            "sent_bytes": {"forward": 1000.0 * length, "backward": 2000.0 * length},
            "listed_bytes": {"forward": 1000.0 * length, "backward": 2000.0 * length}, "peak_bytes": 4096 * length,
            "checked_passes": 8, "difference": 1e-6, "allowed_difference": 1e-5, "status": "ok", "error": None,
        }
        return {**record, **fields}
