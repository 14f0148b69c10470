"""Results of the gate, and errors that end it."""

from dataclasses import dataclass
from enum import Enum


# ---- Errors, each with its exit status of docs/gate.md

class GateError(Exception):
    """One line that names the flag or file, what is wrong and what is allowed."""

    status = 4


class UsageError(GateError):
    status = 2


class CouldNotRun(GateError):
    """A build, a worker or a tool failed: there is no verdict."""

    status = 4


# Results of the gate: verdicts, and the report that every output is made of.

class Verdict(str, Enum):
    """Verdict of one case. Better and worse are the case's own: a bandwidth that falls is slower."""

    SLOWER = "slower"  # or a larger count: the regression
    FASTER = "faster"
    SAME = "same"  # within the practical threshold; of exact values: equal
    UNDECIDED = "undecided"
    NEW = "new"  # only the head has the case
    GONE = "gone"  # only the base has it: counts as undecided for the exit status, as a renamed case would hide its slowdown


class Channel(str, Enum):
    """How a case was compared."""

    TIME = "time"  # alternating runs of both builds
    STORED = "stored"  # times of stored records
    INSTRUCTIONS = "instructions"  # counted
    DEVICE = "device"  # counted in a GPU kernel's compiled code
    EXACT = "exact"  # bytes, steps, messages, simulated times, memory


@dataclass(frozen=True)
class Result:
    """Result for one case. Ratios are head over base, inverted where more is better: above 1 is worse."""

    case: str  # "kernels: gelu_fwd/f32/B8_T128_C1024/cpu/threads:1/warm"
    channel: Channel
    verdict: Verdict
    unit: str  # "us", "instructions", "bytes", ...
    base: float | None = None  # typical value in that unit; None where the side lacks the case
    head: float | None = None
    ratio: float | None = None
    low: float | None = None  # lower bound of the ratio's interval; None where there is none
    high: float | None = None
    why: str = ""  # one clause: "confirmed by 12 fresh pairs", "time was up after 24 pairs"
    pairs: int = 0  # independent comparisons that the interval is computed from
    ratios: tuple[float, ...] = ()  # ratios of the pairs, for plots
    seconds: float = 0.0  # time that the measurements took


@dataclass(frozen=True)
class Side:
    """One of the two sides that are compared."""

    name: str  # as the user named it
    revision: str = "unknown"
    source: str = ""  # last part of the path of the build folder or record file


@dataclass(frozen=True)
class Point:
    """A point of a case's history: the result of one record file."""

    time: str  # UTC, ISO 8601
    revision: str
    source: str  # last part of the record file's path
    value: float  # the median over its runs, in the series' unit


@dataclass(frozen=True)
class Change:
    """Change of a series' level. The ratio is after over before, inverted where more is better: above 1 is worse."""

    at: int  # the first point after it
    blame: str  # "BASE..HEAD" for git log: after the last revision before it, up to the first one after it
    before: float  # level until it, in the series' unit, since the change before
    after: float  # level from it to the next
    worse: bool
    ratio: float | None  # None where a level is 0
    low: float | None  # lower bound of the ratio's interval
    high: float | None
    p: float  # probability of an equally clear step in a series without any
    recent: bool  # among the last points that the user asked about, and the series' last change


@dataclass(frozen=True)
class Series:
    case: str
    channel: Channel  # STORED, or EXACT, where each difference is a change
    unit: str
    better: str  # "lower" or "higher"
    points: tuple[Point, ...]  # by time
    changes: tuple[Change, ...]  # by place
    why: str = ""  # reason why no change was searched for: "5 points; 8 are needed"

    @property
    def verdict(self) -> Verdict:
        """Verdict of the last change, if it is recent."""
        if not self.changes or not self.changes[-1].recent:
            return Verdict.SAME
        return Verdict.SLOWER if self.changes[-1].worse else Verdict.FASTER


@dataclass(frozen=True)
class Report:
    mode: str  # "ab", "compare", "exact", "history"
    base: Side
    head: Side
    threshold: float  # 0.02: smaller changes do not matter
    confidence: float  # confidence of the intervals, two-sided
    results: tuple[Result, ...]
    seconds: float
    notes: tuple[str, ...] = ()  # notes for the reader, a line each, such as a fingerprint that differs
    series: tuple[Series, ...] = ()  # a history's: one per result, in the same order

    def of(self, verdict: Verdict) -> list[Result]:
        return [result for result in self.results if result.verdict is verdict]
