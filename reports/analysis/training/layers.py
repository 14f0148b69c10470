"""Costs of tensor-parallel layers: parts of the time, communication hidden by products, bytes."""
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Optional

from reports.analysis.findings import Finding
from reports.analysis.training.runs import link_text
from reports.records import DIRECTIONS, Layer, Records
from reports.units import bytes_text, counted, joined, share_text, short, time_text

NAMES = {"column": "column-parallel", "row": "row-parallel", "mlp": "MLP pair", "attention": "attention",
         "embedding": "embedding", "cross-entropy": "cross-entropy"}
FREE = 0.02  # share of the kernels' time below which added time counts as none
DTYPE_BYTES = {"f32": 4, "bf16": 2}


@dataclass(frozen=True)
class Case:
    """One layer on one number of ranks, in one tile first and then in others, timed alternately."""

    forms: tuple[Layer, ...]

    @property
    def one(self) -> Layer:
        return self.forms[0]

    @property
    def name(self) -> str:
        sequence = ", sequence-parallel" if self.one.sequence_parallel else ""
        shared = f"grid {self.one.grid}" if self.one.grid else f"tp={self.one.ranks}"
        return f"{NAMES.get(self.one.layer, self.one.layer)}, {shared}{sequence}"

    def added_us(self, form: Layer, way: str) -> float:
        """Time in us that communication, and tiles, add to the kernels in one tile: median of the rounds, both directions."""
        return _over(form, way, self.one)

    def exposed_us(self, form: Layer, way: str) -> float:
        """The same relative to the kernels in as many tiles."""
        return _over(form, way, form)

    @cached_property
    def best(self) -> Layer:
        return min(self.forms, key=lambda form: form.median_us("async"))

    @property
    def serial_us(self) -> float:
        return self.added_us(self.one, "serial")

    @property
    def async_us(self) -> float:
        return self.added_us(self.best, "async")

    @property
    def hidden(self) -> Optional[float]:
        """Part of the time added by communication that the best number of tiles hides; None if it adds nothing."""
        adds = self.serial_us > FREE * self.one.median_us("kernels")
        return min(max(1 - self.async_us / self.serial_us, 0.0), 1.0) if adds else None


def _over(form: Layer, way: str, kernels_of: Layer) -> float:
    return sum(median(a - b for a, b in zip(form.time(direction, way).samples_us,
                                            kernels_of.time(direction, "kernels").samples_us))
               for direction in DIRECTIONS)


@dataclass(frozen=True)
class LayersResult:
    """One set of sizes, of one dtype, on one machine and build, over one kind of link."""

    anchor: str
    cases: tuple[Case, ...]

    @property
    def first(self) -> Layer:
        return self.cases[0].one

    @property
    def lines(self) -> list[Layer]:
        return [form for case in self.cases for form in case.forms]

    @property
    def name(self) -> str:
        one, size = self.first, {name: int(value) for name, value in self.first.sizes.items()}
        link = f", {link_text(one.run.link)}" if one.run.link else ""
        return (f"h {size['hidden']:,}, {size['heads']} heads, {size['batch']} × {size['length']} tokens, "
                f"{size['vocabulary']:,} words, {one.dtype}, {counted(one.threads, 'thread')} per rank{link}")

    @property
    def findings(self) -> list[Finding]:
        badge = "" if self.first.basis == "measured" else self.first.basis
        return [Finding(self.name, f"{split_text(self)} {gain_text(self)}", bytes_sentence(self), badge, self.anchor)]


def analyse_layers(records: Records) -> tuple[LayersResult, ...]:
    """Keeps the latest of equal lines of several runs."""
    groups: dict[tuple, dict[tuple, dict[int, Layer]]] = {}
    for one in records.layers:
        setting = (one.run.machine.fingerprint, one.run.build, one.basis, one.run.link, one.dtype, one.threads,
                   one.algorithm, tuple(sorted(one.sizes.items())))
        case = (one.layer, one.ranks, one.grid, one.sequence_parallel)
        forms = groups.setdefault(setting, {}).setdefault(case, {})
        if forms and next(iter(forms.values())).run.run != one.run.run:
            forms.clear()  # rounds of two runs did not alternate with each other
        forms[one.tiles] = one
    return tuple(LayersResult(f"layers-{number}", tuple(Case(tuple(forms[n] for n in sorted(forms)))
                                                        for forms in cases.values()))
                 for number, cases in enumerate(groups.values(), start=1))


def split_text(result: LayersResult) -> str:
    """Sentence on the parts of the time of the slowest layer, one after the other."""
    case = max(result.cases, key=lambda one: one.one.median_us("serial"))
    parts = case.one.parts_us("serial")
    whole = sum(parts.values())
    told = [f"{words} {share_text(parts.get(part, 0.0) / whole)}" for part, words in
            (("products", "matrix products"), ("other_kernels", "other kernels"), ("communication", "communication"))
            if parts.get(part, 0.0) > 0.005 * whole]
    return (f"One after the other the {case.name} takes {time_text(whole)}, forward and backward: {joined(told)}.")


def gain_text(result: LayersResult) -> str:
    """Sentence on the part of communication that products hide: the layers with the most and the least."""
    known = sorted((case for case in result.cases if case.hidden is not None), key=lambda case: -case.hidden)
    if not known:
        return "Communication adds nothing that could be hidden."
    adds = sum(case.serial_us for case in known)
    hides = sum(case.hidden * case.serial_us for case in known)
    text = (f"Beside products {share_text(hides / adds)} is hidden of the {time_text(adds)} that communication adds to "
            f"{counted(len(known), 'layer')}")
    return f"{text}: {_hidden_text(known[0])}, {_hidden_text(known[-1])}." if len(known) > 1 else f"{text}."


def _hidden_text(case: Case) -> str:
    return f"{share_text(case.hidden)} in {case.name} ({counted(case.best.tiles, 'tile')})"


def bytes_sentence(result: LayersResult) -> str:
    """Additional bytes of sequence parallelism, and whether counts equal the formulas."""
    wrong = [line for line in result.lines if line.status != "ok"]
    passes = sum(line.checked_passes for line in result.lines)
    agreed = (f"Bytes are the formulas', and results one rank's within rounding, in all {passes:,} passes of "
              f"{counted(len(result.lines), 'row')}." if not wrong else
              f"{counted(len(wrong), 'row')} of {len(result.lines)} are wrong: {wrong[0].layer}: {wrong[0].error}.")
    more: dict[str, list[str]] = {}
    for case in result.cases:
        plain = plain_of(result, case)
        if plain:
            ratio = case.one.sent_bytes / plain.one.sent_bytes - 1
            more.setdefault(share_text(ratio) if ratio > 0 else "", []).append(NAMES.get(case.one.layer, ""))
    told = [f"{share} more in {joined(list(dict.fromkeys(names)))}" if share else
            f"no more in {joined(list(dict.fromkeys(names)))}" for share, names in more.items()]
    return (f"Sequence parallelism sends {joined(told)}. " if told else "") + grids_sentence(result) + agreed


def grids_sentence(result: LayersResult) -> str:
    """Bytes that layers on grids send, over the same layer in one dimension on as many ranks."""
    told = []
    for case in result.cases:
        other = _in_one_dimension(result, case)
        if case.one.grid and other:
            layer = NAMES.get(case.one.layer, case.one.layer)
            told.append(f"{short(case.one.sent_bytes / other.one.sent_bytes)} times ({layer}, {case.one.grid})")
    return f"Grids send {joined(told)} the bytes of one dimension on as many ranks. " if told else ""


def _in_one_dimension(result: LayersResult, case: Case) -> Optional[Case]:
    return next((other for other in result.cases if not other.one.grid and not other.one.sequence_parallel and
                 (other.one.layer, other.one.ranks) == (case.one.layer, case.one.ranks)), None)


def plain_of(result: LayersResult, case: Case) -> Optional[Case]:
    """The same layer without sequence parallelism."""
    if not case.one.sequence_parallel:
        return None
    return next((other for other in result.cases if not other.one.sequence_parallel and
                 (other.one.layer, other.one.ranks) == (case.one.layer, case.one.ranks)), None)


def units_text(line: Layer) -> str:
    """Bytes in units of E (t-1)/t as in the formulas, if they have that form."""
    whole = line.sizes["batch"] * line.sizes["length"] * line.sizes["hidden"] * DTYPE_BYTES.get(line.dtype, 0)
    unit = whole * (line.ranks - 1) / line.ranks
    if line.layer == "cross-entropy" or not unit:
        return f"{bytes_text(round(line.sent_bytes), 3)}, three floats a token"
    if line.grid:
        return f"{bytes_text(round(line.sent_bytes), 3)}, {bytes_text(round(line.forward_sent_bytes), 3)} of it forward"
    return f"{bytes_text(round(line.sent_bytes), 3)}, {short(line.sent_bytes / unit)} E (t−1)/t"
