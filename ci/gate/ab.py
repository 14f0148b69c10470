"""gate.py ab: compares two builds, whose runs alternate now."""
import argparse
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gate.builds import add_build_arguments, Build, differences, left_out, resolve, ROOT
from gate.model import Channel, CouldNotRun, Report, Result, UsageError, Verdict
from gate.pairs import Pairing, PairTimes, typical_us
from gate.rule import decide, Decision, Rule, threshold_of
from gate.worker import Line, load_suite
from reports.progress import Progress

Tell = Callable[[str, int, int], None]  # the work at hand; cases that are decided; all cases

# ---- Alternates two builds in one session: rounds of fresh pairs until every case is decided, then a second opinion on the cases
# that look slower or faster.

Case = tuple[str, str]  # name of a suite's line, and of the case in it


@dataclass(frozen=True)
class Budget:
    """Budget of seconds for measuring all cases together; a pair that would begin after its end is left out."""

    seconds: float
    start: float = field(default_factory=time.monotonic)

    def is_spent(self) -> bool:
        return time.monotonic() - self.start >= self.seconds


@dataclass
class Opinion:
    """Result of a set of pairs for each case."""

    pairs: dict[Case, list[PairTimes]] = field(default_factory=dict)
    decisions: dict[Case, Decision] = field(default_factory=dict)

    def verdict(self, case: Case) -> Verdict:
        return self.decisions[case].verdict if case in self.decisions else Verdict.UNDECIDED


def ask(pairings: Mapping[str, Pairing], cases: Iterable[Case], rule: Rule, budget: Budget,
        progress: Tell) -> Opinion:
    """Runs rounds of pairs until the budget is spent; a case ends at the first look that decides it. Returns pairs and decisions."""
    opinion = Opinion({case: [] for case in cases})
    open_cases = set(opinion.pairs)
    for number in range(1, rule.looks[-1] + 1):
        if not open_cases or budget.is_spent():
            break
        for line, pairing in pairings.items():
            wanted = sorted(case for of_line, case in open_cases if of_line == line)
            if not wanted or budget.is_spent():
                continue
            for case, times in pairing.run(wanted).items():
                opinion.pairs[line, case].append(times)
        if number in rule.looks:
            open_cases -= _look(opinion, {case for case in open_cases if len(opinion.pairs[case]) == number}, rule)
        progress(f"pair {number}", len(opinion.pairs) - len(open_cases), len(opinion.pairs))
    for case in open_cases:  # a last look, as the budget may be spent between two; with too few pairs it gives the ratio alone
        pairs = opinion.pairs[case]
        if len(pairs) >= 2:
            decision = _decide(pairs, rule)
            opinion.decisions[case] = decision if len(pairs) >= rule.looks[0] else replace(decision, verdict=Verdict.UNDECIDED)
    return opinion


def measure(pairings: Mapping[str, Pairing], rule: Rule, budget: Budget,
            progress: Tell = lambda *_: None) -> list[Result]:
    """A result for each case of either build, in the order in which the lines have them."""
    with ExitStack() as stack:
        for pairing in pairings.values():
            stack.callback(pairing.close)
        return _measure(pairings, rule, budget, progress)


def _measure(pairings: Mapping[str, Pairing], rule: Rule, budget: Budget, progress: Tell) -> list[Result]:
    cases: dict[Case, Verdict] = {}
    for line, pairing in pairings.items():
        base, head = pairing.cases()
        if not base and not head:
            raise CouldNotRun(f"{line}: neither build has a case; change the suite's line")
        for case in dict.fromkeys([*base, *head]):
            both = case in base and case in head
            cases[line, case] = Verdict.UNDECIDED if both else Verdict.NEW if case in head else Verdict.GONE
    first = ask(pairings, [case for case, known in cases.items() if known is Verdict.UNDECIDED], rule, budget, progress)
    suspects = [case for case in first.pairs if first.verdict(case) in (Verdict.SLOWER, Verdict.FASTER)]
    if suspects:
        progress(f"{len(suspects)} differ; fresh pairs are asked", 0, len(suspects))
    second = ask(pairings, suspects, replace(rule, error=rule.confirm_error), budget, progress)
    return [_result(case, first, second, rule) if known is Verdict.UNDECIDED else _one_sided(case, known)
            for case, known in cases.items()]


def _decide(pairs: list[PairTimes], rule: Rule) -> Decision:
    return decide([pair.log_ratio() for pair in pairs], rule)


def _look(opinion: Opinion, open_cases: set[Case], rule: Rule) -> set[Case]:
    decided = set()
    for case in open_cases:
        decision = _decide(opinion.pairs[case], rule)
        if decision.verdict is not Verdict.UNDECIDED:
            opinion.decisions[case] = decision
            decided.add(case)
    return decided


def _name(case: Case) -> str:
    return ": ".join(case)


def _one_sided(case: Case, verdict: Verdict) -> Result:
    return Result(_name(case), Channel.TIME, verdict, "us")


def _result(case: Case, first: Opinion, second: Opinion, rule: Rule) -> Result:
    """If there is a second opinion, it alone counts, as the first selected the case for its ratio."""
    asked_again = case in second.pairs
    last = second if asked_again and case in second.decisions else first
    pairs = last.pairs[case]
    seconds = sum(pair.seconds for pair in first.pairs[case] + second.pairs.get(case, []))
    if case not in last.decisions:
        return Result(_name(case), Channel.TIME, Verdict.UNDECIDED, "us", why=f"the budget was spent after {_counted(pairs)}", seconds=seconds)
    decision = last.decisions[case]
    verdict = decision.verdict
    why = _counted(pairs)
    if asked_again and last is first:
        why = f"it looked {verdict.value}, and the budget was spent before fresh pairs could confirm it"
        verdict = Verdict.UNDECIDED
    elif asked_again:
        confirmed = verdict is first.verdict(case)
        if not confirmed and verdict is not Verdict.SAME:
            verdict = Verdict.UNDECIDED
        why = f"{'confirmed' if confirmed else 'not confirmed'} by {len(pairs)} fresh pairs"
    elif verdict is Verdict.UNDECIDED:
        why = f"{'the budget was spent' if len(pairs) < rule.looks[-1] else 'not clear'} after {_counted(pairs)}"
    return Result(_name(case), Channel.TIME, verdict, "us", base=typical_us(pairs, lambda pair: pair.base_us),
                  head=typical_us(pairs, lambda pair: pair.head_us), ratio=decision.ratio,
                  low=_finite(decision.low), high=_finite(decision.high), why=why, pairs=len(pairs),
                  ratios=tuple(math.exp(pair.log_ratio()) for pair in pairs), seconds=seconds)


def _counted(pairs: list[PairTimes]) -> str:
    return "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) and bound > 0 else None


# ---- The command of gate.py

SUITE = ROOT / "ci" / "gate_suite.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", required=True, metavar="REV|BUILD", help="the side to compare with: a revision, or a build folder")
    parser.add_argument("--head", required=True, metavar="REV|BUILD", help="the side that gets a verdict")
    parser.add_argument("--suite", default="gate", metavar="gate|FILE", help="lines NAME CORES COMMAND (default: ci/gate_suite.txt)")
    parser.add_argument("--budget", default="2m", metavar="TIME", help="time for measuring, without builds: 90s, 5m (default: 2m)")
    parser.add_argument("--threshold", default="2%", metavar="PERCENT", help="smaller changes do not matter (default: 2%%)")
    add_build_arguments(parser)


def seconds_of(text: str, flag: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{flag} {text}; allowed: a time above 0, as 90, 90s, 2m or 1h")
    return seconds


def run(arguments: argparse.Namespace) -> Report:
    rule = Rule(threshold=threshold_of(arguments.threshold, "--threshold"))
    seconds = seconds_of(arguments.budget, "--budget")
    lines = load_suite(SUITE if arguments.suite == "gate" else Path(arguments.suite))
    programs = sorted({line.command[0] for line in lines})
    base, head = (resolve(text, flag, programs, ROOT, arguments.build_cache, arguments.cmake)
                  for text, flag in ((arguments.base, "--base"), (arguments.head, "--head")))
    return compare_builds(lines, base, head, rule, seconds)


def compare_builds(lines: list[Line], base: Build, head: Build, rule: Rule, seconds: float) -> Report:
    start = time.monotonic()
    pairings = {line.name: Pairing(partial(base.start, line.command, {}), partial(head.start, line.command, {}),
                                   line.one_core) for line in lines}
    results = measure(pairings, rule, Budget(seconds), progress=Progress("cases", 0))
    notes = [*left_out((base.side, head.side), ROOT), *differences(base.folder, head.folder)]
    return Report("ab", base.side, head.side, rule.threshold, 1 - 2 * rule.error, tuple(results), time.monotonic() - start, tuple(notes))
