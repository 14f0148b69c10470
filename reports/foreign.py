"""Converts outputs of other benchmarks to lines of docs/record_format.md, so that reports and the gate read them like any record.

Their machine is known by its fingerprint only (hosts and GPUs in the output); source, build, cores and start may be unknown."""
import codecs
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field as of
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from reports.lines import Line, line_of, stats_of
from reports.schema import ReportError

# ---- Text as it reaches us: through terminals, launchers and logs

_COLOURS = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_SHAPES = ((r"\d+", r"\d+"), (r"std(?:out|err|diag)", "std[a-z]+"), (r"[A-Z][a-z]{2}(?![a-z])", "[A-Z][a-z]{2}"), (r"\s+", r"\s*"), (r"[^\W\d]+|.", None))
_PIECES = re.compile("|".join(f"({piece})" for piece, _ in _SHAPES))
LONGEST_PREFIX = 200
MESSAGE = re.compile(r"[\w.-]{1,64}:\d{1,9}:\d{1,9} \[\d{1,4}\] |\[[\w.-]{1,64}:\d{1,9}\] ")  # of NCCL, "HOST:PID:TID [DEVICE] ...", and of Open MPI, "[HOST:PID] ..."
PROMPT = re.compile(r"\s*(?:\[[^\]]*\]|\([^)]*\)\s*|\S+@\S*)?\S*(?:\$|(?<!\d)%)(?:\s|$)|\s*\S+@\S+[#>](?:\s|$)")  # of a shell


def decoded(data: bytes) -> str:
    """Text of UTF-8, or of UTF-16 with a byte-order mark (PowerShell's files), without marks, colours, and carriage returns at ends of
    lines. Raises UnicodeDecodeError."""
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = _COLOURS.sub("", data.decode("utf-16" if is_wide else "utf-8-sig"))
    return re.sub(r"\r+\n", "\n", text) if "\n" in text else text.replace("\r", "\n")


def unprefixed(lines: list[str], known: re.Pattern) -> list[str]:
    """Lines without what a launcher, a log or a clock writes before each ("[1,0]<stdout>:", " 0: ", "2026-07-11T10:00:00Z "). That is the
    first group of a line that matches `known`; other lines have it if they differ from it in numbers, months and days only."""
    found = dict.fromkeys(match[1].strip() for line in lines if (match := known.match(line)))
    shapes = {_shape(prefix) for prefix in found if 0 < len(prefix) <= LONGEST_PREFIX}
    if not shapes:
        return lines
    prefix = re.compile(rf"\s*(?:{'|'.join(sorted(shapes, key=len, reverse=True))})\s?")
    return [prefix.sub("", line, count=1) if prefix.match(line) else line for line in lines]


def _shape(prefix: str) -> str:
    return "".join(_SHAPES[match.lastindex - 1][1] or re.escape(match.group()) for match in _PIECES.finditer(prefix))


@dataclass(frozen=True)
class Text:
    """Text of a file, what the user states about it, and what a reader skips."""

    name: str
    text: str
    ranks: Optional[int] = None  # the user's number of ranks
    collective: Optional[str] = None  # the user's name for tables that name none
    left: dict[str, list[str]] = of(default_factory=dict)  # by kind
    _runs: Iterator[int] = of(default_factory=itertools.count)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]

    def run_id(self) -> str:
        return f"{Path(self.name).name}-{self.digest}-{next(self._runs)}"

    def at(self, line: int) -> str:
        return f"{self.name}:{line}"

    def leave(self, kind: str, what: str) -> None:
        self.left.setdefault(kind, []).append(what)

    def notes(self) -> list[str]:
        """A line for each kind of text that was skipped: how often, and the first three examples."""
        return [f"{Path(self.name).name}: {kind} ({len(found)}): {', '.join(list(dict.fromkeys(found))[:3])}"
                + (", ..." if len(set(found)) > 3 else "") for kind, found in self.left.items()]

    def lines(self, known: re.Pattern) -> Iterator[tuple[int, str]]:
        """Lines with their numbers, as `unprefixed` has them. What a carriage return overwrote is a line of its own, and a command that
        a backslash continues is one line."""
        begun = ""
        for at, line in enumerate(unprefixed(self.text.split("\n"), known), start=1):
            if line.endswith("\\"):
                begun += line[:-1]
                continue
            yield from ((at, piece) for piece in (begun + line).split("\r"))
            begun = ""


# ---- Number of processes that a command starts

_LAUNCHER = re.compile(r"(?:^|[\s/'\"])(mpirun|mpiexec|mpirun_rsh|orterun|prterun|prun|srun|jsrun|lrun|aprun|ibrun|flux run)(?:\.\w+)?\s")
_HOSTS = ("-H", "-host", "--host", "-hosts", "--hosts")
_PER_NODE = ("-ppn", "--ppn", "-perhost", "-npernode", "--npernode", "--ntasks-per-node", "--tasks-per-node", "-T")


def processes_of(command: str, program: str) -> Optional[int]:
    """Number of processes that a line with a launcher (mpirun, srun, jsrun, ...) and a program (a pattern) starts; 0 if it does not state it;
    None if it is not such a line. Parts between colons (MPMD) add up."""
    if not (launcher := _LAUNCHER.search(command)) or not re.search(program, command[launcher.end():]):
        return None
    parts = [_started_by(launcher[1], re.split(program, part)[0]) for part in re.split(r"\s:\s", command[launcher.end() - 1:])]
    return sum(parts) if all(parts) else 0


def _started_by(launcher: str, options: str) -> int:
    def number(*names: str) -> int:
        return int((_values(options, names, r"\d{1,9}(?!\d)") or ["0"])[-1])

    per_node = number(*_PER_NODE)
    if launcher in ("srun", "lrun", "flux run"):
        return number("-n", "--ntasks") or number("-N", "--nodes") * (per_node or 1)  # srun's default is a task per node
    if launcher == "jsrun":
        return number("-p", "--np") or number("-n", "--nrs") * (number("-a", "--tasks_per_rs") or 1)
    if total := number("-n", "-np", "--np", "--n"):
        return total
    per_node = per_node or number("-N") or int((re.findall(r"\bppr:(\d{1,9}):node\b", options) or ["0"])[-1])
    hosts = [host.partition(":")[2] for value in _values(options, _HOSTS, r"\S+") for host in value.split(",")]
    return sum(per_node or (int(slots) if re.fullmatch(r"\d{1,9}", slots) else 1) for slots in hosts)


def _values(options: str, names: Iterable[str], value: str) -> list[str]:
    """Values of flags with these names: "-n 4", "-n4", "--ntasks=4"."""
    return re.findall(rf"(?<!\S)(?:{'|'.join(map(re.escape, names))})(?:=|\s+|(?<=-\w))({value})", options)


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


def row_line(run: Line, row: Measured) -> Line:
    """The row's line, of the run with this line."""
    transport, tool = row.transport or run["transport"], next(iter(run["libraries"]))
    if transport not in EXECUTORS:
        raise ReportError(f"{row.where}: transport '{transport}'; allowed: {', '.join(EXECUTORS)}")
    executor = "library" if row.algorithm.startswith("library") else EXECUTORS[transport]
    samples = [sample for sample in row.samples_us if sample > 0] or [row.time_us]
    line = {name: getattr(row, name) for name in ("collective", "algorithm", "bytes", "count", "dtype", "op", "root", "in_place", "wrong")}
    line |= {"run": run["run"], "executor": executor, "transport": transport, "ranks": row.ranks or run["ranks"],
             "iterations": row.iterations or len(samples)}
    if row.time_us > 0:
        line |= {"time_us": row.time_us, "algbw_gbps": row.algbw_gbps, "busbw_gbps": row.busbw_gbps, "samples_us": samples,
                 "stats": stats_of(samples), "status": "wrong" if row.wrong else "ok"}
    else:
        line |= {"error": f"{tool} printed a time of {row.time_us:g} us", "status": "wrong" if row.wrong else "failed"}
    return line_of("row", row.where, **line)


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


OF_A_RANK = ("all_gather", "all_to_all", "all_to_all_v", "gather", "scatter")  # of whose arrays a rank has a part


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it (doc/PERFORMANCE.md)."""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "reduce_scatter": share, **{name: share for name in OF_A_RANK}}.get(collective, 1.0)


_NAMES = {dict: "an object", list: "a list", str: "a string", float: "a number", bool: "true or false", object: "a value"}


class Fields:
    """An object of JSON from another program. Its fields are checked as they are read; errors name the file, the place in it and the field."""

    def __init__(self, data: Any, where: str) -> None:
        self.data = data if isinstance(data, dict) else {}
        self.where = where
        self._read: set[str] = set()

    def get(self, name: str, cls: type, missing: Any = None) -> Any:
        """The field as a cls (float: any number; object: anything). `missing` is the value if it is absent; with None it must be present."""
        self._read.add(name)
        value = self.data.get(name)
        if value is None and missing is not None:
            return missing
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST < value < LARGEST
        if is_number if cls is float else isinstance(value, cls):
            return value
        shown = json.dumps(value)
        raise ReportError(f"{self.where}: field '{name}' is {shown if len(shown) <= 40 else shown[:37] + '...'}; allowed: {_NAMES[cls]}")

    def whole(self, name: str, missing: Any = None) -> int:
        value = self.get(name, float, missing)
        if value < 0 or value != int(value):
            raise ReportError(f"{self.where}: field '{name}' is {value:g}; allowed: a whole number from 0")
        return int(value)

    def leave_unread(self, source: Text, prefix: str = "", left_out: Iterable[str] = ()) -> None:
        """Notes the fields that were not read and are not empty. No notes are made of those in `left_out`."""
        for name, value in self.data.items():
            if name not in self._read and name not in left_out and value not in (None, "", [], {}):
                source.leave("fields that are not kept", f"{prefix}{name}")


_JSON = re.compile(r"([^\"{]*)\{\s*(?:[\"}]|$)")


def documents(source: Text) -> list[Any]:
    """The JSON objects of a file, each of which begins a line. Other lines before and after them (warnings) are skipped."""
    text, end, found = "\n".join(unprefixed(source.text.split("\n"), _JSON)), 0, []
    for begin in re.finditer(r"(?m)^\s*\{", text):
        if begin.start() < end:
            continue
        _leave_lines(source, text, end, begin.start())
        try:
            data, end = json.JSONDecoder().raw_decode(text, begin.end() - 1)
        except json.JSONDecodeError as error:
            raise ReportError(f"{source.name}:{error.lineno}: not JSON: {error.msg} at column {error.colno}; "
                              "allowed: a whole file (was the program stopped?)") from error
        except (RecursionError, ValueError) as error:  # nested too deeply; an integer of thousands of digits
            raise ReportError(f"{source.name}: not JSON that can be read: {error}") from error
        found.append(data)
    _leave_lines(source, text, end, len(text))
    return found


def _leave_lines(source: Text, text: str, begin: int, end: int) -> None:
    first = text.count("\n", 0, begin) + 1
    for at, line in enumerate(text[begin:end].split("\n"), start=first):
        if re.search(r"\w", line):
            source.leave("lines outside of the JSON, skipped", f"line {at} '{line.strip()[:60]}'")


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
