"""Real data-parallel steps: communication of gradients that stays exposed, and costs of each stage of ZeRO."""

from dataclasses import dataclass

from reports.analysis.estimate import Estimate, estimate, median_of, PRECISE, told_share, undecided
from reports.analysis.findings import Finding
from reports.analysis.steps.schedules import place_of
from reports.analysis.steps.overlap import link_text, most_hidden
from reports.analysis.training.runs import model_text
from reports.records import Link, Overlap, Records, Reductions, ScheduleLine, Sharding
from reports.units import bytes_text, counted, joined, share_text, time_text


# ---- The exposed part of the reduction of gradients, over bucket size, ranks and links

def as_text(compression: str) -> str:
    """Format in which gradients are sent, in words: a method with its numbers as in --compression."""
    way, _, numbers = compression.partition(":")
    words = {"none": "not compressed", "bf16": "as bf16", "int8": "as int8 codes", "int4": "as int4 codes",
             "fp8": "as 8-bit floats", "sign": "as signs", "topk": "as the largest elements",
             "threshold": "as elements beyond a threshold", "randomk": "as elements drawn at random",
             "powersgd": "as matrices of low rank"}[way]
    return f"{words} ({numbers.replace(':', ', ').replace('=', ' ')})" if numbers else words


@dataclass(frozen=True)
class BucketCurve:
    """One number of ranks over one kind of link, by size of bucket, the smallest first."""

    ranks: int
    link: Link | None
    lines: tuple[ScheduleLine, ...]

    @property
    def name(self) -> str:
        return link_text(self.link)

    @property
    def best(self) -> ScheduleLine:
        return min(self.lines, key=exposed_ms)

    @property
    def good(self) -> list[ScheduleLine]:
        """Those that are not certain to leave more than the best; empty if that is all of several."""
        found = [line for line in self.lines if exposed_of(line).low <= exposed_of(self.best).high]
        return [] if len(found) == len(self.lines) > 1 else found

    @property
    def worst(self) -> ScheduleLine:
        return max(self.lines, key=exposed_ms)


@dataclass(frozen=True)
class BucketsResult:
    """One model with one format of gradients in messages, on one basis."""

    anchor: str
    curves: tuple[BucketCurve, ...]  # fewest ranks first, then fastest links
    place: str = ""  # machine and build, if there are several

    @property
    def lines(self) -> tuple[ScheduleLine, ...]:
        return tuple(line for curve in self.curves for line in curve.lines)

    @property
    def overlap(self) -> Overlap:
        return self.curves[0].lines[0].overlap

    @property
    def name(self) -> str:
        one = self.overlap
        name = (f"{counted(one.layers, 'layer')} of {bytes_text(one.bytes_per_layer, 3)}, gradients "
                f"{as_text(one.reductions.compression)}, {one.algorithm}")
        return f"{name}, {self.place}" if self.place else name

    @property
    def emulates(self) -> bool:
        return self.curves[0].lines[0].basis != "measured"

    @property
    def by_ranks(self) -> dict[int, list[BucketCurve]]:
        grouped: dict[int, list[BucketCurve]] = {}
        for curve in self.curves:
            grouped.setdefault(curve.ranks, []).append(curve)
        return grouped

    @property
    def findings(self) -> list[Finding]:
        badge = "emulated" if self.emulates else ""
        return [Finding(self.name, best_text(self), " ".join(curve_text(one) for one in self.curves), badge, self.anchor)]


def analyse_buckets(records: Records) -> tuple[BucketsResult, ...]:
    """Keeps the latest of equal lines of several runs."""
    grouped: dict[tuple, dict[tuple, dict[int, ScheduleLine]]] = {}
    for line in records.schedules:
        one = line.overlap
        key = (one.layers, one.bytes_per_layer, one.algorithm, line.microbatches, one.reductions.compression, place_of(line),
               line.basis)
        curve = (one.replicas, -((line.run.link and line.run.link.gbps) or float("inf")), line.run.link)
        grouped.setdefault(key, {}).setdefault(curve, {})[bucket_bytes(line)] = line
    several = len({key[-2] for key in grouped}) > 1
    return tuple(BucketsResult(f"buckets-{number}", _curves(of), key[-2] if several else "")
                 for number, (key, of) in enumerate(grouped.items(), start=1))


def _curves(of: dict[tuple, dict[int, ScheduleLine]]) -> tuple[BucketCurve, ...]:
    ordered = sorted(of.items(), key=lambda item: (*item[0][:2], (item[0][2] and item[0][2].latency_us) or 0))
    return tuple(BucketCurve(key[0], key[2], tuple(line for _, line in sorted(lines.items())))
                 for key, lines in ordered)


def reductions(line: ScheduleLine) -> Reductions:
    return line.overlap.reductions


def exposed_of(line: ScheduleLine) -> Estimate:
    """In ms."""
    exposed = median_of(reductions(line).exposed_samples_ms)
    return exposed.within(0.0, max(exposed.high, line.overlap.communication_alone_ms))


def exposed_ms(line: ScheduleLine) -> float:
    return max(reductions(line).exposed_ms, 0.0)


def bucket_bytes(line: ScheduleLine) -> int:
    """Largest size of a bucket in bytes: the limit, but at most all gradients; without a limit, one bucket has all of them."""
    one = line.overlap
    whole = one.layers * one.bytes_per_layer
    return min(one.bucket_cap_bytes or whole, whole)


def ideal_ms(line: ScheduleLine) -> float:
    """Communication, in ms, that would stay exposed if collectives used no cores: the recurrence minus computing alone."""
    return max(line.closed_form_ms.cost - line.overlap.compute_alone_ms, 0.0)


def bucket_text(line: ScheduleLine) -> str:
    return f"buckets of {bytes_text(bucket_bytes(line), 3)}" if line.overlap.collectives > 1 else "one bucket"


def hidden_of(line: ScheduleLine) -> Estimate:
    """Hidden share of the communication that can be hidden. Older records lack the samples of the communication alone."""
    real, alone = reductions(line), line.overlap.communication_alone_ms
    alones = real.communication_samples_ms or [alone] * len(real.exposed_samples_ms)
    share = estimate(lambda exposed, whole: (whole - exposed) / max(min(whole, real.backward_ms), 1e-12),
                     real.exposed_samples_ms, alones)
    return share.within(0.0, most_hidden(line))


def hidden_share(line: ScheduleLine) -> float:
    return hidden_of(line).value


def _exposed_text(line: ScheduleLine) -> str:
    return time_text(1e3 * exposed_ms(line)) if exposed_ms(line) > 0 else "nothing"


def curve_text(curve: BucketCurve) -> str:
    best, worst, good = curve.best, curve.worst, curve.good
    crowded = " (more ranks than cores)" if best.run.oversubscribed else ""
    told = f"{counted(curve.ranks, 'rank')}{crowded}, {curve.name}: "
    if not good:
        spread = max(exposed_of(line).half for line in curve.lines) / best.overlap.communication_alone_ms
        return f"{told}which buckets are best is {undecided(spread, best.run.oversubscribed)}."
    told += (f"{joined([bucket_text(line) for line in good])} {'is' if bucket_text(good[0]) == 'one bucket' else 'are'} best, with "
             f"{_exposed_text(best)} of {time_text(1e3 * best.overlap.communication_alone_ms)} exposed "
             f"({told_share(hidden_of(best), 'hidden')})")
    if exposed_of(worst).low <= exposed_of(best).high:
        return told + "."
    return f"{told}; {bucket_text(worst)} {'leaves' if worst.overlap.collectives == 1 else 'leave'} {_exposed_text(worst)}."


def best_text(result: BucketsResult) -> str:
    """The answer in a sentence."""
    curves = [curve for curve in result.curves if curve.good]
    if not curves:
        spread = max(exposed_of(line).half / line.overlap.communication_alone_ms for line in result.lines)
        text = f"Which buckets are best is {undecided(spread, any(line.run.oversubscribed for line in result.lines))}"
    else:
        sizes = sorted({bucket_bytes(line) for curve in curves for line in curve.good})
        span = bytes_text(sizes[0], 3) if len(sizes) == 1 else f"{bytes_text(sizes[0], 3)} to {bytes_text(sizes[-1], 3)}"
        text = f"The best buckets have {span}{_hide_text([hidden_of(curve.best) for curve in curves])}"
    if all(line.overlap.collectives > 1 for line in result.lines):
        return text + "."
    return f"{text}; with one bucket, which is complete only when the backward ends, all of the communication is exposed."


def _hide_text(shares: list[Estimate]) -> str:
    known = sorted(share.value for share in shares if share.half <= PRECISE)
    if not known:
        return f"; how much they hide is {undecided(min(share.half for share in shares))}"
    low, high = (share_text(share) for share in (known[0], known[-1]))
    return f" and hide {low if low == high else f'{low} to {high}'} of what can be hidden"


def bytes_sentence(result: BucketsResult) -> str:
    """Bytes that a rank sends in a step, by number of ranks."""
    told = [f"{bytes_text(reductions(curves[0].lines[0]).sent_bytes, 3)} on {counted(ranks, 'rank')}"
            for ranks, curves in result.by_ranks.items()]
    off = sum(reductions(line).sent_bytes != reductions(line).formula_bytes for line in result.lines)
    agree = "as the formula says" if off == 0 else f"in {counted(off, 'row')} not what the formula of the fewest bytes says"
    return f"A rank sends {joined(told)} in a step, counted in the plans that ran: {agree}."


# Costs of each stage of ZeRO per rank: bytes held and sent beside the formulas, and the time of a step.

STATES = ("weights", "gradients", "optimizer")  # kinds of memory that have formulas


@dataclass(frozen=True)
class ShardingResult:
    """One model on one number of ranks with one pair of dtypes, stage by stage."""

    anchor: str
    lines: tuple[Sharding, ...]

    @property
    def first(self) -> Sharding:
        return self.lines[0]

    @property
    def name(self) -> str:
        one = self.first
        dtypes = one.dtype if one.gradient_dtype == one.dtype else f"{one.dtype} with gradients in {one.gradient_dtype}"
        return f"{model_text(one.model)} on {counted(one.ranks, 'rank')}, {dtypes}"

    @property
    def findings(self) -> list[Finding]:
        return [Finding(self.name, saved_text(self), agreement_text(self), "", self.anchor, exact=saved_text(self))]


def analyse_sharding(records: Records) -> tuple[ShardingResult, ...]:
    """Keeps the latest of equal lines of several runs."""
    grouped: dict[tuple, dict[tuple, Sharding]] = {}
    for one in records.shardings:
        key = (one.model.name, one.model.parameters, one.ranks, one.dtype, one.gradient_dtype, one.microbatches)
        row = (one.zero_stage, -one.shard_ranks, -(one.secondary_ranks or 0), one.weight_compression or "", one.compression or "",
               -(one.near_ranks or 0), not one.prefetch, one.offload or "none", one.update or "",
               one.optimizer or "adamw")
        grouped.setdefault(key, {})[row] = one
    return tuple(ShardingResult(f"sharding-{number}", tuple(line for _, line in sorted(of.items())))
                 for number, of in enumerate(grouped.values(), start=1))


_PLACES = {"host": "the host's memory", "file": "files"}


def away_text(offload: str) -> str:
    """Words for optimizer:file+parameters:host: "optimizer in files, parameters in the host's memory"; a place alone is the optimizer's."""
    if offload == "none":
        return ""
    kinds = (one.split(":") for one in (offload if ":" in offload else f"optimizer:{offload}").split("+"))
    return ", ".join(f"{kind} in {_PLACES[place]}" for kind, place in kinds)


def stage_text(one: Sharding) -> str:
    away = away_text(one.offload or "none")
    away = away and f", {away}"
    away += ", updated bucket by bucket" if one.update == "per_bucket" else ""
    away += f", {one.optimizer}" if (one.optimizer or "adamw") != "adamw" else ""
    if one.zero_stage == 0:
        return f"replicas{away}"
    over = f" over {one.shard_ranks} of {one.ranks}" if one.shard_ranks < one.ranks else ""
    gathered = "" if one.zero_stage < 3 else ", gathered ahead" if one.prefetch else ", gathered when needed"
    return f"ZeRO {one.zero_stage}{over}{gathered}{plus_text(one)}{away}"


def plus_text(one: Sharding) -> str:
    """Words for the parts of ZeRO++ in use, with the paper's names."""
    hops = f" in two hops, {one.near_ranks} ranks first" if one.near_ranks else ""
    return "".join((f", weights as {one.weight_compression} (qwZ)" if one.weight_compression else "",
                    f", secondary copy over {one.secondary_ranks} (hpZ)" if one.secondary_ranks else "",
                    f", gradients as {one.compression}{hops} (qgZ)" if one.compression else ""))


def states_bytes(of: dict[str, float]) -> float:
    return sum(of.get(kind, 0) for kind in STATES)


def saved_text(result: ShardingResult) -> str:
    least = min(result.lines, key=lambda one: states_bytes(one.held_bytes))
    most = max(result.lines, key=lambda one: states_bytes(one.held_bytes))
    return (f"Between steps a rank holds {_size(states_bytes(most.held_bytes))} of weights, gradients and optimizer "
            f"state with {stage_text(most)}, {_size(states_bytes(least.held_bytes))} with {stage_text(least)}.")


def agreement_text(result: ShardingResult) -> str:
    wrong = [one for one in result.lines if one.status != "ok"]
    if not wrong:
        return f"Bytes held and sent are the formulas' to the byte in all of {counted(len(result.lines), 'row')}."
    return f"{counted(len(wrong), 'row')} differ from the formulas: {stage_text(wrong[0])}: {wrong[0].error}."


def told_text(one: Sharding) -> str:
    step = f", step {time_text(1e3 * one.stats.median)}" if one.stats else ""
    return f"{_size(states_bytes(one.held_bytes))}, sends {_size(sum(one.sent_bytes.values()))}{step}"


def _size(value: float) -> str:
    return bytes_text(round(value), 3)
