"""Lines of schedules in groups that can be compared, and the comparison: bubbles, memory, growth with the number of microbatches."""

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Iterable, Optional, Sequence

from reports.analysis.estimate import Estimate, estimate, exact, undecided
from reports.analysis.groups import by, dotted, Finding, Group, latest, listed
from reports.records import Records, ScheduleLine, Times
from reports.units import counted, joined, share_text, short


# ---- Workloads, the cases of each, and the bases on which a case was run

BASES = ("simulated", "emulated", "measured")  # one above the other in a figure


@dataclass(frozen=True)
class Workload:
    """Work of a step, whatever its order."""

    ranks: int
    microbatches: int
    times: Optional[Times]
    place: str = ""  # machine and build of emulated or measured steps, if there are several

    @property
    def name(self) -> str:
        name = f"{counted(self.ranks, 'rank')}, {counted(self.microbatches, 'microbatch')}".replace("chs", "ches")
        return f"{name}, {self.place}" if self.place else name

    @property
    def times_text(self) -> str:
        """Words such as "F 10 ms, I 10 ms, W 10 ms, messages 1 ms"."""
        if (t := self.times) is None:
            return ""
        return ", ".join(f"{name} {short(value)} ms" for name, value in
                         (("F", t.forward), ("I", t.input_gradient), ("W", t.weight_gradient), ("messages", t.message)))

    @property
    def text(self) -> str:
        return dotted(self.name, self.times_text)


@dataclass(frozen=True)
class Case:
    """One schedule for one workload, on each basis on which it was run; of several runs the latest counts."""

    workload: Workload
    name: str
    of_basis: dict[str, ScheduleLine]

    @property
    def lines(self) -> list[ScheduleLine]:
        return [self.of_basis[basis] for basis in BASES if basis in self.of_basis]

    @property
    def first(self) -> ScheduleLine:
        return self.lines[0]


def place_of(line: ScheduleLine) -> str:
    """Machine and build of a line, as their times are never mixed in a plot; empty if simulated, as these times are shown with any."""
    if line.basis == "simulated":
        return ""
    return f"machine {line.run.machine.fingerprint}, build {line.run.build.short_revision}, {line.run.build.type}"


def is_pipeline(line: ScheduleLine) -> bool:
    return line.overlap is None


def cases_of(lines: Iterable[ScheduleLine]) -> dict[Workload, list[Case]]:
    """In the order of the records."""
    alike = by(filter(is_pipeline, lines), lambda line: (line.ranks, line.microbatches, line.times_ms))
    found = {}
    for key, mine in alike.items():
        places = list(dict.fromkeys(place for line in mine if (place := place_of(line)))) or [""]
        for place in places:
            workload = Workload(*key, place if len(places) > 1 else "")
            found[workload] = _cases(workload, [line for line in mine if place_of(line) in ("", place)])
    return found


def _cases(workload: Workload, lines: Sequence[ScheduleLine]) -> list[Case]:
    grouped = latest(lines, _variant, lambda line: line.basis)
    return [Case(workload, _name(variant, [other for other in grouped if other[0] == variant[0]]), of_basis)
            for variant, of_basis in grouped.items()]


def repeated(lines: Sequence[ScheduleLine]) -> int:
    """Lines that a later one of the same case, basis and place hides."""
    counts = Counter((line.ranks, line.microbatches, line.times_ms, *_variant(line), line.basis, place_of(line))
                     for line in lines if is_pipeline(line))
    return sum(number - 1 for number in counts.values())


def _variant(line: ScheduleLine) -> tuple:
    return line.schedule, line.chunks, line.memory_limit, line.w_memory, tuple(line.slice_tokens or ())


def _name(variant: Sequence, others: Sequence[tuple]) -> str:
    """Name of the schedule, with the settings that distinguish it from others of its name."""
    schedule, chunks, limit, w_memory, slices = variant
    parts = [schedule]
    if chunks > 1 and len({other[1] for other in others}) > 1:
        parts.append(f"v={chunks}")
    if limit is not None and len({other[2] for other in others}) > 1:
        parts.append(f"memory {short(limit)}")
    if w_memory is not None and len({other[3] for other in others}) > 1:
        parts.append(f"{short(w_memory)} until W")
    if slices and len({other[4] for other in others}) > 1:
        parts.append(f"k={len(slices)}" + ("" if len(set(slices)) == 1 else " uneven"))
    return ", ".join(parts)


# Schedules of one workload against each other, and against the number of microbatches.

NO_BUBBLE = 0.0005  # smaller differences are rounding
FEWER = 3  # schedules that are named besides the best


@dataclass(frozen=True)
class Contest:
    """All schedules of a workload on one basis that cut sequences into as many slices, the smallest bubble first."""

    workload: Workload
    basis: str
    slices: int  # slices of a sequence; 1: whole
    entries: tuple[tuple[str, ScheduleLine], ...]

    @property
    def name(self) -> str:
        """Basis, and slices if sequences are cut: "simulated, sequences in 4 slices"."""
        return f"{self.basis}, sequences in {self.slices} slices" if self.slices > 1 else self.basis

    @property
    def frontier(self) -> list[tuple[str, ScheduleLine]]:
        """Schedules with a smaller bubble than all others that hold at most as many activations; the smallest peak first."""
        kept: list[tuple[str, ScheduleLine]] = []
        for name, line in sorted(self.entries, key=lambda pair: (pair[1].peak, bubble(pair[1]))):
            if not kept or bubble(line) < bubble(kept[-1][1]) - NO_BUBBLE:
                kept.append((name, line))
        return kept


@dataclass(frozen=True)
class WorkloadResult(Group):
    cases: tuple[Case, ...] = ()
    contests: tuple[Contest, ...] = ()  # sorted by basis and slices

    @property
    def workload(self) -> Workload:
        return self.cases[0].workload

    @property
    def name(self) -> str:
        return self.workload.text

    @property
    def basis(self) -> str:
        return ", ".join(dict.fromkeys(contest.basis for contest in self.contests if contest.basis != "measured"))

    @property
    def findings(self) -> list[Finding]:
        """One finding, and the difference of emulated steps from simulated ones: of measured steps if there are any, else
        of simulated ones; of whole sequences if there are any."""
        main = min(self.contests, key=lambda contest: (("measured", "simulated", "emulated").index(contest.basis), contest.slices))
        return [Finding(listed(self.workload.name, self.workload.times_text, main.name), contest_text(main), self.why,
                        "" if main.basis == "measured" else main.basis, self.anchor)]

    @property
    def why(self) -> str:
        return agreement_text(self.cases)


@dataclass(frozen=True)
class Growth:
    """Bubble against microbatches, of one number of ranks, times, basis and slices of a sequence."""

    ranks: int
    times: Optional[Times]
    basis: str
    slices: int
    curves: dict[str, tuple[tuple[int, float], ...]]  # by schedule: (microbatches, bubble)


def bubble(line: ScheduleLine) -> float:
    """Bubble as in figures and sentences: idle time of the busiest rank over the makespan."""
    return line.bubbles.of_makespan


def bubble_of(line: ScheduleLine) -> Estimate:
    """The bubble with the interval that the steps' times give."""
    if line.basis == "simulated":
        return exact(bubble(line))
    return estimate(lambda ms: 1 - line.work_ms / ms, line.samples_ms).within(0.0, 1.0)


def analyse_schedules(records: Records) -> tuple[WorkloadResult, ...]:
    """Steps whose messages take time come first: without that, schedules of many messages look better than they are."""
    found = sorted(cases_of(records.schedules).items(), key=lambda pair: bool(pair[0].times and not pair[0].times.message))
    return tuple(WorkloadResult(f"workload-{number}", tuple(line for case in cases for line in case.lines), "", tuple(cases),
                                tuple(contest for basis in BASES for contest in _contests(workload, basis, cases)))
                 for number, (workload, cases) in enumerate(found, start=1))


def _contests(workload: Workload, basis: str, cases: Sequence[Case]) -> list[Contest]:
    by_slices = by((case for case in cases if basis in case.of_basis), lambda case: max(len(case.first.slice_tokens or ()), 1),
                   lambda case: (case.name, case.of_basis[basis]))
    return [Contest(workload, basis, slices, tuple(sorted(entries, key=lambda pair: _order(pair[1]))))
            for slices, entries in sorted(by_slices.items())]


def _order(line: ScheduleLine) -> tuple[float, float, float]:
    """Sort key: the bubble, then the one without a wait at the optimizer, then the activations held."""
    return round(bubble(line), 4), round(line.bubbles.of_own_span, 4), line.peak


def growths_of(results: Sequence[WorkloadResult]) -> list[Growth]:
    def setting(contest: Contest) -> tuple:
        work = contest.workload
        return work.ranks, work.times, contest.basis, contest.slices, "" if contest.basis == "simulated" else work.place
    growths = []
    for (*setting_, _), contests in by((contest for result in results for contest in result.contests), setting).items():
        curves: dict[str, dict[int, float]] = {}
        for contest in contests:
            for name, line in contest.entries:
                curves.setdefault(name, {})[contest.workload.microbatches] = bubble(line)
        several = {name: tuple(sorted(points.items())) for name, points in curves.items() if len(points) > 1}
        growths += [Growth(*setting_, several)] if several else []
    return growths


def contest_text(contest: Contest) -> str:
    """zb_v has the smallest bubble of 19 schedules: 10 % of the step, ...; of those that hold fewer, v_half (3) 24 %"""
    (name, best), (last, worst) = contest.entries[0], contest.entries[-1]
    if len(contest.entries) == 1:
        return f"{name}: {_bubble_text(best)}, {_held_text(best)}{_trained_text(contest)}."
    alike = [other for other, line in contest.entries if _order(line) == _order(best) or contest.basis != "simulated"
             and bubble_of(line).low <= bubble_of(best).high]
    if contest.basis != "simulated" and len(alike) > len(contest.entries) / 2:
        spread = max(bubble_of(line).half for _, line in contest.entries)
        return f"Which of {len(contest.entries)} schedules has the smallest bubble is {undecided(spread, best.run.oversubscribed)}."
    have = "has" if len(alike) == 1 else "have"
    parts = [f"{joined(alike)} {have} the smallest bubble of {len(contest.entries)} schedules: {_bubble_text(best)}, "
             f"{_held_text(best)}"]
    fewer = [(other, line) for other, line in contest.frontier if line.peak < best.peak][::-1][:FEWER]
    if fewer:
        text = joined([f"{other} ({short(line.peak)}) {share_text(bubble(line))}" for other, line in fewer])
        parts.append(f"of schedules that hold fewer, {text}")
    if bubble_of(worst).low >= bubble_of(best).high and last not in [*alike, *(other for other, _ in fewer)]:
        parts.append(f"{last} has the largest, {share_text(bubble(worst))}")
    return "; ".join(parts) + f"{_trained_text(contest)}."


def _trained_text(contest: Contest) -> str:
    """Words on the schedules that the trainer can run, and the best of these if another has the smallest bubble."""
    cannot = [name for name, line in contest.entries if line.trained is False]
    can = [(name, line) for name, line in contest.entries if line.trained]
    if not can:
        return "; mini_train trains in none of these orders" if cannot else ""
    best = f", of which {can[0][0]} is best with {share_text(bubble(can[0][1]))}" if contest.entries[0][0] in cannot else ""
    return f"; mini_train trains in {'each of these orders' if not cannot else 'all of these orders but ' + joined(cannot)}{best}"


def _bubble_text(line: ScheduleLine) -> str:
    if bubble(line) < NO_BUBBLE:
        return "none"
    own = line.bubbles.of_own_span
    own_text = share_text(own) if own > NO_BUBBLE else "none"
    without = f" ({own_text} of a rank's own span)" if bubble(line) - own > 0.005 else ""
    return f"{share_text(bubble(line))} of the step{without}"


def _held_text(line: ScheduleLine) -> str:
    return f"holding the activations of at most {_microbatches(line.peak)}"


def _microbatches(number: float) -> str:
    return "1 microbatch" if number == 1 else f"{short(number)} microbatches"


def agreement_text(cases: Sequence[Case]) -> str:
    """Sentence on the difference of emulated and measured steps from simulated ones."""
    phrases = []
    for basis in ("emulated", "measured"):
        ratios = [(case.of_basis[basis].makespan_ms / case.of_basis["simulated"].makespan_ms, case.name)
                  for case in cases if basis in case.of_basis and "simulated" in case.of_basis]
        if not ratios:
            continue
        farthest = max(ratios, key=lambda pair: abs(pair[0] - 1))
        middle = median(ratio for ratio, _ in ratios)
        phrases.append(f"{basis} against simulated makespan: {percent_off(middle)}" if len(ratios) == 1 else
                    f"{basis} against simulated makespan of {counted(len(ratios), 'schedule')}: "
                    f"{percent_off(middle)} in the median, {percent_off(farthest[0])} at most ({farthest[1]})")
    return f"{joined(phrases)[:1].upper()}{joined(phrases)[1:]}." if phrases else ""


def percent_off(ratio: float) -> str:
    """Text "+1.2 %" for 1.012."""
    off = 100 * (ratio - 1)
    return "±0 %" if abs(off) < 0.005 else f"{'+' if off > 0 else '−'}{short(abs(off), 2)} %"
