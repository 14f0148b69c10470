"""Makes lines of docs/record_format.md in Python from what other programs measured; docs/record.schema.json defines the fields."""
from typing import Any, Sequence

import numpy as np

from reports.schema import kind_schema, problem_in, ReportError, resolved, Schema

UNKNOWN = "unknown"
Line = dict[str, Any]
_EMPTY = {"string": lambda: UNKNOWN, "array": list, "object": dict, "boolean": bool, "integer": int, "number": float}


def line_of(kind: str, where: str, **known: Any) -> Line:
    """A line with every field that this kind must have. Fields that are not `known`, in nested objects too, are null; where they
    must not be, they have the schema's default, or are empty. Raises ReportError, which begins with `where`, for a value that the schema
    does not allow."""
    line = _completed(kind_schema(kind), known)
    if problem := problem_in(line, kind):
        raise ReportError(f"{where}: {problem}")
    return line


def _completed(schema: Schema, known: Line) -> Line:
    line = {name: _unknown(resolved(schema["properties"][name])) for name in schema["required"]}
    for name, value in known.items():
        field = resolved(schema["properties"][name])
        line[name] = _completed(field, value) if isinstance(value, dict) and "required" in field else value
    return line


def _unknown(schema: Schema) -> Any:
    types = schema.get("type")
    if "const" in schema:
        return schema["const"]
    if types == "null" or isinstance(types, list) and "null" in types:
        return None
    if "default" in schema:
        return schema["default"]
    return _completed(schema, {}) if "required" in schema else _EMPTY.get(types, lambda: None)()


def stats_of(samples: Sequence[float]) -> Line:
    """Statistics of samples, without an interval of their median."""
    p5, median, p95, p99 = map(float, np.percentile(samples, [5, 50, 95, 99]))
    return {"count": len(samples), "median": median, "mean": float(np.mean(samples)), "min": min(samples), "max": max(samples),
            "p5": p5, "p95": p95, "p99": p99, "ci_low": None, "ci_high": None}
