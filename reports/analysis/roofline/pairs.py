"""Two ways of timing the same case side by side: warm and cold caches, one thread and several."""

from dataclasses import dataclass, replace
from statistics import median
from typing import Callable, Optional

from reports.analysis.roofline.rooflines import Case, Roofline, Way, way_text
from reports.records import Kernel


@dataclass(frozen=True)
class Pair:
    case: Case
    slow: Kernel  # the way that is expected to be slower: cold, or fewer threads
    fast: Kernel

    @property
    def ratio(self) -> float:
        """How many times as fast."""
        return self.slow.median_us / self.fast.median_us


@dataclass(frozen=True)
class Comparison:
    """All cases that were timed in both of two ways."""

    slow: Way
    fast: Way
    name: str  # the common part: "2 threads"
    pairs: tuple[Pair, ...]  # largest ratio first

    @property
    def median(self) -> float:
        return median(pair.ratio for pair in self.pairs)


def warm_and_cold(roofline: Roofline) -> list[Comparison]:
    """One for each number of threads and kind of timing."""
    return _comparisons(roofline, lambda way: replace(way, cache="warm") if way.cache == "cold" else None,
                        lambda way: way_text(way, roofline.place.device).replace(", cold", "").replace("cold, ", ""))


def few_and_many_threads(roofline: Roofline) -> list[Comparison]:
    """The fewest threads against the most, one for each state of the caches."""
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


# ---- Families of kernels, few enough to be told apart in a plot

GEMM, ATTENTION, NORM, SOFTMAX = "GEMM", "attention", "normalisation", "softmax, cross-entropy"
ELEMENTS, OPTIMIZER, EXCHANGE = "GELU, residual, dropout, embedding", "optimizer", "sum, cast, quantise, pack"
OTHER = "other"

# By how a kernel's name begins; the longest beginning counts.
_BEGINNINGS = {
    "gemm": GEMM, "attention": ATTENTION, "cache_append": ATTENTION,
    "layernorm": NORM, "rmsnorm": NORM, "residual_layernorm": NORM, "residual_rmsnorm": NORM,
    "softmax": SOFTMAX, "cross_entropy": SOFTMAX,
    "gelu": ELEMENTS, "residual_add": ELEMENTS, "dropout": ELEMENTS, "embedding": ELEMENTS,
    "adamw": OPTIMIZER, "sgd": OPTIMIZER, "sum_of_squares": OPTIMIZER, "clip": OPTIMIZER, "finite_check": OPTIMIZER,
    "cast": EXCHANGE, "quantize": EXCHANGE, "dequantize": EXCHANGE, "fp8": EXCHANGE, "pack": EXCHANGE, "unpack": EXCHANGE,
    "copy": EXCHANGE, "encode_signs": EXCHANGE, "decode_signs": EXCHANGE, "top_k": EXCHANGE, "scatter_add": EXCHANGE,
    "reduc": EXCHANGE, "sum": EXCHANGE,
}
ORDER = [*dict.fromkeys(_BEGINNINGS.values()), OTHER]


def group_of(kernel: str) -> str:
    fitting = [beginning for beginning in _BEGINNINGS if kernel.startswith(beginning)]
    return _BEGINNINGS[max(fitting, key=len)] if fitting else OTHER
