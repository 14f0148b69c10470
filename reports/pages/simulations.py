"""The page of simulated layouts of a step."""
from typing import Any, Sequence

from reports.analysis.groups import dotted
from reports.analysis.steps.layouts import (analyse_layouts, COMPUTING, KINDS, LayoutResult, layouts_text, parts_text,
                                            zero_cta_saves, zero_cta_text)
from reports.analysis.steps.overlap import charts_of
from reports.page import Drawing, drawing, each, Fact, group, numbers, Page, Section, Table, table, words
from reports.pages.schedules import step_badge
from reports.records import Records, Simulation
from reports.units import bytes_text, counted, joined, share_text, short, time_text, unbroken

MOST_LINES = 1000  # most lines of a table; a page with more is slow
MOST_BARS = 24  # layouts
MOST_TIMELINES = 3  # limit for a model's layouts
GIB = 2 ** 30


def _computing(one: Simulation) -> float:
    return sum(one.parts_ms.get(part, 0) for part in COMPUTING)


def _bubble(one: Simulation) -> float:
    return one.parts_ms.get("bubble", 0.0)


def layouts_table(result: LayoutResult) -> Table:
    shown = result.lines[:MOST_LINES]
    cut = f" (the first {MOST_LINES:,} of {len(result.lines):,})" if len(shown) < len(result.lines) else ""
    return table(f"Every layout, the best that fits first{cut}", [
        words("layout", result.name_of, "tp tensor, cp context, ep expert, pp pipeline, dp data parallel"),
        words("schedule", lambda one: one.schedule, "pipeline schedule"), numbers("devices", lambda one: one.ranks),
        numbers("step ms", lambda one: one.step_ms), numbers("MFU %", lambda one: 100 * one.mfu, "model FLOPs divided by the peak", 3),
        numbers("HFU %", lambda one: 100 * one.hfu, "the same, including recomputed FLOPs", 3),
        numbers("TFLOP/s per device", lambda one: one.model_tflops_per_gpu, "model FLOPs"),
        numbers("tokens/s", lambda one: one.tokens_per_s, "tokens per second of all devices"),
        numbers("computing %", lambda one: 100 * _computing(one) / one.step_ms, "part of the step, on the rank that computes longest", 3),
        numbers("exposed %", lambda one: 100 * (one.step_ms - _computing(one) - _bubble(one)) / one.step_ms,
                "part of the step in which that rank waits for bytes in flight", 3),
        numbers("bubble %", lambda one: 100 * _bubble(one) / one.step_ms, "part of the step in which that rank waits for other ranks", 3),
        *([numbers("saved by zero-CTA %", lambda one: None if (part := zero_cta_saves(one)) is None else 100 * part,
                   "part of the step without NCCL's zero-CTA policy", 3)] if any(one.zero_cta for one in shown) else []),
        numbers("memory GiB", lambda one: one.memory_bytes["total"] / GIB, "memory of the device that needs most", 3),
        *(numbers(f"{kind} GiB", lambda one, kind=kind: one.memory_bytes[kind] / GIB if kind in one.memory_bytes else None, "", 3)
          for kind in KINDS),
        numbers("of a device GiB", lambda one: one.capacity_bytes / GIB, "memory of a device", 3),
        words("fits", lambda one: "yes" if one.fits else "no"), numbers("events", lambda one: one.events, "events of the simulation"),
    ], shown)


def memory_title(result: LayoutResult) -> str:
    """Names the kinds that fill the memory of the fastest layout."""
    best = result.first
    kinds = sorted(((value, kind) for kind, value in best.memory_bytes.items() if kind != "total"), reverse=True)
    told = joined([f"{kind} {bytes_text(value, 3)}" for value, kind in kinds[:2]])
    return unbroken(f"{result.name_of(best)} needs {bytes_text(best.memory_bytes['total'], 3)} of "
                    f"{bytes_text(best.capacity_bytes, 3)} per device, most of it {told}; "
                    f"{len(result.fitting)} of {counted(len(result.lines), 'layout')} "
                    f"{'fits' if len(result.fitting) == 1 else 'fit'}")


def _bars(kind: str, result: LayoutResult, title: str) -> Drawing:
    subtitle = dotted(result.name, "fastest first, those that do not fit below" if result.alike else
                      "least time of all devices first, those that do not fit below",
                      f"all with {', '.join(result.common)}" if result.common else "",
                      f"the first {MOST_BARS} of {len(result.lines)}" if len(result.lines) > MOST_BARS else "")
    return drawing(kind, f"{result.anchor}-{kind}", f"stacked_bars.layout_{kind}_figure", result, title, subtitle, step_badge([result.first.basis]),
                   "A bar a layout, of stacked parts")


def _chart(one: Simulation, stem: str) -> Drawing:
    title = unbroken(f"{one.layout.text}, {one.schedule}: a step takes {time_text(1e3 * one.step_ms)}; "
                     f"{share_text(one.bubbles.of_makespan)} of it is bubble, MFU {share_text(one.mfu)}")
    subtitle = dotted(f"{one.model.name} on {counted(one.ranks, 'device')} of {one.machine}",
                      "a row per stage of the pipeline, which stands for all ranks that do alike" if one.ranks > len(one.timeline or ()) else "")
    return drawing("gantt", stem, "gantt.gantt_figure", charts_of([one]), title, subtitle, step_badge([one.basis]),
                   "What each rank does over time")


def _section(result: LayoutResult) -> Section:
    best = result.first
    alike = [f"In all of them: {', '.join(result.common)}."] if result.common else []
    counts = f"FLOPs are counted as: {best.flop_convention}. All times and sizes are predictions."
    timed = [one for one in result.lines if one.timeline][:MOST_TIMELINES]
    drawn = [_bars("parts", result, "Parts of the step of each layout"), _bars("memory", result, memory_title(result)),
             *(_chart(one, f"{result.anchor}-gantt-{at}") for at, one in enumerate(timed, start=1))]
    zero_cta = [text] if (text := zero_cta_text(result)) else []
    return group(result, [layouts_text(result), parts_text(best), *zero_cta, *alike, counts], drawn, [layouts_table(result)])


def _facts(records: Records, _: Sequence[Any]) -> list[Fact]:
    lines = records.simulations
    models, machines = (joined(sorted(names)) for names in ({line.model.name for line in lines}, {line.machine for line in lines}))
    return [Fact("What was simulated", f"{models} on {machines}"),
            Fact("Layouts", f"{counted(len(lines), 'layout')}, {sum(line.events for line in lines):,} events in "
                            f"{short(sum(line.wall_s for line in lines))} s")]


PAGE = Page(
    10, "simulations", "Simulated steps", "What would a step take on a cluster, in which layout?",
    "What a training step would take on a machine, in which layout, and whether it fits. All of it is simulated.",
    records=lambda records: records.only("simulations"), results=analyse_layouts, sections=each(_section), figure="parts", facts=_facts)
