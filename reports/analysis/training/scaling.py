"""Steps of several layouts: how well they scale, and how well their pieces explain the measured time."""
from dataclasses import dataclass
from statistics import median
from typing import Optional

from reports.analysis.findings import Finding
from reports.analysis.training.runs import NAMES, link_text, model_text
from reports.records import Records, Scaling, StepTime
from reports.units import counted, joined, share_text, short, time_text

KINDS = {"isolated": "pieces alone, simulated", "contended": "with contention, simulated", "measured": "measured"}
_FROM = {"isolated": "what their pieces alone give", "contended": "what these give with their measured contention"}
NAMED = 0.01  # share of the step: smaller differences are not named
MOST_NAMED = 3
MOST_CHARTS = 8  # number of charts of a group


@dataclass(frozen=True)
class ScalingResult:
    anchor: str
    lines: tuple[Scaling, ...]  # weak before strong, each in the order of ranks

    @property
    def first(self) -> Scaling:
        return self.lines[0]

    @property
    def name(self) -> str:
        one = self.first
        parts = [model_text(one.model), one.dtype, f"{counted(one.threads, 'thread')} per rank", link_text(one.run.link)]
        return ", ".join(part for part in parts if part)

    @property
    def modes(self) -> list[str]:
        return list(dict.fromkeys(one.mode for one in self.lines))

    @property
    def findings(self) -> list[Finding]:
        badge = "" if self.first.basis == "measured" else self.first.basis
        return [Finding(f"Scaling of {self.name}", gaps_text(self), "; ".join(efficiency_text(self)) + ".", badge,
                        self.anchor)]


def analyse_scaling(records: Records) -> tuple[ScalingResult, ...]:
    """Keeps the latest of equal layouts of several runs."""
    grouped: dict[tuple, dict[tuple, Scaling]] = {}
    for one in records.scalings:
        key = (one.model.name, one.model.parameters, one.model.numbers["length"], one.dtype, one.threads,
               one.basis, one.run.link, one.run.machine.fingerprint, one.run.build)
        grouped.setdefault(key, {})[one.mode, one.layout.text, one.sequences_per_step] = one
    ordered = [sorted(of.values(), key=lambda one: (one.mode != "weak", one.ranks)) for of in grouped.values()]
    return tuple(ScalingResult(f"scaling-{number}", tuple(of)) for number, of in enumerate(ordered, start=1))


def line_name(one: Scaling) -> str:
    """Name such as "dp=2, weak"; " *" at its end marks more ranks than cores."""
    return f"{one.layout.text}, {one.mode}" + (" *" if one.oversubscribed else "")


def off(line: Scaling, kind: str) -> Optional[float]:
    """Share by which the measured step is longer than a predicted one; None without either."""
    predicted, measured = line.step(kind), line.step("measured")
    return measured.step_ms / predicted.step_ms - 1 if predicted and measured and predicted.step_ms else None


def gaps_text(result: ScalingResult) -> str:
    """Sentence on the errors of the predictions, over all layouts."""
    told = []
    for kind in ("isolated", "contended"):
        values = [abs(value) for line in result.lines if (value := off(line, kind)) is not None]
        if values:
            told.append(f"{share_text(median(values))} in the median ({share_text(max(values))} at most) from "
                        f"{_FROM[kind]}")
    if told:
        return f"Steps of {counted(len(result.lines), 'layout')} differ by {', and by '.join(told)}."
    return f"{counted(len(result.lines), 'layout')}, simulated from the pieces of two replicas; none was run."


def efficiency_text(result: ScalingResult) -> list[str]:
    """Words per mode and number of ranks, such as "weak, 2 ranks: the best is dp=2 with 93 % of one rank's tokens/s for each"."""
    told = []
    for mode in result.modes:
        lines = [one for one in result.lines if one.mode == mode and one.efficiency is not None and one.ranks > 1]
        for ranks in sorted({one.ranks for one in lines}):
            best = max((one for one in lines if one.ranks == ranks), key=lambda one: one.efficiency)
            shared = " (ranks share cores)" if best.oversubscribed else ""
            told.append(f"{mode}, {counted(ranks, 'rank')}{shared}: the best is {best.layout.text} with "
                        f"{share_text(best.efficiency)} of one rank's tokens/s for each")
    return told


def differences(line: Scaling, kind: str) -> dict[str, float]:
    """Measured minus predicted time of each part, in ms; empty without either step."""
    predicted, measured = line.step(kind), line.step("measured")
    if not predicted or not measured:
        return {}
    names = dict.fromkeys([*measured.parts_ms, *predicted.parts_ms])
    return {name: measured.parts_ms.get(name, 0) - predicted.parts_ms.get(name, 0) for name in names}


def why_text(line: Scaling, kind: str) -> str:
    """Words for the largest differences, such as "backward +3.1 ms and bubble −0.6 ms"."""
    measured = line.step("measured")
    whole = measured.step_ms if measured else 0.0
    told = sorted(((abs(value), name, value) for name, value in differences(line, kind).items()
                   if abs(value) > NAMED * whole), reverse=True)[:MOST_NAMED]
    return joined([f"{NAMES.get(name, name)} {signed(value)} ms" for _, name, value in told])


def signed(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{short(abs(value))}"


def line_text(line: Scaling) -> str:
    """The three times of one layout in a sentence."""
    isolated, contended, measured = (line.step(kind) for kind in KINDS)
    if not (isolated and contended and measured):
        return ""
    because = why_text(line, "contended")
    return (f"{line_name(line)}: pieces timed alone give {_ms(isolated)}, with their measured contention "
            f"{_ms(contended)}, and the step takes {_ms(measured)}"
            f"{f'; what contention leaves is {because}' if because else ''}.")


def _ms(step: StepTime) -> str:
    return time_text(1e3 * step.step_ms)


def telling(results: tuple[ScalingResult, ...], layout: str = "") -> Optional[Scaling]:
    """Layout whose step is explained in detail: the one that was trained; else, among those that have cores of
    their own, the one with most ranks."""
    lines = [line for result in results for line in result.lines if line.step("measured") and line.step("isolated")]
    own = [line for line in lines if not line.oversubscribed] or lines
    return max(own, key=lambda line: (line.layout.text == layout, line.ranks), default=None)


def charted(result: ScalingResult) -> list[Scaling]:
    """Lines whose timelines are drawn, in this order."""
    return [line for line in result.lines if line.ranks > 1 and any(step.timeline for step in line.steps)][:MOST_CHARTS]


def chart_stem(results: tuple[ScalingResult, ...], line: Scaling) -> str:
    """The name of a layout's chart; empty if it has none."""
    for result in results:
        for number, one in enumerate(charted(result), start=1):
            if one is line:
                return f"{result.anchor}-gantt-{number}"
    return ""
