"""A report as records (docs/record_format.md), and files that are written completely or not at all."""

import json
import math
import os
import platform
import re
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gate.model import Change, CouldNotRun, Report, Result, Series
from reports.lines import Line, line_of


# ---- Files: checked to be writable before anything is measured

ALLOWED = "allowed: a file in a folder that is there and can be written"


def check_writable(path: Path, flag: str) -> None:
    """Raises CouldNotRun where `write_whole` would."""
    if path.exists() and not path.is_file():
        raise CouldNotRun(f"{flag} {path}: it is there and no regular file; {ALLOWED}")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.partial-"):
            pass
    except OSError as error:
        raise CouldNotRun(f"{flag} {path}: {error.strerror}; {ALLOWED}") from error


def write_whole(path: Path, content: str | bytes, flag: str) -> None:
    """Writes `content` to a hidden file in the folder of `path`, then renames it. Raises CouldNotRun, and leaves no file, if that fails."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise CouldNotRun(f"{flag} {path}: {error.strerror}; no file was left") from error
    finally:
        partial.unlink(missing_ok=True)


# ---- This machine as in records, and the same fingerprint as by our programs (core/provenance.cpp)

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
    """Hash of the machine without its clock: equal where results may be compared."""
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


# ---- A report as records: a run line that describes the comparison, and a verdict line per case

def lines_of(report: Report, command: Sequence[str], started: str) -> list[Line]:
    """The run line, a verdict line per case, and a history's series; `command` contains nothing private, `started` is UTC, ISO 8601."""
    run = secrets.token_hex(8)
    return [run_line(report, run, command, started), *(verdict_line(result, run) for result in report.results),
            *(_series_line(series, run) for series in report.series)]


def run_line(report: Report, run: str, command: Sequence[str], started: str) -> Line:
    compared = {"mode": report.mode, "base": asdict(report.base), "head": asdict(report.head), "threshold": report.threshold,
                "confidence": report.confidence, "seconds": report.seconds, "notes": list(report.notes)}
    return line_of("run", "gate.py", run=run, program="gate.py", command=list(command), started=started,
                   git={"revision": report.head.revision or "unknown"}, machine=this_machine(),
                   libraries={"python": platform.python_version()}, transport="local", rank_kind="processes", gpu=None, gate=compared)


def verdict_line(result: Result, run: str) -> Line:
    known = {name: _known(getattr(result, name)) for name in ("base", "head", "ratio", "low", "high")}
    return {"record": "verdict", "run": run, **asdict(result), **known, "channel": result.channel.value, "verdict": result.verdict.value}


def _series_line(series: Series, run: str) -> Line:
    return {"record": "history", "run": run, **asdict(series), "channel": series.channel.value,
            "points": [asdict(point) for point in series.points], "changes": [_change(change) for change in series.changes]}


def _change(change: Change) -> dict:
    return {**asdict(change), **{name: _known(getattr(change, name)) for name in ("ratio", "low", "high")}}


def text_of(lines: Sequence[Line]) -> str:
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def _known(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
