"""Records of the regression gate: one case's verdict. What was compared with what is in the run."""
from dataclasses import dataclass
from typing import Any, Optional

from reports.analysis.gate.words import Told
from reports.run_records import Run


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


def verdict_from(data: dict[str, Any], run: Run) -> GateCase:
    known = {name: data[name] for name in GateCase.__dataclass_fields__ if name != "run"}
    return GateCase(run=run, **{**known, "ratios": tuple(data["ratios"])})
