"""nccl-tests' and rccl-tests' output: the tables that they print, and nccl-tests' JSON (-J). Formats: src/util.cu of nccl-tests 2.19,
src/common.cu of older versions and of rccl-tests.

Each table is a run, and so is each JSON object. The time is the printed one, the mean of a call. Our own sweeps print the same table with
further columns, of which ranks, transport and algorithm are read."""
import re
from dataclasses import dataclass, field as of, replace
from pathlib import Path
from typing import Any, Iterator, Optional

from reports.foreign import (
    bus_factor, collective_of, documents, Fields, fingerprint_of, Measured, MESSAGE, number, OF_A_RANK, processes_of, PROMPT, row_line,
    Text, utc)
from reports.lines import Line, line_of, UNKNOWN
from reports.schema import ReportError

COLUMNS_TOLD = "nccl-tests' columns"
WHOLE = "allowed: the whole output of a program of nccl-tests"
_NONE = "N/A"
_KNOWN = re.compile(r"(.*?)#?\s*(?:size\s+count\s+type\b|nThread\s+\d+\s+nGpus\b|[nr]ccl-tests:? [vV]ersion|Collective test starting:)")
_VERSION = re.compile(r"\W*([nr]ccl-tests):? [vV]ersion:? (\S+)")
_STARTING = re.compile(r"\W*Collective test (?:starting|concluded):\s*(\S+)")
_SETTINGS = re.compile(r"\W*(nThread\s+(\d{1,4})\s+nGpus\s+(\d{1,4})\b.*)")
_PROGRAM = r"\b\w+_perf(?:_mpi)?(?=\s|$)"
_NAMED = re.compile(rf"(?:^|[^#]*[\s/'\"])({_PROGRAM})")  # in the command before an older version's table
_RANK = re.compile(r"\W*Rank\s+(\d{1,7})\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)$")
_COLUMNS = re.compile(r"\W*size\s+count\s+type\b(.*)")
_CLOSING = re.compile(r"\W*(?:Out of bounds values\s*:\s*(\d+)|Avg bus bandwidth\s*:)(.*)")
_BEGUN = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s")
_ROW = re.compile(_BEGUN.pattern + r"+(?:[a-z]\w*\s+)?-?\d")
_GAP = re.compile(r"\S\s{25,}\d")  # instead of the out-of-place columns of a replayed trace
_GROUP = ("time", "cputime", "algbw", "busbw", "#wrong", "error", "i_min", "i_max", "i_p99", "i_cv%")  # columns of a placement
_READ = ("redop", "root", "ranks", "transport", "algorithm", *_GROUP[:6])
MOST_OF_A_NAME = 64  # characters of a program's name that are kept
MOST_RANKS = 4096  # larger numbers cannot be distinguished by bandwidths


@dataclass(frozen=True)
class Device:
    rank: int
    group: str
    pid: str
    host: str
    name: str


@dataclass
class Table:
    """A table and its heading, as far as they have been read."""

    source: Text
    program: str = ""  # empty: nothing names it
    version: str = UNKNOWN
    tool: str = "nccl-tests"
    settings: str = ""
    of_process: int = 0  # ranks of a process, threads x GPUs; 0: unknown
    processes: int = 0  # number in the command before the table; 0: unknown
    devices: list[Device] = of(default_factory=list)  # as far as they are listed
    at: int = 0  # line of the columns' names; 0: none yet
    columns: list[str] = of(default_factory=list)
    placements: tuple[bool, ...] = (False, True)  # in-place?
    width: int = 0  # columns of a placement
    open: bool = False  # between the columns' names and the closing lines
    out_of_bounds: Optional[int] = None  # None: no closing line
    rows: list[Measured] = of(default_factory=list)
    started: str = UNKNOWN
    command: list[str] = of(default_factory=list)

    @property
    def collective(self) -> str:
        match = re.search(r"(\w+)_perf(?:_mpi)?$", self.program[-MOST_OF_A_NAME:])
        name = match[1] if match else self.source.collective
        return collective_of(name) if name else f"unnamed in {Path(self.source.name).name}:{self.at} {self.source.digest}"

    def run_line(self) -> Line:
        hosts, gpus = {device.host for device in self.devices}, [device.name for device in self.devices]
        ranks = max(row.ranks or 0 for row in self.rows) or self.ranks()
        gpus = gpus[:1] * ranks if len(set(gpus)) == 1 and ranks < 1 << 20 else gpus  # the list may be cut
        fingerprint = fingerprint_of(["nccl-tests", len(hosts), *sorted(set(gpus))]) if gpus else UNKNOWN
        name = Path(self.program).name
        return line_of("run", self.source.name, run=self.source.run_id(), program=name or UNKNOWN, started=self.started or UNKNOWN,
                       command=self.command or [word for word in (name, self.settings) if word],
                       machine={"fingerprint": fingerprint, "hosts": max(len(hosts), 1), "gpus": gpus}, libraries={self.tool: self.version},
                       ranks=ranks, transport="nccl",
                       rank_kind="mpi" if len({(device.host, device.pid) for device in self.devices}) > 1 else "threads")

    def ranks(self) -> int:
        """The number in the heading, unless the rows' bandwidths contradict it; else the only number that fits them."""
        stated, given, name = self._ranks_of_heading(), self.source.ranks, Path(self.source.name).name
        fit = [n for n in (*range(1, MOST_RANKS + 1), 10**9) if self._fits(n)] if not self._fits(stated) or not stated else [stated]
        found = fit[0] if len(fit) == 1 else 0
        if given:
            if found and found != given:
                self.source.leave("numbers of ranks that --ranks replaced", str(found))
            return given
        if not found:
            why = f"the heading has {stated}, which busbw / algbw contradicts" if stated else "no line '#  Rank 0 ... on HOST device 0'"
            raise ReportError(f"{self.source.name}: {why}: it is not known how many ranks there were; allowed: --ranks N, or {WHOLE[9:]}")
        if stated and found != stated:
            self.source.leave("numbers of ranks in headings that busbw / algbw contradicts", f"{stated}, {found} taken in {name}:{self.at}")
        return found

    def _ranks_of_heading(self) -> int:
        """Threads x GPUs x processes. The list of devices may be cut or partial (a process's part ends at 2,048 bytes, JSON has the first of
        each process), but names each process of the table's group. 0: unknown."""
        mine = [device for device in self.devices if device.group == self.devices[0].group]
        for group in {device.group: 0 for device in self.devices if device.group != self.devices[0].group}:
            self.source.leave("groups of ranks that ran at the same time and have no table", group)
        ranks, processes = {row.rank for row in mine}, {(row.host, row.pid) for row in mine}
        if len(processes) > len(ranks) * (self.of_process or 1) or len(mine) > len(ranks):
            for host, pid in sorted(processes):
                self.source.leave("processes without MPI, which ran alone at the same time", f"{pid} on {host}")
            return self.of_process or len(ranks)
        listed = max(ranks, default=-1) + 1 if len(mine) == len(self.devices) else 0
        return max((len(processes) or self.processes) * (self.of_process or 1 if self.processes and not mine else self.of_process), listed)

    def _fits(self, ranks: int) -> bool:
        """False if busbw / algbw of some row, rounded as printed, belongs to another number of ranks."""
        if self.collective not in ("all_reduce", "reduce_scatter", *OF_A_RANK) or ranks < 1:
            return True
        factor = bus_factor(self.collective, ranks)
        return all(abs(row.busbw_gbps - factor * row.algbw_gbps) <= (_half_unit(row.busbw_gbps) + factor * _half_unit(row.algbw_gbps)) * 1.01
                   for row in self.rows if row.ranks is None and row.time_us > 0)

    def lines(self) -> Iterator[Line]:
        source, run = self.source, self.run_line()
        self.rows = [replace(row, collective=self.collective) for row in self.rows]  # the closing lines may have named it
        if self.out_of_bounds == 0 and "error" in self.columns:  # the column is a deviation, and by the closing line none is too large
            self.rows = [replace(row, wrong=0) for row in self.rows]
        elif self.out_of_bounds and not any(row.wrong for row in self.rows):
            source.leave("tables whose closing line counts wrong values, in no row", f"{self.out_of_bounds} values")
        if self.out_of_bounds is None:
            source.leave("tables without closing lines (was the program stopped?)", f"line {self.at}")
        if self.collective.startswith("unnamed"):
            source.leave("tables that do not name their collective, kept apart (--collective NAME names it)", f"line {self.at}")
        yield run
        yield from (row_line(run, row) for row in self.rows)


def _half_unit(value: float) -> float:
    """Half of the last digit of a number as it was printed, without final zeros."""
    digits = repr(value).removesuffix(".0")
    return 0.5e-6 if "e" in digits else max(0.5 * 10.0 ** -len(digits.partition(".")[2]), 1e-9 * value)


def is_text(text: str) -> bool:
    return any(_KNOWN.match(line) and not line.lstrip().startswith("{") for line in text.split("\n"))


def text_lines(source: Text) -> list[Line]:
    reader = _Reader(source)
    for at, line in source.lines(_KNOWN):
        reader.take(at, line)
    if reader.torn:
        raise ReportError(f"{source.name}: '{reader.torn.strip()[:60]}' has no end; {WHOLE} (was the program stopped?)")
    tables = [table for table in reader.tables if table.rows]
    if not tables:
        raise ReportError(f"{source.name}: no line of results; {WHOLE}")
    return [line for table in tables for line in table.lines()]


class _Reader:
    """Reads a text line by line."""

    def __init__(self, source: Text) -> None:
        self.source, self.table = source, Table(source)
        self.tables = [self.table]
        self.torn = ""  # the beginning of a row within which a message was printed
        self.heading = ""  # the latest line with the names of placements

    def take(self, at: int, line: str) -> None:
        if match := _VERSION.match(line):
            self._begin()
            self.table.tool, self.table.version = match.groups()
        elif match := _STARTING.match(line):
            if "starting" in line:
                self._begin()
            self.table.program = self.table.program or match[1]
        elif match := _SETTINGS.match(line):
            self._begin()
            self.table.settings, self.table.of_process = match[1].strip(), int(match[2]) * int(match[3])
        elif match := _RANK.match(line):
            self.table.devices.append(Device(int(match[1]), *(text or "" for text in match.groups()[1:])))
        elif match := _COLUMNS.match(line):
            self._take_columns(at, match[1].split())
        elif match := _CLOSING.match(line):
            self.table.open = False
            self.table.out_of_bounds = int(match[1]) if match[1] else self.table.out_of_bounds
            if not match[1] and "FAILED" in line:
                self.source.leave("closing lines with FAILED", f"line {at} '{line.strip()}'")
        else:
            self._take_other(at, line)

    def _take_other(self, at: int, line: str) -> None:
        if (message := MESSAGE.search(line)) and _BEGUN.match(before := line[:message.start()]):
            self.torn, line = before + ("-1" if message[0].startswith("-1") else ""), line[message.start():]
        elif self.torn and line.strip() and not message and not line.lstrip().startswith("#"):
            self.torn, line = "", f"{self.torn} {line}"
        if _ROW.match(line):
            self.table.rows += _rows_of(line, self.table, self.source, self.source.at(at))
        elif line.lstrip().startswith("#"):
            self.heading = line if "in-place" in line else self.heading
            if "# error:" in line:
                self.source.leave("errors that the program printed", f"line {at} '{line.strip()[:60]}'")
        elif (match := _NAMED.match(line)) and not message:
            self._begin()
            self.table.open, self.table.program, self.table.processes = False, match[1], processes_of(line, _PROGRAM) or 0
        elif PROMPT.match(line):
            self.table.open = False
        elif "in-place" in line:
            self.heading = line
        elif self.table.open and re.search(r"[^\W_]", line) and not re.fullmatch(r"\s*\(B\)\s+\(elements\).*", line):
            if re.search(_ROW.pattern.replace(r"\s*", r"\s", 1), line):
                raise ReportError(f"{self.source.at(at)}: '{line.strip()[:40]}' is no line of a table; allowed: size, count, type, ... "
                                  "(was the program stopped?)")
            self.source.leave("lines between rows that are not rows, skipped", f"line {at} '{line.strip()[:60]}'")

    def _begin(self) -> None:
        """A heading begins, unless it has begun."""
        if self.table.at:
            self.table = Table(self.source)
            self.tables.append(self.table)

    def _take_columns(self, at: int, columns: list[str]) -> None:
        if self.table.rows and self.table.open:  # a process without MPI prints a table of its own
            self.table = replace(self.table, rows=[])
            self.tables.append(self.table)
        elif self.table.rows:
            self._begin()
        times = [i for i, word in enumerate(columns) if word in ("time", "cputime")]
        if not 1 <= len(times) <= 2 or columns[times[0] + 1:times[0] + 3] != ["algbw", "busbw"]:
            raise ReportError(f"{self.source.at(at)}: columns size count type {' '.join(columns)}; allowed: once or twice time algbw busbw #wrong")
        self.table.at, self.table.columns, self.table.open = at, columns, True
        own = next((i for i, word in enumerate(columns[times[0]:]) if word not in _GROUP), len(columns) - times[0])
        self.table.width = times[1] - times[0] if len(times) == 2 else own
        self.table.placements = (False, True) if len(times) == 2 else ("out-of-place" not in self.heading,)
        for column in columns:
            if column not in _READ:
                self.source.leave("columns that are not kept", column)


def _rows_of(line: str, table: Table, source: Text, where: str) -> Iterator[Measured]:
    if not table.at:
        raise ReportError(f"{where}: a line of results, but no line 'size count type ... time ... time' before it; {WHOLE}")
    cells, width = line.split(), table.width
    size, count, dtype, *rest = cells
    num_bytes, num_elems = (int(number(cell, where, COLUMNS_TOLD)) for cell in (size, count))
    op = rest.pop(0) if rest and re.fullmatch(r"[a-z]\w*", rest[0]) else "none"
    root = rest.pop(0) if "root" in table.columns and rest else "-1"
    groups = [rest[i * width:(i + 1) * width] for i in range(len(table.placements))]
    more = table.columns[len(table.columns) - table.columns[::-1].index("busbw") + width - 3:]
    after = rest[width * len(groups):]
    if (len(groups[0]) < width or not re.fullmatch(r"-?[0-9]{1,9}", root) or 0 < len(groups[-1]) < min(width, 4)
            or len(after) > len(more) + more.count("timestamp")):
        raise ReportError(f"{where}: {len(cells)} columns; allowed: size, count, type, {', '.join(table.columns)} (was the program stopped?)")
    apart = dict(zip(more, after))
    ranks = int(number(apart["ranks"], where, COLUMNS_TOLD)) if "ranks" in apart else None
    places = (True,) if not groups[-1] and _GAP.search(line) else table.placements
    for in_place, group in zip(places, groups):
        if not group or group[0] == _NONE:
            continue
        is_failed = any(re.fullmatch(r"-?(nan|inf)", cell) for cell in group[:3])
        time, algbw, busbw = (0.0 if is_failed else number(cell, where, COLUMNS_TOLD) for cell in group[:3])
        yield Measured(where, table.collective, num_bytes, num_elems, dtype, time, algbw, busbw, op, int(root), in_place,
                       wrong=_wrong(group, table, where), ranks=ranks, transport=apart.get("transport"),
                       algorithm=apart.get("algorithm", "library"))


def _wrong(group: list[str], table: Table, where: str) -> Optional[int]:
    """Wrong elements; None: unchecked. rccl-tests marks a deviation that is too large by an asterisk."""
    cell = group[3] if len(group) > 3 else _NONE
    if cell == _NONE:
        return None
    value = number(cell.rstrip("*"), where, COLUMNS_TOLD)
    return None if "error" in table.columns and not cell.endswith("*") else max(int(value), int(cell.endswith("*")))


# ---- JSON

# Fields that are not read: fields of a run's command, fields computed from times_us, and of each pair the one that is present
_IN_COMMAND = ("minimum_bytes", "maximum_bytes", "step_factor", "step_bytes", "warmup_iters", "iterations", "aggregated_iterations",
               "validation", "graph", "blocking_collectives", "per_iter_timing", "per_iter_skip", "parallel_init", "unalign")
_OF_TIMES = ("min_us", "max_us", "avg_us", "p50_us", "p95_us", "p99_us", "stdev_us", "cv_pct")
_RATES = ("time", "cpu_time", "alg_bw", "bus_bw")


def json_lines(source: Text) -> list[Line]:
    found = documents(source)
    if not found:
        raise ReportError(f"{source.name}: no line begins a JSON object; {WHOLE} with -J")
    return [line for at, data in enumerate(found, start=1) for line in _lines_of(data, at, source)]


def _lines_of(data: Any, at: int, source: Text) -> Iterator[Line]:
    top = Fields(data, source.name)
    config, args = Fields(top.get("config", dict, {}), source.name), top.get("args", list, [])
    table = Table(source, str(args[0]) if args else "", str(top.get("version", object, UNKNOWN)), at=at)
    if nccl := top.get("nccl_version", object, ""):
        table.version += f", NCCL {nccl}"
    table.devices = [Device(Fields(row, source.name).whole("rank", n), str(row.get("group", "")), str(row.get("pid")),
                            str(row.get("hostname")), str(row.get("device_info")))
                     for n, row in enumerate(config.get("devices", list, [])) if isinstance(row, dict)]
    table.of_process = config.whole("nthreads", 1) * config.whole("ngpus", 1) if config.data else 0
    table.started, table.command = utc(str(top.get("start_time", object, ""))), [Path(str(word)).name for word in args]
    table.rows = [row for n, entry in enumerate(top.get("results", list))
                  for row in _rows_of_entry(Fields(entry, f"{source.name}: results[{n}]"), table)]
    if not table.rows:
        raise ReportError(f"{source.name}: no results; allowed: at least one (was the program stopped?)")
    table.out_of_bounds = Fields(top.get("out_of_bounds", dict, {}), source.name).whole("count", 0)
    for error in top.get("errors", list, []):
        source.leave("errors that the program printed", f"'{str(error)[:60]}'")
    top.leave_unread(source)
    config.leave_unread(source, "config.", _IN_COMMAND)
    yield from table.lines()


def _rows_of_entry(entry: Fields, table: Table) -> Iterator[Measured]:
    size, count, dtype, op, root = (entry.whole("size"), entry.whole("count", 0), entry.get("type", str), entry.get("redop", str, "").strip(),
                                    entry.get("root", str, "-1").strip())
    if not re.fullmatch(r"-?[0-9]{1,9}", root):
        raise ReportError(f"{entry.where}: field 'root' is '{root}'; allowed: a rank, or -1")
    iterations, ranks = entry.whole("actual_iterations", 0), entry.whole("ranks", 0) or None
    transport, algorithm = entry.get("transport", str, "") or None, entry.get("algorithm", str, "library")
    for in_place, key in ((False, "out_of_place"), (True, "in_place")):
        field = Fields(entry.get(key, dict, {}), f"{entry.where}.{key}")
        samples = _samples(Fields(entry.get(f"{key}_per_iter", dict, {}), f"{field.where}_per_iter"), table.source, f"results.{key}_per_iter.")
        if not field.data:
            continue
        is_failed = "nan" in field.data.values()  # the text that stands for no number
        time, algbw, busbw = (0.0 if is_failed else field.get(name, float)
                              for name in ("time" if "time" in field.data else "cpu_time", "alg_bw", "bus_bw"))
        wrong = None if field.get("nwrong", object, _NONE) == _NONE else field.whole("nwrong")
        field.leave_unread(table.source, f"results.{key}.", _RATES)
        yield Measured(field.where, table.collective, size, count, dtype, time, algbw, busbw, op or "none", int(root), in_place, samples, wrong,
                       iterations, ranks, transport, algorithm)
    entry.leave_unread(table.source, "results.")


def _samples(per_iter: Fields, source: Text, prefix: str) -> tuple[float, ...]:
    times = [Fields({"times_us": time}, per_iter.where).get("times_us", float) for time in per_iter.get("times_us", list, [])]
    if times and min(times) <= 0:
        raise ReportError(f"{per_iter.where}: field 'times_us' has {min(times):g}; allowed: times above 0")
    per_iter.leave_unread(source, prefix, _OF_TIMES)
    return tuple(times)
