"""google/benchmark's JSON (--benchmark_out_format=json) as observations. A file is one process: its repetitions are samples
of one run. Aggregates are left out, as they are computed of the same repetitions.

Which time counts is what the benchmark itself says by its name: real time with UseRealTime or UseManualTime (names end in
/real_time, /manual_time), else the CPU time of its process, which does not see waiting."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field as of
from pathlib import Path
from typing import Any

from gate.model import Channel, UsageError
from gate.inputs.fields import field, fingerprint_of, positive, read_json, utc
from gate.inputs.observation import FAILURES, Observation, Origin, Quantity, UNKNOWN, WRONG


_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_REAL = ("real_time", "manual_time")
_HOW_LONG = re.compile(r"/(min_time|min_warmup_time|repeats):[^/]*")  # parts of a name that do not change what is measured
_REVISIONS = ("revision", "git_revision")  # as users add them: --benchmark_context=revision=...


def read_google_benchmark(path: Path) -> list[Observation]:
    data = read_json(path)
    context = field(data, "context", dict, str(path))
    origin = Origin(str(path), path.name, utc(str(context.get("date", ""))), _revision(context), _fingerprint(context))
    found = [one for number, entry in enumerate(field(data, "benchmarks", list, str(path)))
             for one in _of_benchmark(entry, origin, f"{path}: benchmarks[{number}]")]
    if not found:
        raise UsageError(f"{path}: no benchmark; allowed: at least one that is not an aggregate (was "
                         "--benchmark_report_aggregates_only given?)")
    return found


def _of_benchmark(entry: Any, origin: Origin, where: str) -> Iterator[Observation]:
    name = field(entry, "name", str, where)
    if field(entry, "run_type", str, where, missing="iteration") != "iteration":
        return
    case = _HOW_LONG.sub("", field(entry, "run_name", str, where, missing=name))
    failed = field(entry, "error_occurred", bool, where, missing=False)
    yield Observation(Quantity(f"{case}: failures", Channel.EXACT, FAILURES), origin, (float(failed),))
    if failed or field(entry, "skipped", bool, where, missing=False):
        return
    unit = field(entry, "time_unit", str, where, missing="ns")
    if unit not in _US:
        raise UsageError(f"{where}: field 'time_unit' is '{unit}'; allowed: {', '.join(_US)}")
    taken = "real_time" if any(word in _REAL for word in case.split("/")) else "cpu_time"
    yield Observation(Quantity(case, Channel.STORED, "us"), origin, (positive(entry, taken, where) * _US[unit],))


def _revision(context: dict) -> str:
    return next((str(context[name]) for name in _REVISIONS if name in context), UNKNOWN)


def _fingerprint(context: dict) -> str:
    """Without the host's name, which is another in each container, and the clock, which some kernels report as it is now."""
    caches = [(one.get("type"), one.get("level"), one.get("size")) for one in context.get("caches", []) if isinstance(one, dict)]
    return fingerprint_of(["google/benchmark", context.get("num_cpus"), *sorted(map(str, caches))])


# nccl-tests' output as observations: the tables that it prints, and its JSON (-J). A file is one run, unless a table begins
# anew ("Collective test starting"): then each is. The time is what it prints, the mean of a call; the bandwidths are the same
# number turned round. Format: src/util.cu of nccl-tests 2.19.

PLACES = ("out-of-place", "in-place")
_NONE = "N/A"
_TELL_APART = ("ranks", "transport", "algorithm")  # columns of our sweeps, which print nccl-tests' table with more behind it
_STARTING = re.compile(r"#\s*Collective test starting:\s*(\S+)")
_RANK = re.compile(r"#\s*Rank\s+\d+\s.*\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)$")
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]")
_COLUMNS = re.compile(r"#\s*size\s+count\s+type\b")


@dataclass
class Header:
    """Heading of a table."""

    program: str = "collective"
    hosts: list[str] = of(default_factory=list)  # host of each rank
    devices: list[str] = of(default_factory=list)
    has_root: bool = True
    width: int = 0  # columns of a placement: time algbw busbw #wrong, and with -I four more; 0: no table yet
    more: list[str] = of(default_factory=list)  # columns after both: ours has some that tell cases apart

    @property
    def collective(self) -> str:
        return re.sub(r"_perf(_mpi)?$", "", Path(self.program).name)

    def fingerprint(self) -> str:
        if not self.devices:
            return UNKNOWN
        return fingerprint_of(["nccl-tests", len(set(self.hosts)), *sorted(set(self.devices))])


@dataclass(frozen=True)
class Placed:
    """One placement of one line of a table."""

    place: str
    times_us: tuple[float, ...]
    wrong: float | None  # None: unchecked


def read_nccl_text(path: Path) -> list[Observation]:
    header, found, tables = Header(), [], 0
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        starting = _STARTING.match(line)
        if starting:
            header, tables = Header(starting.group(1)), tables + 1
        elif _RANK.match(line):
            host, device = _RANK.match(line).groups()
            header.hosts.append(host)
            header.devices.append(device.strip())
        elif _COLUMNS.match(line):
            _take_columns(line.strip("# \n").split(), header)
        elif _ROW.match(line):
            origin = Origin(f"{path}#{tables}", path.name, fingerprint=header.fingerprint())
            found += _of_row(line.split(), header, origin, f"{path}:{number}")
    if not found:
        raise UsageError(f"{path}: no line of results; allowed: the whole output of a program of nccl-tests")
    return found


def _take_columns(words: list[str], header: Header) -> None:
    times = [i for i, word in enumerate(words) if word in ("time", "cputime")]
    header.has_root, header.width = "root" in words, times[1] - times[0] if len(times) == 2 else 0
    header.more = words[times[1] + header.width:] if header.width else []


def _of_row(cells: list[str], header: Header, origin: Origin, where: str) -> list[Observation]:
    if not header.width:
        raise UsageError(f"{where}: a line of results, but no line 'size count type ... time ... time' before it; "
                         "allowed: the whole output of a program of nccl-tests")
    size, _, dtype, *rest = cells
    op = rest.pop(0) if rest and re.fullmatch(r"[a-z]\w*", rest[0]) else ""
    root = rest.pop(0) if header.has_root and rest else "-1"
    groups = [rest[i:i + header.width] for i in range(0, 2 * header.width, header.width)]
    if len(groups[0]) < header.width or not root.lstrip("-").isdigit() or 0 < len(groups[1]) < 4:
        raise UsageError(f"{where}: {len(cells)} columns; allowed: size, count, type, redop, root, and twice {header.width} from "
                         "the time on (was the program stopped?)")
    named = zip(PLACES if groups[1] else PLACES[1:], groups)  # a replayed trace is in place only
    placed = [Placed(place, (_number(group[0], where),), None if group[3] == _NONE else _number(group[3], where))
              for place, group in named if group and group[0] != _NONE]
    apart = {name: cell for name, cell in zip(header.more, rest[2 * header.width:]) if name in _TELL_APART}
    ranks = _whole(apart.pop("ranks", str(len(header.devices))), where)
    case = _case(header.collective, dtype, op, _whole(root, where), _whole(size, where), ranks)
    return list(_observations("/".join([case, *apart.values()]), placed, origin))


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{where}: '{text[:40]}' where a number must be; allowed: nccl-tests' columns")
    return number


def _whole(text: str, where: str) -> int:
    return int(_number(text, where))


def read_nccl_json(path: Path) -> list[Observation]:
    data = read_json(path)
    config = field(data, "config", dict, str(path), missing={})
    devices = field(config, "devices", list, str(path), missing=[])
    args = field(data, "args", list, str(path), missing=[])
    header = Header(str(args[0]) if args else "collective", [str(one.get("hostname")) for one in devices if isinstance(one, dict)],
                    [str(one.get("device_info")) for one in devices if isinstance(one, dict)])
    # without MPI only the first device is listed
    ranks = max(len(devices), int(config.get("nthreads") or 1) * int(config.get("ngpus") or 1))
    origin = Origin(str(path), path.name, utc(str(data.get("start_time", ""))), fingerprint=header.fingerprint())
    found = [one for number, entry in enumerate(field(data, "results", list, str(path)))
             for one in _of_entry(entry, header.collective, ranks, origin, f"{path}: results[{number}]")]
    if not found:
        raise UsageError(f"{path}: no results; allowed: at least one (was the program stopped?)")
    return found


def _of_entry(entry: Any, collective: str, ranks: int, origin: Origin, where: str) -> Iterator[Observation]:
    case = _case(collective, field(entry, "type", str, where), field(entry, "redop", str, where, missing="").strip(),
                 _whole(field(entry, "root", str, where, missing="-1"), where), int(field(entry, "size", float, where)), ranks)
    placed = []
    for place in PLACES:
        key = place.replace("-", "_")
        if entry.get(key) is None:
            continue
        at = f"{where}.{key}"
        one = field(entry, key, dict, where)
        times = field(field(entry, f"{key}_per_iter", dict, where, missing={}), "times_us", list, where, missing=[])
        mean = positive(one, "time" if "time" in one else "cpu_time", at)
        placed.append(Placed(place, tuple(float(time) for time in times) or (mean,), one.get("nwrong")))
    yield from _observations(case, placed, origin)


def _case(collective: str, dtype: str, op: str, root: int, size: int, ranks: int) -> str:
    parts = (collective, f"ranks:{ranks}" if ranks else "", dtype, "" if op == "none" else op, f"root:{root}" if root >= 0 else "",
             f"{size}B")
    return "/".join(part for part in parts if part)


def _observations(case: str, placed: list[Placed], origin: Origin) -> Iterator[Observation]:
    for one in placed:
        name = f"{case}/{one.place}"
        if one.wrong is not None:
            yield Observation(Quantity(f"{name}: wrong", Channel.EXACT, WRONG), origin, (float(one.wrong),))
        times = tuple(time for time in one.times_us if time > 0)
        if times and not one.wrong:
            yield Observation(Quantity(name, Channel.STORED, "us", kind="collective"), origin, times)
