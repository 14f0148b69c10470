"""The exact values of one build, and a file of them that people can read the changes of."""
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..model import Channel
from ..outputs.files import write_whole

FORMAT = 1


@dataclass(frozen=True)
class Value:
    case: str
    channel: Channel  # EXACT or INSTRUCTIONS
    unit: str
    value: float
    better: str = "lower"


@dataclass(frozen=True)
class Facts:
    revision: str
    counted_with: Mapping[str, str]  # what instruction counts depend on beside the source: compiler, flags, tool
    values: tuple[Value, ...]


def write_facts(path: Path, facts: Facts) -> None:
    """A value a line, sorted, so that a change of the file shows what changed."""
    head = json.dumps({"facts": FORMAT, "counted_with": dict(sorted(facts.counted_with.items()))})
    lines = sorted(_line(value) for value in facts.values)
    write_whole(path, "\n".join([head, *lines]) + "\n", "--base")


def _line(value: Value) -> str:
    fields = {"case": value.case, "unit": value.unit, "value": int(value.value) if value.value == int(value.value) else value.value}
    if value.channel is Channel.INSTRUCTIONS:
        fields["counted"] = True
    if value.better != "lower":
        fields["better"] = value.better
    return json.dumps(fields)


def read_facts(path: Path, flag: str) -> Facts:
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if rows[0]["facts"] != FORMAT:
            raise ValueError(f"format {rows[0]['facts']}")
        values = tuple(Value(row["case"], Channel.INSTRUCTIONS if row.get("counted") else Channel.EXACT, row["unit"],
                             float(row["value"]), row.get("better", "lower")) for row in rows[1:])
        return Facts(path.name, rows[0]["counted_with"], values)
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror}; allowed: a revision, a build folder, or a file of gate.py exact --update") from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(f"{flag} {path}: not a file of exact values ({error}); allowed: what gate.py exact --update writes") from error


def by_case(values: Iterable[Value]) -> dict[str, Value]:
    return {value.case: value for value in values}
