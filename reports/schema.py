"""Checks a JSON value against docs/record.schema.json: the one definition of the record format.

Knows only the keywords that the schema uses; an unknown one is a bug and raises. The reference implementation
(jsonschema) is not among the report's packages; the tests compare the two on valid and broken records.
"""
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

SCHEMA_PATH = Path(__file__).resolve().parent.parent / "docs" / "record.schema.json"

_ANNOTATIONS = {"title", "description", "$schema", "$defs", "then"}


@lru_cache(maxsize=1)
def record_schema() -> dict[str, Any]:
    return json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))


def problem_in(value: Any, kind: str) -> Optional[str]:
    """What is wrong with a record of this kind ("run", "row", ...); None if nothing is."""
    return _problem(value, record_schema()["$defs"][kind], "")


def _problem(value: Any, schema: dict[str, Any], where: str) -> Optional[str]:
    for keyword, argument in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        found = _KEYWORDS[keyword](value, argument, schema, where)
        if found:
            return found
    return None


def _is_type(value: Any, name: str) -> bool:
    if name == "integer":
        whole = isinstance(value, int) or isinstance(value, float) and value.is_integer()
        return whole and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    kinds = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}
    return isinstance(value, kinds[name])


def shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _named(where: str) -> str:
    return f"field '{where}'" if where else "the line"


def _check_ref(value, ref, _schema, where):
    return _problem(value, record_schema()["$defs"][ref.rsplit("/", 1)[1]], where)


def _check_type(value, allowed, _schema, where):
    names = allowed if isinstance(allowed, list) else [allowed]
    if any(_is_type(value, name) for name in names):
        return None
    return f"{_named(where)} is {shown(value)}, must be of type {' or '.join(names)}"


def _check_const(value, constant, _schema, where):
    if type(value) is type(constant) and value == constant:
        return None
    return f"{_named(where)} is {shown(value)}, must be {shown(constant)}"


def _check_enum(value, allowed, _schema, where):
    if value in allowed:
        return None
    return f"{_named(where)} is {shown(value)}, must be one of {', '.join(str(one or 'null') for one in allowed)}"


def _check_minimum(value, least, _schema, where):
    if not _is_type(value, "number") or value >= least:
        return None
    return f"{_named(where)} is {shown(value)}, must be at least {least}"


def _check_min_length(value, least, _schema, where):
    return f"{_named(where)} is empty" if isinstance(value, str) and len(value) < least else None


def _check_required(value, names, _schema, where):
    if not isinstance(value, dict):
        return None
    missing = [name for name in names if name not in value]
    prefix = where + "." if where else ""
    return f"field '{prefix}{missing[0]}' is missing" if missing else None


def _check_properties(value, properties, _schema, where):
    if not isinstance(value, dict):
        return None
    prefix = where + "." if where else ""
    problems = (_problem(value[name], schema, prefix + name) for name, schema in properties.items() if name in value)
    return next((found for found in problems if found), None)


def _check_additional(value, additional, schema, where):
    if not isinstance(value, dict):
        return None
    known = schema.get("properties", {})
    prefix = where + "." if where else ""
    problems = (_problem(item, additional, prefix + name) for name, item in value.items() if name not in known)
    return next((found for found in problems if found), None)


def _check_items(value, item_schema, _schema, where):
    if not isinstance(value, list):
        return None
    problems = (_problem(item, item_schema, f"{where}[{i}]") for i, item in enumerate(value))
    return next((found for found in problems if found), None)


def _check_min_items(value, least, _schema, where):
    if not isinstance(value, list) or len(value) >= least:
        return None
    return f"{_named(where)} has {len(value)} entries, must have at least {least}"


def _check_max_items(value, most, _schema, where):
    if not isinstance(value, list) or len(value) <= most:
        return None
    return f"{_named(where)} has {len(value)} entries, must have at most {most}"


def _check_if(value, condition, schema, where):
    return None if _problem(value, condition, where) else _problem(value, schema["then"], where)


_KEYWORDS = {
    "$ref": _check_ref,
    "type": _check_type,
    "const": _check_const,
    "enum": _check_enum,
    "minimum": _check_minimum,
    "minLength": _check_min_length,
    "required": _check_required,
    "properties": _check_properties,
    "additionalProperties": _check_additional,
    "items": _check_items,
    "minItems": _check_min_items,
    "maxItems": _check_max_items,
    "if": _check_if,
}
