"""Records of mixtures of experts in a made-up world: half of the time is the experts'."""
from typing import Any

from reports.analysis.training.experts import PARTS
from reports.tests.world import World, stats_of


def world(run_name: str = "experts-1", basis: str = "measured", **run_fields: Any) -> dict[str, Any]:
    fields = {"program": "moe_bench", "command": ["moe_bench"], "libraries": {}, "basis": basis, **run_fields}
    return World(ranks=4, run_name=run_name, run_fields=fields).run()


def line(run_name: str = "experts-1", basis: str = "measured", load_of: float = 1.0, us: float = 700.0,
         **fields: Any) -> dict[str, Any]:
    """A record in which each direction takes `us`, half of it in the experts."""
    times = [{"direction": direction, "way": way, "samples_us": [us], "stats": stats_of([us]),
              "parts_us": {part: us / 2 if part == "experts" else us / 12 for part in PARTS}}
             for direction in ("forward", "backward") for way in ("serial", "async")]
    record = {
        "record": "experts", "run": run_name, "program": "moe_bench", "basis": basis, "experts": 8, "top_k": 2, "ranks": 4,
        "threads": 1, "capacity_factor": 0.0, "skew": load_of, "load": load_of, "dtype": "f32",
        "sizes": {"tokens": 512.0, "hidden": 256.0, "ffn": 1024.0, "shared": 0.0}, "algorithm": "auto", "times": times,
        "experts_slowest_us": us * 0.6, "experts_mean_us": us * 0.5, "most_rows": 1400, "mean_rows": 1024.0, "copies": 4096,
        "dropped": 0, "sent_bytes": 1e6, "formula_bytes": 1e6, "checked_passes": 10, "wrong": 0, "status": "ok", "error": None,
    }
    return {**record, **fields}
