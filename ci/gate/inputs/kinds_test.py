"""Every kind of our lines, as the report's tests make them up, becomes cases with a name, times and facts."""
import dataclasses

import pytest
from reports.records import (
    Ceiling, Context, ExpertsLine, Kernel, Layer, Row, Scaling, ScheduleLine, Sharding, Simulation, Training)
from reports.tests import experts_world
from reports.tests.context_world import ContextWorld
from reports.tests.kernel_world import WORKS, KernelWorld
from reports.tests.layer_world import LayerWorld
from reports.tests.step_world import LayoutWorld, StepWorld
from reports.tests.training_world import TrainingWorld
from reports.tests.world import World

from gate.model import Channel
from gate.inputs.facts import FACTS
from gate.inputs.files import read_file
from gate.inputs.made_lines import text_of

CLASSES = {"row": Row, "kernel": Kernel, "schedule": ScheduleLine, "simulation": Simulation, "training": Training, "scaling": Scaling,
           "sharding": Sharding, "layer": Layer, "context": Context, "experts": ExpertsLine, "ceiling": Ceiling}


def schedules():
    world = StepWorld()
    return [world.run(), world.schedule("1f1b"), world.overlap(25)]


MADE = {  # lines, which channels they have, and a fact that must be among theirs
    "row": (lambda: [World().run(), World().row("ring", 1024)], {Channel.STORED, Channel.EXACT}, "plan.steps"),
    "kernel": (lambda: [KernelWorld().run(), KernelWorld().kernel(WORKS[0])], {Channel.STORED, Channel.EXACT}, "flops"),
    "ceiling": (lambda: [KernelWorld().run(), *KernelWorld().ceilings()], {Channel.STORED}, None),
    "schedule": (schedules, {Channel.EXACT}, "makespan_ms"),
    "simulation": (lambda: [LayoutWorld().run(), LayoutWorld().simulation(8, 4, 4)], {Channel.EXACT}, "memory_bytes.total"),
    "training": (lambda: [TrainingWorld().run(), TrainingWorld().training()], {Channel.STORED, Channel.EXACT}, "memory_bytes.total"),
    "scaling": (lambda: [TrainingWorld().run(), TrainingWorld().scaling(2)], {Channel.STORED}, None),
    "experts": (lambda: [experts_world.world(), experts_world.line()], {Channel.STORED, Channel.EXACT}, "sent_bytes"),
    "layer": (lambda: [LayerWorld().run(), LayerWorld().layer()], {Channel.STORED, Channel.EXACT}, "sent_bytes"),
    "context": (lambda: [ContextWorld().run(), ContextWorld().context()], {Channel.STORED, Channel.EXACT}, "sent_bytes.forward"),
}


@pytest.mark.parametrize("kind", MADE)
def test_each_kind_is_read(tmp_path, kind):
    lines, channels, fact = MADE[kind]
    (tmp_path / "r.jsonl").write_text(text_of(lines()))
    found = read_file(tmp_path / "r.jsonl")
    assert {one.quantity.channel for one in found} == channels
    assert len({one.quantity for one in found}) == len(found)  # lines that differ have names that differ
    assert all(one.values and "//" not in one.quantity.case for one in found)
    assert fact is None or any(one.quantity.case.endswith(f": {fact}") for one in found)


@pytest.mark.parametrize("kind", FACTS)
def test_facts_are_of_fields_that_there_are(kind):
    fields = {field.name for field in dataclasses.fields(CLASSES[kind])}
    assert {fact.path.split(".")[0] for fact in FACTS[kind]} <= fields
