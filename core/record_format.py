#!/usr/bin/env python3
"""Generates from docs/record.schema.json, the only definition of a record's fields:

  record_format.py --cpp FOLDER   record_types.h and record_types.cpp: a struct for each object, and its JSON
  record_format.py --page FILE    docs/record_format.md

Of JSON Schema's own keywords, `title` names a struct (or a member, in prefixItems), and `default` is a member's initial
value. The schema also uses
  x-computed   a C++ expression of the struct `r`: the field is computed when the record is written, and is not a member
  x-written    a C++ expression that is written instead of the member itself
  x-ordered    an object with arbitrary names keeps their order of insertion; otherwise they are sorted
  x-writer     who else writes this ("python": ci/gate.py or reports/; "ptx_check"), so that there is no C++ for it here
  x-intro      text that the page shows before the fields of a kind of line
  x-cpp        the C++ type of a value of several types
A field that is not required, cannot be null and has no default is omitted from a line if it has no value.
"""
import argparse
import json
import textwrap
from pathlib import Path
from typing import Any, Iterator

Schema = dict[str, Any]
SCHEMA_PATH = Path(__file__).resolve().parent.parent / "docs" / "record.schema.json"
_SCALARS = {"string": "std::string", "integer": "std::int64_t", "number": "double", "boolean": "bool"}
_SHORT = {"integer": "int", "boolean": "bool"}


class Format:
    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.kinds = [kind["$ref"].rsplit("/", 1)[1] for kind in schema["oneOf"]]

    def resolved(self, schema: Schema) -> Schema:
        """Returns the schema with the target of `$ref` merged in; keywords next to `$ref` take precedence."""
        if "$ref" not in schema:
            return schema
        return {**self.schema["$defs"][schema["$ref"].rsplit("/", 1)[1]], **schema}

    def structs(self) -> list[Schema]:
        """Returns all named objects and tuples that C++ writes, each after its members' types."""
        found: dict[str, Schema] = {}
        for kind in self.kinds:
            self._collect({"$ref": f"#/$defs/{kind}"}, found)
        return list(found.values())

    def _collect(self, schema: Schema, found: dict[str, Schema]) -> None:
        schema = self.resolved(schema)
        if "x-writer" in schema or "x-computed" in schema:
            return
        inner = [*schema.get("properties", {}).values(), *schema.get("prefixItems", [])]
        inner += [schema[word] for word in ("items", "additionalProperties") if word in schema]
        for part in inner:
            self._collect(part, found)
        if "properties" in schema or "prefixItems" in schema:
            found.setdefault(schema["title"], schema)

    def members(self, struct: Schema) -> Iterator[tuple[str, Schema]]:
        """A field that may be absent does not take the default of the type that it refers to: it would never be absent."""
        fields = struct.get("properties") or {item["title"]: item for item in struct["prefixItems"]}
        for name, given in fields.items():
            schema = dict(self.resolved(given))
            if name not in struct.get("required", fields) and "default" not in given:
                schema.pop("default", None)
            if "x-writer" not in schema:
                yield name, schema


def types_of(schema: Schema) -> list[str]:
    """Returns the schema's JSON types, including "null" if it is allowed."""
    if "enum" in schema:
        return ["string"] + ["null"] * (None in schema["enum"])
    return [schema["type"]] if isinstance(schema["type"], str) else schema["type"]


# C++

def is_left_out(struct: Schema, name: str, schema: Schema) -> bool:
    required = name in struct.get("required", [name])
    return not (required or "const" in schema or "default" in schema or "x-computed" in schema or "null" in types_of(schema))


def cpp_type(form: Format, schema: Schema) -> str:
    schema = form.resolved(schema)
    kind, *null = types_of(schema)
    if "x-cpp" in schema:
        return schema["x-cpp"]
    if "properties" in schema or "prefixItems" in schema:
        name = schema["title"]
    elif kind == "array":
        name = f"std::vector<{cpp_type(form, schema['items'])}>"
    elif kind == "object":
        value = cpp_type(form, schema["additionalProperties"])
        name = f"Named<{value}>" if schema.get("x-ordered") else f"std::map<std::string, {value}>"
    else:
        name = "std::uint64_t" if schema.get("format") == "uint64" else _SCALARS[kind]
    return f"std::optional<{name}>" if null and "default" not in schema else name


def member_type(form: Format, struct: Schema, name: str, schema: Schema) -> str:
    own = cpp_type(form, schema)
    return f"std::optional<{own}>" if is_left_out(struct, name, schema) and types_of(schema)[0] != "array" else own


def cpp_default(schema: Schema) -> str:
    if "null" in types_of(schema) or types_of(schema)[0] in ("array", "object"):
        return "{}"
    return json.dumps(schema["default"]) if "default" in schema else "{}"


def cpp_struct(form: Format, struct: Schema) -> str:
    lines = [f"  {member_type(form, struct, name, schema)} {name} = {cpp_default(schema)};"
             + (f"  // {schema['description']}" if "description" in schema else "")
             for name, schema in form.members(struct) if "const" not in schema and "x-computed" not in schema]
    return "\n".join([f"struct {struct['title']} {{", *lines, "};"])


def cpp_written(name: str, schema: Schema) -> str:
    if "const" in schema:
        return json.dumps(schema["const"])
    return schema.get("x-computed") or schema.get("x-written") or f"r.{name}"


def cpp_writer(form: Format, struct: Schema) -> str:
    lines = []
    for name, schema in form.members(struct):
        value = cpp_written(name, schema)
        if "prefixItems" in struct:
            lines.append(f"  json.push_back({value});")
            continue
        has = "" if not is_left_out(struct, name, schema) else (
            f"if (!{value}.empty()) " if types_of(schema)[0] == "array" else f"if ({value}) ")
        lines.append(f"  {has}json[\"{name}\"] = {value};")
    head = f"void to_json(Json& json, const {struct['title']}& r) {{"
    return "\n".join([head, *lines, "}"])


def cpp_files(form: Format) -> dict[str, str]:
    note = "// Made by core/record_format.py from docs/record.schema.json, which describes each field.\n"
    structs = form.structs()
    kinds = [form.schema["$defs"][kind] for kind in form.kinds]
    lines_of = [kind["title"] for kind in kinds if "x-writer" not in kind]
    header = [note + "#pragma once\n", "#include <cstdint>\n#include <map>\n#include <optional>\n#include <string>\n"
              "#include <utility>\n#include <variant>\n#include <vector>\n", "namespace lockstep::core {\n",
              "template <class T>\nusing Named = std::vector<std::pair<std::string, T>>;  // in the order in which they are drawn\n"
              "using NamedNumbers = Named<double>;\nusing Choice = std::variant<bool, std::int64_t, double, std::string>;\n",
              *(cpp_struct(form, struct) + "\n" for struct in structs), "// One line of JSON without its newline.",
              *(f"std::string to_json(const {title}& record);" for title in lines_of), "\n}  // namespace lockstep::core\n"]
    source = [note + '#include "core/record_types.h"\n', '#include "core/provenance.h"\n#include "core/record_json.h"\n',
              "namespace lockstep::core {\n", *(cpp_writer(form, struct) + "\n" for struct in structs),
              *(f"std::string to_json(const {title}& record) {{\n  return line_of(record);\n}}\n" for title in lines_of),
              "}  // namespace lockstep::core\n"]
    return {"record_types.h": "\n".join(header), "record_types.cpp": "\n".join(source)}


# The page

def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, width=120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def is_stats(schema: Schema) -> bool:
    return schema.get("title", "").endswith("StatsRecord")


def page_type(form: Format, schema: Schema) -> str:
    schema = form.resolved(schema)
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join("null" if value is None else json.dumps(value) for value in sorted(schema["enum"], key=bool))
    kind, *others = types_of(schema)
    if "x-cpp" in schema:
        return " | ".join(_SHORT.get(one, one) for one in (kind, *others))
    if is_stats(schema):
        return "[stats](#stats-statistics-of-samples-in-their-unit)"
    if "properties" in schema:
        text = "{" + ", ".join(page_member(form, name, member) for name, member in schema["properties"].items()) + "}"
    elif "prefixItems" in schema:
        text = f"[{', '.join(item['title'] for item in schema['prefixItems'])}]"
    elif kind == "array":
        text = f"[{page_type(form, schema['items'])}]"
    elif kind == "object":
        names = ", ".join(schema.get("required", ["name"]))
        text = f"{{{names}: {page_type(form, schema['additionalProperties'])}}}"
    else:
        text = _SHORT.get(kind, kind)
    return f"null | {text}" if others else text


def page_member(form: Format, name: str, schema: Schema) -> str:
    """Returns a member of an object; the types number and string are not mentioned."""
    text = page_type(form, schema)
    return name if is_stats(form.resolved(schema)) or text.removeprefix("null | ") in ("number", "string", "int", "bool") else f"{name}: {text}"


def page_rows(form: Format, schema: Schema, prefix: str = "") -> Iterator[str]:
    """Yields a list item for each field, followed by those fields of an object that have a description."""
    for name, member in schema["properties"].items():
        member = form.resolved(member)
        text = member.get("description", "")
        if not prefix or text and not is_stats(member):
            yield wrapped(f"- **{prefix}{name}** ({page_type(form, member)})" + (f": {text}" if text else ""), indent="  ")
        inner = form.resolved(member["items"]) if "items" in member else member
        if "properties" in inner and not is_stats(inner):
            yield from page_rows(form, inner, f"{prefix}{name}{'[]' if 'items' in member else ''}.")


def page_names(schema: Schema) -> Iterator[str]:
    """Yields the names that objects have under a condition on another field, with their meaning."""
    for case in schema.get("allOf", []):
        (field, of), = case["if"]["properties"].items()
        yield wrapped(f"Where {field} is \"{of['const']}\": {case['then']['description']}.") + "\n"
        for name, names in case["then"]["properties"].items():
            for own, member in names.get("properties", {}).items():
                yield wrapped(f"- {name}: **{own}**: {member['description']}", indent="  ")
        yield ""


def page(form: Format) -> str:
    parts = ["# Record format\n", "<!-- Made by core/record_format.py from record.schema.json: edit that. -->\n",
             wrapped(form.schema["description"]) + "\n"]
    for kind in (*form.kinds, "stats"):
        schema = form.schema["$defs"][kind]
        parts.append(f"## {kind}: {schema['description']}")
        parts += [wrapped(schema["x-intro"]) + "\n"] if "x-intro" in schema else []
        parts += [*page_rows(form, schema), "", *page_names(schema)]
    parts.append(wrapped(form.schema["$comment"]))
    return "\n".join(parts) + "\n"


def write(path: Path, text: str) -> None:
    """Writes the file unless it already has this text, so that nothing is recompiled."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpp", type=Path, metavar="FOLDER")
    parser.add_argument("--page", type=Path, metavar="FILE")
    options = parser.parse_args()
    form = Format(json.loads(SCHEMA_PATH.read_text(encoding="utf-8")))
    if options.cpp:
        options.cpp.mkdir(parents=True, exist_ok=True)
        for name, text in cpp_files(form).items():
            write(options.cpp / name, text)
    if options.page:
        write(options.page, page(form))


if __name__ == "__main__":
    main()
