"""Results of the page of collectives, one per panel, with their sentences: ring or tree, the reasons, and the fastest at each size."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Optional, Sequence, Union

from reports.analysis.crossover import (
    best_point, compare, Comparison, comparison_text, fastest_spans, fastest_text, margin_text, sentence, Span, spread_of,
    Verdict)
from reports.analysis.estimate import alike, certain_factor, undecided
from reports.analysis.fit import Fit, Fits, fits_of, key_of, NoFit, Prediction, Predictions, predictions_of
from reports.analysis.groups import by, listed, Places
from reports.analysis.panels import Panel, Point, rows_by_panel, Series, Variant
from reports.records import Link, Records, Row
from reports.units import about, bytes_text, collective_name, counted, joined, rate_text, short, time_text, times_text


# ---- Ring or tree: the series of each family, and the best of a family as one series

# Families by the words of an algorithm's name. A chain is the ring of a rooted collective: every rank forwards to the next. PAT
# is a binomial tree for each block, with shared messages.
_WORDS = {
    "ring": {"ring", "chain"},
    "tree": {"tree", "binomial", "pat"},
}


@dataclass(frozen=True)
class Family:
    name: str  # "ring", "tree"
    members: tuple[Series, ...]
    best: Series  # fastest member at each size

    @property
    def called(self) -> str:
        """Name for a sentence: a member's, if it is the fastest of its family, or level with it, at every size."""
        answers = {span.answer for span in fastest_spans(self.members)}
        known = len(answers) == 1 and Verdict.UNDECIDED not in answers
        return str(answers.pop()) if known else f"the best {self._noun}{self._over}"

    @property
    def _over(self) -> str:
        """The transport, if the members' labels contain it, as in a panel with several."""
        endings = {member.label[len(member.algorithm):] for member in self.members}
        return endings.pop() if len(endings) == 1 else ""

    @property
    def _noun(self) -> str:
        """Name of all members, if they are one algorithm with several options; else the family."""
        bases = {member.algorithm.split(":")[0] for member in self.members}
        return bases.pop() if len(bases) == 1 else self.name

    @property
    def representative(self) -> Series:
        """The member that is the fastest of its family, or level with it, over the most sizes."""
        spans = fastest_spans(self.members)
        sizes = {m.label: sum(m.label == span.answer and span.first <= size <= span.last
                              for span in spans for size in self.best.sizes) for m in self.members}
        return max(self.members, key=lambda member: sizes[member.label])

    @property
    def explained(self) -> str:
        if len(self.members) == 1:
            return ""
        names = [member.label for member in self.members]
        listed = joined(names) if len(names) <= 4 else str(len(names))
        return f"{self.name.capitalize()}s run: {listed}"


def family_of(algorithm: str) -> Optional[str]:
    words = set(algorithm.split(":")[0].replace("-", "_").split("_"))
    return next((family for family, names in _WORDS.items() if words & names), None)


def family(name: str, series: Sequence[Series], variant: Variant) -> Optional[Family]:
    members = tuple(line for line in series if line.variant == variant and family_of(line.algorithm) == name)
    return Family(name, members, envelope(members)) if members else None


def envelope(members: Sequence[Series]) -> Series:
    sizes = sorted({size for member in members for size in member.sizes})
    fastest = (min((p for member in members if (p := member.at(size))), key=lambda p: p.time_us) for size in sizes)
    first = members[0]
    return Series(first.label, first.algorithm, first.variant, tuple(fastest))


# Reasons why each family is faster at some sizes: steps and bytes from the plans, alpha and beta from the fit.

def why_text(first: Family, second: Family, measured: Comparison, predictions: Predictions) -> str:
    """Sentences, or nothing where the plans give no reason."""
    if not measured.sizes or not _planned(first) or not _planned(second):
        return ""
    return " ".join(text for text in (_counts_text(first, second, measured),
                                      _model_text(first, second, measured, predictions)) if text)


def _planned(family: Family) -> bool:
    return all(point.plan for point in family.best.points)


def _counts_text(first: Family, second: Family, measured: Comparison) -> str:
    small, large = measured.sizes[0], measured.sizes[-1]
    a, b = first.best.at(small), second.best.at(small)
    x, y = first.best.at(large), second.best.at(large)
    return (f"{first.called} needs {counted(a.plan.steps, 'message')} one after another, {second.called} "
            f"{b.plan.steps} (at {bytes_text(small)}); the busiest rank of {first.called} sends {_per_byte(x)} bytes "
            f"for each byte of the message, of {second.called} {_per_byte(y)} (at {bytes_text(large)}).")


def _per_byte(point: Point) -> str:
    return short(point.plan.wire_bytes_max / point.bytes)


def _model_text(first: Family, second: Family, measured: Comparison, predictions: Predictions) -> str:
    known = [predictions.by_label.get(member.label) for member in (*first.members, *second.members)]
    if not all(known) or len({p.played_out for p in known}) > 1 or not known[0].played_out and known[0].fit.poor:
        return ""
    model = compare(_predicted(first, predictions), _predicted(second, predictions))
    same = model.spans == measured.spans
    text = " just these ranges" if same else ": " + comparison_text(first.called, second.called, model)
    return (f"{_source_text(known[0])}{text}{_crossings_text(measured, model)}."
            f"{_disagreement(first, second, measured, model)}")


def _source_text(prediction: Prediction) -> str:
    if prediction.played_out:
        return "Played out message by message, with the alpha and beta that the program measured, the plans predict"
    fit = prediction.fit
    return f"With {time_text(fit.alpha_us)} per message and {rate_text(fit.gbps)} (fitted to send/recv) that predicts"


def _predicted(family: Family, predictions: Predictions) -> Series:
    """The family's best series with the predicted times of its members."""
    points = []
    for size in family.best.sizes:
        member = min((m for m in family.members if m.at(size)), key=lambda m: m.at(size).time_us)
        points.append(predictions.by_label[member.label].model.at(size))
    return replace(family.best, points=tuple(points))


def _crossings_text(measured: Comparison, model: Comparison) -> str:
    if not measured.crossing_bytes or not model.crossing_bytes:
        return ""
    return f" (crossing near {about(model.crossing_bytes)}; measured near {about(measured.crossing_bytes)})"


def _disagreement(first: Family, second: Family, measured: Comparison, model: Comparison) -> str:
    """Sentence on the sizes at which the model predicts that the other family is faster: there steps and bytes are not the reason."""
    opposite = {Verdict.FIRST: Verdict.SECOND, Verdict.SECOND: Verdict.FIRST}
    wrong = [i for i, verdict in enumerate(measured.verdicts) if model.verdicts[i] is opposite.get(verdict)]
    if not wrong:
        return ""
    i = wrong[-1]
    name = first.called if measured.verdicts[i] is Verdict.FIRST else second.called
    size = bytes_text(measured.sizes[i])
    sizes = f"at {size}" if len(wrong) == 1 else f"at {len(wrong)} sizes, {size} among them"
    return (f" The measurement shows the opposite {sizes}, where {name} is faster: what the model ignores "
            "(reduction, memory traffic, caches, ranks that share cores) decides there.")


# ---- Records to all results of the page: a panel with its sentences

@dataclass(frozen=True)
class Duel:
    """Ring against tree, for one way of running."""

    tree: Family
    ring: Family
    text: str  # sentence on which is faster at which sizes, and by how much
    why: str


@dataclass(frozen=True)
class PanelResult(Panel):
    fits: Fits = field(default_factory=dict, repr=False)  # by place and way of running, of all panels

    @property
    def name(self) -> str:
        """Name such as "8 ranks, float sum, measured", which distinguishes the panels of a collective."""
        first = self.first
        return listed(counted(first.ranks, "rank"), self.dtype, f"root {first.root}" if first.root > 0 else "",
                      basis_text(first), self.place, f"on {self.gpus}" if self.gpus else "")

    @property
    def headline(self) -> str:
        """Title such as "All-reduce, 8 ranks, float sum, measured"."""
        return f"{collective_name(self.first.collective)}, {self.name}"

    @cached_property
    def predictions(self) -> Predictions:
        return predictions_of(self, self.fits)

    @cached_property
    def duels(self) -> tuple[Duel, ...]:
        variants = dict.fromkeys(series.variant for series in self.series)
        pairs = [[family(name, self.series, variant) for name in ("tree", "ring")] for variant in variants]
        return tuple(_duel(tree, ring, self) for tree, ring in pairs if tree and ring)

    @cached_property
    def fastest(self) -> tuple[Span, ...]:
        """Empty where nothing was timed."""
        return fastest_spans(self.series)

    @property
    def answer(self) -> str:
        """Ring or tree, in a sentence, or the reason why there is no answer; may be empty. For messages, alpha and beta."""
        if self.first.collective == "send_recv":
            return " ".join(_fit_text(self.fits[key_of(self, variant)], self.first.run.link)
                            for variant in dict.fromkeys(series.variant for series in self.series))
        return " ".join(duel.text for duel in self.duels) if self.duels else _no_answer(self)

    @property
    def best(self) -> str:
        """The fastest of all, in a sentence."""
        return _best_text(self) + _members_text(self.duels)

    @property
    def why(self) -> str:
        return " ".join(duel.why for duel in self.duels if duel.why)

    @property
    def bounds(self) -> str:
        """Sizes up to which latency decides."""
        return _bounds_text(self.duels, self.predictions)

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(self.answer if self.duels or self.first.collective == "send_recv" else self.best, self.why)]


def analyse(records: Records) -> tuple[PanelResult, ...]:
    places = Places(records.runs)
    panels = [PanelResult(f"panel-{number}", tuple(rows), places.of(rows[0].run.machine.fingerprint, rows[0].run.build))
              for number, rows in enumerate(rows_by_panel(records.rows), start=1)]
    fits = fits_of(panels)
    return tuple(replace(panel, fits=fits) for panel in panels)


def link_text(link: Optional[Link]) -> str:
    if link is None:
        return ""
    parts = [f"{short(link.latency_us)} µs"] if link.latency_us is not None else []
    return " link of " + ", ".join(parts + ([rate_text(link.gbps)] if link.gbps is not None else []))


def basis_text(row: Row) -> str:
    """Words for the basis: "measured", "emulated link of 10 µs, 1 GB/s", "simulated on dgx-h100"."""
    machine = row.run.simulated_machine
    return row.basis + link_text(row.run.link) + (f" on {machine}" if machine else "")


def _fit_text(fit: Union[Fit, NoFit], link: Optional[Link]) -> str:
    if isinstance(fit, NoFit):
        return f"No alpha and beta: {fit.reason}."
    was = f"; the emulated link was set to{link_text(link)[len(' link of'):]}" if link else ""
    doubt = " That is a poor fit: do not rely on its predictions." if fit.poor else ""
    return (f"A message costs alpha = {time_text(fit.alpha_us)} and its bytes pass at 1/beta = {rate_text(fit.gbps)} "
            f"(fitted over {fit.sizes} sizes, half of them within {short(100 * fit.typical_error, 2)} %, the worst "
            f"{short(100 * fit.worst_error, 2)} % off at {bytes_text(fit.worst_bytes)}, R² {fit.r2:.4f}{was}).{doubt}")


def _duel(tree: Family, ring: Family, panel: PanelResult) -> Duel:
    comparison = compare(tree.best, ring.best)
    text = comparison_text(tree.called, ring.called, comparison, f"at {counted(panel.first.ranks, 'rank')}",
                           panel.oversubscribed)
    margin = "" if panel.oversubscribed else margin_text(tree.called, ring.called, comparison)
    why = why_text(tree, ring, comparison, panel.predictions)
    return Duel(tree, ring, sentence(text + (f" ({margin})" if margin else "")), sentence(why))


def _no_answer(panel: Panel) -> str:
    present = {family_of(series.algorithm) for series in panel.series} - {None}
    if len(present) == 1:
        here = present.pop()
        return f"Ring or tree: unknown, no {'tree' if here == 'ring' else 'ring'} was run here."
    if len(present) == 2:
        return "Ring or tree: unknown, the two were not run in the same way (transport, executor)."
    return ""


def _best_text(panel: PanelResult) -> str:
    if not panel.fastest:
        return "Nothing here was timed correctly."
    if len(panel.series) == 1:
        return _single_text(panel)
    sizes = [point.bytes for series in panel.series for point in series.points]
    if len(sizes) == len(set(sizes)):  # such as with --algo auto
        return f"{joined([series.label for series in panel.series])} were run at different sizes, so which is faster is unknown."
    text = f"Of {counted(len(panel.series), 'algorithm')}, {fastest_words(panel)}"
    return f"{text}.{_stake_text(panel)}"


def fastest_words(panel: PanelResult) -> str:
    return fastest_text(panel.fastest, spread_of(panel.series, panel.fastest), panel.oversubscribed)


def _single_text(panel: Panel) -> str:
    series = panel.series[0]
    first, last = series.points[0], series.points[-1]
    text = f"Only {series.label} was run: {time_text(first.time_us)} at {bytes_text(first.bytes)}"
    if last is first:
        return text + "."
    rate = rate_text(last.busbw_gbps(last.time_us))
    return f"{text}, {time_text(last.time_us)} at {bytes_text(last.bytes)} ({rate} busbw)."


def _stake_text(panel: Panel) -> str:
    """Sentence on the cost of a wrong choice: the worst ratio of slowest to fastest that is certain; empty if none is, and where
    ranks share cores, as times are then waits for a core."""
    if panel.oversubscribed:
        return ""
    worst, size, label = max((certain_factor(point.estimate, best_point(panel.series, point.bytes).estimate), point.bytes, series.label)
                             for series in panel.series for point in series.points)
    return f" The wrong choice costs up to {times_text(worst)} the time ({label} at {bytes_text(size)})." if worst > 1 else ""


def _members_text(duels: tuple[Duel, ...]) -> str:
    """Sentences that list the members of which "the best tree" is the best."""
    phrases = dict.fromkeys(family.explained for duel in duels for family in (duel.tree, duel.ring) if family.explained)
    return "".join(f" {text}." for text in phrases)


def _bounds_text(duels: tuple[Duel, ...], predictions: Predictions) -> str:
    """Sentence on the sizes up to which latency decides, for ring and tree; the table of plans has the others."""
    line = [member.label for duel in duels for family in (duel.ring, duel.tree) for member in family.members][:4]
    known = [p for label in line if (p := predictions.by_label.get(label)) and p.latency_bound_below]
    if not known:
        return ""
    turn = known[0].fit.turn
    if known[0].fit.poor or not alike(turn, turn):
        return f"Where messages turn from latency-bound to bandwidth-bound is {undecided(turn.spread)}."
    (first, names), *others = by(known, lambda line: about(line.latency_bound_below), lambda line: line.label).items()
    tail = "".join(f", {joined(labels)} near {size}" for size, labels in others)
    return f"{joined(names)} {'turns' if len(names) == 1 else 'turn'} from latency-bound to bandwidth-bound near {first}{tail}."
