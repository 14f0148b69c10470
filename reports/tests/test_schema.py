"""Our reader of docs/record.schema.json agrees with the reference implementation, on good records and on mutants."""
import copy
import re

import pytest

from reports.schema import SCHEMA_PATH, problem_in, record_schema
from reports.tests.gate_world import GateWorld
from reports.tests.kernel_world import WORKS, KernelWorld, kernel_failed, kernel_wrong
from reports.tests.step_world import LayoutWorld, StepWorld
from reports.tests.world import World, failed, wrong

jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema is not installed")

WORLD = World()
ROW = WORLD.row("ring", 1024)
GOOD = [WORLD.run(), World(run_fields={"link": {"latency_us": 10, "gbps": 1.0}, "basis": "emulated"}).run(), ROW,
        failed(ROW), wrong(ROW), {**ROW, "plan": None, "stats": None, "samples_us": [], "wrong": None}]
KERNEL, CEILING = KernelWorld().kernel(WORKS[0]), KernelWorld().ceilings()[0]
GOOD_KERNELS = [KERNEL, CEILING, kernel_failed(KERNEL), kernel_wrong(KERNEL), {**KERNEL, "stats": None, "gbps": None},
                KernelWorld().ceilings()[-1]]
SCHEDULE, SIMULATION = StepWorld(ranks=2, microbatches=2).schedule("1f1b"), LayoutWorld().simulation(4, 4, 8)
OVERLAP = {"layers": 4, "bytes_a_layer": 1 << 20, "replicas": 2, "bucket_cap_bytes": 25 << 20, "zero_stage": 0,
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
ODD = [None, True, -1, 0, 1.5, 8.0, "", "text", [], [1], {}, {"a": 1}]


def reference():
    return jsonschema.Draft202012Validator(record_schema())


def paths(value, prefix=()):
    """The places of all members of a record, nested ones too."""
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
    jsonschema.Draft202012Validator.check_schema(record_schema())


@pytest.mark.parametrize("record", GOOD + GOOD_KERNELS + GOOD_STEPS + GOOD_GATE,
                         ids=lambda r: f"{r['record']}-{r.get('status', r.get('basis'))}")
def test_generated_records_are_valid(record):
    assert problem_in(record, record["record"]) is None
    reference().validate(record)


@pytest.mark.parametrize("record", [*GOOD[1:4], *GOOD_KERNELS[:3], *GOOD_STEPS[1:3],
                                    *GOOD_GATE[:2]],
                         ids=["run", "row", "failed", "kernel", "ceiling", "failed kernel", "simulation", "schedule",
                              "gate run", "verdict"])
def test_agrees_with_the_reference_on_mutants(record):
    validator, rejected, accepted = reference(), 0, 0
    for path in paths(record):
        if path == ("record",):
            continue  # what kind of line it is, is decided before
        mutants = [changed(record, path, remove=True)] + [changed(record, path, odd) for odd in ODD]
        for mutant in mutants:
            ours = problem_in(mutant, mutant["record"]) is None
            assert ours == validator.is_valid(mutant), (path, mutant)
            rejected, accepted = rejected + (not ours), accepted + ours
    assert rejected > 150 and accepted > 20


def test_every_field_of_the_page_is_in_the_schema():
    """docs/record_format.md and the schema list the same fields of a line."""
    page = (SCHEMA_PATH.parent / "record_format.md").read_text(encoding="utf-8")
    for kind in ("run", "row", "kernel", "ceiling", "schedule", "simulation", "verdict", "history"):
        table = page.split(f"## {kind}:")[1].split("\n## ")[0]
        names = re.findall(r"^\| ([a-z0-9_, ]+) \|", table, flags=re.MULTILINE)
        documented = {name for cell in names for name in cell.split(", ")} - {"field"}
        in_schema = set(record_schema()["$defs"][kind]["properties"])
        assert documented - in_schema == set() and in_schema - documented == set()
