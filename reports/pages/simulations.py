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


def _computing(line: Simulation) -> float:
    return sum(line.parts_ms.get(part, 0) for part in COMPUTING)


def _bubble(line: Simulation) -> float:
    return line.parts_ms.get("bubble", 0.0)


def layouts_table(result: LayoutResult) -> Table:
    shown = result.lines[:MOST_LINES]
    cut = f" (the first {MOST_LINES:,} of {len(result.lines):,})" if len(shown) < len(result.lines) else ""
    return table(f"Every layout, the best that fits first{cut}", [
        words("layout", result.name_of, "tp tensor, cp context, ep expert, pp pipeline, dp data parallel"),
        words("schedule", lambda line: line.schedule, "pipeline schedule"), numbers("devices", lambda line: line.ranks),
        numbers("step ms", lambda line: line.step_ms), numbers("MFU %", lambda line: 100 * line.mfu, "model FLOPs divided by the peak", 3),
        numbers("HFU %", lambda line: 100 * line.hfu, "the same, including recomputed FLOPs", 3),
        numbers("TFLOP/s per device", lambda line: line.model_tflops_per_gpu, "model FLOPs"),
        numbers("tokens/s", lambda line: line.tokens_per_s, "tokens per second of all devices"),
        numbers("computing %", lambda line: 100 * _computing(line) / line.step_ms, "part of the step, on the rank that computes longest", 3),
        numbers("exposed %", lambda line: 100 * (line.step_ms - _computing(line) - _bubble(line)) / line.step_ms,
                "part of the step in which that rank waits for bytes in flight", 3),
        numbers("bubble %", lambda line: 100 * _bubble(line) / line.step_ms, "part of the step in which that rank waits for other ranks", 3),
        *([numbers("saved by zero-CTA %", lambda line: None if (part := zero_cta_saves(line)) is None else 100 * part,
                   "part of the step without NCCL's zero-CTA policy", 3)] if any(line.zero_cta for line in shown) else []),
        numbers("memory GiB", lambda line: line.memory_bytes["total"] / GIB, "memory of the device that needs most", 3),
        *(numbers(f"{kind} GiB", lambda line, kind=kind: line.memory_bytes[kind] / GIB if kind in line.memory_bytes else None, "", 3)
          for kind in KINDS),
        numbers("of a device GiB", lambda line: line.capacity_bytes / GIB, "memory of a device", 3),
        words("fits", lambda line: "yes" if line.fits else "no"), numbers("events", lambda line: line.events, "events of the simulation"),
    ], shown)


def memory_title(result: LayoutResult) -> str:
    """Names the kinds that fill the memory of the fastest layout."""
    best = result.first
    kinds = sorted(((value, kind) for kind, value in best.memory_bytes.items() if kind != "total"), reverse=True)
    text = joined([f"{kind} {bytes_text(value, 3)}" for value, kind in kinds[:2]])
    return unbroken(f"{result.name_of(best)} needs {bytes_text(best.memory_bytes['total'], 3)} of "
                    f"{bytes_text(best.capacity_bytes, 3)} per device, most of it {text}; "
                    f"{len(result.fitting)} of {counted(len(result.lines), 'layout')} "
                    f"{'fits' if len(result.fitting) == 1 else 'fit'}")


def _bars(kind: str, result: LayoutResult, title: str) -> Drawing:
    subtitle = dotted(result.name, "fastest first, those that do not fit below" if result.alike else
                      "least time of all devices first, those that do not fit below",
                      f"all with {', '.join(result.common)}" if result.common else "",
                      f"the first {MOST_BARS} of {len(result.lines)}" if len(result.lines) > MOST_BARS else "")
    return drawing(kind, f"{result.anchor}-{kind}", f"stacked_bars.layout_{kind}_figure", result, title, subtitle, step_badge([result.first.basis]),
                   "One bar per layout, of stacked parts")


def _chart(line: Simulation, stem: str) -> Drawing:
    title = unbroken(f"{line.layout.text}, {line.schedule}: a step takes {time_text(1e3 * line.step_ms)}; "
                     f"{share_text(line.bubbles.of_makespan)} of it is bubble, MFU {share_text(line.mfu)}")
    subtitle = dotted(f"{line.model.name} on {counted(line.ranks, 'device')} of {line.machine}",
                      "one row per stage of the pipeline, which represents all its ranks" if line.ranks > len(line.timeline or ()) else "")
    return drawing("gantt", stem, "gantt.gantt_figure", charts_of([line]), title, subtitle, step_badge([line.basis]),
                   "What each rank does over time")


def _section(result: LayoutResult) -> Section:
    best = result.first
    alike = [f"In all layouts: {', '.join(result.common)}."] if result.common else []
    counts = f"FLOPs are counted as: {best.flop_convention}. All times and sizes are predictions."
    timed = [line for line in result.lines if line.timeline][:MOST_TIMELINES]
    drawn = [_bars("parts", result, "Parts of the step of each layout"), _bars("memory", result, memory_title(result)),
             *(_chart(line, f"{result.anchor}-gantt-{at}") for at, line in enumerate(timed, start=1))]
    zero_cta = [text] if (text := zero_cta_text(result)) else []
    return group(result, [layouts_text(result), parts_text(best), *zero_cta, *alike, counts], drawn, [layouts_table(result)])


def _facts(records: Records, _: Sequence[Any]) -> list[Fact]:
    lines = records.simulations
    models, machines = (joined(sorted(names)) for names in ({line.model.name for line in lines}, {line.machine for line in lines}))
    return [Fact("What was simulated", f"{models} on {machines}"),
            Fact("Layouts", f"{counted(len(lines), 'layout')}, {sum(line.events for line in lines):,} events in "
                            f"{short(sum(line.wall_s for line in lines))} s")]


PAGE = Page(
    10, "simulations", "Simulated steps", "How long would a step take on a cluster, in which layout?",
    "How long a training step would take on a machine, in which layout, and whether it fits. Everything is simulated.",
    records=lambda records: records.only("simulations"), results=analyse_layouts, sections=each(_section), figure="parts", facts=_facts)
