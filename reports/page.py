"""A page of a report as data: the records that it shows, their groups, and in each group sentences, figures and tables. pages/ has one for
each kind of record; html/ and plots/ show any page."""
from dataclasses import dataclass, field
from typing import Any, Callable, ClassVar, Iterable, Mapping, Optional, Sequence, Union

from reports.analysis.caveats import findings_of
from reports.analysis.groups import Finding, Group
from reports.analysis.findings import MOST
from reports.check import Note, notes_on_runs
from reports.records import Records
from reports.units import bytes_text, counted, joined, short

EMULATED = "EMULATED links: not a time of this machine's own"


# ---- Tables: columns with their meaning, cells with the text shown and the value sorted by

@dataclass(frozen=True)
class Cell:
    text: str
    value: Union[str, float, int, None]  # key for sorting


NONE = Cell("–", None)


@dataclass(frozen=True)
class Column:
    name: str
    meaning: str
    cell: Callable[[Any], Cell]  # function of the line that a row shows
    numeric: bool = True


@dataclass(frozen=True)
class Line:
    cells: tuple[Cell, ...]
    status: str = "ok"  # "wrong" and "failed" are shown in red


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]


def number(value: Optional[float], significant: int = 4) -> Cell:
    return NONE if value is None else Cell(short(value, significant), value)


def words(name: str, of: Callable[[Any], Optional[str]], meaning: str = "") -> Column:
    return Column(name, meaning, lambda line: Cell(text := of(line) or "", text), False)


def numbers(name: str, of: Callable[[Any], Optional[float]], meaning: str = "", significant: int = 4) -> Column:
    return Column(name, meaning, lambda line: number(of(line), significant))


def counts(name: str, of: Callable[[Any], Optional[float]], meaning: str = "") -> Column:
    """A column of numbers that are shown whole."""
    return numbers(name, of, meaning, 9)


def sizes(name: str, of: Callable[[Any], Optional[float]], meaning: str = "") -> Column:
    """A column of bytes."""
    return Column(name, meaning, lambda line: NONE if (size := of(line)) is None else Cell(bytes_text(round(size)), round(size)))


def table(caption: str, columns: Iterable[Column], lines: Iterable[Any], status: Callable[[Any], str] = lambda line: "ok") -> Table:
    columns = tuple(columns)
    return Table(caption, columns, tuple(Line(tuple(column.cell(line) for column in columns), status(line)) for line in lines))


def status_of(line: Any) -> str:
    return line.status


STATUS = words("status", lambda line: f"{line.status}: {line.error}" if line.error else line.status)

_ENERGY = (numbers("tokens/J", lambda picture: picture.energy and picture.energy.tokens_per_joule, "tokens per joule of whole devices, in the timed steps"),
           numbers("J per step", lambda picture: picture.energy and picture.energy.joules_per_step, "joules of whole devices, in the timed steps"),
           numbers("W", lambda picture: picture.energy and picture.energy.watts, "mean power of whole devices, in the timed steps", 3),
           words("of", lambda picture: picture.energy.of if picture.energy else "–"))


def energy_columns(lines: Iterable[Any]) -> tuple[Column, ...]:
    """Columns for the energy of a step, if at least one line has it."""
    return _ENERGY if any(line.energy for line in lines) else ()


# ---- Figures

@dataclass(frozen=True)
class Heading:
    title: str
    subtitle: str
    badge: str  # "EMULATED ..."; empty if measured


@dataclass(frozen=True)
class Drawing:
    """A figure that is to be drawn. Its function has its name only, as matplotlib takes a second to import, and a summary needs none."""

    kind: str  # "parts", "lines", "gantt": what the first page chooses by
    stem: str  # file name without its ending
    draw: str  # "module.function" of reports.plots: a function of `shown` and the heading
    shown: Any
    heading: Heading
    alt: str


def basis_badge(bases: Sequence[str], where: str = "", of: str = "a time of this machine's own") -> str:
    """Text on a figure whose times are not all measured."""
    others = [basis for basis in bases if basis != "measured"]
    return f"{', '.join(others).upper()}{where}: not {of}" if others else ""


def drawing(kind: str, stem: str, draw: str, shown: Any, title: str, subtitle: str, badge: str = "",
            what: str = "") -> Drawing:
    """`what` the figure shows, for those who cannot see it: "A bar a layout, of stacked parts"."""
    alt = f"{what}. {title}" if what else f"{title}: {subtitle}"
    return Drawing(kind, stem, draw, shown, Heading(title, subtitle, badge), alt)


# ---- Sections: blocks in the order in which they are shown

@dataclass(frozen=True)
class Sentences:
    name: ClassVar[str] = "sentences"
    texts: Sequence[str]
    answers: bool = True  # the first of `texts` is the answer to the section's question
    caveat: str = ""


@dataclass(frozen=True)
class Title:
    name: ClassVar[str] = "title"
    text: str


@dataclass(frozen=True)
class Aside:
    name: ClassVar[str] = "aside"
    text: str


@dataclass(frozen=True)
class Figures:
    name: ClassVar[str] = "figures"
    drawings: Sequence[Drawing]
    wide: bool = False


@dataclass(frozen=True)
class Tables:
    """Tables without lines are not shown."""

    name: ClassVar[str] = "tables"
    tables: Sequence[Table]
    badge: str = ""  # repeated above each
    opened: bool = True  # the first is open


@dataclass(frozen=True)
class SmallTables:
    name: ClassVar[str] = "small_tables"
    tables: Sequence[Table]


Block = Union[Sentences, Title, Aside, Figures, Tables, SmallTables]


@dataclass(frozen=True)
class Section:
    anchor: str
    name: str
    badge: str = ""
    blocks: Sequence[Block] = ()
    link: str = ""  # the name in the list of sections; the part of `name` before a comma, if empty
    parts: Sequence["Section"] = ()
    fields: Any = None  # for a template of a page's own

    @property
    def drawings(self) -> list[Drawing]:
        return [*(picture for block in self.blocks if isinstance(block, Figures) for picture in block.drawings),
                *(picture for part in self.parts for picture in part.drawings)]


def group(result: Group, sentences: Sequence[str], drawings: Sequence[Drawing], tables: Sequence[Table],
          drawable: int = 0, link: str = "") -> Section:
    """The section of a group of lines. Charts of a step's ranks are at its end; `drawable` is the number of lines that could have one."""
    charts = [picture for picture in drawings if picture.kind == "gantt"]
    blocks: list[Block] = [Sentences(sentences), Figures([picture for picture in drawings if picture.kind != "gantt"]), Tables(tables)]
    if charts:
        blocks += [Title("What each rank does"), Figures(charts, wide=True)]
    if drawable > len(charts):
        blocks.append(Aside(f"{drawable - len(charts)} more have a timeline and no chart here; make a report of fewer records to see them."))
    return Section(result.anchor, result.name, result.basis, blocks, link)


def figures_of(result: Any, kind: str, figures: Iterable[tuple[str, str, str]], badge: str = "", untimed: Sequence[str] = ()) -> list[Drawing]:
    """Figures of a group: name, function, title of each. `badge` is on those that show times, which the `untimed` ones do not."""
    return [drawing(kind, f"{result.anchor}-{name}", draw, result, title, result.name, "" if name in untimed else badge)
            for name, draw, title in figures]


# ---- The page

@dataclass(frozen=True)
class Fact:
    name: str
    text: str


@dataclass(frozen=True)
class BadLine:
    status: str
    what: str
    why: str


def rows_fact(lines: Sequence[Any], more: str = "") -> Fact:
    return Fact("Rows", f"{counted(len(lines), 'row')}, {sum(line.status != 'ok' for line in lines)} wrong{more}")


def passes_fact(lines: Sequence[Any]) -> Fact:
    return rows_fact(lines, f"; {sum(line.checked_passes for line in lines):,} passes checked")


def ranks_text(lines: Iterable[Any]) -> str:
    return joined([str(number) for number in sorted({line.ranks for line in lines})])


def bad_lines(lines: Iterable[Any], what: Callable[[Any], str]) -> list[BadLine]:
    return [BadLine(line.status, what(line), line.error or "no reason recorded") for line in lines if line.status != "ok"]


def headline_figure(kind: str, findings: Sequence[Finding], sections: Sequence[Section]) -> Optional[Drawing]:
    """The figure of this kind that shows what the first findings are about, else any that does."""
    drawings = [picture for section in sections for picture in section.drawings]
    own = [picture for finding in findings for picture in drawings if picture.stem.startswith(f"{finding.anchor}-")]
    return next((picture for picture in [*own, *drawings] if picture.kind == kind), next(iter([*own, *drawings]), None))


@dataclass(frozen=True)
class Page:
    """`records` selects what the page shows, `results` groups it; a page without results is omitted."""

    place: int  # among the pages of a report
    subject: str  # name of its file
    title: str
    question: str  # on the first page
    lead: str  # first sentence
    records: Callable[[Records], Records]
    results: Callable[[Records], Sequence[Any]]
    facts: Callable[[Records, Sequence[Any]], Sequence[Fact]]
    sections: Callable[[Sequence[Any]], Sequence[Section]]
    figure: str  # kind of the figure on the first page
    findings: Callable[[Sequence[Any]], Sequence[Finding]] = lambda results: findings_of(results)[:MOST]
    notes: Callable[[Records, Sequence[Any]], Sequence[Note]] = lambda records, results: notes_on_runs(records)
    bad: Callable[[Records], Sequence[BadLine]] = lambda records: ()
    bad_heading: str = "Wrong rows"
    template: str = "page.html"
    calls: Mapping[str, Any] = field(default_factory=dict)  # names that a template of its own refers to
    of_claims: bool = False  # shows records that the claims' suite made, which are on no other page


def each(section: Callable[[Any], Section]) -> Callable[[Sequence[Any]], list[Section]]:
    """The sections of a page that has one for each result."""
    return lambda results: [section(result) for result in results]
