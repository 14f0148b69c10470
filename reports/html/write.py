"""Writes the report: a folder, built next to its final path and then renamed, so that a failure leaves the old one; or one file."""

import base64
import ctypes
import errno
import gzip
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Mapping, Optional, Sequence

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reports.html.overview import MOST, Overview, overview_of, Story, story_of
from reports.html.run_view import copy_traces, FrameView, frame_view
from reports.page import Drawing, Page, Section, headline_figure
from reports.pages import pages
from reports.plots.drawn import render
from reports.progress import Progress
from reports.records import Records
from reports.report import Part, Report
from reports.schema import ReportError
from reports.units import unbroken


HERE = Path(__file__).resolve().parent
MARK = ".lockstep-report"  # file that marks folders which we may replace


@dataclass(frozen=True)
class PageLink:
    title: str
    file: str


@dataclass(frozen=True)
class PageView:
    """A page with all that its template shows."""

    about: Page
    part: Part
    sections: Sequence[Section]
    traces: Mapping[str, str]  # files in traces/, each with the command that wrote it
    frame: FrameView

    @property
    def drawings(self) -> list[Drawing]:
        return [drawing for section in self.sections for drawing in section.drawings]

    @property
    def figure(self) -> Optional[Drawing]:
        """The figure of the first page."""
        return headline_figure(self.about.figure, self.part.findings[:MOST], self.sections)


def write_report(report: Report, out: Path) -> Path:
    """Path of the first page. Raises ReportError if the folder cannot be written or was not made by a report. If several processes
    write the same report, each writes a whole one, and the last one's stays."""
    out = Path(os.path.abspath(out))
    if out.exists() and not _replaceable(out):
        raise ReportError(f"-o {out}: exists and is not a report; name a new folder or one that holds a report")
    place = out.resolve()
    building = place.with_name(f"{place.name}{_BUILDING}{os.getpid()}")
    try:
        _remove_abandoned(place)
        building.mkdir(parents=True)
        (building / MARK).write_text("written by python3 -m reports, which replaces this folder\n", encoding="utf-8")
        _build(report, building)
        _swap(building, place)
    except OSError as error:
        raise ReportError(f"-o {out}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return out / "index.html"


_BUILDING = f".new-{socket.gethostname()}-"  # stands between a report's name and the number of the process that writes it


def _replaceable(out: Path) -> bool:
    return out.is_dir() and ((out / MARK).exists() or not any(out.iterdir()))


def _remove_abandoned(place: Path) -> None:
    """Removes what killed writers of this report have left on this host."""
    for folder in place.parent.iterdir() if place.parent.is_dir() else ():
        name, _, process = folder.name.rpartition(_BUILDING)
        if name == place.name and process.isdecimal() and not Path("/proc", process).exists() and _replaceable(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _swap(building: Path, place: Path) -> None:
    """The report gets its name; an older one gets the name that this one had. At no moment is there none."""
    try:
        building.rename(place)  # where nothing is, or an empty folder
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _exchange(building, place)


def _exchange(path: Path, other: Path) -> None:
    at_working_directory, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(at_working_directory, os.fsencode(path), at_working_directory, os.fsencode(other), exchange) == 0:
        return
    aside = path.with_name(f"{path.name}.aside")  # this file system cannot exchange names
    other.rename(aside)
    try:
        path.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(path)


def _build(report: Report, folder: Path) -> None:
    files = copy_records(report.records.files, folder / "records")
    views = [_page(part, files, folder) for part in report.parts.values()]
    progress = Progress("pages", len(views))
    for done, view in enumerate(views):
        progress(view.about.subject, done)
        render(view.drawings, folder / "figures")
    progress.wipe()
    shown: dict[str, Any] = {view.about.title: view for view in views}
    if len(views) > 1:
        shown = {"Overview": overview_of(report.records, views, files), **shown}
    links = [PageLink(title, f"{line.about.subject}.html" if i else "index.html") for i, (title, line) in enumerate(shown.items())]
    story = story_of(report, [drawing for view in views if view.about.subject == "scaling" for drawing in view.drawings])
    for link, page in zip(links, shown.values()):
        overview = story if link is links[0] else None
        (folder / link.file).write_text(html_of(page, link, links, overview), encoding="utf-8")


def _page(part: Part, files: Sequence[str], folder: Optional[Path] = None) -> PageView:
    traces = copy_traces(part.records, folder / "traces") if folder else {}
    frame = frame_view(part.records, part.page.facts(part.records, part.results), files)
    return PageView(part.page, part, part.page.sections(part.results), traces, frame)


def copy_records(files: Sequence[str], folder: Path) -> list[str]:
    """Copies the record files into a new `folder`, compressed with gzip, which reports read directly. Returns the names of the copies:
    the files' own, numbered where two are equal."""
    folder.mkdir()
    names: list[str] = []
    for file in files:
        source = Path(file.removesuffix(".gz"))
        name, number = f"{source.name}.gz", 1
        while name in names:
            number += 1
            name = f"{source.stem}-{number}{source.suffix}.gz"
        text = Path(file).read_bytes()
        (folder / name).write_bytes(text if file.endswith(".gz") else gzip.compress(text, mtime=0))
        names.append(name)
    return names


class Unlisted:
    """Removes from a section's sentences those in the page's list of findings: a finding appears once."""

    def __init__(self, page: "PageView | Overview"):
        findings = page.part.findings if isinstance(page, PageView) else ()
        self._listed = [text for finding in findings for text in (finding.text, finding.why) if text]

    def __call__(self, sentences: Sequence[str]) -> list[str]:
        return [text for text in sentences if text and not any(text in texts for texts in self._listed)]


def html_of(page: "PageView | Overview", link: PageLink, links: Sequence[PageLink], story: Optional[Story] = None,
            figure_source: Optional[Callable[[str], str]] = None) -> str:
    """`figure_source` replaces a figure's file if that is not in the page's folder figures/."""
    # Inline style and script come from our own files; everything from records is escaped.
    environment = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True)
    environment.filters["nb"] = unbroken
    environment.filters["unlisted"] = Unlisted(page)
    environment.globals.update(figures_beside=figure_source is None, figure_source=figure_source or "figures/{}".format,
                               most=MOST)
    assets = {name: (HERE / "assets" / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")}
    template = environment.get_template(page.about.template)
    return template.render(getattr(page.about, "calls", {}), page=page, about=page.about, frame=page.frame, link=link,
                           links=links, story=story, css=assets["page.css"], js=assets["page.js"])


# A page in one file, for use as an artifact of CI: it contains its figures, and links to no other file.

def gate_file(records: Records) -> str:
    """The gate's page of these records, as text of HTML."""
    about = next(page for page in pages() if page.subject == "gate")
    view = _page(Part(about, records, tuple(about.results(records))), files=[])
    link = PageLink(about.title, "")
    with TemporaryDirectory() as name:
        render(view.drawings, Path(name))
        return html_of(view, link, [link], figure_source=lambda file: _as_data(Path(name) / file))


def _as_data(file: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(file.read_bytes()).decode("ascii")
