"""Costs of one layer that ranks share: tensor-parallel layers, attention over shared sequences, mixtures of experts."""
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Callable, Optional

from reports.analysis.estimate import (
    alike, certain_factor, Estimate, estimate, exact, median_of, PRECISE, decided_share, undecided)
from reports.analysis.groups import by, Group, latest, listed, on_links, setting_of, wrong_of
from reports.records import DIRECTIONS, Records, Step
from reports.units import bytes_text, counted, joined, share_text, short, time_text

# ---- Costs of tensor-parallel layers: parts of the time, communication hidden by products, bytes

NAMES = {"column": "column-parallel", "row": "row-parallel", "mlp": "MLP pair", "attention": "attention",
         "embedding": "embedding", "cross-entropy": "cross-entropy"}
FREE = 0.02  # share of the kernels' time below which added time counts as none
DTYPE_BYTES = {"f32": 4, "bf16": 2}


@dataclass(frozen=True)
class Case:
    """One layer on one number of ranks, in one tile first and then in others, timed alternately."""

    forms: tuple[Step, ...]

    @property
    def one(self) -> Step:
        return self.forms[0]

    @property
    def name(self) -> str:
        sequence = ", sequence-parallel" if self.one.sequence_parallel else ""
        shared = f"tp={self.one.ranks}" if self.one.grid == "none" else f"grid {self.one.grid}"
        return f"{NAMES.get(self.one.layer, self.one.layer)}, {shared}{sequence}"

    def added_us(self, form: Step, way: str) -> float:
        """Time in us that communication, and tiles, add to the kernels in one tile: median of the rounds, both directions."""
        return _over(form, way, self.one).value

    def exposed_us(self, form: Step, way: str) -> float:
        """The same relative to the kernels in as many tiles."""
        return _over(form, way, form).value

    @cached_property
    def best(self) -> Step:
        """The fastest, if it is certain to be faster than one tile, which was timed in the same rounds."""
        best = min(self.forms, key=lambda form: form.median_us("async"))
        return best if certain_factor(_whole(self.one, "async"), _whole(best, "async")) > 1 else self.one

    @property
    def serial_us(self) -> float:
        return self.added_us(self.one, "serial")

    @property
    def async_us(self) -> float:
        return self.added_us(self.best, "async")

    @cached_property
    def hidden_part(self) -> Optional[Estimate]:
        """Part of the time added by communication that the best number of tiles hides; None if it adds nothing for certain."""
        serial = _over(self.one, "serial", self.one)
        if serial.low <= FREE * self.one.median_us("kernels"):
            return None
        samples = [_sums(self.one, "serial", self.one), _sums(self.best, "async", self.one)]
        return estimate(lambda added, left: 1 - left / max(added, 1e-9), *samples).within(0.0, 1.0)

    @property
    def hidden(self) -> Optional[float]:
        return self.hidden_part and self.hidden_part.value


def _sums(form: Step, way: str, kernels_of: Step) -> list[float]:
    """Time that a way adds to the kernels in each round, forward and backward together."""
    return [a - b for a, b in zip(_both(form, way), _both(kernels_of, "kernels"))]


def _over(form: Step, way: str, kernels_of: Step) -> Estimate:
    return median_of(_sums(form, way, kernels_of))


def _both(line: Any, way: str, field: str = "samples_us") -> list[float]:
    """Time of each round, forward and backward together."""
    return [sum(both) for both in zip(*(getattr(line.time(direction, way), field) for direction in DIRECTIONS))]


def _whole(line: Any, way: str) -> Estimate:
    return median_of(_both(line, way))


class LayersResult(Group):
    """Forms of one set of sizes, of one dtype, on one machine and build, over one kind of link."""

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        cases = by(self.lines, _case)
        return tuple(Case(tuple(sorted(forms, key=lambda form: form.tiles))) for forms in cases.values())

    @property
    def name(self) -> str:
        line = self.first
        return listed(f"h {line.hidden:,}, {line.heads} heads, {line.batch} × {line.length} tokens, {line.vocabulary:,} words",
                      line.dtype, f"{counted(line.threads, 'thread')} per rank", on_links(line))

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(f"{split_text(self)} {gain_text(self)}", bytes_sentence(self))]


def _case(step: Step) -> tuple:
    return step.layer, step.ranks, step.grid, step.sequence_parallel


def analyse_layers(records: Records) -> tuple[LayersResult, ...]:
    """A case has the forms of its last run, because rounds of two runs did not alternate."""
    def setting(step: Step) -> tuple:
        return *setting_of(step), step.dtype, step.threads, step.algorithm, tuple(sorted(step.sizes.items()))
    every = records.steps_of("layer")
    last = {(setting(line), _case(line)): line.run.run for line in every}
    lines = [line for line in every if last[setting(line), _case(line)] == line.run.run]
    groups = latest(lines, setting, lambda line: (_case(line), line.tiles))
    return LayersResult.all_of("layers", (of.values() for of in groups.values()))


def split_text(result: LayersResult) -> str:
    """Sentence on the parts of the time of the slowest layer, run serially."""
    case = max(result.cases, key=lambda case: case.one.median_us("serial"))
    parts = case.one.parts_us("serial")
    whole = sum(parts.values())
    phrases = [f"{words} {share_text(parts.get(part, 0.0) / whole)}" for part, words in
            (("products", "matrix products"), ("other_kernels", "other kernels"), ("communication", "communication"))
            if parts.get(part, 0.0) > 0.005 * whole]
    added = estimate(lambda serial, kernels: 1 - kernels / serial, _both(case.one, "serial"), _both(case.one, "kernels"))
    shares = joined(phrases) if added.half <= PRECISE else f"its parts are {undecided(added.half, case.one.run.oversubscribed)}"
    return f"Run serially, the {case.name} takes {time_text(whole)}, forward and backward: {shares}."


def gain_text(result: LayersResult) -> str:
    """Sentence on the part of communication that products hide: the layers with the most and the least."""
    known = sorted((case for case in result.cases if case.hidden_part is not None and case.one.ranks > 1), key=lambda case: -case.hidden)
    if not known:
        spread = max(_over(case.one, "serial", case.one).half / case.one.median_us("kernels") for case in result.cases)
        return "Communication adds nothing that could be hidden." if spread < PRECISE else f"How much time communication adds is {undecided(spread)}."
    adds = sum(case.serial_us for case in known)
    whole = sum((case.hidden_part * (case.serial_us / adds) for case in known), exact(0.0))
    if whole.half > PRECISE:
        return f"How much communication products hide is {undecided(whole.half, result.first.run.oversubscribed)}."
    text = (f"Overlapped with products, {decided_share(whole)} is hidden of the {time_text(adds)} that communication adds to "
            f"{counted(len(known), 'layer')}")
    first, last = known[0], known[-1]
    return f"{text}: {_hidden_text(first)}, {_hidden_text(last)}." if first.hidden_part.low > last.hidden_part.high else f"{text}."


def _hidden_text(case: Case) -> str:
    return f"{decided_share(case.hidden_part)} in {case.name} ({counted(case.best.tiles, 'tile')})"


def bytes_sentence(result: LayersResult) -> str:
    """Additional bytes of sequence parallelism, and whether counts equal the formulas."""
    wrong, passes = wrong_of(result.lines), sum(line.checked_passes for line in result.lines)
    agreed = (f"Bytes equal the formulas, and results equal one rank's within rounding, in all {passes:,} passes of "
              f"{counted(len(result.lines), 'row')}." if not wrong else
              f"{counted(len(wrong), 'row')} of {len(result.lines)} are wrong: {wrong[0].layer}: {wrong[0].error}.")
    more: dict[str, list[str]] = {}
    for case in result.cases:
        plain = case.one.sequence_parallel and plain_of(result, case, grids=True)
        if plain:
            ratio = case.one.sent_bytes / plain.one.sent_bytes - 1
            more.setdefault(share_text(ratio) if ratio > 0 else "", []).append(NAMES.get(case.one.layer, ""))
    phrases = [f"{share} more in {joined(list(dict.fromkeys(names)))}" if share else
            f"no more in {joined(list(dict.fromkeys(names)))}" for share, names in more.items()]
    return (f"Sequence parallelism sends {joined(phrases)}. " if phrases else "") + grids_sentence(result) + agreed


def grids_sentence(result: LayersResult) -> str:
    """Bytes that layers on grids send, over the same layer in one dimension on as many ranks."""
    phrases = []
    for case in result.cases:
        other = plain_of(result, case, grids=False)
        if case.one.grid != "none" and other:
            layer = NAMES.get(case.one.layer, case.one.layer)
            phrases.append(f"{short(case.one.sent_bytes / other.one.sent_bytes)} times ({layer}, {case.one.grid})")
    return f"Grids send {joined(phrases)} the bytes of one dimension on as many ranks. " if phrases else ""


def plain_of(result: LayersResult, case: Case, grids: bool) -> Optional[Case]:
    """The same layer without sequence parallelism, and not on a grid unless `grids`."""
    return next((other for other in result.cases if not other.one.sequence_parallel and (grids or other.one.grid == "none") and
                 (other.one.layer, other.one.ranks) == (case.one.layer, case.one.ranks)), None)


def units_text(line: Step) -> str:
    """Bytes in units of E (t-1)/t as in the formulas, if they have that form."""
    whole = line.batch * line.length * line.hidden * DTYPE_BYTES.get(line.dtype, 0)
    unit = whole * (line.ranks - 1) / line.ranks
    if line.layer == "cross-entropy" or not unit:
        return f"{bytes_text(round(line.sent_bytes), 3)}, three floats per token"
    if line.grid != "none":
        return f"{bytes_text(round(line.sent_bytes), 3)}, {bytes_text(round(line.forward_sent_bytes), 3)} in the forward"
    return f"{bytes_text(round(line.sent_bytes), 3)}, {short(line.sent_bytes / unit)} E (t−1)/t"


# ---- Attention over sequences that ranks share: time, memory, bytes and load of each method, by length

class ContextResult(Group):
    """One set of sizes on one number of ranks, with one dtype and mask, on one machine and build, over one kind of link."""

    @cached_property
    def by_way(self) -> dict[str, list[Step]]:
        """Each method's rows by length."""
        return {way: sorted(lines, key=lambda line: line.length) for way, lines in by(self.lines, lambda line: line.way).items()}

    @cached_property
    def at_longest(self) -> list[Step]:
        """Row of each method at the longest length that all have."""
        lengths = [[line.length for line in lines] for lines in self.by_way.values()]
        longest = max(set.intersection(*map(set, lengths)) or {lengths[0][-1]})
        return [line for lines in self.by_way.values() for line in lines if line.length == longest]

    @property
    def name(self) -> str:
        line = self.first
        return listed(f"cp {line.ranks}, {counted(line.batch, 'sequence')}, {line.heads} heads of {line.head_columns}",
                      line.dtype, "causal" if line.causal else "no mask", f"{counted(line.threads, 'thread')} per rank", on_links(line))

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(f"{time_sentence(self)} {load_sentence(self)}", context_bytes_sentence(self))]


def analyse_context(records: Records) -> tuple[ContextResult, ...]:
    def setting(step: Step) -> tuple:
        sizes = tuple((name, size) for name, size in sorted(step.sizes.items()) if name != "length")
        return *setting_of(step), step.dtype, step.causal, step.threads, step.ranks, sizes
    groups = latest(records.steps_of("context"), setting, lambda line: (line.way, line.length))
    found = ContextResult.all_of("context", (of.values() for of in groups.values()))
    return tuple(replace(result, lines=tuple(line for lines in result.by_way.values() for line in lines)) for result in found)


def exposed_us(step: Step) -> float:
    return sum(step.time(direction, "async").exposed_stats.median for direction in DIRECTIONS)


def simulated_exposed_us(step: Step) -> float | None:
    """Exposed communication that the simulator predicts over emulated links, in microseconds."""
    simulated = getattr(step, "simulated_exposed_us", None)
    return sum(simulated.values()) if simulated else None


def hidden_of(step: Step) -> Estimate:
    """Share of the communication alone that kernels hide; of one rank, which has none, all."""
    if step.ranks == 1:
        return exact(1.0)
    columns = _both(step, "async", "exposed_us"), _both(step, "communication")
    return estimate(lambda left, whole: 1 - left / max(whole, 1e-9), *columns).within(0.0, 1.0)


def hidden(step: Step) -> float:
    return hidden_of(step).value


def simulated_hidden(step: Step) -> float | None:
    exposed, alone = simulated_exposed_us(step), step.median_us("communication")
    return None if exposed is None else min(max(1 - exposed / alone, 0.0), 1.0) if alone else 1.0


def sent_bytes(step: Step) -> float:
    return sum(step.sent_bytes.values())


def load_of(step: Step) -> float:
    """Computation of the busiest rank over the mean, counted."""
    return step.pairs * step.ranks / sum(step.pairs_of_rank)


def _by_way(result: ContextResult, value: Callable[[Step], float], text: Callable[[float], str]) -> str:
    ordered = sorted(result.at_longest, key=value)
    return joined([f"{line.way} {text(value(line))}" for line in ordered])


def time_sentence(result: ContextResult) -> str:
    """Times in order, and whether the order is certain from each to the next."""
    length = result.at_longest[0].length
    times = sorted((_whole(line, "async") for line in result.at_longest), key=lambda time: time.value)
    doubt = [max(a.spread, b.spread) for a, b in zip(times, times[1:]) if certain_factor(b, a) == 1 and not alike(a, b)]
    return (f"At {length:,} tokens forward and backward take {_by_way(result, lambda line: line.median_us('async'), time_text)}" +
            (f"; their order is {undecided(max(doubt), result.first.run.oversubscribed)}." if doubt else "."))


def memory_sentence(result: ContextResult) -> str:
    length = result.at_longest[0].length
    return f"At {length:,} tokens a rank holds {_by_way(result, lambda line: line.peak_bytes, lambda size: bytes_text(round(size), 3))}."


def hidden_sentence(result: ContextResult) -> str:
    length = result.at_longest[0].length
    spread = max(hidden_of(line).half for line in result.at_longest)
    if spread > PRECISE:
        return f"How much communication kernels hide at {length:,} tokens is {undecided(spread, result.first.run.oversubscribed)}."
    return (f"At {length:,} tokens kernels hide {_by_way(result, hidden, share_text)} of the time that communication takes "
            "alone.")


def exposed_sentence(result: ContextResult) -> str:
    length = result.at_longest[0].length
    return (f"At {length:,} tokens communication adds {_by_way(result, exposed_us, time_text)} to the kernels; simulated: "
            f"{_by_way(result, lambda line: simulated_exposed_us(line) or 0.0, time_text)}.")


def load_sentence(result: ContextResult) -> str:
    """Sentence on the load, counted in the list: the computation of the busiest rank over the mean."""
    loads = by(result.at_longest, lambda line: short(load_of(line), 3), lambda line: line.way)
    return "The rank with the most computation has " + joined(
        [f"{load} times the mean in {joined(ways)}" for load, ways in sorted(loads.items())]) + "."


def context_bytes_sentence(result: ContextResult) -> str:
    if wrong := wrong_of(result.lines):
        return f"{counted(len(wrong), 'row')} of {len(result.lines)} are wrong: {wrong[0].way}: {wrong[0].error}."
    passes = sum(line.checked_passes for line in result.lines)
    return (f"A rank sends {_by_way(result, sent_bytes, lambda size: bytes_text(round(size), 3))}; results are one rank's "
            f"within {max(line.difference for line in result.lines):.1e} of the largest in all {passes:,} passes.")


# ---- Costs of a mixture of experts on its ranks: parts of the time, cost of an uneven router, bytes and dropped copies

EXPERTS_PARTS = ("router", "permute", "dispatch", "shared", "experts", "combine", "unpermute")


class ExpertsResult(Group):
    """One set of sizes, of one dtype, on one machine and build, over one kind of link."""

    @property
    def name(self) -> str:
        line = self.first
        return listed(f"{line.tokens:,} tokens per rank, h {line.hidden:,}, experts of {line.ffn:,}", f"shared {line.shared:,}" if line.shared else "",
                      line.dtype, f"{counted(line.threads, 'thread')} per rank", on_links(line))

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(f"{experts_split_text(self)} {skew_text(self)}", experts_bytes_text(self))]


def case_name(step: Step) -> str:
    capacity = "dropless" if step.capacity_factor == 0 else f"capacity {short(step.capacity_factor, 3)}"
    return f"{step.experts} experts, top {step.top_k}, ep={step.ranks}, {capacity}, load {step.load:.2f}"


def analyse_experts(records: Records) -> tuple[ExpertsResult, ...]:
    groups = latest(records.steps_of("experts"), lambda line: (*setting_of(line), line.dtype, line.threads, line.algorithm, tuple(sorted(line.sizes.items()))),
                    lambda line: (*_mixture(line), line.skew))
    return ExpertsResult.all_of("experts", (of.values() for of in groups.values()))


def _mixture(step: Step) -> tuple:
    return step.experts, step.top_k, step.capacity_factor, step.ranks


def experts_split_text(result: ExpertsResult) -> str:
    """Sentence on the parts of the time in the case with the most ranks and the most even router."""
    largest = min(result.lines, key=lambda line: (-line.ranks, line.load))
    parts = largest.parts_us("serial")
    whole = sum(parts.values())
    phrases = [f"{part} {share_text(us / whole)}" for part, us in parts.items() if us > 0.005 * whole]
    return f"{case_name(largest)}: {time_text(largest.median_us('serial'))}, forward and backward, of which {joined(phrases)}."


def even_of(line: Step, result: ExpertsResult) -> Step:
    """The same case with the most even router."""
    return min((other for other in result.lines if _mixture(other) == _mixture(line)), key=lambda other: other.load)


def slowdown_of(line: Step, result: ExpertsResult) -> Optional[float]:
    """Ratio to the same case with the most even router; None for that case itself."""
    even = even_of(line, result)
    return None if even is line else line.median_us("serial") / even.median_us("serial")


def skew_text(result: ExpertsResult) -> str:
    """Cost of the most uneven router."""
    chosen = [line for line in result.lines if line.ranks > 1 and even_of(line, result) is not line]
    if not chosen:
        return "All cases have the same load: the cost of an uneven router is unknown."
    line = max(chosen, key=lambda each: each.load)
    ratio = _whole(line, "serial") / _whole(even_of(line, result), "serial")
    cost = (f"the layer takes {ratio.value:.2f} times as long as with the most even router" if ratio.spread <= PRECISE else
            f"the cost of that is {undecided(ratio.spread, line.run.oversubscribed)}")
    return (f"With a load of {line.load:.2f} times an even share the busiest of {line.ranks} ranks has "
            f"{line.most_rows / line.mean_rows:.2f} times the mean rows, and {cost}.")


def experts_bytes_text(result: ExpertsResult) -> str:
    wrong, passes = wrong_of(result.lines), sum(line.checked_passes for line in result.lines)
    dropped = [line for line in result.lines if line.dropped]
    drops = ""
    if dropped:
        most = max(dropped, key=lambda line: line.dropped / line.copies)
        drops = f" At most {share_text(most.dropped / most.copies)} of the copies are dropped ({case_name(most)})."
    if wrong:
        return f"{counted(len(wrong), 'row')} of {len(result.lines)} wrong.{drops}"
    return (f"Bytes equal the copies for other ranks, and results equal one rank's within rounding, in all {passes:,} passes "
            f"of {counted(len(result.lines), 'row')}.{drops}")
