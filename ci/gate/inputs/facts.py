"""The one table of exact values in our records. A fact is counted, computed or simulated; measured times are not here."""
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gate.inputs.observation import WRONG


def always(_: Any) -> bool:
    return True


def simulated(line: Any) -> bool:
    return line.basis == "simulated"


def stated(line: Any) -> bool:
    """Its costs were stated by the user. Those of a measured step are measured too, and so is all that follows from them."""
    return line.basis != "measured"


@dataclass(frozen=True)
class Fact:
    path: str  # fields of docs/record_format.md; "x.*": each of x's; a list counts as its sum, or its most
    unit: str
    holds: Callable[[Any], bool] = always
    of_list: Callable[[Any], float] = sum


FACTS: dict[str, tuple[Fact, ...]] = {
    "row": (
        Fact("plan.steps", "messages"), Fact("plan.wire_bytes_max", "bytes"), Fact("plan.wire_bytes_total", "bytes"),
        Fact("time_us", "us", simulated)),
    "kernel": (Fact("flops", "FLOPs"), Fact("bytes", "bytes")),
    "schedule": (
        Fact("sends", "messages"), Fact("weight_versions", "versions", of_list=max),
        Fact("peak_activations.until_w", "microbatches", stated, max), Fact("peak_activations.until_b", "microbatches", stated, max),
        Fact("makespan_ms", "ms", simulated), Fact("own_span_ms", "ms", simulated), Fact("exposed_ms", "ms", simulated, max),
        Fact("work_ms", "ms", simulated), Fact("simulated_ms", "ms", stated), Fact("closed_form_ms.cost", "ms", stated),
        Fact("filler.steps", "steps"), Fact("filler.filled", "of all"), Fact("filler.utilization", "of all"),
        Fact("overlap.collectives", "collectives"),
        Fact("overlap.reductions.sent_bytes", "bytes"), Fact("overlap.reductions.formula_bytes", "bytes"),
        Fact("overlap.reductions.wrong", WRONG)),
    "simulation": (
        Fact("step_ms", "ms"), Fact("parts_ms.*", "ms"), Fact("memory_bytes.*", "bytes"), Fact("sent_bytes.*", "bytes"),
        Fact("sent_beyond_bytes.*", "bytes"), Fact("events", "events")),
    "training": (Fact("memory_bytes.*", "bytes"),),
    "scaling": (),
    "sharding": (
        # Peaks are not exact: how many gathered units and gradients are there at once depends on what runs beside what.
        Fact("padded_elems", "elements"), Fact("held_bytes.*", "bytes"),
        Fact("sent_bytes.*", "bytes"), Fact("formula_bytes.*", "bytes"), Fact("formula_sent_bytes.*", "bytes")),
    # Which elements have other bits in tiles follows the instructions that a processor has for products.
    "layer": (Fact("sent_bytes", "bytes"), Fact("formula_bytes", "bytes"), Fact("wrong", WRONG)),
    "context": (Fact("sent_bytes.*", "bytes"), Fact("pairs", "of all", of_list=max)),
    "experts": (
        Fact("sent_bytes", "bytes"), Fact("formula_bytes", "bytes"), Fact("dropped", "copies"), Fact("most_rows", "rows"),
        Fact("wrong", WRONG)),
    "ceiling": (),
}


def facts_of(kind: str, line: Any) -> Iterator[tuple[str, str, float]]:
    """Name, unit and value of each fact of a line; those that it does not have are left out."""
    for fact in FACTS[kind]:
        if not fact.holds(line):
            continue
        for name, value in _values(line, fact.path.split("."), ()):
            if isinstance(value, (list, tuple)):
                value = fact.of_list(value) if value else None
            if value is not None:
                yield name, fact.unit, float(value)


def _values(at: Any, path: list[str], walked: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not path or at is None:
        yield ".".join(walked), at
    elif path[0] == "*":
        for key in at:
            yield from _values(at[key], path[1:], (*walked, key))
    else:
        yield from _values(at[path[0]] if isinstance(at, dict) else getattr(at, path[0]), path[1:], (*walked, path[0]))
