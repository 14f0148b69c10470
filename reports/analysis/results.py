"""Records to everything that the page says: one PanelResult a panel, with its sentences."""
from dataclasses import dataclass
from typing import Optional, Sequence, Union

from reports.analysis.crossover import Comparison, Span, best_time, compare, fastest_spans
from reports.analysis.families import Family, family, family_of
from reports.analysis.fit import Fit, FitKey, fits_of, key_of, NoFit, Predictions, predictions_of
from reports.analysis.panels import Panel, Setting, Variant, panels_of
from reports.analysis.why import why_text
from reports.analysis.words import comparison_text, fastest_text, margin_text, sentence
from reports.records import Link, Records, Run
from reports.units import about, bytes_text, collective_name, counted, joined, rate_text, short, time_text, times_text


@dataclass(frozen=True)
class Duel:
    """Ring against tree, as one way of running has them."""

    tree: Family
    ring: Family
    comparison: Comparison
    text: str  # which is faster where, and by how much
    why: str


@dataclass(frozen=True)
class PanelResult:
    name: str  # "8 ranks, float sum, measured": tells the panels of a collective apart
    panel: Panel
    duels: tuple[Duel, ...]
    fastest: tuple[Span, ...]  # empty where nothing was timed
    predictions: Predictions
    answer: str  # ring or tree, in a sentence, or why that cannot be said; may be empty
    best: str  # which of all is fastest, in a sentence
    why: str
    bounds: str  # up to which sizes latency decides

    @property
    def finding(self) -> str:
        """The first thing to say of the panel."""
        return self.answer if self.duels or self.panel.setting.collective == "send_recv" else self.best


@dataclass(frozen=True)
class Analysis:
    results: tuple[PanelResult, ...]
    fits: dict[FitKey, Union[Fit, NoFit]]


def analyse(records: Records) -> Analysis:
    panels = panels_of(records)
    fits = fits_of(panels)
    tags = _Tags(records.runs)
    return Analysis(tuple(_result(panel, fits, tags) for panel in panels), fits)


def link_text(link: Optional[Link]) -> str:
    if link is None:
        return ""
    parts = [f"{short(link.latency_us)} µs"] if link.latency_us is not None else []
    return " link of " + ", ".join(parts + ([rate_text(link.gbps)] if link.gbps is not None else []))


def basis_text(setting: Setting) -> str:
    """measured; emulated link of 10 µs, 1 GB/s; simulated on dgx-h100."""
    return setting.basis + link_text(setting.link) + (f" on {setting.devices_of}" if setting.devices_of else "")


class _Tags:
    """Names for machines and builds, used only where there are several; numbered as in the notes."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.machines = list(dict.fromkeys(run.machine.fingerprint for run in runs))
        self.builds = list(dict.fromkeys(run.build for run in runs))

    def name(self, setting: Setting) -> str:
        reduced = "" if setting.op in ("none", "") else f" {setting.op}"
        parts = [counted(setting.ranks, "rank"), setting.dtype + reduced]
        if setting.root > 0:
            parts.append(f"root {setting.root}")
        parts.append(basis_text(setting))
        if len(self.machines) > 1:
            parts.append(f"machine {self.machines.index(setting.fingerprint) + 1}")
        if len(self.builds) > 1:
            parts.append(f"build {self.builds.index(setting.build) + 1} ({setting.build.short_revision})")
        return ", ".join(parts)


def _result(panel: Panel, fits: dict[FitKey, Union[Fit, NoFit]], tags: _Tags) -> PanelResult:
    predictions = predictions_of(panel, fits)
    duels = tuple(_duels(panel, predictions))
    fastest = fastest_spans(panel.series)
    answer = _answer(panel, duels, fits)
    why = " ".join(duel.why for duel in duels if duel.why)
    name = tags.name(panel.setting) + (f", on {panel.gpus}" if panel.gpus else "")
    return PanelResult(name, panel, duels, fastest, predictions, answer,
                       _best_text(panel, fastest) + _members_text(duels), why, _bounds_text(duels, predictions))


def _answer(panel: Panel, duels: tuple[Duel, ...], fits: dict[FitKey, Union[Fit, NoFit]]) -> str:
    if panel.setting.collective == "send_recv":
        return " ".join(_fit_text(fits[key_of(panel.setting, variant)], panel.setting.link)
                        for variant in dict.fromkeys(series.variant for series in panel.series))
    return " ".join(duel.text for duel in duels) if duels else _no_answer(panel)


def _fit_text(fit: Union[Fit, NoFit], link: Optional[Link]) -> str:
    if isinstance(fit, NoFit):
        return f"No alpha and beta: {fit.reason}."
    was = f"; the emulated link was set to{link_text(link)[len(' link of'):]}" if link else ""
    doubt = " That is a poor fit: do not lean on predictions from it." if fit.poor else ""
    return (f"A message costs alpha = {time_text(fit.alpha_us)} and its bytes pass at 1/beta = {rate_text(fit.gbps)} "
            f"(fitted over {fit.sizes} sizes, half of them within {short(100 * fit.typical_error, 2)} %, the worst "
            f"{short(100 * fit.worst_error, 2)} % off at {bytes_text(fit.worst_bytes)}, R² {fit.r2:.4f}{was}).{doubt}")


def _duels(panel: Panel, predictions: Predictions) -> list[Duel]:
    variants: list[Variant] = list(dict.fromkeys(series.variant for series in panel.series))
    duels = []
    for variant in variants:
        tree, ring = family("tree", panel.series, variant), family("ring", panel.series, variant)
        if tree and ring:
            duels.append(_duel(tree, ring, panel, predictions))
    return duels


def _duel(tree: Family, ring: Family, panel: Panel, predictions: Predictions) -> Duel:
    comparison = compare(tree.best, ring.best)
    text = comparison_text(tree.called, ring.called, comparison, f"at {counted(panel.setting.ranks, 'rank')}")
    margin = margin_text(tree.called, ring.called, comparison)
    why = why_text(tree, ring, comparison, predictions)
    return Duel(tree, ring, comparison, sentence(text + (f" ({margin})" if margin else "")), sentence(why))


def _no_answer(panel: Panel) -> str:
    present = {family_of(series.algorithm) for series in panel.series} - {None}
    if len(present) == 1:
        here = present.pop()
        return f"Ring or tree: cannot be said, no {'tree' if here == 'ring' else 'ring'} was run here."
    if len(present) == 2:
        return "Ring or tree: cannot be said, the two were not run in the same way (transport, executor)."
    return ""


def _best_text(panel: Panel, fastest: tuple[Span, ...]) -> str:
    if not fastest:
        return "Nothing here was timed correctly."
    if len(panel.series) == 1:
        return _single_text(panel)
    text = f"Of {counted(len(panel.series), 'algorithm')}, {fastest_text(fastest)}"
    return f"{text}. {_stake_text(panel)}"


def _single_text(panel: Panel) -> str:
    series = panel.series[0]
    first, last = series.points[0], series.points[-1]
    text = f"Only {series.label} was run: {time_text(first.time_us)} at {bytes_text(first.bytes)}"
    if last is first:
        return text + "."
    rate = rate_text(last.busbw_gbps(last.time_us))
    return f"{text}, {time_text(last.time_us)} at {bytes_text(last.bytes)} ({rate} busbw)."


def _stake_text(panel: Panel) -> str:
    """How much the choice matters: the worst ratio of slowest to fastest."""
    worst, size, label = max((point.time_us / best_time(panel.series, point.bytes), point.bytes, one.label)
                             for one in panel.series for point in one.points)
    return f"The wrong choice costs up to {times_text(worst)} the time ({label} at {bytes_text(size)})."


def _members_text(duels: tuple[Duel, ...]) -> str:
    """Explains which members "the best tree" is the best of."""
    told = dict.fromkeys(family.explained for duel in duels for family in (duel.tree, duel.ring) if family.explained)
    return "".join(f" {text}." for text in told)


def _bounds_text(duels: tuple[Duel, ...], predictions: Predictions) -> str:
    """Up to which size latency decides, for ring and tree; the table of plans has the others."""
    told = [member.label for duel in duels for family in (duel.ring, duel.tree) for member in family.members][:4]
    known = [p for label in told if (p := predictions.by_label.get(label)) and p.latency_bound_below]
    if not known:
        return ""
    others = [f"{p.label} at {about(p.latency_bound_below)}" for p in known[1:]]
    tail = f"; {joined(others)}" if others else ""
    return (f"{known[0].label} turns from latency-bound to bandwidth-bound near {about(known[0].latency_bound_below)}"
            f"{tail}.")


def headline(result: PanelResult) -> str:
    """All-reduce, 8 ranks, float sum, measured."""
    return f"{collective_name(result.panel.setting.collective)}, {result.name}"
