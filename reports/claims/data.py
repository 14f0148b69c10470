"""bench/suite/claims.json and claims.suite as objects. Strict: the first mistake ends the reading with one line."""
import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping, Optional, Union

from jsonschema import Draft202012Validator

from reports.schema import DATA, ReportError

CLAIMS, SUITE, SCHEMA = DATA / "claims.json", DATA / "claims.suite", DATA / "claims.schema.json"
BASES = ("counted", "simulated", "emulated", "measured")
EXACT = BASES[:2]  # evidence that repeats exactly: it decides a verdict, and the gate compares it
# Fields that are counted in plans, schedules and layouts, whatever the basis of the record's times.
COUNTED = ("plan.steps", "plan.wire_bytes", "sent_bytes", "sent_beyond_bytes", "forward_sent_bytes", "pairs",
           "memory_bytes", "peak_activations", "sends", "overlap.reductions.sent_bytes", "dropped")


@dataclass(frozen=True)
class Selection:
    """A number of each record that matches: the sum of `field`, times `times`, over `per`."""

    lines: str  # pattern of names of suite lines
    field: tuple[str, ...]
    where: Mapping[str, Any]
    times: Optional[str] = None
    per: Optional[str] = None
    pick: Optional[str] = None  # "least" or "most": which of several records at one point

    def takes(self, line: str) -> bool:
        """True if it selects records of the suite's line with this name."""
        return fnmatchcase(line, self.lines)


@dataclass(frozen=True)
class Relation:
    kind: str  # "at_most", "at_least", "near", "between"
    bound: float  # the bound; the lower one of "between"
    tolerance: float
    upper: float = 0.0

    def holds(self, value: float) -> bool:
        if self.kind == "between":
            return self.bound * (1 - self.tolerance) <= value <= self.upper * (1 + self.tolerance)
        if self.kind == "near":
            return abs(value - self.bound) <= self.tolerance * abs(self.bound)
        slack = self.tolerance * abs(self.bound)
        return value <= self.bound + slack if self.kind == "at_most" else value >= self.bound - slack


@dataclass(frozen=True)
class Evidence:
    basis: str
    shows: str  # meaning of the value
    short: str  # its name in a condition
    value: Selection
    test: Relation
    over: Optional[Selection] = None
    relative_to: Optional[str] = None  # "least", "most", "first" of the values along the axis
    along: Optional[str] = None  # field of the axis
    along_per: Optional[str] = None  # field that the axis is divided by
    axis: str = ""  # its name
    unit: str = ""  # unit of the value; "bytes" is written in KiB, MiB, ...
    axis_unit: str = ""
    by: Optional[str] = None  # field by which several curves differ
    by_name: str = ""
    at: str = "all"  # or "last": only the last point of the axis decides

    @property
    def selections(self) -> tuple[Selection, ...]:
        return (self.value, self.over) if self.over else (self.value,)


@dataclass(frozen=True)
class Claim:
    name: str
    claim: str
    source: str
    published: str = ""  # empty: no value
    evidence: tuple[Evidence, ...] = ()
    not_testable: str = ""  # why
    remarks: str = ""


Commands = Mapping[str, tuple[str, ...]]  # by the name of the suite's line


def load_suite(path: Path = SUITE) -> Commands:
    """Commands by name, from a file of lines "NAME WEIGHT COMMAND", which bench/suite reads too. Raises ReportError for other lines."""
    rows = [(number, text.split("#")[0].split()) for number, text in enumerate(_text(path).splitlines(), start=1)]
    for number, words in rows:
        if words and len(words) < 3:
            raise ReportError(f"{path}:{number}: allowed: NAME WEIGHT COMMAND")
    return {words[0]: tuple(words[2:]) for _, words in rows if words}


def load_claims(path: Path = CLAIMS, commands: Optional[Commands] = None) -> tuple[Claim, ...]:
    commands = load_suite() if commands is None else commands
    try:
        data = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise ReportError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    problem = min(_validator().iter_errors(data), key=lambda error: list(map(str, error.absolute_path)), default=None)
    if problem:
        raise ReportError(f"{path}: {_place(data, list(problem.absolute_path))}: {problem.message}")
    claims = tuple(_claim(settled) for settled in data["claims"])
    for place, text in _mistakes(claims, commands):
        raise ReportError(f"{path}: {place}: {text}")
    return claims


def _mistakes(claims: tuple[Claim, ...], commands: Commands):
    names = [claim.name for claim in claims]
    for claim in claims:
        if names.count(claim.name) > 1:
            yield claim.name, "a second claim with this name; allowed: each name once"
        for number, settled in enumerate(claim.evidence):
            place = f"{claim.name}, evidence {number}"
            for selection in settled.selections:
                if not any(selection.takes(name) for name in commands):
                    yield place, f"no line of claims.suite matches '{selection.lines}'; allowed: its names, with * for any characters"
                if settled.basis == "counted" and not all(path.startswith(COUNTED) for path in selection.field):
                    yield place, f"'{', '.join(selection.field)}' is not counted; allowed with basis counted: {', '.join(COUNTED)}"
            if settled.by and not settled.along:
                yield place, "'by' without 'along'; allowed: curves of a field along another"


def exact_lines(claims: tuple[Claim, ...], commands: Commands) -> Commands:
    """The commands whose evidence repeats exactly."""
    wanted = [selection for claim in claims for settled in claim.evidence if settled.basis in EXACT for selection in settled.selections]
    return {name: command for name, command in commands.items() if any(selection.takes(name) for selection in wanted)}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from None


@lru_cache(maxsize=None)
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(_text(SCHEMA)))


def _place(data: Any, steps: list[Union[str, int]]) -> str:
    """The claim's name, then the path within it."""
    if len(steps) > 1 and steps[0] == "claims":
        steps = [data["claims"][steps[1]].get("name", f"claim {steps[1]}"), *steps[2:]]
    return ", ".join(map(str, steps)) or "the file"


def _claim(data: Mapping[str, Any]) -> Claim:
    return Claim(**{**data, "evidence": tuple(_evidence(settled) for settled in data.get("evidence", ()))})


def _evidence(data: Mapping[str, Any]) -> Evidence:
    test = dict(data["test"])
    tolerance = test.pop("tolerance", 0.0)
    (kind, bound), = test.items()
    low, high = bound if kind == "between" else (bound, 0.0)
    made = {name: _selection(data[name]) for name in ("value", "over") if name in data}
    return Evidence(**{"short": data["shows"], **data, **made, "test": Relation(kind, low, tolerance, high)})


def _selection(data: Mapping[str, Any]) -> Selection:
    fields = data["field"]
    return Selection(**{"where": {}, **data, "field": (fields,) if isinstance(fields, str) else tuple(fields)})
