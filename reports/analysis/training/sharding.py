"""Costs of each stage of ZeRO per rank: bytes held and sent beside the formulas, and the time of a step."""
from dataclasses import dataclass

from reports.analysis.findings import Finding
from reports.analysis.training.words import model_text
from reports.records import Records, Sharding
from reports.units import bytes_text, counted, time_text

STATES = ("weights", "gradients", "optimizer")  # kinds of memory that formulas are of


@dataclass(frozen=True)
class ShardingResult:
    """One model on so many ranks with one pair of dtypes, stage by stage."""

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
        return [Finding(self.name, saved_text(self), agreement_text(self), "", self.anchor)]


def analyse_sharding(records: Records) -> tuple[ShardingResult, ...]:
    """Keeps the latest of equal lines of several runs."""
    grouped: dict[tuple, dict[tuple, Sharding]] = {}
    for one in records.shardings:
        key = (one.model.name, one.model.parameters, one.ranks, one.dtype, one.gradient_dtype, one.microbatches)
        row = (one.zero_stage, -one.shard_ranks, -(one.secondary_ranks or 0), one.weight_compression or "", one.compression or "",
               -(one.near_ranks or 0), not one.prefetch, one.offload or "none", one.update or "")
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
    if one.zero_stage == 0:
        return f"replicas{away}"
    over = f" over {one.shard_ranks} of {one.ranks}" if one.shard_ranks < one.ranks else ""
    gathered = "" if one.zero_stage < 3 else ", gathered ahead" if one.prefetch else ", gathered when needed"
    return f"ZeRO {one.zero_stage}{over}{gathered}{plus_text(one)}{away}"


def plus_text(one: Sharding) -> str:
    """Words for what ZeRO++ adds, with the paper's names."""
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
