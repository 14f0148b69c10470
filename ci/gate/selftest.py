"""Trials of the gate: their verdicts, kept as JSON Lines, and their summary."""
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gate.model import Result, UsageError, Verdict
from gate.rule import wilson

CASE_SECONDS = 4.0  # a trial's budget for each case of its line
# Goals on a quiet machine, in percent: for a build against itself, and for planted slowdowns by their size.
MOST_BIAS, MOST_FALSE, LEAST_SAME = 0.3, 1.0, 90.0
LEAST_FOUND = {3.0: 60.0, 5.0: 90.0}


@dataclass(frozen=True, order=True)
class Kind:
    """Settings of a trial."""

    percent: float  # slowdown planted in the head; 0: one build against itself
    noise: int  # number of busy processes beside it

    def __str__(self) -> str:
        return f"{self.percent:g} % planted" + (f", {self.noise} busy processes" if self.noise else "")


@dataclass(frozen=True)
class Trial:
    """One verdict on one case."""

    line: str
    case: str
    percent: float
    noise: int
    verdict: str
    change: float | None  # head over base, minus 1, in percent; None where the budget was spent before there was one
    low: float | None
    high: float | None
    seconds: float
    ratios: list[float]  # ratios of its pairs

    @classmethod
    def of(cls, result: Result, line: str, kind: Kind) -> "Trial":
        percents = (None if ratio is None else round(100 * (ratio - 1), 4) for ratio in (result.ratio, result.low, result.high))
        return cls(line, result.case, kind.percent, kind.noise, result.verdict.value, *percents, round(result.seconds, 3),
                   [round(ratio, 5) for ratio in result.ratios])


class Records:
    """A file of trials, one per line, to which more are added."""

    def __init__(self, path: Path):
        self._path = path
        self.trials: list[Trial] = []
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), start=1):
            try:
                self.trials.append(Trial(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise UsageError(f"--records {path}, line {number}: not a trial; allowed: a file of this program's, or a new one") from error

    def add(self, trials: Iterable[Trial]) -> None:
        with self._path.open("a") as file:
            for trial in trials:
                file.write(json.dumps(asdict(trial)) + "\n")
                self.trials.append(trial)

    def trials_of(self, line: str, kind: Kind) -> int:
        """Number of trials of this kind for the line's case that has the most."""
        cases = [trial.case for trial in self.trials if (trial.line, trial.percent, trial.noise) == (line, kind.percent, kind.noise)]
        return max(map(cases.count, set(cases)), default=0)


@dataclass(frozen=True)
class Tally:
    """Trials of one kind."""

    trials: Sequence[Trial]

    def share(self, *verdicts: Verdict) -> float:
        """In percent."""
        return 100 * self._count(*verdicts) / len(self.trials)

    def interval(self, *verdicts: Verdict) -> tuple[float, float]:
        """95 % interval of the rate that share() estimates, in percent."""
        low, high = wilson(self._count(*verdicts), len(self.trials))
        return 100 * low, 100 * high

    def bias(self) -> tuple[float, float]:
        """The mean signed change, and half the width of its interval of 95 %, in percent. Trials are independent."""
        changes = [trial.change for trial in self.trials if trial.change is not None]
        if len(changes) < 2:
            return statistics.fmean(changes or [0.0]), math.inf
        return statistics.fmean(changes), 1.96 * statistics.stdev(changes) / math.sqrt(len(changes))

    def seconds(self) -> float:
        return statistics.fmean(trial.seconds for trial in self.trials)

    def refutes(self, percent: float, *verdicts: Verdict, at_most: bool) -> bool:
        """Whether this number of verdicts, or a more extreme one, would come in fewer than 1 of 40 such sets of trials if their rate
        were `percent`. The test is exact, which intervals are not for single verdicts."""
        count, number, rate = self._count(*verdicts), len(self.trials), percent / 100
        counts = range(count, number + 1) if at_most else range(count + 1)
        return sum(_binomial(k, number, rate) for k in counts) < 0.025

    def _count(self, *verdicts: Verdict) -> int:
        return sum(trial.verdict in verdicts for trial in self.trials)


def _binomial(k: int, number: int, rate: float) -> float:
    """Probability of k of `number` at a rate between 0 and 1; by logarithms, as binomials of a thousand trials exceed floats."""
    ways = math.lgamma(number + 1) - math.lgamma(k + 1) - math.lgamma(number - k + 1)
    return math.exp(ways + k * math.log(rate) + (number - k) * math.log1p(-rate))


def missed_goals(percent: float, tally: Tally) -> list[str]:
    """Goals that the trials refute with a confidence of 95 %, two-sided."""
    if percent == 0:
        mean, half = tally.bias()
        goals = {"bias": abs(mean) - half <= MOST_BIAS, "false": not tally.refutes(MOST_FALSE, Verdict.SLOWER, Verdict.FASTER, at_most=True),
                 "same": not tally.refutes(LEAST_SAME, Verdict.SAME, at_most=False), "seconds": tally.seconds() <= CASE_SECONDS}
    elif percent in LEAST_FOUND:
        goals = {"found": not tally.refutes(LEAST_FOUND[percent], Verdict.SLOWER, at_most=False)}
    else:
        goals = {}
    return [name for name, met in goals.items() if not met]


HEADING = (f"{'trials':>6}  {'mean change (95 %)':>20}  {'same':>5}  {'undecided':>9}  {'faster':>6}  {'slower':>6}  {'slower or faster (95 %)':>23}"
           f"  {'s':>5}  missed    case")


def _row(name: str, percent: float, tally: Tally) -> str:
    mean, half = tally.bias()
    shares = [tally.share(verdict) for verdict in (Verdict.SAME, Verdict.UNDECIDED, Verdict.FASTER, Verdict.SLOWER)]
    low, high = tally.interval(Verdict.SLOWER, Verdict.FASTER)
    return (f"{len(tally.trials):6}  {mean:+9.2f} +- {half:4.2f} %  {shares[0]:5.0f}  {shares[1]:9.0f}  {shares[2]:6.1f}  {shares[3]:6.1f}"
            f"  {low:10.1f} to {high:5.1f} %  {tally.seconds():5.2f}  {','.join(missed_goals(percent, tally)) or '-':8}  {name}")


def summary(trials: Sequence[Trial]) -> tuple[str, bool]:
    """A table for people, a row per case and one for all cases; and whether no goal is missed. Shares are in percent."""
    rows, met = [], True
    for kind in sorted({Kind(trial.percent, trial.noise) for trial in trials}):
        of_kind = [trial for trial in trials if (trial.percent, trial.noise) == (kind.percent, kind.noise)]
        rows += [str(kind), HEADING]
        for case in sorted({trial.case for trial in of_kind}):
            tally = Tally([trial for trial in of_kind if trial.case == case])
            rows.append(_row(case, kind.percent, tally))
            met = met and not missed_goals(kind.percent, tally)
        rows += [_row("all cases", kind.percent, Tally(of_kind)), ""]
    return "\n".join(rows) or "no trials", met
