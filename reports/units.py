"""Text forms of sizes, times and names, the same everywhere."""
import math
import re

_BINARY = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]

_COLLECTIVES = {
    "all_reduce": "All-reduce",
    "reduce_scatter": "Reduce-scatter",
    "all_gather": "All-gather",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_to_all": "All-to-all",
    "all_to_all_v": "All-to-all-v",
    "gather": "Gather",
    "scatter": "Scatter",
    "send_recv": "Send/recv",
    "hypercube": "Hypercube",
}


def collective_name(name: str) -> str:
    return _COLLECTIVES.get(name, name.replace("_", "-").capitalize())


def collective_order(name: str) -> tuple[int, str]:
    """The order of the sections: ours first, in the order of collectives/collective.h."""
    known = list(_COLLECTIVES)
    return (known.index(name) if name in known else len(known), name)


def short(value: float, significant: int = 3) -> str:
    """Number with three significant digits and without an exponent: 1234 -> 1234, 12.345 -> 12.3, 0.01234 -> 0.0123."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    digits = max(significant - 1 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def bytes_text(size: float, significant: int = 4) -> str:
    """Size such as "8 B", "1 KiB", "1.5 KiB" or "64 MiB"."""
    for unit, name in _BINARY:
        if size >= unit:
            return f"{short(size / unit, significant)} {name}"
    return f"{short(size, significant)} B"


def about(size: float) -> str:
    """A size that was estimated, not tested: two digits."""
    return bytes_text(size, 2)


def time_text(us: float) -> str:
    if us >= 1e6:
        return f"{short(us / 1e6)} s"
    if us >= 1e3:
        return f"{short(us / 1e3)} ms"
    if us < 0.1 and us > 0:
        return f"{short(us * 1e3)} ns"
    return f"{short(us)} µs"


def rate_text(gbps: float) -> str:
    return f"{short(gbps)} GB/s"


def flops_text(gflops: float) -> str:
    """Rate such as "105 GFLOP/s", "5.8 TFLOP/s" or "0.3 MFLOP/s"."""
    if gflops >= 1e3:
        return f"{short(gflops / 1e3)} TFLOP/s"
    return f"{short(gflops)} GFLOP/s" if gflops >= 0.1 else f"{short(gflops * 1e3)} MFLOP/s"


def share_text(share: float) -> str:
    """Percentage of a share: 0.41 -> 41 %; 0.0163 -> 1.6 %."""
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{short(100 * share, 2)} %"


def times_text(ratio: float) -> str:
    """A ratio in words: 1.24 -> 1.2 times, 13.2 -> 13 times."""
    return f"{short(ratio, 3 if 0.9 < ratio < 1.1 else 2)} times"


def joined(words: list[str]) -> str:
    """Words as a list: "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""


def counted(number: int, word: str) -> str:
    """Number with its noun: "1 row", "2 rows"."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def unbroken(text: str) -> str:
    """Replaces the space between a number and its unit by one that does not break."""
    return re.sub(r"(\d) (?=(?:B|[KMGT]iB|[nµm]?s|GB/s|[MGT]FLOP/s|%|threads?|ranks?|times)(?!\w))", "\\1\u00a0", text)
