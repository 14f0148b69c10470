"""Real data-parallel steps: communication of gradients that stays exposed, and costs of each stage of ZeRO."""

from dataclasses import dataclass
from functools import cached_property

from reports.analysis.estimate import Estimate, estimate, median_of, PRECISE, decided_share, undecided
from reports.analysis.groups import by, Group, latest, link_text, listed, wrong_of
from reports.analysis.steps.schedules import place_of
from reports.analysis.steps.overlap import most_hidden, slowness
from reports.analysis.training.runs import model_text
from reports.records import Link, Overlap, Records, Reductions, ScheduleLine, Step
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


class BucketsResult(Group):
    """Steps of one model with one format of gradients in messages, on one basis: fewest ranks first, then fastest links."""

    @cached_property
    def curves(self) -> tuple[BucketCurve, ...]:
        return tuple(BucketCurve(ranks, link, tuple(lines)) for (ranks, link), lines in
                     by(self.lines, lambda line: (line.overlap.replicas, line.run.link)).items())

    @property
    def overlap(self) -> Overlap:
        return self.first.overlap

    @property
    def name(self) -> str:
        line = self.overlap
        return listed(f"{counted(line.layers, 'layer')} of {bytes_text(line.bytes_per_layer, 3)}, gradients "
                      f"{as_text(line.reductions.compression)}, {line.algorithm}", self.place)

    @property
    def by_ranks(self) -> dict[int, list[BucketCurve]]:
        return by(self.curves, lambda curve: curve.ranks)

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(best_text(self), " ".join(curve_text(curve) for curve in self.curves))]


def analyse_buckets(records: Records) -> tuple[BucketsResult, ...]:
    groups = latest(records.schedules, lambda line: (place_of(line), line.overlap.layers, line.overlap.bytes_per_layer, line.overlap.algorithm,
                                                     line.microbatches, reductions(line).compression, line.basis),
                    lambda line: (line.overlap.replicas, line.run.link, bucket_bytes(line)))
    return BucketsResult.of_places("buckets", ((key[0], sorted(of.values(), key=_order)) for key, of in groups.items()))


def _order(line: ScheduleLine) -> tuple:
    return line.overlap.replicas, *slowness(line.run.link), bucket_bytes(line)


def reductions(line: ScheduleLine) -> Reductions:
    return line.overlap.reductions


def exposed_of(line: ScheduleLine) -> Estimate:
    """In ms."""
    exposed = median_of(reductions(line).exposed_samples_ms)
    return exposed.within(0.0, max(exposed.high, line.overlap.communication_alone_ms))


def exposed_ms(line: ScheduleLine) -> float:
    return max(reductions(line).exposed_ms, 0.0)


def bucket_bytes(line: ScheduleLine) -> int:
    """Largest size of a bucket in bytes: the limit, but at most all gradients; without a limit, one bucket has all."""
    overlap = line.overlap
    whole = overlap.layers * overlap.bytes_per_layer
    return min(overlap.bucket_cap_bytes or whole, whole)


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
    text = f"{counted(curve.ranks, 'rank')}{crowded}, {curve.name}: "
    if not good:
        spread = max(exposed_of(line).half for line in curve.lines) / best.overlap.communication_alone_ms
        return f"{text}which buckets are best is {undecided(spread, best.run.oversubscribed)}."
    text += (f"{joined([bucket_text(line) for line in good])} {'is' if bucket_text(good[0]) == 'one bucket' else 'are'} best, with "
             f"{_exposed_text(best)} of {time_text(1e3 * best.overlap.communication_alone_ms)} exposed "
             f"({decided_share(hidden_of(best), 'hidden')})")
    if exposed_of(worst).low <= exposed_of(best).high:
        return text + "."
    return f"{text}; {bucket_text(worst)} {'leaves' if worst.overlap.collectives == 1 else 'leave'} {_exposed_text(worst)}."


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
    phrases = [f"{bytes_text(reductions(curves[0].lines[0]).sent_bytes, 3)} on {counted(ranks, 'rank')}"
            for ranks, curves in result.by_ranks.items()]
    off = sum(reductions(line).sent_bytes != reductions(line).formula_bytes for line in result.lines)
    agree = "equal to the formula" if off == 0 else f"in {counted(off, 'row')} different from the formula for the fewest bytes"
    return f"A rank sends {joined(phrases)} in a step, counted in the plans that ran: {agree}."


# Costs of each stage of ZeRO per rank: bytes held and sent compared with the formulas, and the time of a step.

STATES = ("weights", "gradients", "optimizer")  # kinds of memory that have formulas


class ShardingResult(Group):
    """One model on one number of ranks with one pair of dtypes, stage by stage."""

    @property
    def name(self) -> str:
        line = self.first
        dtypes = line.dtype if line.gradient_dtype == line.dtype else f"{line.dtype} with gradients in {line.gradient_dtype}"
        return f"{model_text(line.model)} on {counted(line.ranks, 'rank')}, {dtypes}"

    @property
    def statements(self) -> list[tuple[str, ...]]:
        return [(saved_text(self), agreement_text(self), saved_text(self))]


def analyse_sharding(records: Records) -> tuple[ShardingResult, ...]:
    groups = latest(records.steps_of("sharding"), lambda line: (line.model.name, line.model.parameters, line.ranks, line.dtype, line.gradient_dtype, line.microbatches),
                    lambda line: (line.zero_stage, -line.shard_ranks, -line.secondary_ranks, line.weight_compression, line.compression,
                                 -line.near_ranks, not line.prefetch, line.offload, line.update, line.optimizer))
    return ShardingResult.all_of("sharding", ([of[place] for place in sorted(of)] for of in groups.values()))


_PLACES = {"host": "the host's memory", "file": "files"}


def away_text(offload: str) -> str:
    """Words for optimizer:file+parameters:host: "optimizer in files, parameters in the host's memory"; a place alone is the optimizer's."""
    if offload == "none":
        return ""
    kinds = (line.split(":") for line in (offload if ":" in offload else f"optimizer:{offload}").split("+"))
    return ", ".join(f"{kind} in {_PLACES[place]}" for kind, place in kinds)


def stage_text(step: Step) -> str:
    away = away_text(step.offload)
    away = away and f", {away}"
    away += ", updated bucket by bucket" if step.update == "per_bucket" else ""
    away += f", {step.optimizer}" if step.optimizer != "adamw" else ""
    if step.zero_stage == 0:
        return f"replicas{away}"
    over = f" over {step.shard_ranks} of {step.ranks}" if step.shard_ranks < step.ranks else ""
    gathered = "" if step.zero_stage < 3 else ", prefetched" if step.prefetch else ", gathered when needed"
    return f"ZeRO {step.zero_stage}{over}{gathered}{plus_text(step)}{away}"


def plus_text(step: Step) -> str:
    """Words for the parts of ZeRO++ in use, with the paper's names."""
    hops = f" in two hops, {step.near_ranks} ranks first" if step.near_ranks else ""
    return "".join((f", weights as {step.weight_compression} (qwZ)" if step.weight_compression != "none" else "",
                    f", secondary copy over {step.secondary_ranks} (hpZ)" if step.secondary_ranks else "",
                    f", gradients as {step.compression}{hops} (qgZ)" if step.compression != "none" else ""))


def states_bytes(of: dict[str, float]) -> float:
    return sum(of.get(kind, 0) for kind in STATES)


def saved_text(result: ShardingResult) -> str:
    least = min(result.lines, key=lambda line: states_bytes(line.held_bytes))
    most = max(result.lines, key=lambda line: states_bytes(line.held_bytes))
    return (f"Between steps a rank holds {_size(states_bytes(most.held_bytes))} of weights, gradients and optimizer "
            f"state with {stage_text(most)}, {_size(states_bytes(least.held_bytes))} with {stage_text(least)}.")


def agreement_text(result: ShardingResult) -> str:
    wrong = wrong_of(result.lines)
    if not wrong:
        return f"Bytes held and sent equal the formulas exactly in all of {counted(len(result.lines), 'row')}."
    return f"{counted(len(wrong), 'row')} differ from the formulas: {stage_text(wrong[0])}: {wrong[0].error}."


def held_text(line: Step) -> str:
    step = f", step {time_text(line.stats.median)}" if line.stats else ""
    return f"{_size(states_bytes(line.held_bytes))}, sends {_size(sum(line.sent_bytes.values()))}{step}"


def _size(value: float) -> str:
    return bytes_text(round(value), 3)
