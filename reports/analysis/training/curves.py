"""Curves of scaling: tokens per second over ranks, measured, and simulated beyond the machine; efficiency, and what takes the
rest. Whether an efficiency is decided is the program's verdict (bench/scaling/efficiency.cpp)."""
from dataclasses import dataclass
from typing import Any, Iterable, Optional, Sequence

from reports.records import Step
from reports.units import counted, joined, share_text

_WAYS = {"dp": "data parallel", "tp": "tensor parallel", "pp": "pipeline parallel"}
LOSSES = {"compute": "slower kernels", "communication": "exposed communication", "bubble": "waiting for other ranks",
          "other": "other work", "cores": "shared cores"}
SLIGHT = 0.01  # share of the step: smaller losses are not named


@dataclass(frozen=True)
class Curve:
    """Layouts that differ in their number of ranks; `one` is one rank's step, None if no record has it."""

    name: str  # "data parallel, zero=1, weak"
    one: Optional[Step]
    measured: tuple[Step, ...]
    simulated: tuple[Step, ...]

    @property
    def text(self) -> str:
        phrases = [_measured_text(line) for line in self.measured if line.efficiency]
        if self.simulated:
            phrases.append(self._simulated_text(self.simulated[-1]))
        return f"{self.name[:1].upper()}{self.name[1:]}: {'; '.join(phrases)}." if phrases else ""

    def _simulated_text(self, far: Step) -> str:
        where = f"simulated{f' on {machine_of(far)}' if machine_of(far) else ''}, {far.ranks:,} ranks"
        if undecided_text(far):
            return f"{where}: undecided, {undecided_text(far)}"
        both = [(line, other) for line in self.measured for other in self.simulated
                if line.layout.text == other.layout.text and not line.oversubscribed and not undecided_text(line)]
        error = [f"{counted(line.ranks, 'rank')} {_error_text(line, other)}" for line, other in both]
        off = f"; simulated over measured tokens/s: {joined(error)}" if error else ""
        return f"{where}{'' if far.efficiency is None else f' reach {share_text(far.efficiency.value)} of the ideal{_lost(far)}'}{off}"


def _error_text(line: Step, simulated: Step) -> str:
    """Words such as "+4 % (1 to 9)", with the interval of the measured step."""
    stats, ms = line.step("measured").stats, simulated.times[-1].step_ms
    middle, low, high = (100 * (us / 1e3 / ms - 1) for us in (stats.median, stats.ci_low or stats.min, stats.ci_high or stats.max))
    return f"{middle:+.0f} % ({low:.0f} to {high:.0f})"


def curves_of(lines: Sequence[Step]) -> list[Curve]:
    families: dict[tuple, tuple[list[Step], list[Step]]] = {}
    for line in lines:
        if line.ranks > 1:
            families.setdefault(_family(line), ([], []))[line.basis == "simulated"].append(line)
    ones = {_batch(line): line for line in sorted(lines, key=lambda line: line.basis != "simulated") if line.ranks == 1}
    curves = [Curve(f"{name}, {batch[0]}", ones.get(batch), _by_ranks(run), _by_ranks(beyond))
              for (name, batch), (run, beyond) in families.items()]
    return sorted(curves, key=lambda curve: not curve.name.startswith(_WAYS["dp"]))


def _by_ranks(lines: Iterable[Step]) -> tuple[Step, ...]:
    """One line for each number of ranks: the one of most rounds."""
    best: dict[int, Step] = {}
    for line in sorted(lines, key=lambda line: len(line.rounds_ms)):
        best[line.ranks] = line
    return tuple(best[ranks] for ranks in sorted(best))


def _family(line: Step) -> tuple[str, tuple]:
    used = [name for way, name in _WAYS.items() if line.layout.numbers.get(way, 1) > 1]
    rest = [part for part in line.layout.text.split(",") if part.split("=")[0] not in _WAYS]
    return ", ".join([used[0] if len(used) == 1 else "mixed", *rest]), _batch(line)


def _batch(line: Step) -> tuple[str, float]:
    """The mode, and the sequences that stay: of each rank, or of all."""
    return line.mode, line.sequences_per_step / (line.ranks if line.mode == "weak" else 1)


def machine_of(line: Step) -> Optional[str]:
    """The described machine on which a layout was simulated, if it was one."""
    return line.choices.get("machine")


def undecided_text(line: Step) -> str:
    """Why the efficiency is undecided, and what would decide it; empty if it is decided."""
    return line.efficiency and line.efficiency.undecided or ""


def _measured_text(line: Step) -> str:
    ranks, of = counted(line.ranks, "rank"), "the ideal"
    if line.oversubscribed:
        ranks += f" with cores for {line.efficiency.ideal_speedup:.0f} (OVERSUBSCRIBED)"
        of += f" of {counted(int(line.efficiency.ideal_speedup), 'rank')}"
    if undecided_text(line):
        return f"{ranks}: undecided on this machine, {undecided_text(line)}"
    return f"{ranks} reach {share_text(line.efficiency.value)} ({interval_text(line.efficiency.interval)}) of {of}{_lost(line)}"


def interval_text(interval: Any) -> str:
    return f"{100 * interval.low:.0f} to {100 * interval.high:.0f}"


def efficiency_text(line: Step) -> str:
    """Words such as "71 (65 to 77)", "undecided", or "60" where it is simulated."""
    if line.efficiency is None or undecided_text(line):
        return "undecided" if line.efficiency else "–"
    interval = f" ({interval_text(line.efficiency.interval)})" if line.efficiency.interval else ""
    return f"{100 * line.efficiency.value:.0f}{interval}"


def losses_text(line: Step) -> str:
    """Words such as "slower kernels 20 % (15 to 25)": losses that their intervals decide, the largest first."""
    losses = line.efficiency.losses if line.efficiency else ()
    chosen = sorted((loss for loss in losses if loss.interval.low > 0 and loss.share > SLIGHT), key=lambda loss: -loss.share)
    return joined([f"{LOSSES[loss.to]} {share_text(loss.share)}" + (f" ({interval_text(loss.interval)})" if line.rounds_ms else "")
                   for loss in chosen])


def _lost(line: Step) -> str:
    lost = losses_text(line)
    return f", lost to {lost}" if lost and not undecided_text(line) else ""
