"""Fields of somebody else's JSON, checked as they are taken: what is wrong is told with the file and the field."""
import hashlib
import json
import math
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gate.model import UsageError

_NAMES = {dict: "an object", list: "a list", str: "a string", float: "a number", bool: "true or false"}


def field(data: Any, name: str, cls: type, where: str, missing: Any = None) -> Any:
    """data[name] as a cls (float: any number). `missing` is for where it is not there; None: it must be there."""
    value = data.get(name) if isinstance(data, dict) else None
    if value is None and missing is not None:
        return missing
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if is_number if cls is float else isinstance(value, cls):
        return value
    shown = json.dumps(value)
    raise UsageError(f"{where}: field '{name}' is {shown if len(shown) <= 40 else shown[:37] + '...'}; allowed: {_NAMES[cls]}")


def positive(data: Any, name: str, where: str) -> float:
    value = field(data, name, float, where)
    if value <= 0:
        raise UsageError(f"{where}: field '{name}' is {value:g}; allowed: a time above 0")
    return float(value)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: not JSON: {error.msg} at column {error.colno}; "
                         "allowed: a whole file (was the program stopped?)") from error
    except (RecursionError, ValueError) as error:  # nested too deeply; an integer of thousands of digits
        raise UsageError(f"{path}: not JSON that can be read: {error}") from error


def fingerprint_of(parts: Iterable[object]) -> str:
    """Hash of what a foreign file says of its machine: less than our own records know."""
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:16]


def utc(text: str) -> str:
    """A time as our records have it, so that files of different formats have an order; a time without a zone is taken for UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (time if time.tzinfo is None else time.astimezone(timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")
