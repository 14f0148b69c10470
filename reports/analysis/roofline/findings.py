"""Results of the kernels' page: two ways of timing compared, families of kernels, and findings."""

from collections import Counter
from dataclasses import dataclass, replace
from statistics import median
from typing import Callable, Iterable, Sequence

from reports.analysis.caveats import few_text, limited
from reports.analysis.estimate import Estimate, exact, of_stats
from reports.analysis.groups import by, Finding
from reports.analysis.roofline.rooflines import binding_name, Case, odd_ones, Roofline, Way, way_of, way_text
from reports.records import Kernel
from reports.units import counted, joined, share_text, times_text


# ---- Two ways of timing the same case: warm and cold caches, one thread and several

@dataclass(frozen=True)
class Pair:
    case: Case
    slow: Kernel  # the way that is expected to be slower: cold, or fewer threads
    fast: Kernel

    @property
    def ratio(self) -> float:
        """Median time of the slow way over the median time of the fast way."""
        return self.slow.median_us / self.fast.median_us


@dataclass(frozen=True)
class Comparison:
    """Cases that were timed in both of two ways."""

    name: str  # the common part: "2 threads"
    pairs: tuple[Pair, ...]  # largest ratio first

    @property
    def median(self) -> float:
        return median(pair.ratio for pair in self.pairs)

    @property
    def sides(self) -> tuple[str, str]:
        """Names of the slow and the fast way: "cold" and "warm"; "1 thread" and "2 threads"."""
        slow, fast = self.pairs[0].slow, self.pairs[0].fast
        if slow.threads == fast.threads:
            return slow.cache, fast.cache
        return counted(slow.threads, "thread"), counted(fast.threads, "thread")


def comparisons_of(roofline: Roofline) -> dict[str, list[Comparison]]:
    """Comparisons by the difference: "caches" has one of cold with warm caches for each number of threads and kind of timing,
    "threads" one of the fewest with the most for each state of the caches; empty lists where there is nothing to compare."""
    threads = {way.threads for way in roofline.ways}
    few, many = min(threads, default=0), max(threads, default=0)
    cold = {way: replace(way, cache="warm") for way in roofline.ways if way.cache == "cold"}
    fewest = {way: replace(way, threads=many) for way in roofline.ways if way.threads == few < many}
    return {"caches": _comparisons(roofline, cold, lambda way: way_text(replace(way, cache=""), roofline.device)),
            "threads": _comparisons(roofline, fewest, lambda way: f"{way.cache} caches")}


def _comparisons(roofline: Roofline, partners: dict[Way, Way], name: Callable[[Way], str]) -> list[Comparison]:
    found = []
    for slow, fast in partners.items():
        mine, theirs = roofline.timed[slow], roofline.timed.get(fast, {})
        pairs = [Pair(case, mine[case], theirs[case]) for case in mine if case in theirs]
        if pairs:
            found.append(Comparison(name(slow), tuple(sorted(pairs, key=lambda pair: -pair.ratio))))
    return found


# ---- Families of kernels, few enough to be distinguished in a plot

GEMM, ATTENTION, NORM, SOFTMAX = "GEMM", "attention", "normalisation", "softmax, cross-entropy"
ELEMENTS, OPTIMIZER, EXCHANGE = "GELU, residual, dropout, embedding", "optimizer", "sum, cast, quantise, pack"
OTHER = "other"

# Family by the prefix of a kernel's name; the longest prefix counts.
_BEGINNINGS = {
    "gemm": GEMM, "attention": ATTENTION, "cache_append": ATTENTION,
    "layernorm": NORM, "rmsnorm": NORM, "residual_layernorm": NORM, "residual_rmsnorm": NORM,
    "softmax": SOFTMAX, "cross_entropy": SOFTMAX,
    "gelu": ELEMENTS, "residual_add": ELEMENTS, "dropout": ELEMENTS, "embedding": ELEMENTS,
    "adam": OPTIMIZER, "sgd": OPTIMIZER, "momentum": OPTIMIZER, "rmsprop": OPTIMIZER, "sum_of_squares": OPTIMIZER, "clip": OPTIMIZER, "finite_check": OPTIMIZER,
    "cast": EXCHANGE, "quantize": EXCHANGE, "dequantize": EXCHANGE, "fp8": EXCHANGE, "pack": EXCHANGE, "unpack": EXCHANGE,
    "copy": EXCHANGE, "encode_signs": EXCHANGE, "decode_signs": EXCHANGE, "top_k": EXCHANGE, "scatter_add": EXCHANGE,
    "reduc": EXCHANGE, "sum": EXCHANGE,
}
ORDER = [*dict.fromkeys(_BEGINNINGS.values()), OTHER]


def group_of(kernel: str) -> str:
    fitting = [beginning for beginning in _BEGINNINGS if kernel.startswith(beginning)]
    return _BEGINNINGS[max(fitting, key=len)] if fitting else OTHER


# Findings of the kernels' page: the number that reach their limit, and the one that is farthest from it.

NEAR = 0.85  # share of the binding ceiling that counts as reaching it
ABOVE = 1.05  # a kernel with a larger share shows that its ceiling was not the limit

_BOUND = {"memory": "bound by memory", "compute": "bound by arithmetic", "launch": "bound by the launch"}


def with_share(cases: dict[Case, Kernel]) -> list[tuple[Case, Kernel]]:
    """Farthest from the limit for certain first; without the cases that have no ceiling."""
    known = [(case, kernel) for case, kernel in cases.items() if kernel.share is not None]
    return sorted(known, key=lambda pair: share_of(pair[1]).high)


def share_of(kernel: Kernel) -> Estimate:
    """The share of the ceiling with its interval, which extends to the share of the least disturbed calls."""
    if not kernel.stats:
        return exact(kernel.share)
    time = of_stats(kernel.stats)
    fastest = max(min(time.low, time.least), 1e-3 * time.value)
    return Estimate(kernel.share, kernel.share * time.value / time.high, kernel.share * time.value / fastest)


def reach_text(cases: dict[Case, Kernel]) -> str:
    """Sentence such as "12 of 40 cases (16 kernels) reach 85 % of the ceiling that binds them; the farthest is ..."."""
    known = with_share(cases)
    if not known:
        return f"No ceiling is known that binds any of {_cases_text(cases)}."
    near = sum(kernel.share >= NEAR for _, kernel in known)
    open_ = sum(kernel.share < NEAR <= share_of(kernel).high for _, kernel in known)
    doubt = f"; of {open_} it is undecided on this machine" if open_ else ""
    return (f"{near} of {_cases_text(dict(known))} {'reaches' if near == 1 else 'reach'} {share_text(NEAR)} of the "
            f"ceiling that binds {'it' if len(known) == 1 else 'them'}{_above_text(known)}{doubt}; {farthest_text(known)}.")


def _above_text(known: Sequence[tuple[Case, Kernel]]) -> str:
    """Words on kernels that are faster than their ceiling: it was not their limit, so they do not count as having reached one."""
    above = sum(kernel.share > ABOVE for _, kernel in known)
    if not above:
        return ""
    return f" ({above} of these {'is' if above == 1 else 'are'} above {share_text(ABOVE)}: that was not the limit)"


def _cases_text(cases: dict[Case, Kernel]) -> str:
    kernels = len({case.kernel for case in cases})
    if kernels == len(cases):
        return counted(kernels, "kernel")
    return f"{counted(len(cases), 'case')} ({counted(kernels, 'kernel')} in several shapes and dtypes)"


def farthest_text(known: Sequence[tuple[Case, Kernel]]) -> str:
    case, kernel = known[0]
    where = f", {_BOUND[kernel.bound]}" if kernel.bound in _BOUND else ""
    return f"the farthest is {case.full}, at {share_text(kernel.share)}{where}"


def groups_text(cases: dict[Case, Kernel]) -> str:
    """The median share of each family."""
    shares = {name: [kernel.share for _, kernel in pairs] for name, pairs in by(with_share(cases), lambda pair: group_of(pair[0].kernel)).items()}
    if len(shares) < 2:
        return ""
    phrases = [f"{name} {share_text(median(shares[name]))}" for name in ORDER if name in shares]
    return f"Median share by family: {'; '.join(phrases)}."


def bounds_text(cases: Iterable[Kernel], roofline: Roofline) -> str:
    """Sentence on the number of kernels bound by each ceiling, by its name; empty without shares."""
    names = Counter(binding_name(kernel, roofline.latest_ceilings) for kernel in cases if kernel.share is not None)
    if not names:
        return ""
    return "Bound by " + joined([f"{name} ({number})" for name, number in names.most_common()]) + "."


def comparison_text(kernel: Comparison) -> str:
    """Sentence such as: warm over cold: 1.4 times the speed in the median, from 1 times (adamw f32, N8) to 3 times (softmax_fwd ...)."""
    slow, fast = kernel.sides
    most, least = kernel.pairs[0], kernel.pairs[-1]
    if len(kernel.pairs) == 1:
        return f"{fast} over {slow}: {times_text(most.ratio)} the speed, for {most.case.full}"
    return (f"{fast} over {slow}: {times_text(kernel.median)} the speed in the median, from {times_text(least.ratio)} "
            f"({least.case.full}) to {times_text(most.ratio)} ({most.case.full})")


def kernel_findings(rooflines: Iterable[Roofline]) -> list[Finding]:
    """One summary for each way of timing, of each roofline the main way first."""
    return [limited(finding, roofline.lines) for roofline in rooflines for finding in _findings(roofline)]


def _findings(roofline: Roofline) -> list[Finding]:
    if not roofline.timed:
        return [Finding(roofline.name, _nothing_text(roofline), "", roofline.basis, roofline.anchor)]
    ways = sorted(roofline.ways, key=lambda way: way != roofline.main)
    return [_finding(roofline, way) for way in ways]


def _nothing_text(roofline: Roofline) -> str:
    if roofline.lines:
        return "No kernel here was timed correctly."
    return "Ceilings only: no kernel was run here, or the time budget ended before the first one."


def _finding(roofline: Roofline, way: Way) -> Finding:
    cases = roofline.timed[way]
    why = f"{bounds_text(cases.values(), roofline)} {groups_text(cases)}" if way == roofline.main else ""
    return Finding(f"{roofline.name}, {way_text(way, roofline.device)}", reach_text(cases), why.strip(), roofline.basis,
                   roofline.anchor, kernel_caveat(roofline, way))


def kernel_caveat(roofline: Roofline, way: Way) -> str:
    """Sentences on what limits a finding on one way of timing: cases that were skipped, ceilings that contradict others, few samples."""
    left_out = sum(not line.was_run for line in roofline.lines if way_of(line) == way)
    timed = list(roofline.timed[way].values())
    phrases = [f"The time budget ended before {left_out} of {left_out + len(timed)} cases."] if left_out else []
    odd = [text for threads, text in odd_ones(roofline.ceilings) if threads == way.threads]
    phrases += [f"Its ceilings contradict each other, so that shares of the lower ones are too high: {joined(odd[:2])}."] if odd else []
    return " ".join([*phrases, *filter(None, [few_text(timed, "case")])])
