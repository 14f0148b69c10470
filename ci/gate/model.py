"""What the gate says: verdicts, results, and the report that every output is made of."""
from dataclasses import dataclass, field
from enum import Enum


class Verdict(str, Enum):
    """Of one case. Better and worse are the case's own: a bandwidth that falls is slower."""

    SLOWER = "slower"  # or more of what is counted: the regression
    FASTER = "faster"
    SAME = "same"  # within the practical threshold; of exact values: equal
    UNDECIDED = "undecided"
    NEW = "new"  # only the head has the case
    GONE = "gone"  # only the base has it


class Channel(str, Enum):
    """How a case was compared."""

    TIME = "time"  # runs of both builds in turn
    STORED = "stored"  # times of records that were made before
    INSTRUCTIONS = "instructions"  # counted
    EXACT = "exact"  # bytes, steps, messages, simulated times, memory


@dataclass(frozen=True)
class Result:
    """One case's answer. Ratios are head over base, turned round where more is better: above 1 is worse."""

    case: str  # "kernels: gelu_fwd/f32/B8_T128_C1024/cpu/threads:1/warm"
    channel: Channel
    verdict: Verdict
    unit: str  # "us", "instructions", "bytes", ...
    base: float | None = None  # typical value in that unit; None where the side lacks the case
    head: float | None = None
    ratio: float | None = None
    low: float | None = None  # of the ratio's interval; None where there is none
    high: float | None = None
    why: str = ""  # one clause: "confirmed by 12 fresh pairs", "time was up after 24 pairs"
    pairs: int = 0  # independent comparisons behind the interval
    ratios: tuple[float, ...] = ()  # of those, for plots
    seconds: float = 0.0  # that measuring took


@dataclass(frozen=True)
class Side:
    """One of the two that are compared."""

    name: str  # as the user named it
    revision: str = "unknown"
    source: str = ""  # build folder or record file, its last part only


@dataclass(frozen=True)
class Report:
    mode: str  # "ab", "compare", "exact"
    base: Side
    head: Side
    threshold: float  # 0.02: what is less does not matter
    confidence: float  # of the intervals, two-sided
    results: tuple[Result, ...]
    seconds: float
    notes: tuple[str, ...] = field(default=())  # a line each: what a reader must know, such as a fingerprint that differs

    def of(self, verdict: Verdict) -> list[Result]:
        return [result for result in self.results if result.verdict is verdict]
