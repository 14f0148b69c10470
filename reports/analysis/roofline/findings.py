"""Findings of the kernels' page: how many reach their limit, and which is the farthest from it."""
from collections import Counter
from statistics import median
from typing import Iterable, Sequence

from reports.analysis.findings import Finding
from reports.analysis.roofline.ceilings import binding_name
from reports.analysis.roofline.pairs import Comparison, few_and_many_threads, group_of, ORDER, warm_and_cold
from reports.analysis.roofline.rooflines import Case, Roofline, Way, way_text
from reports.records import Kernel
from reports.units import counted, joined, share_text, times_text

NEAR = 0.85  # share of the binding ceiling that counts as reaching it
ABOVE = 1.05  # a share that says more about the ceiling than about the kernel

_BOUND = {"memory": "bound by memory", "compute": "bound by arithmetic", "launch": "bound by the launch"}


def with_share(cases: dict[Case, Kernel]) -> list[tuple[Case, Kernel]]:
    """Farthest from the limit first; cases without a ceiling are left out."""
    known = [(case, kernel) for case, kernel in cases.items() if kernel.share is not None]
    return sorted(known, key=lambda pair: pair[1].share)


def reach_text(cases: dict[Case, Kernel]) -> str:
    """12 of 40 cases (16 kernels) reach 85 % of the ceiling that binds them; the farthest is ..."""
    known = with_share(cases)
    if not known:
        return f"No ceiling is known that binds any of {_cases_text(cases)}."
    near = sum(kernel.share >= NEAR for _, kernel in known)
    return (f"{near} of {_cases_text(dict(known))} {'reaches' if near == 1 else 'reach'} {share_text(NEAR)} of the "
            f"ceiling that binds {'it' if len(known) == 1 else 'them'}{_above_text(known)}; {farthest_text(known)}.")


def _above_text(known: Sequence[tuple[Case, Kernel]]) -> str:
    """A kernel that is faster than its ceiling has not reached a limit: the limit is another."""
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
    shares: dict[str, list[float]] = {}
    for case, kernel in with_share(cases):
        shares.setdefault(group_of(case.kernel), []).append(kernel.share)
    if len(shares) < 2:
        return ""
    told = [f"{name} {share_text(median(shares[name]))}" for name in ORDER if name in shares]
    return f"Median share by family: {'; '.join(told)}."


def bounds_text(cases: Iterable[Kernel], roofline: Roofline) -> str:
    """How many are bound by what: the ceilings that decide, by name."""
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
    """warm over cold: 1.4 times the speed in the median, from 1 times (adamw f32, N8) to 3 times (softmax_fwd ...)."""
    slow, fast = sides(one)
    most, least = one.pairs[0], one.pairs[-1]
    if len(one.pairs) == 1:
        return f"{fast} over {slow}: {times_text(most.ratio)} the speed, for {most.case.full}"
    return (f"{fast} over {slow}: {times_text(one.median)} the speed in the median, from {times_text(least.ratio)} "
            f"({least.case.full}) to {times_text(most.ratio)} ({most.case.full})")


def comparisons_of(roofline: Roofline) -> dict[str, list[Comparison]]:
    """By what differs: "caches", "threads"; empty lists where there is nothing to compare."""
    return {"caches": warm_and_cold(roofline), "threads": few_and_many_threads(roofline)}


def kernel_findings(name: str, anchor: str, roofline: Roofline) -> list[Finding]:
    """One for each way of timing, the main one first."""
    if not roofline.timed:
        return [Finding(name, _nothing_text(roofline), "", badge_of(roofline), anchor)]
    ways = sorted(roofline.ways, key=lambda way: way != roofline.main)
    return [_finding(name, anchor, roofline, way) for way in ways]


def _nothing_text(roofline: Roofline) -> str:
    return "No kernel here was timed correctly." if roofline.kernels else "Ceilings only; no kernel was run here."


def _finding(name: str, anchor: str, roofline: Roofline, way: Way) -> Finding:
    cases = roofline.timed[way]
    why = f"{bounds_text(cases.values(), roofline)} {groups_text(cases)}" if way == roofline.main else ""
    return Finding(f"{name}, {way_text(way, roofline.place.device)}", reach_text(cases), why.strip(),
                   badge_of(roofline), anchor)


def badge_of(roofline: Roofline) -> str:
    return "" if roofline.place.basis == "measured" else roofline.place.basis
