"""Text of OSU micro-benchmarks (osu_allreduce, osu_latency, osu_bw, ...), versions 3 to 7, also with -f (Min, Max, Iterations), -c
(Validation) and -z (percentiles). Formats: print_only_header() and print_stats() of c/util/osu_util_mpi.c of 7.4.

Averages are over ranks, so a row has one sample; of the columns of -f the iterations are kept. MB/s are 1e6 bytes per second. The
text states neither the number of ranks nor the machine: the number is taken from the command before the
table (mpirun -n 4, srun -N 2 --ntasks-per-node 4, ...), or from the user; point-to-point tests have two. Tests without an equivalent among
our collectives are skipped with a note."""
import re
from dataclasses import dataclass
from typing import Iterator, Optional

from reports.foreign import (
    bus_factor, COLLECTIVES, collective_of, Measured, MESSAGE, number, OF_A_RANK, processes_of, PROMPT, row_line, Text)
from reports.lines import Line, line_of, UNKNOWN
from reports.schema import ReportError

TOOL, COLUMNS_TOLD = "OSU micro-benchmarks", "OSU's columns"
_KNOWN = re.compile(r"(.*?)#?\s*(?:(?<=#)\s*OSU \w+|OSU \S+ .*Test\b|(?<=#)\s*Size\s|Size\s.*\((?:us|MB/s)\))")
_HEADING = re.compile(r"\s*(?:#\s*OSU|OSU(?=.*\bTest\b)) ([\w+]+)(-\S+)? (.*?)\s*(?:v(\d\S*))?\s*$")
_COLUMNS = re.compile(r"\s*#?\s*(Size\b.*)$")
_DTYPE = re.compile(r"\s*#?\s*Datatype:\s*(\w+)")
_PROGRAM = r"\bosu_\w+"
_TEST = re.compile(r"(.*?)(?: Personalized Exchange)? ?(Latency|Bandwidth) Test$")
# Names that a datatype has in nccl-tests, and its size.
_DTYPES = {"MPI_CHAR": ("int8", 1), "MPI_INT": ("int32", 4), "MPI_FLOAT": ("float", 4), "MPI_DOUBLE": ("double", 8)}
_REDUCES = ("all_reduce", "reduce", "reduce_scatter")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_POINT_TO_POINT = {"Latency": "osu_latency", "Bandwidth": "osu_bw", "Bi-Directional Bandwidth": "osu_bibw",
                   "Multi Latency": "osu_multi_lat"}


@dataclass
class Table:
    collective: str  # ours; a point-to-point test's is the program's name
    is_bandwidth: bool
    run: Line
    dtype: Optional[str] = None
    columns: tuple[str, ...] = ()


def is_text(text: str) -> bool:
    return bool(re.search(r"#\s*OSU \w+|OSU (?:MPI|NCCL)\S* .*\bTest\b", text))


def text_lines(source: Text) -> list[Line]:
    reader = _Reader(source)
    lines = [row for at, line in source.lines(_KNOWN) for row in reader.lines_of(at, line)]
    if not any(line["record"] == "row" for line in lines):
        left = "".join(f"; {kind}: {', '.join(found)}" for kind, found in source.left.items() if kind == UNREAD)
        raise ReportError(f"{source.name}: no line of results; allowed: the whole output of an OSU micro-benchmark{left}")
    return lines


class _Reader:
    """Reads a text line by line."""

    def __init__(self, source: Text) -> None:
        self.source, self.ranks = source, source.ranks or 0
        self.table: Optional[Table] = None

    def lines_of(self, at: int, line: str) -> Iterator[Line]:
        where, table = self.source.at(at), self.table
        if (processes := processes_of(line, _PROGRAM)) is not None:
            self._begin(processes)
        elif heading := _HEADING.match(line):
            self.table = _table_of(heading, self.ranks, where, self.source)
        elif not table:
            return
        elif dtype := _DTYPE.match(line):
            table.dtype = dtype.group(1)
        elif columns := _COLUMNS.match(line):
            table.columns = _columns_of(columns.group(1), where)
            for column in table.columns[2:]:
                if column not in ("Iterations", "Validation"):
                    self.source.leave("columns that are not kept", column)
            yield table.run
        elif table.columns and re.match(r"\s*\d+(\s+[\d.]|\s*$)", line):
            yield row_line(table.run, _measured(line.split(), table, where))
        elif PROMPT.match(line):
            self.table = None
        elif table.columns and re.search(r"[^\W_]", line) and not line.lstrip().startswith("#"):
            self._leave(line, at, len(table.columns))

    def _begin(self, processes: int) -> None:
        if self.source.ranks and processes not in (0, self.source.ranks):
            self.source.leave("numbers of ranks that --ranks replaced", str(processes))
        self.table, self.ranks = None, self.source.ranks or processes

    def _leave(self, line: str, at: int, columns: int) -> None:
        """Skips a line that is not a row; refuses one that ends like a row."""
        if re.search(r"\s\d+\s+\d\S*" + (columns - 2) * r"\s+\S+" + r"\s*$", line) and not MESSAGE.search(line):
            raise ReportError(f"{self.source.at(at)}: '{line.strip()[:40]}' is no line of a table; allowed: a size and numbers "
                              "(was the program stopped?)")
        self.source.leave("lines between rows that are not rows, skipped", f"line {at} '{line.strip()[:60]}'")


UNREAD = "tests that are not read, skipped"


def _table_of(heading: re.Match, ranks: int, where: str, source: Text) -> Optional[Table]:
    """None for a test that is not read."""
    library, accelerator, title, version = heading.groups()
    test = _TEST.match(title)
    name, quantity = test.groups() if test else ("", "")
    pair = _POINT_TO_POINT.get(f"{name} {quantity}".strip())
    collective = collective_of(name)
    if library not in ("MPI", "NCCL") or not pair and (quantity != "Latency" or collective not in COLLECTIVES.values()):
        source.leave(UNREAD, f"'{title if library == 'MPI' else f'{library} {title}'}'")
        return None
    if not pair and not ranks:
        raise ReportError(f"{where}: OSU's output does not state the number of ranks; allowed: with --ranks N, or with the command "
                          "(mpirun -n N osu_...) in the file before the table")
    program = pair or "osu_" + re.sub(r"\W", "", name).lower()
    text = (version or UNKNOWN) + (f", {library}{accelerator or ''}" if accelerator or library != "MPI" else "")
    is_multi = pair == "osu_multi_lat" and ranks
    run = line_of("run", where, run=source.run_id(), program=program, libraries={TOOL: text}, transport="nccl" if library == "NCCL" else "mpi",
                  ranks=2 if pair and not is_multi else ranks, rank_kind="mpi")
    return Table(pair or collective, quantity == "Bandwidth", run)


def _columns_of(text: str, where: str) -> tuple[str, ...]:
    """Names; the second contains the unit: "Avg Latency(us)", "Latency (us)", "Bandwidth (MB/s)"."""
    columns = tuple(re.findall(r"Size\b|Iterations\b|Validation\b|[^\s(]+(?: [^\s(]+)*? ?\((?:us|MB/s|%)\)|\S+", text))
    if len(columns) < 2 or not re.search(r"\((us|MB/s)\)", columns[1]):
        raise ReportError(f"{where}: columns {', '.join(columns)}; allowed: Size and a column of (us) or (MB/s)")
    return columns


def _measured(cells: list[str], table: Table, where: str) -> Measured:
    if len(cells) != len(table.columns):
        raise ReportError(f"{where}: {len(cells)} columns; allowed: {len(table.columns)}, {', '.join(table.columns)} "
                          "(was the program stopped?)")
    named = dict(zip(table.columns, cells))
    size, value = (number(cell, where, COLUMNS_TOLD) for cell in cells[:2])
    collective, ranks = table.collective, table.run["ranks"]
    dtype, element = _DTYPES.get(table.dtype or ("MPI_FLOAT" if collective in _REDUCES else "MPI_CHAR"), (str(table.dtype), 1))
    num_bytes = int(size) * (ranks if collective in OF_A_RANK else 1)
    time_us = value if not table.is_bandwidth else num_bytes / value if value > 0 else 0.0
    gbps = num_bytes / time_us / 1e3 if time_us > 0 else 0.0
    wrong = None if "Validation" not in named else int(named["Validation"] != "Pass")  # the count is unknown
    return Measured(where, collective, num_bytes, num_bytes // element, dtype, time_us, gbps, gbps * bus_factor(collective, ranks),
                    "sum" if collective in _REDUCES else "none", 0 if collective in _ROOTED else -1, wrong=wrong,
                    iterations=int(number(named["Iterations"], where, COLUMNS_TOLD)) if "Iterations" in named else 0)

