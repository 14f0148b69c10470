"""Records of tensor-parallel layers as dataclasses."""
from dataclasses import dataclass
from typing import Any, Optional

from reports.run_records import Run, Stats, only

DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class LayerTime:
    direction: str
    way: str  # "kernels", "communication", "serial", "async"
    samples_us: tuple[float, ...]
    stats: Optional[Stats]
    parts_us: dict[str, float]  # of the turn in the median


@dataclass(frozen=True)
class Layer:
    """Of one layer in so many tiles. Bytes are of a forward and a backward, the mean of the ranks."""

    run: Run
    program: str
    basis: str
    layer: str
    ranks: int
    threads: int
    sequence_parallel: bool
    tiles: int
    dtype: str
    sizes: dict[str, float]
    algorithm: str
    times: tuple[LayerTime, ...]
    sent_bytes: float
    formula_bytes: float
    checked_passes: int
    wrong: int
    unlike: int
    status: str
    error: Optional[str]

    def time(self, direction: str, way: str) -> LayerTime:
        return next(time for time in self.times if (time.direction, time.way) == (direction, way))

    def median_us(self, way: str) -> float:
        """Forward and backward."""
        return sum(self.time(direction, way).stats.median for direction in DIRECTIONS)

    def spread(self, way: str) -> float:
        """Half of p5 to p95, of the median; both directions."""
        stats = [self.time(direction, way).stats for direction in DIRECTIONS]
        whole = sum(one.median for one in stats)
        return sum(one.p95 - one.p5 for one in stats) / 2 / whole if whole else 0.0

    def parts_us(self, way: str) -> dict[str, float]:
        """Likewise; of the turns in the median."""
        times = [self.time(direction, way) for direction in DIRECTIONS]
        return {name: sum(time.parts_us.get(name, 0.0) for time in times) for name in times[0].parts_us}


def layer_from(data: dict[str, Any], run: Run) -> Layer:
    known = {name: data[name] for name in Layer.__dataclass_fields__ if name != "run"}
    known["times"] = tuple(_time(time) for time in data["times"])
    return Layer(run=run, **known)


def _time(data: dict[str, Any]) -> LayerTime:
    return LayerTime(data["direction"], data["way"], tuple(data["samples_us"]),
                     data["stats"] and only(Stats, data["stats"]), data["parts_us"])
