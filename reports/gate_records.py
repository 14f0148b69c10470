"""Records of the regression gate: a case's verdict, a case's history. What was compared with what is in the run."""
from dataclasses import dataclass
from typing import Any, Optional

from reports.analysis.gate.words import Told
from reports.run_records import Run, only


@dataclass(frozen=True)
class GateCase:
    """Ratios are head over base, turned round where more is better: above 1 is worse."""

    run: Run
    case: str
    channel: str
    verdict: str
    unit: str
    base: Optional[float]
    head: Optional[float]
    ratio: Optional[float]
    low: Optional[float]
    high: Optional[float]
    why: str
    pairs: int
    ratios: tuple[float, ...]
    seconds: float

    @property
    def told(self) -> Told:
        return Told(self.case, self.channel, self.verdict, self.ratio, self.low, self.high)


@dataclass(frozen=True)
class GatePoint:
    time: str  # UTC, ISO 8601
    revision: str
    source: str
    value: float


@dataclass(frozen=True)
class GateChange:
    at: int  # the first point after it
    blame: str  # "BASE..HEAD" for git log
    before: float  # levels, in the series' unit
    after: float
    worse: bool
    ratio: Optional[float]  # turned round where more is better
    low: Optional[float]
    high: Optional[float]
    recent: bool


@dataclass(frozen=True)
class GateSeries:
    run: Run
    case: str
    channel: str
    unit: str
    better: str
    why: str
    points: tuple[GatePoint, ...]  # by time
    changes: tuple[GateChange, ...]


def history_from(data: dict[str, Any], run: Run) -> GateSeries:
    known = {name: data[name] for name in ("case", "channel", "unit", "better", "why")}
    return GateSeries(run, points=tuple(only(GatePoint, point) for point in data["points"]),
                      changes=tuple(only(GateChange, change) for change in data["changes"]), **known)


def verdict_from(data: dict[str, Any], run: Run) -> GateCase:
    known = {name: data[name] for name in GateCase.__dataclass_fields__ if name != "run"}
    return GateCase(run=run, **{**known, "ratios": tuple(data["ratios"])})
