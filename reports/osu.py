"""Text of OSU micro-benchmarks (osu_allreduce, osu_latency, osu_bw, ...), versions 3 to 7, also with -f (Min, Max, Iterations), -c
(Validation) and -z (percentiles). Formats: print_only_header() and print_stats() of c/util/osu_util_mpi.c of 7.4.

Averages are over ranks, so a row has one sample; of the columns of -f the iterations are kept. MB/s are 1e6 bytes per second. The
text says neither how many ranks there were nor on which machine: the number is taken from the command that stands before the
table (mpirun -n 4, srun -n 4), or from the user; point-to-point tests have two."""
import re
from dataclasses import dataclass
from typing import Optional

from reports.foreign import COLLECTIVES, collective_of, Line, LOG, Measured, number, row_line, run_line, Setting, Text, UNKNOWN
from reports.schema import ReportError

TOOL, COLUMNS_TOLD = "OSU micro-benchmarks", "OSU's columns"
_HEADING = re.compile(r"#\s*OSU (\w+)(-\S+)? (.*?)\s*(?:v(\d\S*))?\s*$")
_COLUMNS = re.compile(r"#\s*(Size\b.*)$")
_DTYPE = re.compile(r"#\s*Datatype:\s*(\w+)")
_COMMAND = re.compile(r"\b(?:mpirun|mpiexec|srun|jsrun)\b.*?\s(?:-n|-np|--np|--ntasks)[ =]?([1-9]\d{0,8})\b.*\bosu_\w+")
_TEST = re.compile(r"(.*?)(?: Personalized Exchange)? ?(Latency|Bandwidth) Test$")
# Names that a datatype has in nccl-tests, and its size.
_DTYPES = {"MPI_CHAR": ("int8", 1), "MPI_INT": ("int32", 4), "MPI_FLOAT": ("float", 4), "MPI_DOUBLE": ("double", 8)}
_REDUCES = ("all_reduce", "reduce", "reduce_scatter")
_OF_A_RANK = ("all_gather", "all_to_all", "all_to_all_v", "gather", "scatter")  # whose printed size is a rank's block, not the whole
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_POINT_TO_POINT = {"Latency": "osu_latency", "Bandwidth": "osu_bw", "Bi-Directional Bandwidth": "osu_bibw",
                   "Multi Latency": "osu_multi_lat"}


@dataclass
class Table:
    collective: str  # ours; a point-to-point test's is the program's name
    is_bandwidth: bool
    setting: Setting
    dtype: Optional[str] = None
    columns: tuple[str, ...] = ()


def is_text(text: str) -> bool:
    return bool(re.search(r"(?m)^#\s*OSU \w+", text))


def text_lines(source: Text) -> list[Line]:
    lines: list[Line] = []
    table: Optional[Table] = None
    ranks, runs, rows = source.ranks, 0, 0
    for at, line in enumerate(source.text.splitlines(), start=1):
        where = source.at(at)
        if command := _COMMAND.search(line):
            table, ranks = None, int(command.group(1))
        elif heading := _HEADING.match(line):
            table = _table_of(heading, ranks, where)
        elif table and (dtype := _DTYPE.match(line)):
            table.dtype = dtype.group(1)
        elif table and (columns := _COLUMNS.match(line)):
            table.columns, runs = _columns_of(columns.group(1), where), runs + 1
            lines.append(run_line(source.run_id(runs), table.setting, where))
        elif table and table.columns and re.match(r"\s*\d+\s", line):
            lines.append(row_line(source.run_id(runs), table.setting, _measured(line.split(), table, where)))
            rows += 1
        elif table and table.columns and line.lstrip().startswith("$ "):
            table = None  # a prompt
        elif table and table.columns and line.strip() and not line.startswith("#") and not LOG.match(line):
            raise ReportError(f"{where}: '{line.strip()[:40]}' is no line of a table; allowed: a size and numbers "
                              "(was the program stopped?)")
    if not rows:
        raise ReportError(f"{source.name}: no line of results; allowed: the whole output of an OSU micro-benchmark")
    return lines


def _table_of(heading: re.Match, ranks: Optional[int], where: str) -> Table:
    library, accelerator, title, version = heading.groups()
    test = _TEST.match(title)
    name, quantity = test.groups() if test else ("", "")
    pair = _POINT_TO_POINT.get(f"{name} {quantity}".strip())
    collective = collective_of(name)
    if not pair and (quantity != "Latency" or collective not in COLLECTIVES.values()):
        raise ReportError(f"{where}: '{title}' is not read; allowed: {', '.join(_POINT_TO_POINT.values())}, and the latency of blocking "
                          "collectives that Lockstep has")
    if not pair and ranks is None:
        raise ReportError(f"{where}: OSU's output does not say how many ranks there were; allowed: with --ranks N, or with the command "
                          "(mpirun -n N osu_...) in the file before the table")
    program = pair or "osu_" + re.sub(r"\W", "", name).lower()
    told = (version or UNKNOWN) + (f", {library}{accelerator or ''}" if accelerator or library != "MPI" else "")
    setting = Setting(TOOL, told, program, "nccl" if library == "NCCL" else "mpi", ranks or 2)
    return Table(pair or collective, quantity == "Bandwidth", setting)


def _columns_of(text: str, where: str) -> tuple[str, ...]:
    """Names, of which the second says the unit: "Avg Latency(us)", "Latency (us)", "Bandwidth (MB/s)"."""
    columns = tuple(re.split(r"\s{2,}| (?=P\d)", text.strip()))
    if len(columns) < 2 or not re.search(r"\((us|MB/s)\)", columns[1]):
        raise ReportError(f"{where}: columns {', '.join(columns)}; allowed: Size and a column of (us) or (MB/s)")
    return columns


def _measured(cells: list[str], table: Table, where: str) -> Measured:
    if len(cells) != len(table.columns):
        raise ReportError(f"{where}: {len(cells)} columns; allowed: {len(table.columns)}, {', '.join(table.columns)} "
                          "(was the program stopped?)")
    named = dict(zip(table.columns, cells))
    size, value = (number(cell, where, COLUMNS_TOLD) for cell in cells[:2])
    collective, ranks = table.collective, table.setting.ranks
    dtype, element = _DTYPES.get(table.dtype or ("MPI_FLOAT" if collective in _REDUCES else "MPI_CHAR"), (str(table.dtype), 1))
    num_bytes = int(size) * (ranks if collective in _OF_A_RANK else 1)
    time_us = value if not table.is_bandwidth else num_bytes / value if value > 0 else 0.0
    gbps = num_bytes / time_us / 1e3 if time_us > 0 else 0.0
    wrong = None if "Validation" not in named else int(named["Validation"] != "Pass")  # it does not say how many
    return Measured(where, collective, num_bytes, num_bytes // element, dtype, time_us, gbps, gbps * _bus_factor(collective, ranks),
                    "sum" if collective in _REDUCES else "none", 0 if collective in _ROOTED else -1, wrong=wrong,
                    iterations=int(number(named["Iterations"], where, COLUMNS_TOLD)) if "Iterations" in named else 0)


def _bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it (doc/PERFORMANCE.md)."""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "reduce_scatter": share, **{name: share for name in _OF_A_RANK}}.get(collective, 1.0)
