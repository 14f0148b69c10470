"""nccl-tests' output: the tables that it prints, and its JSON (-J, version 3). Format: src/util.cu of nccl-tests 2.19.

A text is one run, unless several tables begin ("Collective test starting"): then each table is one run. The time is the printed
one, the mean of a call. Our own sweeps print the same table with further columns, of which ranks, transport and algorithm are read."""
import re
from dataclasses import dataclass, field as of
from pathlib import Path
from typing import Any, Iterator

from reports.foreign import (
    collective_of, field, fingerprint_of, Line, LOG, Measured, number, parsed_json, positive, row_line, run_line, Setting, Text, UNKNOWN,
    utc, whole)
from reports.schema import ReportError

TOOL, COLUMNS_TOLD = "nccl-tests", "nccl-tests' columns"
WHOLE = "allowed: the whole output of a program of nccl-tests"
_NONE = "N/A"
_VERSION = re.compile(r"#\s*nccl-tests version (\S+)")
_STARTING = re.compile(r"#\s*Collective test starting:\s*(\S+)")
_NAMED = re.compile(r"(?:^|[^#]*[\s/])(\w+_perf)(?:_mpi)?(?=\s|$)")  # in the command before an older version's table
_RANK = re.compile(r"#\s*Rank\s+\d+\s(.*)\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)$")
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]")
_COLUMNS = re.compile(r"#\s*size\s+count\s+type\b")


@dataclass
class Table:
    """A table and its heading, as far as they have been read."""

    program: str = "collective"
    version: str = UNKNOWN
    hosts: list[str] = of(default_factory=list)  # host of each rank
    devices: list[str] = of(default_factory=list)
    processes: set[str] = of(default_factory=set)
    has_root: bool = True
    width: int = 0  # columns of a placement: time algbw busbw #wrong, and with -I four more; 0: no table yet
    more: list[str] = of(default_factory=list)  # columns after both
    open: bool = False  # between the columns' names and the closing lines
    rows: list[Measured] = of(default_factory=list)

    def setting(self) -> Setting:
        known = ["nccl-tests", len(set(self.hosts)), *sorted(set(self.devices))]
        return Setting(TOOL, self.version, Path(self.program).name, "nccl", max([len(self.devices)] + [r.ranks or 0 for r in self.rows]),
                       fingerprint=fingerprint_of(known) if self.devices else UNKNOWN, hosts=len(set(self.hosts)),
                       gpus=self.devices, rank_kind="mpi" if len(self.processes) > 1 else "threads")

    @property
    def collective(self) -> str:
        return collective_of(re.sub(r"_perf(_mpi)?$", "", Path(self.program).name))


def is_text(text: str) -> bool:
    return any(_COLUMNS.match(line) or _STARTING.match(line) or line.startswith("# nThread") for line in text.splitlines())


def text_lines(source: Text) -> list[Line]:
    table, version, tables = Table(), UNKNOWN, []
    for at, line in enumerate(source.text.splitlines(), start=1):
        if match := _VERSION.match(line):
            version = table.version = match.group(1)
        elif match := _STARTING.match(line):
            table = Table(match.group(1), version)
        elif match := _RANK.match(line):
            table.processes.add(match.group(1) + match.group(2))
            table.hosts.append(match.group(2))
            table.devices.append(match.group(3).strip())
        elif _COLUMNS.match(line):
            _take_columns(line.strip("# \n").split(), table)
            tables.append(table)
        elif _ROW.match(line):
            table.rows += _rows_of(line.split(), table, source.at(at))
        elif not table.open and (match := _NAMED.match(line)):
            table = Table(match.group(1), version)
        elif line.startswith("# nThread") and table.rows:
            table = Table(table.program, version)
        elif line.startswith("#"):
            table.open = table.open and not re.match(r"#\s*(Out of bounds|Avg bus)", line)
        elif table.open and line.strip() and not LOG.match(line):
            raise ReportError(f"{source.at(at)}: '{line.strip()[:40]}' is no line of a table; allowed: size, count, type, ... "
                              "(was the program stopped?)")
    if not any(one.rows for one in tables):
        raise ReportError(f"{source.name}: no line of results; {WHOLE}")
    return [line for number_, one in enumerate(tables) if one.rows for line in _lines_of(one, source.run_id(number_), source)]


def _lines_of(table: Table, run: str, source: Text) -> Iterator[Line]:
    setting = table.setting()
    if setting.ranks == 0:
        raise ReportError(f"{source.name}: no line '#  Rank 0 ... on HOST device 0' says how many ranks there were; {WHOLE}")
    yield run_line(run, setting, source.name)
    yield from (row_line(run, setting, one) for one in table.rows)


def _take_columns(words: list[str], table: Table) -> None:
    times = [i for i, word in enumerate(words) if word in ("time", "cputime")]
    table.has_root, table.width = "root" in words, times[1] - times[0] if len(times) == 2 else 0
    table.more = words[times[1] + table.width:] if table.width else []
    table.open = True


def _rows_of(cells: list[str], table: Table, where: str) -> Iterator[Measured]:
    if not table.width:
        raise ReportError(f"{where}: a line of results, but no line 'size count type ... time ... time' before it; {WHOLE}")
    size, count, dtype, *rest = cells
    num_bytes, num_elems = (int(number(cell, where, COLUMNS_TOLD)) for cell in (size, count))
    op = rest.pop(0) if rest and re.fullmatch(r"[a-z]\w*", rest[0]) else "none"
    root = rest.pop(0) if table.has_root and rest else "-1"
    groups = [rest[i:i + table.width] for i in range(0, 2 * table.width, table.width)]
    if len(groups[0]) < table.width or not re.fullmatch(r"-?[0-9]{1,9}", root) or 0 < len(groups[1]) < 4:
        raise ReportError(f"{where}: {len(cells)} columns; allowed: size, count, type, redop, root, and twice {table.width} from "
                          "the time on (was the program stopped?)")
    apart = dict(zip(table.more, rest[2 * table.width:]))
    ranks = int(number(apart["ranks"], where, COLUMNS_TOLD)) if "ranks" in apart else None
    for in_place, group in zip((False, True) if groups[1] else (True,), groups):  # a replayed trace has in-place results only
        if not group or group[0] == _NONE:
            continue
        time, algbw, busbw = (number(cell, where, COLUMNS_TOLD) for cell in group[:3])
        wrong = None if group[3] == _NONE else int(number(group[3], where, COLUMNS_TOLD))
        yield Measured(where, table.collective, num_bytes, num_elems, dtype, time, algbw, busbw, op, int(root), in_place, wrong=wrong,
                       ranks=ranks, transport=apart.get("transport"), algorithm=apart.get("algorithm", "library"))


def json_lines(source: Text) -> list[Line]:
    data = parsed_json(source.text, source.name)
    config = field(data, "config", dict, source.name, missing={})
    devices = [one for one in field(config, "devices", list, source.name, missing=[]) if isinstance(one, dict)]
    args = field(data, "args", list, source.name, missing=[])
    table = Table(str(args[0]) if args else "collective", str(data.get("version", UNKNOWN)),
                  [str(one.get("hostname")) for one in devices], [str(one.get("device_info")) for one in devices])
    table.processes = {f"{one.get('hostname')} {one.get('pid')}" for one in devices}
    # without MPI only the first device is listed
    ranks = max(len(devices), whole(config, "nthreads", source.name, 1) * whole(config, "ngpus", source.name, 1))
    entries = field(data, "results", list, source.name)
    table.rows = [row for at, entry in enumerate(entries)
                  for row in _rows_of_entry(entry, table.collective, f"{source.name}: results[{at}]")]
    if not table.rows:
        raise ReportError(f"{source.name}: no results; allowed: at least one (was the program stopped?)")
    setting, run = table.setting(), source.run_id(0)
    setting.ranks = max([ranks if any(row.ranks is None for row in table.rows) else 0] + [row.ranks or 0 for row in table.rows])
    setting.started, setting.command = utc(str(data.get("start_time", ""))), [Path(str(word)).name for word in args]
    return [run_line(run, setting, source.name), *(row_line(run, setting, row) for row in table.rows)]


def _rows_of_entry(entry: Any, collective: str, where: str) -> Iterator[Measured]:
    for in_place, key in ((False, "out_of_place"), (True, "in_place")):
        if not isinstance(entry, dict) or entry.get(key) is None:
            continue
        at, one = f"{where}.{key}", field(entry, key, dict, where)
        times = field(field(entry, f"{key}_per_iter", dict, where, missing={}), "times_us", list, where, missing=[])
        samples = tuple(positive({"times_us": time}, "times_us", f"{at}_per_iter") for time in times)
        root = field(entry, "root", str, where, missing="-1").strip()
        if not re.fullmatch(r"-?[0-9]{1,9}", root):
            raise ReportError(f"{where}: field 'root' is '{root}'; allowed: a rank, or -1")
        yield Measured(at, collective, whole(entry, "size", where), whole(entry, "count", where, 0), field(entry, "type", str, where),
                       positive(one, "time" if "time" in one else "cpu_time", at), field(one, "alg_bw", float, at),
                       field(one, "bus_bw", float, at), field(entry, "redop", str, where, missing="").strip() or "none", int(root),
                       in_place, samples, None if one.get("nwrong") in (None, _NONE) else whole(one, "nwrong", at),
                       whole(entry, "actual_iterations", where, 0), whole(entry, "ranks", where, 0) or None,
                       field(entry, "transport", str, where, "") or None, field(entry, "algorithm", str, where, "library"))
