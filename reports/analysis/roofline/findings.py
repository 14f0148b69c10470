"""Results of the kernels' page: two ways of timing compared, families of kernels, and findings."""

from collections import Counter
from dataclasses import dataclass, replace
from statistics import median
from typing import Callable, Iterable, Optional, Sequence

from reports.analysis.caveats import few_text
from reports.analysis.estimate import Estimate, exact, of_stats
from reports.analysis.groups import by, Finding, listed, Places
from reports.analysis.roofline.rooflines import (
    binding_name, Case, device_text, odd_ones, Roofline, rooflines_of, Way, way_of, way_text)
from reports.records import Kernel, Records
from reports.units import counted, joined, share_text, times_text


# ---- Two ways of timing the same case side by side: warm and cold caches, one thread and several

@dataclass(frozen=True)
class Pair:
    case: Case
    slow: Kernel  # the way that is expected to be slower: cold, or fewer threads
    fast: Kernel

    @property
    def ratio(self) -> float:
        """Median time of the slow way over that of the fast way."""
        return self.slow.median_us / self.fast.median_us


@dataclass(frozen=True)
class Comparison:
    """Cases that were timed in both of two ways."""

    slow: Way
    fast: Way
    name: str  # the common part: "2 threads"
    pairs: tuple[Pair, ...]  # largest ratio first

    @property
    def median(self) -> float:
        return median(pair.ratio for pair in self.pairs)


def warm_and_cold(roofline: Roofline) -> list[Comparison]:
    """One comparison for each number of threads and kind of timing."""
    return _comparisons(roofline, lambda way: replace(way, cache="warm") if way.cache == "cold" else None,
                        lambda way: way_text(way, roofline.place.device).replace(", cold", "").replace("cold, ", ""))


def few_and_many_threads(roofline: Roofline) -> list[Comparison]:
    """Comparisons of the fewest threads with the most, one for each state of the caches."""
    threads = {way.threads for way in roofline.ways}
    few, many = (min(threads), max(threads)) if threads else (0, 0)

    def partner(way: Way) -> Optional[Way]:
        return replace(way, threads=many) if way.threads == few and few < many else None
    return _comparisons(roofline, partner, lambda way: f"{way.cache} caches")


def _comparisons(roofline: Roofline, partner: Callable[[Way], Optional[Way]],
                 name: Callable[[Way], str]) -> list[Comparison]:
    found = []
    for slow in roofline.ways:
        fast = partner(slow)
        pairs = _pairs(roofline.timed[slow], roofline.timed.get(fast, {})) if fast else ()
        if pairs:
            found.append(Comparison(slow, fast, name(slow), pairs))
    return found


def _pairs(slow: dict[Case, Kernel], fast: dict[Case, Kernel]) -> tuple[Pair, ...]:
    pairs = [Pair(case, slow[case], fast[case]) for case in slow if case in fast]
    return tuple(sorted(pairs, key=lambda pair: -pair.ratio))


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
    """Farthest from the limit for certain first; cases without a ceiling are left out."""
    known = [(case, kernel) for case, kernel in cases.items() if kernel.share is not None]
    return sorted(known, key=lambda pair: share_of(pair[1]).high)


def share_of(kernel: Kernel) -> Estimate:
    """The share of the ceiling with its interval, which reaches to that of the least disturbed calls."""
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
    told = [f"{name} {share_text(median(shares[name]))}" for name in ORDER if name in shares]
    return f"Median share by family: {'; '.join(told)}."


def bounds_text(cases: Iterable[Kernel], roofline: Roofline) -> str:
    """Sentence on the number of kernels bound by each ceiling, by its name; empty without shares."""
    run_ceilings = [one for each in roofline.ceilings.values() for one in each.all]
    names = Counter(binding_name(kernel, run_ceilings) for kernel in cases if kernel.share is not None)
    if not names:
        return ""
    return "Bound by " + joined([f"{name} ({number})" for name, number in names.most_common()]) + "."


def sides(one: Comparison) -> tuple[str, str]:
    """Names of the slow and the fast way: "cold" and "warm"; "1 thread" and "2 threads"."""
    if one.slow.threads != one.fast.threads:
        return counted(one.slow.threads, "thread"), counted(one.fast.threads, "thread")
    return one.slow.cache, one.fast.cache


def comparison_text(one: Comparison) -> str:
    """Sentence such as: warm over cold: 1.4 times the speed in the median, from 1 times (adamw f32, N8) to 3 times (softmax_fwd ...)."""
    slow, fast = sides(one)
    most, least = one.pairs[0], one.pairs[-1]
    if len(one.pairs) == 1:
        return f"{fast} over {slow}: {times_text(most.ratio)} the speed, for {most.case.full}"
    return (f"{fast} over {slow}: {times_text(one.median)} the speed in the median, from {times_text(least.ratio)} "
            f"({least.case.full}) to {times_text(most.ratio)} ({most.case.full})")


def comparisons_of(roofline: Roofline) -> dict[str, list[Comparison]]:
    """Comparisons by the difference ("caches", "threads"); empty lists where there is nothing to compare."""
    return {"caches": warm_and_cold(roofline), "threads": few_and_many_threads(roofline)}


def kernel_findings(name: str, anchor: str, roofline: Roofline) -> list[Finding]:
    """One summary for each way of timing, the main one first."""
    if not roofline.timed:
        return [Finding(name, _nothing_text(roofline), "", badge_of(roofline), anchor)]
    ways = sorted(roofline.ways, key=lambda way: way != roofline.main)
    return [_finding(name, anchor, roofline, way) for way in ways]


def _nothing_text(roofline: Roofline) -> str:
    if roofline.kernels:
        return "No kernel here was timed correctly."
    return "Ceilings only: no kernel was run here, or the time budget ended before the first one."


def _finding(name: str, anchor: str, roofline: Roofline, way: Way) -> Finding:
    cases = roofline.timed[way]
    why = f"{bounds_text(cases.values(), roofline)} {groups_text(cases)}" if way == roofline.main else ""
    return Finding(f"{name}, {way_text(way, roofline.place.device)}", reach_text(cases), why.strip(),
                   badge_of(roofline), anchor, kernel_caveat(roofline, way))


def kernel_caveat(roofline: Roofline, way: Way) -> str:
    """Sentences on what limits a finding on one way of timing: cases that were left out, ceilings that contradict others, few samples."""
    left_out = sum(not one.was_run for one in roofline.kernels if way_of(one) == way)
    timed = list(roofline.timed[way].values())
    told = [f"The time budget left out {left_out} of {left_out + len(timed)} cases."] if left_out else []
    odd = [text for threads, text in odd_ones(roofline.ceilings) if threads == way.threads]
    told += [f"Its ceilings contradict each other, so that shares of the lower ones are too high: {joined(odd[:2])}."] if odd else []
    return " ".join([*told, *filter(None, [few_text(timed, "case")])])


def badge_of(roofline: Roofline) -> str:
    return "" if roofline.place.basis == "measured" else roofline.place.basis


# Converts records of kernels to all results of their page.

@dataclass(frozen=True)
class RooflineResult:
    name: str  # "CPU (Xeon ...), measured": distinguishes the rooflines of a page
    anchor: str
    roofline: Roofline
    findings: tuple[Finding, ...]

    @property
    def lines(self) -> tuple[Kernel, ...]:
        return self.roofline.kernels


def analyse_kernels(records: Records) -> tuple[RooflineResult, ...]:
    places, results = Places(records.runs), []
    for number, one in enumerate(rooflines_of(records), start=1):
        place, anchor = one.place, f"roofline-{number}"
        name = listed(device_text(one), place.basis, places.of(place.fingerprint, place.build))
        results.append(RooflineResult(name, anchor, one, tuple(kernel_findings(name, anchor, one))))
    return tuple(results)
