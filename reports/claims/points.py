"""From records to the points of a piece of evidence: what its selections find, and at which of them its test holds."""
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from reports.claims.data import Commands, Evidence, Selection
from reports.errors import ReportError
from reports.records import Records, Run

Axis = Any  # a number, or a name
Curve = dict[Axis, float]


@dataclass(frozen=True)
class Point:
    x: Axis
    value: float
    holds: bool


@dataclass(frozen=True)
class Found:
    """The points of each curve, by the value of `by` (None: the only one)."""

    evidence: Evidence
    curves: Mapping[Axis, tuple[Point, ...]]

    @property
    def deciding(self) -> list[Point]:
        last = self.evidence.at == "last"
        return [point for points in self.curves.values() for point in (points[-1:] if last else points)]


def line_of(run: Run, commands: Commands) -> Optional[str]:
    """The line of the suite whose very command made the run."""
    command = _without_output(run.command)
    return next((name for name, words in commands.items() if words == command), None)


def records_by_line(records: Records, commands: Commands) -> Mapping[str, list[Any]]:
    """Records by the line whose command made them, those of later runs later."""
    names = {run.run: line_of(run, commands) for run in records.runs}
    lines: dict[str, list[Any]] = {name: [] for name in names.values() if name is not None}
    for line in sorted(records.lines, key=lambda line: line.run.started):
        if names[line.run.run] is not None:
            lines[names[line.run.run]].append(line)
    return lines


def _without_output(words: Sequence[str]) -> tuple[str, ...]:
    """Without --json FILE, which the suite adds."""
    kept = list(words)
    if "--json" in kept:
        place = kept.index("--json")
        del kept[place:place + 2]
    return tuple(kept)


def found_for(evidence: Evidence, lines: Mapping[str, list[Any]]) -> Optional[Found]:
    """None where a record that it needs is not there: what is unknown stays unknown."""
    above = _curves(evidence.value, evidence, lines)
    below = _curves(evidence.over, evidence, lines) if evidence.over else None
    if not above or below is not None and not below:
        return None
    curves = {}
    for group, curve in above.items():
        divided = curve if below is None else _divided(curve, _partner(below, group))
        points = tuple(Point(x, value, evidence.test.holds(value)) for x, value in _ordered(_relative(divided, evidence.relative_to)))
        if points:
            curves[group] = points
    return Found(evidence, curves) if curves else None


def _partner(below: Mapping[Axis, Curve], group: Axis) -> Curve:
    """The curve of the same group; one alone is that of every group."""
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
                continue  # a record without the axis is no point of it
            if selection.pick is None and run_at.get((group, x)) == record.run.run and curve[x] != value:
                raise ReportError(f"claims: '{evidence.shows}': {curve[x]:g} and {value:g} where {evidence.along} is {x};"
                                  " allowed: one record at each point, or 'pick'")
            run_at[group, x] = record.run.run
            curve[x] = value if selection.pick is None else {"least": min, "most": max}[selection.pick](curve.get(x, value), value)
    return curves


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


def _value(record: Any, selection: Selection) -> Optional[float]:
    parts = [_number(record, path) for path in selection.field]
    factor = 1.0 if selection.times is None else _number(record, selection.times)
    divisor = 1.0 if selection.per is None else _number(record, selection.per)
    if None in parts or factor is None or not divisor:
        return None
    return sum(parts) * factor / divisor


def _number(record: Any, path: str) -> Optional[float]:
    value = _at(record, path)
    if isinstance(value, (tuple, list)):  # an entry per rank: the busiest rank's
        value = max(value, default=None)
    return None if value is None or isinstance(value, str) else float(value)


def _at(record: Any, path: str) -> Any:
    """The value at "plan.steps": of objects by attribute, of maps by name; None where there is none."""
    for step in path.split("."):
        record = record.get(step) if isinstance(record, Mapping) else getattr(record, step, None)
    return record


def _divided(above: Curve, below: Curve) -> Curve:
    """At each x that both have; a single value below is that of every x."""
    if len(below) == 1 and len(above) > 1:
        below = dict.fromkeys(above, next(iter(below.values())))
    return {x: value / below[x] for x, value in above.items() if below.get(x)}


def _relative(curve: Curve, to: Optional[str]) -> Curve:
    if to is None or not curve:
        return curve
    base = next(iter(dict(_ordered(curve)).values())) if to == "first" else {"least": min, "most": max}[to](curve.values())
    return {x: value / base for x, value in curve.items()} if base else {}


def _ordered(curve: Curve) -> list[tuple[Axis, float]]:
    """Numbers by size, names as they come."""
    numeric = all(isinstance(x, (int, float)) for x in curve)
    return sorted(curve.items()) if numeric else list(curve.items())
