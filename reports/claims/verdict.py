"""Claims against records: from values to points at which a test holds, to verdicts, to conditions in words."""

import math
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from reports.analysis.estimate import Estimate, exact, of_stats
from reports.analysis.groups import by
from reports.claims.data import BASES, Claim, Commands, Evidence, EXACT, Selection
from reports.schema import ReportError
from reports.records import Records, Run
from reports.units import bytes_text, joined, short


# ---- Records to the points of a piece of evidence: the values of its selections, and the points at which its test holds

Axis = Any  # a number, or a name
Curve = dict[Axis, Estimate]


@dataclass(frozen=True)
class Point:
    x: Axis
    value: float
    holds: Optional[bool]  # None: the interval of its samples has both answers


@dataclass(frozen=True)
class Found:
    """The points of each curve, by the value of `by` (None: the only one)."""

    evidence: Evidence
    curves: Mapping[Axis, tuple[Point, ...]]

    @property
    def deciding(self) -> list[Point]:
        """Those that decide: the points, or the last, that are decided themselves; all if none is."""
        last = self.evidence.at == "last"
        points = [point for points in self.curves.values() for point in (points[-1:] if last else points)]
        return [point for point in points if point.holds is not None] or points


def line_of(run: Run, commands: Commands) -> Optional[str]:
    """Line of the suite whose exact command made the run."""
    command = _without_output(run.command)
    return next((name for name, words in commands.items() if words == command), None)


def records_by_line(records: Records, commands: Commands) -> Mapping[str, list[Any]]:
    """Records by the line whose command made them, later runs last."""
    names = {run.run: line_of(run, commands) for run in records.runs}
    lines: dict[str, list[Any]] = {name: [] for name in names.values() if name is not None}
    for line in sorted(records.lines, key=lambda line: line.run.started):
        if names[line.run.run] is not None:
            lines[names[line.run.run]].append(line)
    return lines


def _without_output(words: Sequence[str]) -> tuple[str, ...]:
    """The command without --json FILE, which the suite adds."""
    kept = list(words)
    if "--json" in kept:
        place = kept.index("--json")
        del kept[place:place + 2]
    return tuple(kept)


def found_for(evidence: Evidence, lines: Mapping[str, list[Any]]) -> Optional[Found]:
    """Values of the evidence along its axis, as curves by group; None if a record that it needs is missing."""
    above = _curves(evidence.value, evidence, lines)
    below = _curves(evidence.over, evidence, lines) if evidence.over else None
    if not above or below is not None and not below:
        return None
    curves = {}
    for group, curve in above.items():
        divided = curve if below is None else _divided(curve, _partner(below, group))
        points = tuple(Point(x, settled.value, _holds(evidence, settled)) for x, settled in _ordered(_relative(divided, evidence.relative_to)))
        if points:
            curves[group] = points
    return Found(evidence, curves) if curves else None


def _holds(evidence: Evidence, estimate: Estimate) -> Optional[bool]:
    answers = {evidence.test.holds(value) for value in (estimate.low, estimate.value, estimate.high)}
    return answers.pop() if len(answers) == 1 else None


def _partner(below: Mapping[Axis, Curve], group: Axis) -> Curve:
    """Curve of the same group; a single curve belongs to every group."""
    return next(iter(below.values())) if len(below) == 1 else below.get(group, {})


def _curves(selection: Selection, evidence: Evidence, lines: Mapping[str, list[Any]]) -> dict[Axis, Curve]:
    """Curves of the selected lines: the latest run of a command counts; two values of one run at one point are a mistake."""
    curves: dict[Axis, Curve] = {}
    run_at: dict[tuple[Axis, Axis], str] = {}
    for name, records in lines.items():
        if not selection.takes(name):
            continue
        for record in records:
            if not _matches(record, selection.where) or not _is_of(record, evidence.basis):
                continue
            value = _value(record, selection)
            if value is None:
                continue
            group = _at(record, evidence.by) if evidence.by else None
            curve = curves.setdefault(group, {})
            x = _x(record, evidence)
            if x is None and evidence.along:
                continue  # a record without the axis is not a point on it
            if selection.pick is None and run_at.get((group, x)) == record.run.run and curve[x] != value:
                raise ReportError(f"claims: '{evidence.shows}': {curve[x].value:g} and {value.value:g} where {evidence.along} is {x};"
                                  " allowed: one record at each point, or 'pick'")
            run_at[group, x] = record.run.run
            curve[x] = value if selection.pick is None else _PICKS[selection.pick](curve.get(x, value), value, key=_value_of)
    return curves


_PICKS = {"least": min, "most": max}


def _value_of(estimate: Estimate) -> float:
    return estimate.value


def _x(record: Any, evidence: Evidence) -> Axis:
    if evidence.along is None:
        return None
    x = _at(record, evidence.along)
    return x if evidence.along_per is None or x is None else x / _at(record, evidence.along_per)


def _is_of(record: Any, basis: str) -> bool:
    """Wrong and failed records are no evidence."""
    return (basis == "counted" or record.run.basis == basis) and getattr(record, "status", None) in ("ok", None)


def _matches(record: Any, where: Mapping[str, Any]) -> bool:
    return all(_at(record, path) in (wanted if isinstance(wanted, list) else [wanted]) for path, wanted in where.items())


def _value(record: Any, selection: Selection) -> Optional[Estimate]:
    parts = [_estimate(record, path) for path in selection.field]
    factor = 1.0 if selection.times is None else _number(record, selection.times)
    divisor = exact(1.0) if selection.per is None else _estimate(record, selection.per)
    if None in parts or factor is None or not divisor or not divisor.value:
        return None
    return sum(parts[1:], parts[0]) * factor / divisor


def _estimate(record: Any, path: str) -> Optional[Estimate]:
    """Times that were taken have the interval of their samples; all else is exact."""
    if path in ("stats.median", "makespan_ms") and record.run.basis != "simulated" and getattr(record, "stats", None):
        return of_stats(record.stats)
    value = _number(record, path)
    return None if value is None else exact(value)


def _number(record: Any, path: str) -> Optional[float]:
    value = _at(record, path)
    if isinstance(value, (tuple, list)):  # an entry per rank: the busiest rank's
        value = max(value, default=None)
    return None if value is None or isinstance(value, str) else float(value)


def _at(record: Any, path: str) -> Any:
    """Value at a path such as "plan.steps": in objects by attribute, in maps by name; None where there is none."""
    for step in path.split("."):
        record = record.get(step) if isinstance(record, Mapping) else getattr(record, step, None)
    return record


def _divided(above: Curve, below: Curve) -> Curve:
    """Quotients at each x that both have; a single value below applies to every x."""
    if len(below) == 1 and len(above) > 1:
        below = dict.fromkeys(above, next(iter(below.values())))
    return {x: value / below[x] for x, value in above.items() if x in below and below[x].value}


def _relative(curve: Curve, to: Optional[str]) -> Curve:
    if to is None or not curve:
        return curve
    base = next(iter(dict(_ordered(curve)).values())) if to == "first" else _PICKS[to](curve.values(), key=_value_of)
    return {x: exact(1.0) if value is base else value / base for x, value in curve.items()} if base.value else {}


def _ordered(curve: Curve) -> list[tuple[Axis, float]]:
    """Sorts numbers by size and keeps names in order of occurrence."""
    numeric = all(isinstance(x, (int, float)) for x in curve)
    return sorted(curve.items()) if numeric else list(curve.items())


# Points to verdicts, and their words. The rule is in docs/claims.md: each basis has its own verdict, and they are never averaged.

HOLDS, ONLY_IF, NOT, UNTESTED, UNKNOWN = "holds", "holds only if", "does not hold", "not testable here", "not run"
UNDECIDED = "undecided on this machine"  # the intervals of all samples have both answers
_VERDICTS = {True: HOLDS, False: NOT, None: UNDECIDED}


@dataclass(frozen=True)
class Answer:
    """One piece of evidence; `found` is None where its commands have not run."""

    evidence: Evidence
    found: Optional[Found]

    @property
    def verdict(self) -> str:
        if self.found is None:
            return UNKNOWN
        return _of_all([_VERDICTS[point.holds] for point in self.found.deciding])


@dataclass(frozen=True)
class Settled:
    claim: Claim
    answers: tuple[Answer, ...]

    def of(self, *bases: str) -> list[Answer]:
        return [answer for answer in self.answers if answer.evidence.basis in bases and answer.found]

    def verdict_of(self, *bases: str) -> str:
        answers = self.of(*bases)
        return _of_all([answer.verdict for answer in answers]) if answers else UNKNOWN

    @property
    def verdict(self) -> str:
        """Verdict of what repeats exactly; where the claim has no such evidence, of emulated, else of measured times."""
        if self.claim.not_testable:
            return UNTESTED
        return self.verdict_of(*self._deciding)

    @property
    def _deciding(self) -> tuple[str, ...]:
        has = {answer.evidence.basis for answer in self.answers}
        return EXACT if has & set(EXACT) else ("emulated",) if "emulated" in has else ("measured",)

    @property
    def condition(self) -> str:
        """Condition under which it holds, with numbers of the records; or why it cannot be tested."""
        if self.claim.not_testable:
            return self.claim.not_testable
        return condition_of(self.of(*self._deciding)) if self.verdict == ONLY_IF else ""

    @property
    def others(self) -> list[str]:
        """Results of the other bases that have another verdict or a condition of their own."""
        phrases = []
        for basis in BASES:
            verdict = self.verdict_of(basis)
            if basis not in self._deciding and verdict != UNKNOWN and (verdict == ONLY_IF or verdict != self.verdict):
                phrases.append(f"{basis}: {verdict} {condition_of(self.of(basis)) if verdict == ONLY_IF else ''}".rstrip())
        return phrases


def settle(claims: Sequence[Claim], records: Records, commands: Commands) -> list[Settled]:
    """Every claim, in order; empty where the records have no run of the commands."""
    lines = records_by_line(records, commands)
    if not lines:
        return []
    return [Settled(claim, tuple(Answer(settled, found_for(settled, lines)) for settled in claim.evidence)) for claim in claims]


def _of_all(verdicts: Sequence[str]) -> str:
    kinds = set(verdicts) - {UNDECIDED} or {UNDECIDED}
    return kinds.pop() if len(kinds) == 1 else ONLY_IF


# Conditions

def condition_of(answers: Sequence[Answer]) -> str:
    """Words for the condition under which it holds; several pieces of evidence are named, each with its own condition."""
    texts = {answer.evidence.short: _where(answer) for answer in answers}
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{name}: {text}" for name, text in texts.items())


def _where(answer: Answer) -> str:
    if answer.verdict != ONLY_IF:
        return {HOLDS: "always", NOT: "never"}.get(answer.verdict, answer.verdict)
    evidence, curves = answer.evidence, answer.found.curves
    parts = by(curves.items(), lambda curve: _span(curve[1], evidence), lambda curve: _named(curve[0], evidence.by_name))
    if evidence.by is None:
        return f"{evidence.axis} {next(iter(parts))}"
    texts = [f"{text} at {joined(groups)}" for text, groups in parts.items()]
    return f"{evidence.axis} {', '.join(texts)}"


def _span(points: Sequence[Point], evidence: Evidence) -> str:
    """Words such as "up to 4 KiB", "from 16 on" or "2, 4 and 16"."""
    points = [point for point in points if point.holds is not None] or points
    held = [i for i, point in enumerate(points) if point.holds]
    if len(held) == len(points):
        return "of any value"
    if not held:
        return "never"
    text = [axis_text(point.x, evidence) for point in points]
    if all(isinstance(point.x, (int, float)) for point in points) and held == list(range(held[0], held[-1] + 1)):
        if held[0] == 0 and len(held) > 1:
            return f"up to {_edge(points[held[-1]], points[held[-1] + 1], evidence)}"
        if held[-1] == len(points) - 1 and len(held) > 1:
            return f"from {_edge(points[held[0] - 1], points[held[0]], evidence)} on"
        if len(held) > 2:
            return f"from {text[held[0]]} to {text[held[-1]]}"
    return joined([text[i] for i in held])


def _edge(before: Point, after: Point, evidence: Evidence) -> str:
    """Point where the value meets the bound, on a straight line in log-log between two points; for whole numbers a point that was run."""
    bound = evidence.test.bound
    tested = before if before.holds else after
    if evidence.axis_unit not in ("bytes", "GB/s") or min(before.x, after.x, before.value, after.value, bound) <= 0 or evidence.test.kind in ("near", "between"):
        return axis_text(tested.x, evidence)
    rise = math.log(after.value / before.value)
    share = math.log(bound / before.value) / rise if rise else 0.0
    x = before.x * (after.x / before.x) ** min(max(share, 0.0), 1.0)
    return f"about {bytes_text(x, 2)}" if evidence.axis_unit == "bytes" else f"about {short(x, 2)} {evidence.axis_unit}"


def _named(group: Axis, name: str) -> str:
    return f"{group} {name}".strip()


def axis_text(x: Axis, evidence: Evidence) -> str:
    if isinstance(x, str) or x is None:
        return str(x)
    if evidence.axis_unit == "bytes":
        return bytes_text(x)
    return f"{short(x, 4)} {evidence.axis_unit}".strip()


def value_text(value: float, evidence: Evidence) -> str:
    if evidence.unit == "bytes":
        return bytes_text(value, 3)
    if evidence.unit == "GB":
        return f"{short(value / 1e9)} GB"
    return f"{short(value)} {evidence.unit}".strip()


def range_text(answer: Answer) -> str:
    """Words such as "1.33 to 1.97": the smallest and largest value of the deciding points."""
    values = sorted(point.value for point in answer.found.deciding)
    low, high = (value_text(value, answer.evidence) for value in (values[0], values[-1]))
    return low if low == high else f"{low} to {high}"


def test_text(evidence: Evidence) -> str:
    test = evidence.test
    bound = value_text(test.bound, evidence)
    slack = f" (within {short(100 * test.tolerance)} %)" if test.tolerance else ""
    return {"at_most": f"at most {bound}", "at_least": f"at least {bound}", "near": f"equal to {bound}",
            "between": f"{bound} to {value_text(test.upper, evidence)}"}[test.kind] + slack + (f", at the largest {evidence.axis} alone" if evidence.at == "last" else "")


def exact_verdicts(settled: Sequence[Settled]) -> Mapping[str, str]:
    """Verdicts by claim, which the gate compares, for claims with exact evidence."""
    return {claim.claim.name: claim.verdict_of(*EXACT) for claim in settled if claim.of(*EXACT)}
