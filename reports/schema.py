"""docs/record.schema.json, the one definition of the record format: finds errors of a line, and makes classes for its objects; and
ReportError, the exception for bad input."""

import json
from collections import namedtuple
from dataclasses import make_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional

from jsonschema import Draft202012Validator, ValidationError, validators


class ReportError(Exception):
    """Bad input; the text is the line that the user sees."""


Schema = dict[str, Any]
DATA = Path(__file__).resolve().parent / "data"  # in the repository, links to the files that other programs read, too
SCHEMA_PATH = (DATA / "record.schema.json").resolve()
SCHEMA: Schema = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
KINDS = tuple(reference["$ref"].rsplit("/", 1)[1] for reference in SCHEMA["oneOf"])  # of lines


def kind_schema(kind: str) -> Schema:
    return SCHEMA["$defs"][kind]


# Problems of a line

def problem_in(value: Any, kind: str) -> Optional[str]:
    """Returns what is wrong with a record of this kind ("run", "row", ...); None if nothing is."""
    error = next(_validator(kind).iter_errors(value), None)
    return error and _error_text(error)


def shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _prefix_items(validator: Any, prefix: list[Schema], value: Any, schema: Schema) -> Iterator[ValidationError]:
    """Checks prefixItems with a fast path for valid values, as jsonschema takes 40 us for a task of a timeline."""
    if not isinstance(value, list) or not all(_is_type(validator, element, item["type"]) for element, item in zip(value, prefix)):
        yield from Draft202012Validator.VALIDATORS["prefixItems"](validator, prefix, value, schema)


def _is_type(validator: Any, value: Any, types: Any) -> bool:
    return any(validator.is_type(value, name) for name in ([types] if isinstance(types, str) else types))


@lru_cache(maxsize=None)
def _validator(kind: str) -> Any:
    cls = validators.extend(Draft202012Validator, {"prefixItems": _prefix_items})
    return cls({**kind_schema(kind), "$defs": SCHEMA["$defs"]})


def _error_text(error: ValidationError) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path).lstrip(".")
    named = f"field '{place}'" if place else "the line"
    value, asked = shown(error.instance), error.validator_value
    if error.validator == "required":
        missing = next(name for name in asked if name not in error.instance)
        return f"field '{place}{'.' if place else ''}{missing}' is missing"
    words = {"type": lambda: f"is {value}, must be of type {' or '.join([asked] if isinstance(asked, str) else asked)}",
             "const": lambda: f"is {value}, must be {shown(asked)}",
             "enum": lambda: f"is {value}, must be one of {', '.join(str(option or 'null') for option in asked)}",
             "minimum": lambda: f"is {value}, must be at least {asked}",
             "minLength": lambda: "is empty",
             "minItems": lambda: f"has {len(error.instance)} entries, must have at least {asked}",
             "maxItems": lambda: f"has {len(error.instance)} entries, must have at most {asked}"}
    return f"{named} {words[error.validator]()}"


# Objects

_CLASSES: dict[str, type] = {}  # by the schema's titles


def resolved(schema: Schema) -> Schema:
    return {**kind_schema(schema["$ref"].rsplit("/", 1)[1]), **schema} if "$ref" in schema else schema


def _titled(schema: Any) -> Iterator[tuple[str, Schema]]:
    if isinstance(schema, list):
        for part in schema:
            yield from _titled(part)
    elif isinstance(schema, dict):
        if "title" in schema and ("properties" in schema or "prefixItems" in schema):
            yield schema["title"], schema
        yield from _titled(list(schema.values()))


_SCHEMAS = dict(_titled(SCHEMA["$defs"]))


def fields_of(*titles: str, and_also: Iterable[str] = ()) -> Callable[[type], type]:
    """Makes a class a frozen dataclass with the fields of the schema's objects with these titles. Missing fields are None."""
    names = dict.fromkeys(name for title in titles for name in _SCHEMAS[title]["properties"] if name not in ("record", "version"))

    def decorated(cls: type) -> type:
        fields = [(name, Any, None) for name in (*names, *and_also)]
        made = make_dataclass(cls.__name__, fields, bases=(cls,), frozen=True, namespace={"__doc__": cls.__doc__})
        made.__module__ = cls.__module__
        return _CLASSES.setdefault(titles[0], made)
    return decorated


def class_of(title: str) -> type:
    """Class of an object or a tuple with nothing beyond its fields."""
    if title not in _CLASSES:
        schema = _SCHEMAS[title]
        if "prefixItems" in schema:
            _CLASSES[title] = namedtuple(title, [item["title"] for item in schema["prefixItems"]], module=__name__)
        else:
            fields_of(title)(type(title, (), {"__module__": __name__}))
    return _CLASSES[title]


def __getattr__(title: str) -> type:
    """Returns the class of a schema's title as an attribute of the module, so that its objects can be pickled."""
    if title in _SCHEMAS:
        return class_of(title)
    raise AttributeError(title)


def made(value: Any, schema: Schema, **known: Any) -> Any:
    """The object of a checked value: its fields by name, lists as tuples. `known` fields are taken as they are."""
    schema = resolved(schema)
    if isinstance(value, dict):
        if "properties" not in schema:
            items = schema.get("additionalProperties", {})
            return {name: made(element, items) for name, element in value.items()}
        values = [name for name, field in schema["properties"].items() if "const" not in field]
        if len(values) == 1:  # a timeline, next to its unit
            return made(value[values[0]], schema["properties"][values[0]])
        cls = class_of(schema["title"])
        fields = {name: made(value[name], field) for name, field in schema["properties"].items()
                  if name in value and name not in known and name in cls.__dataclass_fields__}
        return cls(**fields, **known)
    if isinstance(value, list):
        if "prefixItems" in schema:
            return class_of(schema["title"])(*value)
        return tuple(made(element, schema["items"]) for element in value)
    return value
