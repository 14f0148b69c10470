"""This machine as records tell it, and the fingerprint that our programs give it (core/provenance.cpp)."""
import os
import platform
import re
from pathlib import Path

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MASK = (1 << 64) - 1


def this_machine() -> dict:
    """The `machine` of a run line; without GPUs, one host."""
    machine = {"cpu": _cpuinfo("model name"), "cores": len(os.sched_getaffinity(0)),
               "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
               "kernel": f"{platform.system()} {platform.release()}",
               "caches": {f"l{level}{'d' if level == 1 else ''}_bytes": _cache_bytes(str(level)) for level in (1, 2, 3)},
               "mhz": _clock_mhz(), "gpus": [], "hosts": 1}
    return {"fingerprint": fingerprint(machine), **machine}


def fingerprint(machine: dict) -> str:
    """Of all but the clock: equal where results may be compared."""
    caches = [machine["caches"][name] for name in ("l1d_bytes", "l2_bytes", "l3_bytes")]
    sizes = [-1 if size is None else size for size in (machine["memory_bytes"], *caches)]
    words = [machine["cpu"] or "", machine["cores"], sizes[0], machine["kernel"], *sizes[1:], machine["hosts"],
             *machine["gpus"]]
    data = "|".join(str(word) for word in words).encode()
    value = _mix64(len(data))
    for byte in data:
        value = _mix64(value ^ byte)
    return f"{value:016x}"


def _mix64(x: int) -> int:
    """core/random.h: the finalizer of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text().splitlines()[0] or None
    except (OSError, IndexError):
        return None


def _cpuinfo(name: str) -> str | None:
    try:
        found = re.search(rf"^{name}[^:]*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return found.group(1) if found else None


def _cache_bytes(level: str) -> int | None:
    """The first core's cache of this level that holds data."""
    for folder in sorted(CACHES.glob("index*")):
        if _first_line(folder / "level") == level and _first_line(folder / "type") != "Instruction":
            size = re.fullmatch(r"(\d+)([KMG]?)", _first_line(folder / "size") or "")
            return int(size.group(1)) * UNITS[size.group(2)] if size else None
    return None


def _clock_mhz() -> float | None:
    khz = _first_line(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"))
    if khz and float(khz) > 0:
        return float(khz) / 1e3
    mhz = _cpuinfo("cpu MHz")
    return float(mhz) if mhz and float(mhz) > 0 else None
