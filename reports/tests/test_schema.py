"""docs/record.schema.json is the only definition of a record's fields: tests the reader on valid records and on mutants, and
that structs, JSON and the format page are generated from it."""
import copy
import json
import sys

import pytest
from jsonschema import Draft202012Validator

from reports.schema import KINDS, SCHEMA, SCHEMA_PATH, kind_schema, problem_in
from reports.tests.world import failed, GateWorld, LayerWorld, TrainingWorld, World, wrong
from reports.tests.kernel_world import WORKS, KernelWorld, kernel_failed, kernel_wrong
from reports.tests.step_world import LayoutWorld, StepWorld

sys.path.insert(0, str(SCHEMA_PATH.parent.parent / "core"))
import record_format  # noqa: E402

WORLD = World()
ROW = WORLD.row("ring", 1024)
GOOD = [WORLD.run(), World(run_fields={"link": {"latency_us": 10, "gbps": 1.0}, "basis": "emulated"}).run(), ROW,
        failed(ROW), wrong(ROW), {**ROW, "plan": None, "stats": None, "samples_us": [], "wrong": None}]
KERNEL, CEILING = KernelWorld().kernel(WORKS[0]), KernelWorld().ceilings()[0]
GOOD_KERNELS = [KERNEL, CEILING, kernel_failed(KERNEL), kernel_wrong(KERNEL), {**KERNEL, "stats": None, "gbps": None},
                KernelWorld().ceilings()[-1]]
SCHEDULE, SIMULATION = StepWorld(ranks=2, microbatches=2).schedule("1f1b"), LayoutWorld().simulation(4, 4, 8)
OVERLAP = {"layers": 4, "bytes_per_layer": 1 << 20, "replicas": 2, "bucket_cap_bytes": 25 << 20, "zero_stage": 0,
           "prefetch": 1, "algorithm": "ring", "collectives": 4, "compute_alone_ms": 10.0,
           "communication_alone_ms": 8.0, "efficiency": 0.5}
REDUCTIONS = {"compression": "int8", "backward_ms": 7.0, "one_by_one_ms": 18.0, "exposed_ms": -0.5,
              "exposed_samples_ms": [-0.5, 1.0], "sent_bytes": 1e6, "formula_bytes": 1e6, "wrong": 0, "status": "ok"}
GOOD_STEPS = [SCHEDULE, SIMULATION,
              {**SCHEDULE, "times_ms": None, "memory": None, "overlap": OVERLAP, "timeline": None},
              {**SCHEDULE, "overlap": {**OVERLAP, "reductions": REDUCTIONS}},
              {**SIMULATION, "timeline": SCHEDULE["timeline"], "memory": SCHEDULE["memory"]}]
GATE = GateWorld(notes=["a note"])
GOOD_GATE = [GATE.run(), GATE.case("a", "slower", 1.1), GATE.case("a", "new", None), GATE.count("a", 0, 1),
             GATE.history("a", [1.0, 2.0], [1])]
GOOD_TRAINING = [TrainingWorld().training(), TrainingWorld().scaling(2), LayerWorld().layer()]
ALL = GOOD + GOOD_KERNELS + GOOD_STEPS + GOOD_TRAINING + GOOD_GATE
ODD = [None, True, -1, 0, 1.5, 8.0, "", "text", [], [1], {}, {"a": 1}]


def reference(kind):
    return Draft202012Validator({**kind_schema(kind), "$defs": SCHEMA["$defs"]})


def paths(value, prefix=()):
    """Paths of all members of a record, including nested ones."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield prefix + (key,)
        yield from paths(item, prefix + (key,))


def changed(record, path, value=None, remove=False):
    copied = copy.deepcopy(record)
    place = copied
    for key in path[:-1]:
        place = place[key]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copied


def test_schema_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("record", ALL, ids=lambda r: f"{r['record']}-{r.get('status', r.get('basis'))}")
def test_made_up_records_are_valid_and_have_no_field_beyond_the_schema(record):
    assert problem_in(record, record["record"]) is None
    Draft202012Validator(SCHEMA).validate(record)
    assert set(record) <= set(kind_schema(record["record"])["properties"])


@pytest.mark.parametrize("record", {record["record"]: record for record in ALL}.values(), ids=lambda record: record["record"])
def test_every_mutant_that_the_reference_refuses_is_reported_in_our_words(record):
    validator, rejected, accepted = reference(record["record"]), 0, 0
    for path in paths(record):
        if path == ("record",):
            continue  # the kind of line is decided before
        for mutant in [changed(record, path, remove=True)] + [changed(record, path, odd) for odd in ODD]:
            problem = problem_in(mutant, mutant["record"])
            assert (problem is None) == validator.is_valid(mutant), (path, mutant)
            assert problem is None or problem.startswith("field '") and "\n" not in problem
            rejected, accepted = rejected + (problem is not None), accepted + (problem is None)
    assert rejected > 50 and accepted > 10


def test_the_page_is_the_schemas():
    page = SCHEMA_PATH.parent / "record_format.md"
    assert page.read_text(encoding="utf-8") == record_format.page(record_format.Format(SCHEMA)), \
        "run core/record_format.py --page docs/record_format.md"


def test_a_new_field_is_one_line_of_the_schema():
    schema = copy.deepcopy(SCHEMA)
    schema["$defs"]["row"]["properties"]["retries"] = {"type": ["integer", "null"], "description": "messages sent again"}
    form = record_format.Format(schema)
    files = record_format.cpp_files(form)
    assert "  std::optional<std::int64_t> retries = {};" in files["record_types.h"]
    assert '  json["retries"] = r.retries;' in files["record_types.cpp"]
    assert "- **retries** (null | int): messages sent again" in record_format.page(form)


def test_what_others_write_has_no_struct():
    header = record_format.cpp_files(record_format.Format(SCHEMA))["record_types.h"]
    structs = {kind: f"struct {kind_schema(kind)['title']} {{" in header for kind in KINDS}
    assert {kind for kind, there in structs.items() if not there} == {"verdict", "history", "kernel_count"}
    assert "json.h" not in header and json.dumps("verdict") not in header


def test_a_field_that_may_be_absent_has_no_value_until_it_is_set():
    """A default counts only where the field itself states it: one of the type that it refers to would always be written."""
    form = record_format.Format(SCHEMA)
    for struct in form.structs():
        for name, field in struct.get("properties", {}).items():
            if name in struct.get("required", [name]) or {"default", "const", "x-computed", "x-writer"} & field.keys():
                continue
            schema = dict(form.members(struct))[name]
            kind, *null = record_format.types_of(schema)
            typed = record_format.member_type(form, struct, name, schema)
            assert null or typed.startswith("std::optional") or kind == "array", (struct["title"], name)
