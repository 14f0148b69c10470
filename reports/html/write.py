"""Writes the report: a folder, built beside its place and then renamed into it, so that a failure leaves the old one; or one file."""

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
from typing import Callable, Optional, Sequence, Union

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reports.analysis.gate.results import analyse_gates
from reports.analysis.report import Report
from reports.analysis.steps.schedules import growths_of
from reports.analysis.findings import maps_of
from reports.claims.data import load_suite
from reports.schema import ReportError
from reports.html.data_parallel_view import buckets_page_of, render_buckets, render_sharding, sharding_page_of
from reports.html.claims_view import claims_page_of, ClaimsPage
from reports.html.gate_view import gate_page_of, render_gates
from reports.html.kernel_view import kernel_page_of, KernelPage
from reports.html.layers_view import (
    context_page_of, experts_page_of, layers_page_of, render_context, render_experts, render_layers)
from reports.html.layout_view import simulation_page_of, studies_page_of
from reports.html.overview import Overview, overview_of, Story, story_of, SUBJECTS
from reports.html.schedule_view import schedule_page_of, SchedulePage
from reports.html.run_view import copy_traces
from reports.html.training_view import GroupPage, scaling_page_of, training_page_of
from reports.html.view import Page, page_of
from reports.plots.claim_figures import render_claims
from reports.plots.figures import FigureFile, render_all, render_maps
from reports.plots.kernel_figures import render_kernels
from reports.plots.step_figures import render_growths, render_layouts, render_overlaps, render_workloads
from reports.plots.study_figures import render_studies
from reports.plots.training_figures import render_scaling, render_training
from reports.progress import Progress
from reports.records import Records
from reports.units import unbroken


HERE = Path(__file__).resolve().parent
MARK = ".lockstep-report"  # file that marks folders which we may replace


AnyPage = Union[Overview, Page, KernelPage, SchedulePage, GroupPage, ClaimsPage]


@dataclass(frozen=True)
class PageLink:
    subject: str  # "collectives", "kernels": the template's name
    file: str

    @property
    def title(self) -> str:
        return SUBJECTS[self.subject].title if self.subject in SUBJECTS else self.subject.capitalize()


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


def _exchange(one: Path, other: Path) -> None:
    at_working_directory, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(at_working_directory, os.fsencode(one), at_working_directory, os.fsencode(other), exchange) == 0:
        return
    aside = one.with_name(f"{one.name}.aside")  # this file system cannot exchange names
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(one)


Made = tuple[AnyPage, Sequence[FigureFile]]  # a page, and its figures


def _build(report: Report, folder: Path) -> None:
    files = copy_records(report.records.files, folder / "records")
    there = [(subject, make) for subject, (is_there, make) in _PAGES.items() if is_there(report)]
    progress = Progress("pages", len(there))
    made: dict[str, Made] = {}
    for subject, make in there:
        progress(subject, len(made))
        made[subject] = make(report, files, folder)
    progress.wipe()
    views: dict[str, AnyPage] = {subject: view for subject, (view, _) in made.items()}
    if len(views) > 1:
        shown = {subject: figures for subject, (_, figures) in made.items()}
        views = {"overview": overview_of(report.records, views, shown, files), **views}
    pages = [PageLink(subject, f"{subject}.html" if i else "index.html") for i, subject in enumerate(views)]
    drawn = made["scaling"][1] if "scaling" in made else []
    story = story_of(report, drawn)
    for page in pages:
        told = story if page is pages[0] else None
        (folder / page.file).write_text(html_of(views[page.subject], page.subject, pages, told), encoding="utf-8")


def _flat(figures: Sequence[Sequence[FigureFile]]) -> list[FigureFile]:
    return [file for some in figures for file in some]


def _claims_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_claims(report.claims, folder / "figures")
    return (claims_page_of(report.claims_records, report.claims, figures, load_suite(), files), _flat(list(figures.values())))


def _collectives_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_all(report.collectives.results, folder / "figures")
    settings = [result.panel.setting for result in report.collectives.results]
    telling = sorted(zip(settings, figures), key=lambda one: (one[0].basis != "measured", one[0].collective != "all_reduce",
                                                              -one[0].ranks))
    maps = render_maps(maps_of(report.collectives.results), folder / "figures")
    return (page_of(report.records.of_collectives(), report.collectives, figures, maps, files),
            _flat([drawn for _, drawn in telling]) + maps)


def _kernels_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_kernels(report.kernels, folder / "figures")
    return kernel_page_of(report.records.of_kernels(), report.kernels, figures, files), _flat(figures)


def _buckets_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    records = report.records.of_buckets()
    figures = render_buckets(report.buckets, folder / "figures")
    traces = copy_traces(records, report.records.files, folder / "traces")
    return buckets_page_of(records, report.buckets, figures, traces, files), _flat(figures)


def _sharding_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_sharding(report.shardings, folder / "figures")
    return sharding_page_of(report.records.of_sharding(), report.shardings, figures, files), figures


def _layers_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_layers(report.layers, folder / "figures")
    return layers_page_of(report.records.of_layers(), report.layers, figures, files), _flat(figures)


def _context_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_context(report.contexts, folder / "figures")
    return context_page_of(report.records.of_context(), report.contexts, figures, files), _flat(figures)


def _experts_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_experts(report.experts, folder / "figures")
    return experts_page_of(report.records.of_experts(), report.experts, figures, files), _flat(figures)


def _schedules_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    records = report.records.of_schedules()
    figures = render_workloads(report.schedules, folder / "figures")
    growths = render_growths(growths_of(report.schedules), folder / "figures")
    traces = copy_traces(records, report.records.files, folder / "traces")
    overlaps = render_overlaps(report.overlaps, folder / "figures")
    view = schedule_page_of(records, list(zip(report.schedules, figures)), growths,
                            list(zip(report.overlaps, overlaps)), traces, files)
    return view, [*_flat(figures), *growths, *_flat(overlaps)]


def _simulations_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    records = report.records.of_simulations()
    figures = render_layouts(report.simulations, folder / "figures")
    traces = copy_traces(records, report.records.files, folder / "traces")
    return simulation_page_of(records, report.simulations, figures, traces, files), _flat(figures)


def _studies_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_studies(report.studies, folder / "figures")
    return studies_page_of(report.records.of_studies(), report.studies, figures, files), _flat(figures)


def _training_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    records = report.records.of_training()
    figures = render_training(report.trainings, folder / "figures")
    traces = copy_traces(records, report.records.files, folder / "traces")
    return training_page_of(records, report.trainings, figures, traces, files), _flat(figures)


def _scaling_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_scaling(report.scalings, folder / "figures")
    return scaling_page_of(report.records.of_scaling(), report.scalings, figures, [], files), _flat(figures)


def _gate_page(report: Report, files: Sequence[str], folder: Path) -> Made:
    figures = render_gates(report.gates, folder / "figures")
    return gate_page_of(report.records.of_gate(), report.gates, figures, files), _flat(figures)


# The pages in their order: the condition under which one exists, and the function that makes it.
_PAGES: dict[str, tuple[Callable[[Report], object], Callable[[Report, Sequence[str], Path], Made]]] = {
    "claims": (lambda report: report.claims, _claims_page),
    "collectives": (lambda report: report.collectives, _collectives_page),
    "kernels": (lambda report: report.kernels, _kernels_page),
    "buckets": (lambda report: report.buckets, _buckets_page),
    "sharding": (lambda report: report.shardings, _sharding_page),
    "layers": (lambda report: report.layers, _layers_page),
    "context": (lambda report: report.contexts, _context_page),
    "experts": (lambda report: report.experts, _experts_page),
    "schedules": (lambda report: report.schedules or report.overlaps, _schedules_page),
    "simulations": (lambda report: report.simulations, _simulations_page),
    "studies": (lambda report: report.studies, _studies_page),
    "training": (lambda report: report.trainings, _training_page),
    "scaling": (lambda report: report.scalings, _scaling_page),
    "gate": (lambda report: report.gates, _gate_page),
}


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


class Untold:
    """Removes from a section's sentences those in the page's list of findings: a finding is said once."""

    def __init__(self, page: AnyPage):
        self._told = [text for finding in getattr(page, "findings", ()) for text in (finding.text, finding.why) if text]

    def __call__(self, sentences: Sequence[str]) -> list[str]:
        return [text for text in sentences if text and not any(text in told for told in self._told)]


def html_of(page: AnyPage, subject: str, pages: Sequence[PageLink], story: Optional[Story] = None,
            figure_source: Optional[Callable[[str], str]] = None) -> str:
    """`figure_source` replaces a figure's file if that is not in figures/ beside the page."""
    # Inline style and script come from our own files; everything from records is escaped.
    environment = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True)
    environment.filters["nb"] = unbroken
    environment.filters["untold"] = Untold(page)
    environment.globals.update(figures_beside=figure_source is None, figure_source=figure_source or "figures/{}".format)
    assets = {name: (HERE / "assets" / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")}
    about = SUBJECTS.get(subject)
    template = environment.get_template(about.template if about else f"{subject}.html")
    return template.render(page=page, subject=subject, about=about, pages=pages, story=story, css=assets["page.css"], js=assets["page.js"])


# A page in one file, for use as an artifact of CI: it contains its figures, and links to no other file.

def gate_file(records: Records) -> str:
    """The gate's page of these records, as text of HTML."""
    results = analyse_gates(records)
    with TemporaryDirectory() as name:
        page = gate_page_of(records, results, render_gates(results, Path(name)), files=[])
        return html_of(page, "gate", [PageLink("gate", "")], figure_source=lambda file: _as_data(Path(name) / file))


def _as_data(file: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(file.read_bytes()).decode("ascii")
