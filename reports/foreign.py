"""Converts outputs of other benchmarks to lines of docs/record_format.md, so that reports and the gate read them like any record.

Their machine is known by its fingerprint only (hosts and GPUs in the output); source, build, cores and start may be unknown."""
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field as of
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

import numpy as np

from reports.schema import problem_in, ReportError

UNKNOWN = "unknown"
Line = dict[str, Any]

# Lines within a table that are no rows: messages of NCCL ("host:pid:tid [0] NCCL INFO ..."), mpirun and Slurm.
LOG = re.compile(r"\s*(\S+:\d+:\d+ \[\d+\] |\[\S+[:\]]|NCCL version|srun: |slurmstepd: |-{10})")


@dataclass(frozen=True)
class Text:
    """Text of a file, and the number of ranks if the user gave it."""

    name: str
    text: str
    ranks: Optional[int] = None  # number of ranks for outputs that do not contain it

    def run_id(self, number: int) -> str:
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:8]
        return f"{Path(self.name).name}-{digest}-{number}"

    def at(self, line: int) -> str:
        return f"{self.name}:{line}"


@dataclass
class Setting:
    """A run: one table of a tool."""

    tool: str  # "nccl-tests", "OSU micro-benchmarks"
    version: str
    program: str
    transport: str  # "nccl", "mpi"
    ranks: int
    rank_kind: str = "mpi"
    started: str = UNKNOWN
    fingerprint: str = UNKNOWN
    hosts: int = 1
    gpus: list[str] = of(default_factory=list)
    command: list[str] = of(default_factory=list)


@dataclass(frozen=True)
class Measured:
    """A placement of a row. The bandwidths are the tool's own."""

    where: str  # file and line, or entry
    collective: str
    bytes: int
    count: int
    dtype: str
    time_us: float
    algbw_gbps: float
    busbw_gbps: float
    op: str = "none"
    root: int = -1
    in_place: bool = False
    samples_us: tuple[float, ...] = ()
    wrong: Optional[int] = None  # None: unchecked
    iterations: int = 0  # 0: not in the output
    ranks: Optional[int] = None  # None: the run's
    transport: Optional[str] = None
    algorithm: str = "library"


EXECUTORS = {"local": "direct", "mpi": "message", "cuda": "cuda", "nccl": "nccl", "simulated": "simulated"}  # of our plans


def _checked(line: Line, where: str) -> Line:
    if problem := problem_in(line, line["record"]):
        raise ReportError(f"{where}: {problem}")
    return line


def run_line(run: str, setting: Setting, where: str) -> Line:
    line = {"record": "run", "version": 1, "run": run, "program": setting.program, "command": setting.command,
            "started": setting.started or UNKNOWN, "git": {"revision": UNKNOWN, "dirty": None},
            "build": {"compiler": None, "flags": None, "type": None},
            "machine": {"fingerprint": setting.fingerprint, "cpu": None, "cores": 1, "memory_bytes": None, "kernel": None,
                        "caches": None, "mhz": None, "gpus": setting.gpus, "hosts": max(setting.hosts, 1)},
            "libraries": {setting.tool: setting.version}, "ranks": setting.ranks, "transport": setting.transport,
            "rank_kind": setting.rank_kind, "oversubscribed": False, "seed": None, "link": None, "basis": "measured"}
    return _checked(line, where)


def row_line(run: str, setting: Setting, one: Measured) -> Line:
    transport = one.transport or setting.transport
    if transport not in EXECUTORS:
        raise ReportError(f"{one.where}: transport '{transport}'; allowed: {', '.join(EXECUTORS)}")
    executor = "library" if one.algorithm.startswith("library") else EXECUTORS[transport]
    timed = one.time_us > 0
    status = "wrong" if one.wrong else "ok" if timed else "failed"
    samples = [sample for sample in one.samples_us if sample > 0] or [one.time_us]
    line = {"record": "row", "run": run, "collective": one.collective, "algorithm": one.algorithm, "executor": executor,
            "transport": transport, "ranks": one.ranks or setting.ranks, "bytes": one.bytes, "count": one.count, "dtype": one.dtype,
            "op": one.op, "root": one.root, "in_place": one.in_place, "basis": "measured", "status": status,
            "error": None if timed else f"{setting.tool} printed a time of {one.time_us:g} us", "wrong": one.wrong,
            "iterations": one.iterations or len(samples), "time_us": one.time_us if timed else None,
            "algbw_gbps": one.algbw_gbps if timed else None, "busbw_gbps": one.busbw_gbps if timed else None,
            "samples_us": samples if timed else [], "stats": _stats(samples) if timed else None, "plan": None}
    return _checked(line, one.where)


def _stats(samples: list[float]) -> Line:
    p5, median, p95, p99 = np.percentile(samples, [5, 50, 95, 99])
    return {"count": len(samples), "median": float(median), "mean": float(np.mean(samples)), "min": min(samples), "max": max(samples),
            "p5": float(p5), "p95": float(p95), "p99": float(p99), "ci_low": None, "ci_high": None}


LARGEST = 2.0**63


def number(text: str, where: str, columns: str) -> float:
    """A number from 0, neither infinity nor nan. Raises ReportError for other text."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < LARGEST:
        raise ReportError(f"{where}: '{text}' where a number must be; allowed: {columns}")
    return value


# Names of collectives in nccl-tests and OSU, in lower case without separators -> ours
COLLECTIVES = {"allreduce": "all_reduce", "reducescatter": "reduce_scatter",
               "allgather": "all_gather", "broadcast": "broadcast", "bcast": "broadcast", "reduce": "reduce",
               "alltoall": "all_to_all", "alltoallv": "all_to_all_v", "gather": "gather", "scatter": "scatter",
               "sendrecv": "send_recv", "hypercube": "hypercube"}


def collective_of(name: str) -> str:
    return COLLECTIVES.get(re.sub(r"[\W_]", "", name.lower()), name)


# Fields of JSON from other programs, checked when they are read: errors name the file and the field.

_NAMES = {dict: "an object", list: "a list", str: "a string", float: "a number", bool: "true or false"}


def field(data: Any, name: str, cls: type, where: str, missing: Any = None) -> Any:
    """data[name] as a cls (float: any number). `missing` is the value if the field is absent; with None it must be present."""
    value = data.get(name) if isinstance(data, dict) else None
    if value is None and missing is not None:
        return missing
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST < value < LARGEST
    if is_number if cls is float else isinstance(value, cls):
        return value
    shown = json.dumps(value)
    raise ReportError(f"{where}: field '{name}' is {shown if len(shown) <= 40 else shown[:37] + '...'}; allowed: {_NAMES[cls]}")


def whole(data: Any, name: str, where: str, missing: Any = None) -> int:
    """data[name] as a whole number from 0. Raises ReportError for other values."""
    value = field(data, name, float, where, missing)
    if value < 0 or value != int(value):
        raise ReportError(f"{where}: field '{name}' is {value:g}; allowed: a whole number from 0")
    return int(value)


def positive(data: Any, name: str, where: str) -> float:
    value = field(data, name, float, where)
    if value <= 0:
        raise ReportError(f"{where}: field '{name}' is {value:g}; allowed: a time above 0")
    return float(value)


def parsed_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ReportError(f"{where}:{error.lineno}: not JSON: {error.msg} at column {error.colno}; "
                         "allowed: a whole file (was the program stopped?)") from error
    except (RecursionError, ValueError) as error:  # nested too deeply; an integer of thousands of digits
        raise ReportError(f"{where}: not JSON that can be read: {error}") from error


def fingerprint_of(parts: Iterable[object]) -> str:
    """Hash of a foreign file's description of its machine, which has less than our own records."""
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:16]


def utc(text: str) -> str:
    """A time in our records' format, so that files of different formats can be ordered; a time without a zone counts as UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (time if time.tzinfo is None else time.astimezone(timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")
