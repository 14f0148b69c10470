"""Records of training steps whose parameters are shared out (ZeRO) as dataclasses."""
from dataclasses import dataclass
from typing import Any, Optional

from reports.run_records import Run, Stats, only


@dataclass(frozen=True)
class Sharding:
    """Bytes are of a rank, by kind; sent ones of a step, by what is sent. So many shard_ranks share a set of shards, of which
    the others have replicas."""

    run: Run
    program: str
    basis: str
    model: dict[str, Any]
    ranks: int
    threads: int
    zero_stage: int
    shard_ranks: int
    prefetch: bool
    dtype: str
    gradient_dtype: str
    microbatches: int
    padded_elems: int
    held_bytes: dict[str, float]
    peak_bytes: dict[str, float]
    formula_bytes: dict[str, float]
    sent_bytes: dict[str, float]
    formula_sent_bytes: dict[str, float]
    status: str
    error: Optional[str]
    samples_ms: tuple[float, ...]
    stats: Optional[Stats]


def sharding_from(data: dict[str, Any], run: Run) -> Sharding:
    known = {name: data.get(name) for name in Sharding.__dataclass_fields__}
    known["run"] = run
    known["shard_ranks"] = data.get("shard_ranks", data["ranks"])
    known["samples_ms"] = tuple(data["samples_ms"])
    known["stats"] = data["stats"] and only(Stats, data["stats"])
    return Sharding(**known)
