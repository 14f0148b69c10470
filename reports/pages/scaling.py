"""The page of steps on several numbers of ranks."""
from typing import Any, Optional, Sequence

from reports.analysis.steps.overlap import Chart
from reports.analysis.training.curves import efficiency_text, losses_text, undecided_text
from reports.analysis.training.runs import (
    analyse_scaling, charted, chart_stem, computing_ms, KINDS, line_name, off, ScalingResult, titled, why_text)
from reports.page import counts, Drawing, drawing, each, Fact, group, numbers, Page, Section, Table, table, words
from reports.pages.training import step_badge
from reports.records import Records, Step
from reports.units import counted, joined, share_text, unbroken


def _interval(step: Step) -> str:
    stats = step.stats
    return f"{stats.ci_low / 1e3:.4g} to {stats.ci_high / 1e3:.4g}" if stats and stats.ci_low is not None else "–"


def _off_percent(step: Step, kind: str) -> Optional[float]:
    share = off(step, kind)
    return None if share is None else 100 * share


_COLUMNS = (
    words("layout", line_name, "* more ranks than cores"), counts("ranks", lambda line: line.ranks),
    counts("sequences per step", lambda line: line.sequences_per_step),
    *(numbers(name, lambda line, kind=kind: line.step(kind) and line.step(kind).step_ms, meaning) for kind, name, meaning in (
        ("isolated", "alone ms", "from pieces timed alone, simulated"),
        ("contended", "contended ms", "with the slowdowns measured while pieces run concurrently, simulated"),
        ("measured", "measured ms", "median"))),
    words("95 % interval ms", _interval, "bootstrap interval of the median"),
    numbers("off alone %", lambda line: _off_percent(line, "isolated"), "measured over alone, minus 1", 3),
    numbers("off contended %", lambda line: _off_percent(line, "contended"), "measured over contended, minus 1", 3),
    numbers("computing ms", lambda line: line.step("measured") and computing_ms(line.step("measured").parts_ms),
            "part of the measured step, mean over ranks"),
    numbers("tokens/s", lambda line: line.tokens_per_s, "tokens per second of all ranks", 5),
    words("efficiency %", efficiency_text, "tokens/s over the ideal: one rank's times the ranks that have cores; 95 % interval"),
    words("what takes the rest", lambda line: undecided_text(line) or losses_text(line) or "–", "shares of the step that their intervals decide"),
    words("unexplained by contention", lambda line: why_text(line, "contended") or "–", "measured minus contended, by part"),
)
# Columns of (layout, one of its slowdowns).
_SLOWDOWNS = (
    words("layout", lambda row: line_name(row[0])), words("what", lambda row: row[1].of, "F forward, B backward, STEP the optimizer"),
    words("concurrent with", lambda row: row[1].beside), counts("ranks", lambda row: row[1].ranks, "that compute"),
    numbers("times as long", lambda row: row[1].factor, "weighted median", 3), counts("samples", lambda row: row[1].samples),
)


def _tables(result: ScalingResult) -> list[Table]:
    return [table("Every layout of the records", _COLUMNS, (*result.run, *result.beyond)),
            table("Measured slowdowns: how many times as long as alone", _SLOWDOWNS,
                  [(line, slow) for line in result.run for slow in line.slowdowns or ()])]


def _largest_gap(result: ScalingResult) -> str:
    line = max((line for line in result.run if line.step("measured") and line.step("contended")),
               key=lambda line: abs(line.step("measured").step_ms - line.step("contended").step_ms), default=None)
    if line is None:
        return "Measured minus predicted steps"
    because = why_text(line, "contended") or "no part by more than 1 % of the step"
    return f"Contention leaves most unexplained in {line_name(line)}: {because}"


def _stars(result: ScalingResult) -> str:
    lines = [line for line in (*result.run, *result.beyond) if line.efficiency]
    undecided = sum(bool(undecided_text(line)) for line in lines)
    return (result.name + (f"  ·  {undecided} of {len(lines)} efficiencies are undecided" if undecided else "")
            + ("  ·  * more ranks than cores" if any(line.oversubscribed for line in result.run) else ""))


_NAMES = {"isolated": "simulated from pieces alone", "contended": "simulated with measured contention", "measured": "measured"}


def _charts(line: Step) -> list[Chart]:
    """Measured timelines are below the predicted ones, on one time axis."""
    steps = [line.step(kind) for kind in KINDS]
    return [Chart(_NAMES[step.mode], step.timeline, step.step_ms, _bubble(step.parts_ms), None) for step in steps if step and step.timeline]


def _bubble(parts_ms: dict[str, float]) -> str:
    whole = sum(parts_ms.values())
    exposed = sum(value for name, value in parts_ms.items() if name.startswith("exposed"))
    return (f"waiting for bytes {share_text(exposed / whole)}, for other ranks "
            f"{share_text(parts_ms.get('bubble', 0) / whole)}")


def _drawings(result: ScalingResult) -> list[Drawing]:
    """Steps that were simulated beyond the machine have no measured step to be compared with."""
    gap = any(piece.step("measured") for piece in result.pieces)
    wanted = (
        ("curve", "curve", "curve_figure", "Tokens per second by number of ranks, measured and simulated", bool(result.curves)),
        ("losses", "losses", "losses_figure", "Efficiency of each layout, and its losses", any(line.efficiency for line in result.run)),
        ("three", "parts", "three_times_figure", "Time of each layout from its pieces alone, with contention, and measured", bool(result.pieces)),
        ("gap", "parts", "gap_figure", unbroken(_largest_gap(result)) if gap else "", gap))
    drawn = [drawing(kind, f"{result.anchor}-{name}", f"training_figures.{draw}", result, title, _stars(result), step_badge(result.first))
             for name, kind, draw, title, there in wanted if there]
    return drawn + [drawing("gantt", chart_stem([result], line), "gantt.gantt_figure", _charts(line),
                            unbroken(f"{line_name(line)}: each rank's tasks over time"), f"{titled(line.model)}, a row per rank", step_badge(line))
                    for line in charted(result)]


def _facts(records: Records, _: Sequence[Any]) -> list[Fact]:
    lines = records.steps
    cores = joined(sorted({str(line.run.machine.cores) for line in lines}))
    return [Fact("What was timed", joined(sorted({titled(line.model) for line in lines}))),
            Fact("Layouts", f"{counted(len(lines), 'layout')} on {cores} cores, {sum(line.oversubscribed for line in lines)} with more ranks than cores")]


def _section(result: ScalingResult) -> Section:
    return group(result, result.texts, _drawings(result), _tables(result))


PAGE = Page(
    13, "scaling", "Scaling", "How many tokens per second do more ranks give, and what limits them?",
    "How well do layouts scale, what limits them, and do the pieces of a step explain its time?",
    records=lambda records: records.parts("scaling"), results=analyse_scaling, sections=each(_section), figure="curve", facts=_facts,
    bad_heading="Failed layouts")
