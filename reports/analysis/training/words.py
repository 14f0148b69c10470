"""Words that the pages of training and scaling share."""
from typing import Any

from reports.analysis.steps.layouts import COMPUTING, PARTS, SLIGHT
from reports.records import Link
from reports.units import joined, share_text, short, time_text

NAMES = {**PARTS, "around": "around the tasks"}


def titled(model: Any) -> str:
    """GPT nano; a model that is no GPT has its name alone."""
    is_gpt = "llama" not in model.name and "learned_positions=no" not in model.name
    return f"GPT {model.name}" if is_gpt else model.name


def model_text(model: Any) -> str:
    """GPT nano (0.842 million parameters)."""
    return f"{titled(model)} ({short(model.parameters / 1e6)} million parameters)"


def parts_text(parts_ms: dict[str, float]) -> str:
    """forward 28 %, backward 63 % and bubble 3 %: what is more than slight, the largest first."""
    whole = sum(parts_ms.values())
    told = sorted(((value, name) for name, value in parts_ms.items() if value > SLIGHT * whole), reverse=True)
    return joined([f"{NAMES.get(name, name)} {share_text(value / whole)}" for value, name in told])


def computing_ms(parts_ms: dict[str, float]) -> float:
    return sum(parts_ms.get(name, 0) for name in COMPUTING)


def link_text(link: Link | None) -> str:
    if link is None:
        return ""
    told = [f"{short(link.gbps)} GB/s"] * bool(link.gbps) + [time_text(link.latency_us)] * bool(link.latency_us)
    return f"emulated links of {', '.join(told) or 'no limit'}"
