"""Fields of JSON from other programs, checked when they are read: errors name the file and the field."""
import hashlib
import json
import math
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from reports.schema import ReportError

_NAMES = {dict: "an object", list: "a list", str: "a string", float: "a number", bool: "true or false"}


def field(data: Any, name: str, cls: type, where: str, missing: Any = None) -> Any:
    """data[name] as a cls (float: any number). `missing` is the value if the field is absent; with None it must be present."""
    value = data.get(name) if isinstance(data, dict) else None
    if value is None and missing is not None:
        return missing
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if is_number if cls is float else isinstance(value, cls):
        return value
    shown = json.dumps(value)
    raise ReportError(f"{where}: field '{name}' is {shown if len(shown) <= 40 else shown[:37] + '...'}; allowed: {_NAMES[cls]}")


def positive(data: Any, name: str, where: str) -> float:
    value = field(data, name, float, where)
    if value <= 0:
        raise ReportError(f"{where}: field '{name}' is {value:g}; allowed: a time above 0")
    return float(value)


def parsed_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ReportError(f"{where}:{error.lineno}: not JSON: {error.msg} at column {error.colno}; "
                         "allowed: a whole file (was the program stopped?)") from error


def fingerprint_of(parts: Iterable[object]) -> str:
    """Hash of a foreign file's description of its machine, which has less than our own records."""
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:16]


def utc(text: str) -> str:
    """A time in our records' format, so that files of different formats can be ordered; a time without a zone counts as UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (time if time.tzinfo is None else time.astimezone(timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")
